"""What a traffic set is, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decisions.charts.arrivals import lasting

# The index of dispersion of a Poisson process is 1; between these two nobody would see a difference.
STEADY, BURSTY = 0.8, 1.25

# From here on nobody counts the seconds.
LONG_S = 600

LENGTHS_ALONE = "how many draft tokens are accepted depends on the text"


def what_it_is(statistics: Mapping[str, Any], imported: Mapping[str, Any]) -> str:
    parts = [
        f"{statistics.get('count', 0):,} requests{over(statistics)}",
        *filter(None, (burstiness(statistics), kinds(statistics), imported.get("label", ""))),
    ]
    return f"{', '.join(parts)}{consequence(imported)}."


def over(statistics: Mapping[str, Any]) -> str:
    if not statistics.get("timed", True):
        return " without times of arrival"
    seconds = statistics.get("duration_s", 0)
    return f" over {lasting(seconds if seconds < LONG_S else 60 * round(seconds / 60))}"


def burstiness(statistics: Mapping[str, Any]) -> str:
    index = statistics.get("dispersion_10s")
    if index is None or not statistics.get("timed", True):
        return ""
    return f"{burst_word(index)} (index of dispersion {index:.3g} in 10 s)"


def burst_word(index: float) -> str:
    if index > BURSTY:
        return "bursty"
    return "steadier than chance" if index < STEADY else "as even as chance makes it"


def kinds(statistics: Mapping[str, Any]) -> str:
    classes, conversations = len(statistics.get("classes", {})), statistics.get("conversations", 0)
    several = f"{conversations:,} conversations" if 0 < conversations < statistics.get("count", 0) else ""
    return ", ".join(filter(None, (f"{classes} classes" if classes > 1 else "", several)))


def consequence(imported: Mapping[str, Any]) -> str:
    if imported.get("acceptance", {}).get("usable", True):
        return ""
    return f": it can't be used for acceptance, because {LENGTHS_ALONE}"


def why_no_acceptance(imported: Mapping[str, Any]) -> str:
    """The import's own words, where it says that nothing measured with the set can carry an approval."""
    acceptance = imported.get("acceptance", {})
    return "" if acceptance.get("usable", True) else str(acceptance.get("why") or "")
