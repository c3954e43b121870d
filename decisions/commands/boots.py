"""The boots of a brief, as directories hold them."""

from dataclasses import dataclass

from decisions.rules.evidence import Purpose
from loadtests.evidence.against_engine import virtual
from loadtests.evidence.directories import KeptTrial


@dataclass(frozen=True)
class Place:
    """Where a boot belongs in a brief."""

    purpose: Purpose
    pair: int
    arm: str
    candidate: str | None = None

    @property
    def name(self) -> str:
        """The same wherever the directories lie."""
        return f"{self.purpose}-{self.pair + 1}-{self.arm}"


@dataclass(frozen=True, eq=False)
class Boot:
    place: Place
    trials: list[KeptTrial]

    @property
    def died(self) -> bool:
        """As far as the manifests tell: a client that was only given an address can't know."""
        return any(one.manifest.died for one in self.trials)

    @property
    def virtual(self) -> bool:
        """Simulated in virtual time: nobody waited for it, and its times have no date."""
        return all(virtual(one.manifest) for one in self.trials)
