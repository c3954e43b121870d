"""What rounds came to, per candidate and load level, over the boots that ran it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.tuning.economics import Curve, RoundEconomics

NOT_TOLD, NONE_DRAFTED, REFERENCE = "not told by the engine", "none", "reference"


@dataclass(frozen=True)
class Rounds:
    """Over several trials: sums, and means weighted by what they are means over. None: no trial tells it."""

    requests: int
    told: int
    rounds: float | None
    round_s: float | None
    tokens_per_round: float | None
    rejected_share: float | None
    checked_per_token: float | None
    drafted_per_token: float | None
    kv_tokens_lost: int | None
    acceptance: Curve | None
    by_class: Mapping[str, Curve]


def over_trials(trials: Sequence[RoundEconomics]) -> Rounds | None:
    """None without a trial."""
    if not trials:
        return None
    drafted = total(one.draft_tokens for one in trials)
    accepted = total(one.accepted_tokens for one in trials if one.draft_tokens is not None)
    return Rounds(
        requests=sum(one.requests for one in trials),
        told=sum(one.told for one in trials),
        rounds=total(one.rounds for one in trials),
        round_s=weighted(trials, lambda one: one.round_s, lambda one: one.rounds),
        tokens_per_round=weighted(trials, lambda one: one.tokens_per_round, lambda one: one.rounds),
        rejected_share=1 - accepted / drafted if drafted and accepted is not None else None,
        checked_per_token=weighted(trials, lambda one: one.checked_per_token, verified_tokens),
        drafted_per_token=weighted(trials, lambda one: one.drafted_per_token, verified_tokens),
        kv_tokens_lost=next((one.kv_tokens_lost for one in trials if one.kv_tokens_lost is not None), None),
        acceptance=mean_curve([one.acceptance or one.acceptance_counted for one in trials]),
        by_class={
            name: curve
            for name in sorted({name for one in trials for name in one.by_class})
            if (curve := mean_curve([one.by_class.get(name) for one in trials])) is not None
        },
    )


def total(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None


def weighted(
    trials: Iterable[RoundEconomics],
    figure: Callable[[RoundEconomics], float | None],
    weight: Callable[[RoundEconomics], float | None],
) -> float | None:
    known = [
        (value, over) for one in trials if (value := figure(one)) is not None and (over := weight(one)) is not None
    ]
    weights = sum(over for _, over in known)
    return sum(value * over for value, over in known) / weights if weights else None


def verified_tokens(one: RoundEconomics) -> float | None:
    return None if one.rounds is None or one.tokens_per_round is None else one.rounds * one.tokens_per_round


def mean_curve(curves: Iterable[Curve | None]) -> Curve | None:
    """Weighted by drafting rounds; a position that a curve doesn't reach was kept by none of its rounds."""
    known = [one for one in curves if one is not None and one.rounds]
    rounds = sum(one.rounds for one in known)
    if not rounds:
        return None
    longest = max(len(one.kept) for one in known)
    kept = [
        sum(one.rounds * (one.kept[place] if place < len(one.kept) else 0.0) for one in known) / rounds
        for place in range(longest)
    ]
    return Curve(rounds, tuple(kept))


@dataclass(frozen=True)
class RoundsRow:
    """One candidate at one level, as a page writes it."""

    label: str
    level: str
    reference: bool
    rounds: str
    tokens_per_round: str
    round_time: str
    accepted: str
    rejected: str
    checked: str
    drafted: str
    kv_lost: str
    told: str

    @property
    def untold(self) -> bool:
        """Whether there is nothing to say of its rounds."""
        figures = self.rounds, self.tokens_per_round, self.round_time, self.accepted, self.rejected
        return {*figures, self.checked, self.drafted} == {NOT_TOLD}


def rounds_row(label: str, level: str, found: Rounds, *, reference: bool) -> RoundsRow:
    """Without speculation nothing is drafted: that is no missing figure."""
    return RoundsRow(
        label,
        level,
        reference,
        written(found.rounds, lambda value: f"{value:,.0f}"),
        written(found.tokens_per_round, lambda value: f"{value:.2f}"),
        written(found.round_s, lambda value: f"{1_000 * value:.3g} ms"),
        NONE_DRAFTED if reference else written(found.acceptance, lambda curve: positions(curve.kept)),
        NONE_DRAFTED if reference else written(found.rejected_share, lambda share: f"{100 * share:.0f} %"),
        NONE_DRAFTED if reference else written(found.checked_per_token, lambda tokens: f"{tokens - 1:+.2f}"),
        NONE_DRAFTED if reference else written(found.drafted_per_token, lambda tokens: f"{tokens:.2f}"),
        REFERENCE if reference else written(found.kv_tokens_lost, lambda tokens: f"{tokens:,} tokens"),
        f"{found.told:,} of {found.requests:,}",
    )


def written(value: Any, write: Callable[[Any], str]) -> str:
    return NOT_TOLD if value is None else write(value)


def positions(kept: Sequence[float]) -> str:
    return " · ".join(f"{100 * share:.0f}" for share in kept) + " %"
