"""What a brief may be frozen with, but its author should know first."""

from collections.abc import Mapping
from typing import Any

from decisions.rules.brief import Brief
from decisions.rules.flagged import flagged
from decisions.rules.request_counts import NO_TRAFFIC, Traffic, request_counts, too_few
from decisions.rules.saturation import saturated_before


def cautions(
    brief: Brief, traffic: Traffic = NO_TRAFFIC, *, earlier: tuple[Brief, Mapping[str, Any]] | None = None
) -> list[str]:
    """A sentence per load level of which the brief asks nothing of its own, per candidate that the engine would run
    otherwise than it says, per cell that has too few requests for what it must show, and per cell that couldn't tell
    the arms apart by an ``earlier`` revision's verdict."""
    before = saturated_before(brief, *earlier) if earlier else []
    return [*unread(brief), *flagged(brief), *too_few(brief, request_counts(brief, traffic)), *before]


def unread(brief: Brief) -> list[str]:
    """Its trials take engine time and held-out requests all the same."""
    named = {cell.level for cell in (*brief.outcome.improve_in, *(rail.cell for rail in brief.guardrails))}
    return [
        f"Neither the outcome nor a guardrail reads the load level {level.name}: there a candidate has only to be no "
        "worse than the non-inferiority margin allows. Name it in outcome.improve_in or in a guardrail, or leave it "
        "out if nothing is to be decided there."
        for level in brief.levels
        if level.name not in named
    ]
