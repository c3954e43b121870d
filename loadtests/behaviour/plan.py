"""What a suite asks and how it judges, laid down before anything is sent. Pure."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loadtests.behaviour.case import Case, Manner, Settings
from loadtests.behaviour.result import Declared
from loadtests.canonical import digest_of

# The chance that the whole suite raises a false alarm where nothing differs.
ALPHA = 0.02
USUAL = Settings()
UNDECLARED = Declared()


@dataclass(frozen=True)
class SuitePlan:
    """``concurrency``: requests open at once in concurrent manners. ``seed`` draws the order in which they are mixed.
    ``timeout_s`` is for one whole answer."""

    cases: tuple[Case, ...]
    settings: Settings = USUAL
    concurrency: int = 8
    alpha: float = ALPHA
    seed: int = 0
    timeout_s: float = 60.0
    declared: Declared = UNDECLARED
    # Cases of the registry that are not asked.
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = [one.id for one in self.cases]
        if not ids:
            raise ValueError("the suite has no case")
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            raise ValueError(f"two cases have one id: {', '.join(twice)}")
        if self.concurrency < 1 or not 0 < self.alpha < 1 or self.timeout_s <= 0:
            raise ValueError(
                "concurrency is at least 1, the false-alarm rate lies between 0 and 1, the timeout above 0"
            )

    @cached_property
    def runs(self) -> tuple[tuple[Case, Manner], ...]:
        """Every case in every manner in which it is asked."""
        return tuple((case, manner) for case in self.cases for manner in case.manners_of(self.settings))

    @cached_property
    def tests(self) -> int:
        """Statistical tests over the whole suite, which share ``alpha``."""
        return sum(case.tests for case, _ in self.runs)

    def alpha_of(self, case: Case) -> float:
        """The share of one case in one manner (Bonferroni: evenly over the tests)."""
        return self.alpha * case.tests / self.tests if self.tests else self.alpha

    @property
    def document(self) -> dict[str, Any]:
        return {
            "cases": [
                {
                    "id": case.id,
                    "source": case.source,
                    "manners": [one.id for one in case.manners_of(self.settings)],
                    "document": case.document,
                }
                for case in self.cases
            ],
            "temperature": self.settings.temperature,
            "top_p": self.settings.top_p,
            "top_k": self.settings.top_k,
            "thorough": self.settings.thorough,
            "tie_nats": self.settings.tie_nats,
            "uses": sorted(self.settings.uses),
            "concurrency": self.concurrency,
            "alpha": self.alpha,
            "seed": self.seed,
            "timeout_s": self.timeout_s,
            "declared": self.declared.model_dump(mode="json"),
            "left_out": list(self.left_out),
        }

    @property
    def digest(self) -> str:
        return digest_of(self.document)
