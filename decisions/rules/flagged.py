"""What the engine would do otherwise than the author of a candidate may think."""

from collections.abc import Iterator

from decisions.rules.brief import Brief
from decisions.rules.preflight import flags
from decisions.rules.search import first_entrants
from loadtests.configurations import Configuration


def flagged(brief: Brief) -> list[str]:
    """One sentence per candidate, and per family."""
    found = dict.fromkeys((name, sentence) for name, one in named(brief) for sentence in flags(one))
    return [f"{name} {sentence}." for name, sentence in found]


def named(brief: Brief) -> Iterator[tuple[str, Configuration]]:
    for one in brief.candidates:
        yield f"Candidate {one.name}", brief.configuration(one.name)
    for family in brief.search:
        for name, _ in first_entrants(family):
            yield f"Family {family.name}", brief.configuration(name)
