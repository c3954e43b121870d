"""What numbers of pairs can show, from a noise floor as a verdict holds it; and what an open verdict still lacks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decisions.rules.brief import Brief
from decisions.rules.looks import decides
from decisions.rules.measures import trial_measure
from decisions.rules.noise_floor import improvement_of, smallest_wanted
from decisions.rules.wording import amount
from loadtests.statistics.effects import MOST_PAIRS, smallest_detectable_effect

FEWEST, MOST_DRAWN = 4, 400
PLACES = 24


@dataclass(frozen=True)
class Power:
    """In one cell, as shares of 1 or of the baseline: what ``planned`` pairs can show, and the pairs that it takes to
    show ``asked`` (None: more than 10,000)."""

    label: str
    where: str
    scale: str
    planned: int
    smallest: float
    asked: float
    needed: int | None
    curve: tuple[tuple[int, float], ...]

    @property
    def enough(self) -> bool:
        return self.smallest < self.asked

    @property
    def sentence(self) -> str:
        """'6 pairs can show 3 %; you asked for 1 %: 48 pairs.'"""
        smallest, asked = (amount(rounded(one), self.scale) for one in (self.smallest, self.asked))
        said = f"{self.planned} pairs can show {smallest}; the brief asks for {asked}"
        if self.enough:
            return f"{said}."
        return f"{said}: {self.needed:,} pairs." if self.needed else f"{said}: more than {MOST_PAIRS:,} pairs."


def rounded(number: float) -> float:
    """To a tenth of a percent, below one percent to a hundredth: as few digits as matter."""
    return round(number, 3 if number >= 0.01 else 4)


def powers(brief: Brief, floor: Mapping[str, Any]) -> list[Power]:
    """One per cell whose A/A spread is known."""
    return [power(brief, floor, cell) for cell in floor["cells"] if cell["smallest_effect"] is not None]


def power(brief: Brief, floor: Mapping[str, Any], cell: Mapping[str, Any]) -> Power:
    measure, alpha = trial_measure(brief.outcome), brief.rule.planned_looks[-1].alpha
    planned, needed, spread = floor["pairs_planned"], cell["pairs_needed"], cell["spread_upper"]

    def smallest(pairs: int) -> float:
        return improvement_of(measure, smallest_detectable_effect(spread, pairs, alpha=alpha))

    return Power(
        label=cell["label"],
        where=cell["level"] if cell["class"] == "all" else f"{cell['level']}, {cell['class']}",
        scale=cell["scale"],
        planned=planned,
        smallest=cell["smallest_effect"],
        asked=smallest_wanted(brief),
        needed=needed,
        curve=tuple((pairs, smallest(pairs)) for pairs in counts(planned, needed)),
    )


def counts(planned: int, needed: int | None) -> list[int]:
    """Even numbers of pairs from 4 to beyond what is planned and what it takes, as far as that can be drawn."""
    last = max(planned + 4, min(2 * needed if needed else MOST_DRAWN, MOST_DRAWN), 12)
    step = max(2, last // PLACES // 2 * 2)
    found = {*range(FEWEST, last + 1, step), planned}
    return sorted(found | ({needed} if needed and needed <= last else set()))


@dataclass(frozen=True)
class Missing:
    """What one open requirement still lacks, each None where no number would do or none can be told."""

    label: str
    limit: str
    requests: int | None
    boots: int | None


def missing_evidence(document: Mapping[str, Any]) -> list[Missing]:
    """Of every absolute limit that is open, the requests and the boots of each arm that would show it."""
    rows: Sequence[Mapping[str, Any]] = document["guardrails"]
    open_rows = [row for row in rows if row["shown"] == "open" and "requests_needed" in row]
    return [
        Missing(row["label"], row["required_text"], row["requests_needed"], row["boots_needed"]) for row in open_rows
    ]


@dataclass(frozen=True)
class LookTaken:
    number: int
    pairs: int
    alpha: float
    state: str


def looks_taken(
    brief: Brief, document: Mapping[str, Any] | None, taken: Mapping[int, str] | None = None
) -> list[LookTaken]:
    """Every planned look; ``taken`` has the results of those on the way, by number. The first version of the rules knew
    one look alone, after all pairs, and doesn't name it."""
    at = None if document is None else document.get("look", {}).get("number", 1)
    results = taken or {}
    return [
        LookTaken(one.number, one.pairs, one.alpha, look_state(one.number, at, results))
        for one in brief.rule.planned_looks
    ]


def look_state(number: int, at: int | None, taken: Mapping[int, str]) -> str:
    """Before there is a verdict no more than whether a look goes on is said of it."""
    if number == at:
        return "this verdict"
    if number in taken:
        return look_said(taken[number]) if at is None else f"{look_said(taken[number])}: {taken[number]}"
    if any(decides(result) for result in taken.values()):
        return "not needed"
    return "planned" if at is None or number > at else "not taken here"


def look_said(result: str) -> str:
    return "decides" if decides(result) else "goes on"
