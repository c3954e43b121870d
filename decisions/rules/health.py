"""What each validity check rests on, trial by trial and pair by pair: the numbers behind its sentence.

Nothing is judged here: the checks are (``validity``), and this says with the same functions where their figures come
from.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from decisions.rules.brief import Brief
from decisions.rules.comparison import Pair
from decisions.rules.evidence import TrialEvidence, with_status
from decisions.rules.looks import belonging, judged_by, look_at
from decisions.rules.noise_floor import control_comparisons, control_pairs, difference_p, gating_cells
from decisions.rules.validity import (
    NEIGHBOUR_LIMIT,
    all_pairs,
    arm_order_drawn,
    boots_in_order,
    by_arm,
    counts_exactly,
    got_the_same,
    held_out_pairs,
    hit_rate,
    lag_p99_ms,
    matched_tokens,
    neighbour_share,
    place_of,
    several_boots,
    token_gap,
    told_server,
)
from decisions.rules.wording import share, signed

UNKNOWN = "not known"
Judged = tuple[bool | None, tuple[str, ...]]
Judge = Callable[[TrialEvidence], Judged]
PairNumbers = Callable[[Pair], tuple[str, ...]]


@dataclass(frozen=True)
class Line:
    """``ok`` None: not known, or nothing that can be told of one line alone. ``trial`` may be one of the boot's."""

    place: str
    boot: str
    trial: str
    ok: bool | None
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class Basis:
    headers: tuple[str, ...]
    lines: tuple[Line, ...]


def bases(brief: Brief, nominee: str | None, trials: Sequence[TrialEvidence]) -> dict[str, Basis]:
    """By the check's id, over the trials that the checks rest on; what is not as it should be comes first."""
    look = look_at(brief, trials)
    asked = judged_by(brief, look)
    purposes = ("held-out" if nominee else "tuning", "noise-floor")
    judged = sorted((one for one in belonging(brief, trials, look) if one.purpose in purposes), key=lambda t: t.order)
    found = {
        "issued": of_trials(judged, ("planned", "recorded", "never sent"), issue_line),
        "client-lag": of_trials(judged, ("lag p99", "limit"), lambda one: lag_line(one, asked)),
        "fingerprint": of_trials(judged, ("completed", "with another fingerprint"), fingerprint_line),
        "warm-up": of_trials(judged, ("completed", "planned"), warm_up_line),
        "engine-tokens": of_trials(judged, ("engine's counter − responses", "must be"), token_line),
        "neighbours": of_trials(judged, ("share of the machine", "limit"), neighbour_line),
        "same-requests": same_lines(all_pairs(judged, asked)),
        "fresh-server": server_lines(judged),
        "arm-order": order_lines(judged, asked),
        "control": control_lines(judged, asked),
    }
    if nominee:
        held_out = [pair for pairs in held_out_pairs(asked, judged).values() for pair in pairs]
        found |= {
            "output-length": of_pairs(held_out, ("baseline", "candidate", "change"), length_numbers),
            "prefix-cache": of_pairs(held_out, ("baseline", "candidate"), cache_numbers),
            "pairs": of_pairs(held_out, ("baseline", "candidate"), trial_names),
        }
    return {name: worst_first(basis) for name, basis in found.items()}


def worst_first(basis: Basis) -> Basis:
    rank = {False: 0, None: 1, True: 2}
    return Basis(basis.headers, tuple(sorted(basis.lines, key=lambda line: rank[line.ok])))


def named(trial: TrialEvidence) -> str:
    pair = "" if trial.pair is None else f", {place_of(trial, trial.pair)}"
    return f"{trial.purpose.replace('-', ' ')}{pair}, {trial.candidate or trial.arm} at {trial.level}"


def of_trials(trials: Iterable[TrialEvidence], headers: tuple[str, ...], line: Judge) -> Basis:
    found = [(one, *line(one)) for one in trials]
    return Basis(headers, tuple(Line(named(one), one.boot, one.trial, ok, numbers) for one, ok, numbers in found))


def issue_line(trial: TrialEvidence) -> Judged:
    recorded, unsent = len(trial.columns["row"]), int(with_status(trial, "not_sent").sum())
    ok = recorded == trial.planned and (not unsent or trial.died)
    died = " (the engine died)" if trial.died and unsent else ""
    return ok, (f"{trial.planned:,}", f"{recorded:,}", f"{unsent:,}{died}")


def lag_line(trial: TrialEvidence, brief: Brief) -> Judged:
    limit, lag = brief.rule.max_client_lag_ms, lag_p99_ms(trial)
    if trial.client_faults:
        return False, (trial.client_faults[0], f"{limit:g} ms")
    if lag is None:
        return None, (UNKNOWN, f"{limit:g} ms")
    return lag <= limit, (f"{lag:.1f} ms", f"{limit:g} ms")


def fingerprint_line(trial: TrialEvidence) -> Judged:
    completed = with_status(trial, "completed")
    strange = int((trial.columns["fingerprint"][completed] != trial.configuration).sum())
    return not strange, (f"{int(completed.sum()):,}", f"{strange:,}")


def warm_up_line(trial: TrialEvidence) -> Judged:
    ok = trial.died or trial.warm_up_completed == trial.warm_up_planned
    return ok, (f"{trial.warm_up_completed:,}", f"{trial.warm_up_planned:,}")


def token_line(trial: TrialEvidence) -> Judged:
    if trial.died or trial.engine_tokens is None:
        return None, ("the engine died" if trial.died else UNKNOWN, "–")
    gap, exact = token_gap(trial), counts_exactly(trial)
    return (gap == 0 if exact else gap >= 0), (f"{signed(gap, 0)} tokens", "0" if exact else "at least 0")


def neighbour_line(trial: TrialEvidence) -> Judged:
    found = neighbour_share(trial)
    if found is None:
        return None, ("the engine died" if trial.died else UNKNOWN, share(NEIGHBOUR_LIMIT))
    return found <= NEIGHBOUR_LIMIT, (share(found), share(NEIGHBOUR_LIMIT))


def of_pairs(pairs: Iterable[Pair], headers: tuple[str, ...], numbers: PairNumbers) -> Basis:
    found = [(pair, numbers(pair)) for pair in pairs]
    return Basis(headers, tuple(pair_line(pair, None, one) for pair, one in found))


def pair_line(pair: Pair, ok: bool | None, numbers: tuple[str, ...]) -> Line:
    place = f"{pair.other.purpose.replace('-', ' ')}, pair {pair.number + 1} at {pair.other.level}"
    return Line(place, pair.other.boot, pair.other.trial, ok, numbers)


def same_lines(pairs: Iterable[Pair]) -> Basis:
    found = []
    for pair in pairs:
        counts = tuple(f"{len(one.with_warm_up('row')):,}" for one in (pair.baseline, pair.other))
        found.append(pair_line(pair, got_the_same(pair), counts))
    return Basis(("requests, baseline", "requests, other arm"), tuple(found))


def server_lines(trials: Sequence[TrialEvidence]) -> Basis:
    arms = by_arm(trials)
    users: dict[str, set[tuple[str, int, str]]] = {}
    for place, served in arms.items():
        for one in served:
            users.setdefault(one.server, set()).add(place)
    found = []
    for (purpose, pair, arm), served in arms.items():
        first = served[0]
        shared = any(len(users[one.server]) > 1 for one in served)
        own = None if not all(map(told_server, served)) else True
        own = False if shared or several_boots(served) else own
        name = f"{purpose.replace('-', ' ')}, pair {pair + 1}, {arm}"
        lasted = (first.boot_stopped_ns - first.boot_started_ns) / 1e9
        servers = " and ".join(sorted({one.server for one in served})) or UNKNOWN
        found.append(Line(name, first.boot, first.trial, own, (servers, f"{lasted:,.0f} s")))
    return Basis(("server", "ran for"), tuple(found))


def order_lines(trials: Sequence[TrialEvidence], brief: Brief) -> Basis:
    drawn = arm_order_drawn(brief)
    found = []
    for (purpose, number), (first, second) in boots_in_order(by_arm(trials)).items():
        asked = drawn[purpose][number] if number < len(drawn[purpose]) else None
        run = (first.arm, second.arm)
        ok = None if asked is None else asked == run
        name = f"{purpose.replace('-', ' ')}, pair {number + 1}"
        said = (" before ".join(run), "–" if asked is None else " before ".join(asked))
        found.append(Line(name, first.boot, first.trial, ok, said))
    return Basis(("ran", "drawn"), tuple(found))


def control_lines(trials: Sequence[TrialEvidence], brief: Brief) -> Basis:
    pairs, cells = control_pairs(brief, trials), gating_cells(brief)
    found = []
    for cell, one in zip(cells, control_comparisons(brief, pairs, cells), strict=True):
        here: Sequence[Pair] = pairs[cell.level]
        first: TrialEvidence | None = here[0].other if here else None
        unit = "points" if one.measure.scale == "difference" else "% (log)"
        mean = f"{signed(100 * one.mean, 2)} {unit}" if one.bounds else UNKNOWN
        p_value = f"{difference_p(one):.3g}" if one.bounds else UNKNOWN
        numbers = (str(len(one.values)), mean, p_value)
        found.append(Line(cell.label, first.boot if first else "", first.trial if first else "", None, numbers))
    return Basis(("A/A pairs", "mean difference", "p-value, before Holm"), tuple(found))


def length_numbers(pair: Pair) -> tuple[str, ...]:
    before, after = matched_tokens(pair)
    changed = f"{signed(100 * (after / before - 1))} %" if before else UNKNOWN
    return f"{before:,} tokens", f"{after:,} tokens", changed


def cache_numbers(pair: Pair) -> tuple[str, ...]:
    rates = [hit_rate(one) for one in (pair.baseline, pair.other)]
    return tuple(UNKNOWN if one is None else share(one) for one in rates)


def trial_names(pair: Pair) -> tuple[str, ...]:
    return f"trial {pair.baseline.trial}", f"trial {pair.other.trial}"


def boots_named(found: Mapping[str, Basis]) -> dict[str, str]:
    """trial → its boot, for all that any check rests on."""
    return {line.trial: line.boot for basis in found.values() for line in basis.lines if line.trial}
