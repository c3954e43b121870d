"""What the preserved-behaviour suite found (design §7), as far as a verdict rests on it."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["held", "broken", "not_exercised", "cannot_tell", "failed"]


@dataclass(frozen=True)
class Behaviour:
    """``outcome`` and ``said`` are the suite's own, over ``cases`` that held or broke; ``broken`` are the ids of those
    that broke: the candidate gave another output than the baseline, beyond what the baseline does against itself. A
    candidate that died under the suite is broken without any. ``evidence``: the digest of the suite's result."""

    outcome: Outcome
    cases: int
    broken: tuple[str, ...]
    said: str
    evidence: str

    @property
    def shown(self) -> Literal["shown", "broken", "open"]:
        if self.outcome == "broken":
            return "broken"
        return "shown" if self.outcome == "held" and self.cases else "open"

    @property
    def settles(self) -> str:
        """What it would take; empty where nothing is open."""
        if self.shown != "open":
            return ""
        if self.outcome == "not_exercised":
            return "A suite in which drafts are both accepted and rejected: else it proves nothing."
        return f"A suite that comes to a result: {self.said}"
