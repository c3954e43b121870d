"""What the suite found: the document that a page shows, a verdict rests on and an auditor reads again. Pure."""

from typing import Any, Literal, get_args

from pydantic import JsonValue

from loadtests.canonical import canonical, digest
from loadtests.traffic.levels import Frozen

SCHEMA = "draftproof.behaviour/1"

Tier = Literal["T1", "T2", "T3"]
# Whose answers: the control is the baseline, asked again.
Server = Literal["baseline", "control", "candidate"]
SERVERS: tuple[Server, ...] = get_args(Server)
# held: shown to be preserved.
# broken: another output than the baseline's, beyond what the baseline does against itself, or a rule that the
#   baseline keeps and the candidate doesn't, or no answer where the baseline gives one.
# changed: the candidate openly refuses a request field that the baseline takes (or takes one that it refuses), and
#   the service was not said to use that field. It is no broken output, and it is named.
# unsupported: the baseline refuses such requests, so there is nothing to preserve.
# not_exercised: nothing happened that the case is about (no draft was proposed, the stop string never came).
# cannot_tell: it was asked, and the answers don't settle it (the baseline breaks the rule as well, something that the
#   case needs was not told).
State = Literal["held", "broken", "changed", "unsupported", "not_exercised", "cannot_tell"]
STATES: tuple[State, ...] = get_args(State)
# Of several runs of one case the first of these that any of them came to.
WORST_FIRST: tuple[State, ...] = ("broken", "changed", "held", "cannot_tell", "not_exercised", "unsupported")
# The same for a case that compares outputs in every manner: one that is open proves nothing.
OPEN_FIRST: tuple[State, ...] = ("broken", "changed", "cannot_tell", "held", "not_exercised", "unsupported")
# Of the whole suite; ``failed``: the suite itself came to no end (the baseline died, it was stopped).
Outcome = Literal["held", "broken", "not_exercised", "cannot_tell", "failed"]
# How the engine says that drafts are accepted. ``exact``: the sampled distribution is the target's own. ``lossy``: it
# is not. ``synthetic``: acceptance is made up. ``unknown``: nobody told, as with every server that others started.
Rule = Literal["exact", "lossy", "synthetic", "unknown"]


class Difference(Frozen):
    """Two answers to one request, to be shown side by side.

    ``answer`` names the line in ``baseline.jsonl`` and in ``candidate.jsonl``, ``choice`` which of its choices.
    ``at`` is the first character (Unicode code points, from 0) in which the two texts differ. The texts are cut to
    ``MOST_SHOWN`` characters from ``begins`` on; the lines hold them whole. ``baseline`` is None where a rule was
    broken that needs no baseline, and ``expected`` then says what should have come, as far as that is one text.
    """

    answer: str
    choice: int = 0
    at: int
    begins: int = 0
    baseline: str | None
    candidate: str
    expected: str | None = None


class Drafts(Frozen):
    """Draft tokens that the candidate proposed and that were accepted; None where nothing told them. ``told_by``:
    the answers' own metrics, the difference of the server's counters while nothing else ran, or nobody."""

    proposed: int | None = None
    accepted: int | None = None
    told_by: Literal["answers", "counters"] | None = None

    @property
    def rejected(self) -> int | None:
        if self.proposed is None or self.accepted is None:
            return None
        return self.proposed - self.accepted


class Finding(Frozen):
    """What one case came to. ``said`` is a sentence for a person, ``numbers`` what a statistical case rests on
    (p-value, rates, samples), ``differences`` the answers that show it, worst first."""

    state: State
    said: str
    differences: tuple[Difference, ...] = ()
    numbers: dict[str, JsonValue] = {}


class CaseRun(Frozen):
    """One case in one manner: ``serial``, ``concurrent`` or ``cached``, and ``-stream`` behind it where the answers
    were streamed. ``candidate`` and ``baseline`` say what a rule that needs no baseline came to on either server
    alone; they are None for cases that only compare."""

    manner: str
    finding: Finding
    drafts: Drafts
    requests: int
    baseline: Finding | None = None
    candidate: Finding | None = None


class CaseResult(Frozen):
    """``descends_from``: numbers of vllm-project/vllm's issues that broke what the case is about. ``source``:
    ``registry``, or ``owner`` for a service's own case."""

    id: str
    title: str
    tier: Tier
    state: State
    said: str
    runs: tuple[CaseRun, ...]
    needs: tuple[str, ...]
    descends_from: tuple[int, ...] = ()
    source: Literal["registry", "owner"] = "registry"

    @property
    def counted(self) -> bool:
        """Whether it is one of the cases that a verdict may rest on: it was exercised, and it says something."""
        return self.state in ("held", "broken")


class Declared(Frozen):
    """The acceptance rule that the candidate's configuration declares, and where that was read. A server that others
    started declares nothing that we could read: ``unknown``."""

    rule: Rule = "unknown"
    source: str = "the server was started by others and declares nothing"


class FalseAlarms(Frozen):
    """``alpha``: the most that the chance may be of any break by the statistical cases where nothing differs, over
    the whole suite. It is divided evenly over ``tests``."""

    alpha: float
    tests: int


class Asked(Frozen):
    """What a server was asked. ``answers_sha256`` is the digest of its JSON lines; ``died`` says when and how it
    stopped answering; ``drafts`` are of all its requests together."""

    base_url: str
    requests: int
    failed: int
    answers_sha256: str
    version: str | None = None
    died: str | None = None
    stopped: bool = False
    started_at: str | None = None
    drafts: Drafts = Drafts()


class SuiteResult(Frozen):
    """``problems``: why the whole suite can't be trusted, or couldn't be finished (a baseline that drafts, a server
    that died). ``exercised``: drafts were both accepted and rejected, by the candidate, over the whole suite.
    ``left_out``: cases of the registry that were not asked; a verdict needs all of them."""

    schema_version: Literal["draftproof.behaviour/1"] = "draftproof.behaviour/1"
    outcome: Outcome
    sentence: str
    exercised: bool
    cases: tuple[CaseResult, ...]
    drafts: Drafts
    declared: Declared
    false_alarms: FalseAlarms
    plan: dict[str, JsonValue]
    plan_sha256: str
    asked: dict[Server, Asked]
    problems: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """The ids of the broken cases, in the order of the list."""
        return self.named("broken")

    @property
    def counted(self) -> int:
        """Cases that a verdict may rest on: held or broken."""
        return sum(one.counted for one in self.cases)

    @property
    def settled(self) -> bool:
        """Whether a verdict may rest on it: the whole registry was asked, drafts were accepted and rejected or a case
        broke, and no comparison of outputs is open. ``Behaviour.exercised`` is this."""
        return self.outcome in ("held", "broken") and not self.left_out

    def named(self, state: State) -> tuple[str, ...]:
        return tuple(one.id for one in self.cases if one.state == state)

    @property
    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @property
    def content(self) -> bytes:
        """The bytes of ``result.json``."""
        return canonical(self.document)

    @property
    def digest(self) -> str:
        """What ``Behaviour.evidence`` names."""
        return digest(self.content)


def read_result(content: bytes) -> SuiteResult:
    """From the bytes of ``result.json``; raises ValueError where they are none."""
    return SuiteResult.model_validate_json(content)
