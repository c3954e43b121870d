"""The one list of cases. A new case is a ``Case`` in a module of ``cases``, and the module's line here."""

from collections.abc import Sequence

from loadtests.behaviour.case import Case, Settings
from loadtests.behaviour.cases import lengths, logprobs, parity, settings, stops, streaming, structured, tools
from loadtests.behaviour.plan import ALPHA, UNDECLARED, USUAL, SuitePlan
from loadtests.behaviour.result import Declared

CASES: tuple[Case, ...] = (
    *parity.CASES,
    *structured.CASES,
    *stops.CASES,
    *lengths.CASES,
    *settings.CASES,
    *logprobs.CASES,
    *streaming.CASES,
    *tools.CASES,
)


def suite_plan(
    *,
    only: Sequence[str] = (),
    own: Sequence[Case] = (),
    settings: Settings = USUAL,
    concurrency: int = 8,
    alpha: float = ALPHA,
    seed: int = 0,
    timeout_s: float = 60.0,
    declared: Declared = UNDECLARED,
) -> SuitePlan:
    """The registry's cases and a service's own, or those of them that are named. Raises ValueError where a name is
    unknown, or an owner's case has the id of one of the registry's."""
    everything = (*CASES, *own)
    known = [case.id for case in everything]
    if unknown := [one for one in only if one not in known]:
        raise ValueError(f"there is no case called {unknown[0]}: the cases are {', '.join(known)}")
    # Some are asked by a thorough suite alone, or where the service samples.
    asked = [case for case in everything if case.manners_of(settings)]
    if idle := [case for case in everything if case.id in only and case not in asked]:
        samples = idle[0].tier == "T3" and settings.temperature == 0
        raise ValueError(f"{idle[0].id} isn't asked: it takes {'a temperature' if samples else 'a thorough suite'}")
    cases = tuple(case for case in asked if not only or case.id in only)
    left_out = tuple(case.id for case in asked if case.source == "registry" and case not in cases)
    return SuitePlan(cases, settings, concurrency, alpha, seed, timeout_s, declared, left_out)
