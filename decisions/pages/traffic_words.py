"""What a traffic set is, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decisions.charts.arrivals import lasting
from decisions.rules.may_carry import MUCH, percent, rows_left_out

# The index of dispersion of a Poisson process is 1; between these two nobody would see a difference.
STEADY, BURSTY = 0.8, 1.25
# Fewer can't tell bursts from chance.
FEWEST_REQUESTS, FEWEST_WINDOWS = 100, 30
# The longer window first: a steady stream shows in it, and bursts show in either.
WINDOWS_S = (10, 1)

# From here on nobody counts the seconds.
LONG_S = 600

Document = Mapping[str, Any]


def what_it_is(statistics: Document, imported: Document) -> str:
    parts = (
        f"{requests(statistics, imported)}{over(statistics)}",
        burstiness(statistics, imported),
        kinds(statistics),
        imported.get("label", ""),
    )
    return f"{', '.join(filter(None, parts))}."


def requests(statistics: Document, imported: Document) -> str:
    count = statistics.get("count", 0)
    gone = rows_left_out(imported)
    return f"{count:,} of {count + gone:,} requests" if gone else f"{count:,} requests"


def over(statistics: Document) -> str:
    if not statistics.get("timed", True):
        return " without times of arrival"
    return f" over {roughly(statistics.get('duration_s', 0))}"


def burstiness(statistics: Document, imported: Document) -> str:
    """How the requests come: in batches, in bursts, evenly, or too few of them to tell."""
    if not statistics.get("timed", True) or not statistics.get("count"):
        return ""
    indices = indices_of_dispersion(statistics)
    if statistics["count"] < FEWEST_REQUESTS or not indices:
        return "too few to tell whether they come in bursts"
    together = share_together(statistics, imported)
    if together > MUCH:
        return f"in batches: {percent(together)} arrive together with the one before"
    window_s, index = next((one for one in indices if one[1] > BURSTY), indices[0])
    return f"{burst_word(index)} (index of dispersion {index:.3g} in {window_s} s)"


def indices_of_dispersion(statistics: Document) -> list[tuple[int, float]]:
    """(window in seconds, index) for every window that the set has enough of, the longest first."""
    found = ((window_s, statistics.get(f"dispersion_{window_s}s")) for window_s in WINDOWS_S)
    seconds = statistics.get("duration_s", 0)
    return [
        (window_s, index) for window_s, index in found if index is not None and seconds >= FEWEST_WINDOWS * window_s
    ]


def share_together(statistics: Document, imported: Document) -> float:
    """Sets that were imported before it was counted have at least the requests with the very same time."""
    counted = statistics.get("together")
    if counted is not None:
        return float(counted)
    return float((imported.get("times") or {}).get("repeated", 0) / max(1, statistics["count"]))


def burst_word(index: float) -> str:
    if index > BURSTY:
        return "bursty"
    return "steadier than chance" if index < STEADY else "as even as chance makes it"


def kinds(statistics: Document) -> str:
    classes, conversations = len(statistics.get("classes", {})), statistics.get("conversations", 0)
    several = f"{conversations:,} conversations" if 0 < conversations < statistics.get("count", 0) else ""
    return ", ".join(filter(None, (f"{classes:,} classes" if classes > 1 else "", several)))


def arrives(statistics: Document) -> str:
    """For the list: over how long, and how many a second."""
    if not statistics.get("timed", True):
        return "no times"
    seconds, count = statistics.get("duration_s") or 0, statistics.get("count") or 0
    return f"{roughly(seconds)}, {count / seconds:.3g}/s" if seconds else ""


def roughly(seconds: float) -> str:
    return lasting(seconds if seconds < LONG_S else 60 * round(seconds / 60))
