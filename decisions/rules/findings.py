"""A rule of the preflight, and what it finds. Each rule has a paragraph of its own in docs/preflight.md."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

# ``refused``: the brief can't go on with it. ``flagged``: it runs, and its author should know.
Severity = Literal["refused", "flagged"]
VLLM = "vLLM"
# The version whose source the rules' facts were read in.
FACTS_VERSION = "0.32.0"
PAGE = "docs/preflight.md"

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Finding:
    """``where`` is a field of the brief and ``of`` the candidate or family in words; both may be empty. ``engine`` and
    ``version`` say whose facts it rests on; None for a rule that holds on every engine."""

    rule: str
    severity: Severity
    sentence: str
    engine: str | None
    version: str | None
    where: str = ""
    of: str = ""

    @property
    def problem(self) -> str:
        return f"{self.where}: {self.sentence}" if self.where else self.sentence

    @property
    def link(self) -> str:
        return f"{PAGE}#{self.rule}"

    @property
    def speaks_of(self) -> str:
        return f"{self.engine} {self.version}" if self.engine else "every engine"

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self) | {"link": self.link}


@dataclass(frozen=True)
class Rule(Generic[Seen]):
    """``check`` gives a sentence for everything that it finds. ``everywhere``: it is about what the setting's words
    mean, and holds where another engine than vLLM takes them; ``engine`` None: about no engine's facts at all."""

    id: str
    severity: Severity
    check: Callable[[Seen], Iterable[str]]
    everywhere: bool = False
    engine: str | None = VLLM

    def findings(self, seen: Seen, *, where: str = "", of: str = "") -> Iterator[Finding]:
        version = FACTS_VERSION if self.engine else None
        for sentence in self.check(seen):
            yield Finding(self.id, self.severity, sentence, self.engine, version, where, of)
