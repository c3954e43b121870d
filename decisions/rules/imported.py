"""What imported evidence is called, and why nobody can approve on it."""

from collections.abc import Mapping, Sequence
from typing import Any

from decisions.rules.may_carry import listed

# No tool records them, and nobody can add them afterwards (docs/imported-evidence.md).
ALWAYS_LACKING = (
    "the fingerprint of the configuration that answered",
    "a plan’s digest",
    "digests of the prompts",
    "a known warm-up",
    "a fresh engine for each boot",
)
ONLY_MEASURED = "only measured evidence can carry an approval"

Summary = Mapping[str, Any]


def label(tool: str) -> str:
    return f"imported: {tool}"


def lacking(summaries: Sequence[Summary]) -> list[str]:
    """What all these trials together don't tell and a decision would need."""
    found = list(ALWAYS_LACKING)
    if any(one["planned_times"] != "scheduled" for one in summaries):
        found.append("planned times")
    if any(not one["recorded"] for one in summaries):
        found.append("records of single requests")
    return found


def refusal(summaries: Sequence[Summary]) -> str:
    """Why a brief that has these trials, and none of ours, can't be approved."""
    one = len(summaries) == 1
    who = "The only trial of this brief is" if one else f"All {len(summaries)} trials of this brief are"
    return (
        f"{who} imported: {ONLY_MEASURED}. {'It lacks' if one else 'They lack'} {listed(lacking(summaries))}. "
        "Freeze the brief and start it: what is measured then can be approved."
    )
