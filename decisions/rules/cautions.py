"""What a brief may be frozen with, but its author should know first."""

from collections.abc import Mapping
from typing import Any

from decisions.rules.brief import Brief
from decisions.rules.comparison import SIGN_FLIP_GATES_FROM
from decisions.rules.request_counts import NO_TRAFFIC, Traffic, request_counts, too_few
from decisions.rules.saturation import saturated_before
from loadtests.statistics.looks import Look
from loadtests.statistics.pairs import least_sign_flip_p_value


def cautions(
    brief: Brief, traffic: Traffic = NO_TRAFFIC, *, earlier: tuple[Brief, Mapping[str, Any]] | None = None
) -> list[str]:
    """A sentence per look that can't pass, per load level of which the brief asks nothing of its own, per cell that has
    too few requests for what it must show, and per cell that couldn't tell the arms apart by an ``earlier`` revision's
    verdict."""
    before = saturated_before(brief, *earlier) if earlier else []
    return [*hopeless(brief), *unread(brief), *too_few(brief, request_counts(brief, traffic)), *before]


def hopeless(brief: Brief) -> list[str]:
    """Looks whose alpha the sign-flip test can't reach however large the effect: nothing can be shown there."""
    return [
        f"{look_named(brief, look)} can never pass: its tests are at alpha {look.alpha:.4g}, and the sign-flip test, "
        f"which must agree from {SIGN_FLIP_GATES_FROM} pairs on, gives no p-value below "
        f"{least_sign_flip_p_value(look.pairs):.3g} with {look.pairs} pairs. Give it more alpha or more pairs."
        for look in brief.rule.planned_looks
        if look.pairs >= SIGN_FLIP_GATES_FROM and look.alpha < least_sign_flip_p_value(look.pairs)
    ]


def look_named(brief: Brief, look: Look) -> str:
    return f"Look {look.number}, after {look.pairs} pairs," if brief.rule.looks > 1 else "The verdict"


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


def unnamed_cases(brief: Brief, versions: Mapping[int, str], service: str) -> list[str]:
    """``versions``: digests of the service's own cases by version. A suite asks those that its brief names alone."""
    if brief.suite is None or not versions:
        return []
    latest = max(versions)
    named = max((version for version, digest in versions.items() if digest == brief.suite.cases), default=None)
    if named == latest:
        return []
    take = f"Take the latest with behaviour.cases: {versions[latest]}"
    if named is not None:
        return [f"The suite asks version {named} of {service}'s own cases, and version {latest} stands. {take}"]
    if brief.suite.cases is None:
        return [f"{service} has cases of its own, and the suite asks those alone that the brief names. {take}"]
    # Refused at the freeze, with what there is instead.
    return []
