"""What the preserved-behaviour suite found (design §7), as far as a verdict rests on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Behaviour:
    """``broken`` of ``cases`` gave another output than the baseline's, beyond what the baseline does against itself.

    ``exercised``: drafts were both accepted and rejected, else the suite proves nothing. ``evidence``: the digest of
    its result.
    """

    cases: int
    broken: int
    exercised: bool
    evidence: str

    @property
    def shown(self) -> str:
        if self.broken:
            return "broken"
        return "shown" if self.exercised and self.cases else "open"
