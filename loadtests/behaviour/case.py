"""What a case of the suite is: what is asked, in which manners, and what has to be true of the answers. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from loadtests.behaviour.greedy import TIE_NATS
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Difference, Drafts, Finding, Tier

# serial: one request at a time, nothing else running. concurrent: mixed with other cases' requests, as many at once
# as the plan says. cached: the case alone, as many at once, each request after one with the same prompt that filled
# the prefix cache.
Load = Literal["serial", "concurrent", "cached"]
LOADS: tuple[Load, ...] = get_args(Load)
# What a case needs a server to tell or to take.
Need = Literal[
    "logprobs",
    "prompt_logprobs",
    "token_ids",
    "detokenize",
    "structured_output",
    "tool_calls",
    "n",
    "seed",
    "completions",
]
NEEDS: tuple[Need, ...] = get_args(Need)
# chat and completions take a prompt, the other two are the engine's own tokenizer. ``text`` is a completion where the
# server has them, else a chat.
Kind = Literal["chat", "text", "tokenize", "detokenize"]


@dataclass(frozen=True)
class Manner:
    """A way in which a case is asked."""

    load: Load
    stream: bool = False

    @property
    def id(self) -> str:
        return f"{self.load}-stream" if self.stream else self.load


SERIAL, CONCURRENT, CACHED = (Manner(load) for load in LOADS)
SERIAL_STREAM, CONCURRENT_STREAM, CACHED_STREAM = (Manner(load, True) for load in LOADS)
EVERY_MANNER = (SERIAL, SERIAL_STREAM, CONCURRENT, CONCURRENT_STREAM, CACHED, CACHED_STREAM)
USUAL_MANNERS = (SERIAL, CONCURRENT_STREAM)
WITH_CACHE = (SERIAL, CONCURRENT_STREAM, CACHED)
DRAWN = "drawn"
UNTOLD = Drafts()


@dataclass(frozen=True)
class Ask:
    """One request. ``label`` is unique within its case; ``body`` has everything but the model and whether it is
    streamed; ``stream`` None leaves that to the manner. ``common``: whichever case asks for the very same in the same
    manner is given the same answer, and the server is asked once. ``spared``: only a thorough suite asks it one at a
    time.

    A body is written in neutral words, which each kind of request puts in its own: ``prompt`` or ``messages``;
    ``top_logprobs``, the number of likeliest tokens to tell beside the chosen one; ``seed: DRAWN`` for a seed that
    is another one on every server and in every request.
    """

    label: str
    body: Mapping[str, Any]
    kind: Kind = "chat"
    stream: bool | None = None
    common: bool = False
    spared: bool = False


@dataclass(frozen=True)
class Settings:
    """What the plan lays down for every case: the service's sampling settings, the size, what the service uses."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    thorough: bool = False
    # Two tokens of the baseline that are no further apart in log probability are a numerical tie.
    tie_nats: float = TIE_NATS
    # Request fields that the service's traffic uses: that a candidate refuses one of them is a break.
    uses: frozenset[str] = frozenset()


Seen = Mapping[str, Reply]
"""A case's answers of one server in one manner, by label, in the order in which they were asked."""

# Later steps may rest on what the same server answered to earlier ones (a stop string has to be one that comes). A
# step that can't ask anything (the text was too short) asks nothing, and the judge says why nothing can be told.
Step = Callable[[Seen, Settings], Sequence[Ask]]


@dataclass(frozen=True)
class Heard:
    """Everything a judge may look at. ``control`` is None where the baseline was not asked again. ``alpha`` is the
    chance of a false alarm that this case in this manner may have; ``drafts`` are the candidate's here."""

    case: str
    manner: Manner
    baseline: Seen
    candidate: Seen
    control: Seen | None
    alpha: float
    settings: Settings
    drafts: Drafts = UNTOLD


Judge = Callable[[Heard], Finding]
# A rule that needs no baseline: of one server's answers alone.
Rule = Callable[[Seen], Finding]


@dataclass(frozen=True)
class Case:
    """``judge`` is handed only answers that came: what was refused, failed or not asked is settled before it is
    called. Exactly one of ``rule`` and ``judge`` is set: ``rule`` is judged on either server alone, and a rule that
    the baseline breaks as well says nothing about speculation.

    ``tests``: how many statistical tests it makes in one manner (0: it makes none and raises no false alarm by
    chance). ``drafts``: whether it counts only where drafts were proposed. ``control``: whether the baseline is
    asked again for it. ``alone``: nothing else runs beside it even where its own requests are concurrent, so that
    the server's counters tell its drafts. ``undisturbed``: its own answers are compared with each other, and a crowd
    could make them differ. ``may_refuse``: request fields that an engine may openly refuse; whether
    that breaks anything depends on whether the service uses them. ``refusals``: its requests may be refused, and
    the judge looks at that itself.
    """

    id: str
    title: str
    tier: Tier
    steps: tuple[Step, ...]
    rule: Rule | None = None
    judge: Judge | None = None
    needs: tuple[Need, ...] = ()
    descends_from: tuple[int, ...] = ()
    manners: tuple[Manner, ...] = USUAL_MANNERS
    thorough: tuple[Manner, ...] = EVERY_MANNER
    tests: int = 0
    drafts: bool = True
    control: bool = False
    alone: bool = False
    undisturbed: bool = False
    may_refuse: tuple[str, ...] = ()
    refusals: bool = False
    source: Literal["registry", "owner"] = "registry"
    # What an owner wrote, for the plan's digest; the registry's own cases are named by their ids.
    document: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if (self.rule is None) == (self.judge is None):
            raise ValueError(f"case {self.id}: give a rule or a judge, not both")

    def manners_of(self, settings: Settings) -> tuple[Manner, ...]:
        """None at all for samples of a service that takes none."""
        if self.tier == "T3" and settings.temperature == 0:
            return ()
        return self.thorough if settings.thorough else self.manners


def answer_id(case: str, manner: Manner, label: str) -> str:
    """The name of a line of evidence, the same on every server."""
    return f"{case}/{manner.id}/{label}"


def always(*asks: Ask) -> Step:
    """A step that asks the same whatever was answered before."""
    return lambda seen, settings: asks


def held(said: str) -> Finding:
    return Finding(state="held", said=said)


def broken(said: str, *differences: Difference) -> Finding:
    return Finding(state="broken", said=said, differences=differences)


def shown(label: str, text: str, *, choice: int = 0, at: int = 0, expected: str | None = None) -> Difference:
    """What one server said that it should not have. The label becomes the line's id, and the baseline's text is put
    beside it, when the case is judged."""
    return Difference(answer=label, choice=choice, at=at, baseline=None, candidate=text, expected=expected)


def apart(label: str, baseline: str, candidate: str, *, choice: int = 0) -> Difference:
    """Two servers' texts after one request, with the first character that differs."""
    return Difference(
        answer=label, choice=choice, at=first_difference(baseline, candidate), baseline=baseline, candidate=candidate
    )


def first_difference(one: str, other: str) -> int:
    """The index of the first character that differs; the length of the shorter where one begins the other."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def not_exercised(said: str) -> Finding:
    return Finding(state="not_exercised", said=said)


def cannot_tell(said: str) -> Finding:
    return Finding(state="cannot_tell", said=said)
