"""How many requests a brief plans to judge each of its cells on, and how many each of its requirements takes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from decisions.rules.brief import Brief, Cell, Guardrail
from decisions.rules.evidence import ALL
from decisions.rules.measures import Measure, margin_threshold, measure_of
from decisions.rules.noise_floor import gating_cells
from decisions.rules.wording import amount, at, capitalised
from loadtests.statistics.shares import MOST_REQUESTS, requests_needed

SHARES = ("attainment", "slo_goodput")


@dataclass(frozen=True)
class Traffic:
    """What a draft's traffic tells: requests per second as recorded (None: not known), and each class's share of 1."""

    rate: float | None
    shares: Mapping[str, float]


NO_TRAFFIC = Traffic(None, {})


@dataclass(frozen=True)
class Demand:
    """``needed`` requests of each arm, in every window or over all pairs; None where no affordable number would do."""

    said: str
    needed: int | None
    per_window: bool
    provided: str


@dataclass(frozen=True)
class CellRequests:
    """``window`` and ``total`` are expected numbers, in a window and over all pairs of each arm; None: not known."""

    cell: Cell
    window: float | None
    total: float | None
    demands: tuple[Demand, ...]

    def is_met(self, demand: Demand) -> bool:
        planned = self.window if demand.per_window else self.total
        return planned is None or (demand.needed is not None and planned >= demand.needed)

    @property
    def unmet(self) -> list[Demand]:
        return [one for one in self.demands if not self.is_met(one)]

    @property
    def pairs(self) -> int | None:
        """Of windows such as these, even and enough for all that is asked over all pairs; None where none would do."""
        asked = [one.needed for one in self.unmet if not one.per_window]
        if not asked or None in asked or not self.window:
            return None
        return 2 * math.ceil(max(one for one in asked if one is not None) / self.window / 2)


def request_counts(brief: Brief, traffic: Traffic = NO_TRAFFIC) -> list[CellRequests]:
    """One per cell that the outcome, a margin or a guardrail judges, in the brief's order of levels."""
    cells = list(dict.fromkeys([*gating_cells(brief), *(rail.cell for rail in brief.guardrails)]))
    order = [level.name for level in brief.levels]
    cells.sort(key=lambda cell: (order.index(cell.level), cell.class_ != ALL, cell.class_))
    return [counts_in(brief, traffic, cell) for cell in cells]


def counts_in(brief: Brief, traffic: Traffic, cell: Cell) -> CellRequests:
    window = expected_in_window(brief, traffic, cell)
    total = None if window is None else window * brief.rule.pairs
    return CellRequests(cell, window, total, tuple(demands(brief, cell)))


def expected_in_window(brief: Brief, traffic: Traffic, cell: Cell) -> float | None:
    level = brief.level(cell.level)
    rate = level.arrival.mean_rate
    if rate is None and traffic.rate is not None:  # a replay, at the recorded rate
        rate = traffic.rate / (level.arrival.time_scale or 1)
    part = 1.0 if cell.class_ == ALL else traffic.shares.get(cell.class_)
    return None if rate is None or part is None else rate * part * level.duration_s


def demands(brief: Brief, cell: Cell) -> Iterator[Demand]:
    outcome, alpha = brief.outcome, brief.rule.planned_looks[-1].alpha
    improves = cell in outcome.improve_in
    if (improves or cell.class_ == ALL) and outcome.quantile is not None:
        yield percentile("the outcome", outcome.quantile)
    margin = not improves and cell.class_ == ALL
    if margin and outcome.metric in (*SHARES, "capacity"):
        metric = Measure("attainment") if outcome.metric == "capacity" else measure_of(outcome)
        yield agreeing("the margin", metric, outcome.non_inferiority_margin, brief.rule.pairs, alpha)
    if brief.capacity and cell.level in brief.capacity.levels and cell.class_ == brief.capacity.class_:
        target = brief.capacity.target
        yield share_limit(f"the ladder's target of {amount(target, 'ratio')}", 1 - target, alpha / 2, "late")
    for rail in (one for one in brief.guardrails if one.cell == cell):
        yield from demands_of(rail, brief.rule.pairs, alpha)


def demands_of(rail: Guardrail, pairs: int, alpha: float) -> Iterator[Demand]:
    said, measure = f"guardrail {rail.id}", measure_of(rail)
    if rail.metric == "behaviour":
        return
    if rail.kind == "absolute" and rail.quantile is not None:
        limit = f"{said} (p{100 * rail.quantile:g} at most {rail.limit:g} s)"
        yield share_limit(limit, 1 - rail.quantile, alpha, "slower")
    elif rail.kind == "absolute":
        yield share_limit(f"{said} (at most {amount(rail.limit, 'ratio')})", rail.limit, alpha, "counted in it")
    elif rail.quantile is not None:
        yield percentile(said, rail.quantile)
    elif rail.metric.endswith("_share"):
        yield agreeing(said, measure, rail.limit, pairs, alpha)


def share_limit(said: str, limit: float, alpha: float, over: str) -> Demand:
    """Source: the exact binomial test of an absolute limit, with no request over it."""
    try:
        needed: int | None = requests_needed(1 - limit, confidence=1 - alpha, late=0)
    except ValueError:
        needed = None
    return Demand(said, needed, False, f"with none of them {over}")


def percentile(said: str, quantile: float) -> Demand:
    """Below 1 ÷ (1 − quantile) + 1 requests the interpolated quantile rests on the slowest of them alone."""
    needed = math.ceil(round(1 / (1 - quantile), 9)) + 1
    return Demand(f"{said} (p{100 * quantile:g})", needed, True, "since with fewer it rests on the slowest alone")


def agreeing(said: str, measure: Measure, margin: float, pairs: int, alpha: float) -> Demand:
    """The fewest with which "no worse by the margin" is shown where no request ends otherwise in one arm than in the
    other: n(n + 4) ≥ 2(t ÷ margin)². Source: ``matched_share_se`` without discordant requests, in Student's bound."""
    ratio = float(stats.t.isf(alpha, pairs - 1)) / abs(margin_threshold(measure, margin))
    needed = math.ceil(math.sqrt(4 + 2 * ratio**2) - 2)
    asked = f"{said} (no worse by more than {amount(margin, measure.scale)})"
    return Demand(asked, needed if needed <= MOST_REQUESTS else None, False, "even if both arms agree on every one")


def too_few_said(brief: Brief, found: CellRequests) -> str:
    """One sentence on what is planned in the cell, and one for each requirement that it is too few for."""
    window, total = (about(one) for one in (found.window, found.total))
    planned = f"about {window} in a window and {total} over all {brief.rule.pairs} pairs"
    said = f"Too few requests {at(found.cell)}: {planned}."
    return " ".join([said, *(unmet_said(one) for one in found.unmet), remedy(found)])


def unmet_said(demand: Demand) -> str:
    name = capitalised(demand.said)
    if demand.needed is None:
        return f"{name} takes more than {MOST_REQUESTS:,}."
    return f"{name} takes {demand.needed:,}{' in a window' if demand.per_window else ''}, {demand.provided}."


def remedy(found: CellRequests) -> str:
    pairs = f", or {found.pairs:,} pairs" if found.pairs and not any(one.per_window for one in found.unmet) else ""
    return f"Plan longer windows or a higher rate{pairs}."


def about(number: float | None) -> str:
    return "an unknown number" if number is None else f"{number:,.0f}"


def too_few(brief: Brief, counts: Sequence[CellRequests]) -> list[str]:
    return [too_few_said(brief, one) for one in counts if one.unmet]
