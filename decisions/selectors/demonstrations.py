"""Demonstrations of preserved behaviour as pages show them, and what a brief needs of them."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from decisions.models import BehaviourResult, BriefRevision, Demonstration
from decisions.rules.demonstrations import SIMULATED, Implementation, Needed, modes_needed
from decisions.selectors.sampling import temperatures_of

MOST_OFFERED = 50
ABOUT = {"T1": "greedy output equal to the baseline’s", "T2": "invariants", "T3": "the distribution of sampled output"}


@dataclass(frozen=True)
class Demonstrated:
    """A mode of sampling that a brief needs, and the demonstration that stands for it; None where there is none."""

    about: Implementation
    needed: Needed
    demonstration: Demonstration | None


@dataclass(frozen=True)
class TierRow:
    tier: str
    about: str
    cases: int
    states: dict[str, int]

    @property
    def others(self) -> list[tuple[str, int]]:
        return [(state.replace("_", " "), count) for state, count in self.states.items() if state != "held"]


def demonstrations() -> QuerySet[Demonstration]:
    return Demonstration.objects.select_related("result__revision__brief__route").order_by("-pk")


def tiers_of(one: Demonstration) -> list[TierRow]:
    """The cases of each tier that the result counts, by what they came to."""
    counts = one.summary["cases"]
    return [TierRow(tier, ABOUT[tier], sum(counts[tier].values()), counts[tier]) for tier in ABOUT if tier in counts]


def results_offered() -> list[BehaviourResult]:
    """What the suite found for briefs and somebody may vouch for, latest first."""
    found = BehaviourResult.objects.filter(outcome="held", exercised=True)
    return list(found.select_related("revision__brief__route").defer("revision__source").order_by("-pk")[:MOST_OFFERED])


def implementation_of(revision: BriefRevision) -> Implementation | None:
    """What a revision nominated; None where that is nothing, or no speculation."""
    if not revision.nominee:
        return None
    document = revision.document
    runtime, speculative = document.baseline.runtime, document.candidate(revision.nominee).speculative
    return Implementation(runtime.engine, runtime.distribution, runtime.version, speculative.method)


def standing_for(about: Implementation) -> QuerySet[Demonstration]:
    """The demonstrations of this engine and method that nobody withdrew, latest first."""
    simulated = Q(engine=SIMULATED)
    return Demonstration.objects.filter(
        simulated if about.is_simulated else ~simulated,
        distribution=about.distribution,
        version=about.version,
        method=about.method,
        withdrawn_at=None,
    ).order_by("-pk")


def demonstrated(revision: BriefRevision) -> list[Demonstrated]:
    """For each mode that the revision's service needs under what was nominated; nothing where nothing was."""
    about = implementation_of(revision)
    if about is None:
        return []
    by_mode = {one.mode: one for one in reversed(standing_for(about))}
    return [
        Demonstrated(about, needed, by_mode.get(needed.mode) if needed.mode else None) for needed in modes_of(revision)
    ]


def modes_of(revision: BriefRevision) -> list[Needed]:
    written = revision.document.behaviour
    traffic = revision.traffic_set
    return modes_needed(
        temperatures_of(traffic),
        traffic.imported.get("unread_fields", {}) if traffic else {},
        written.temperature if written else None,
        written.uses if written else (),
    )
