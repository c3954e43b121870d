"""A tiny deterministic language model: a fixed vocabulary and a seeded table of which word follows which.

Its text means nothing. It is there so that whatever checks an engine's answers (stop strings, seeds, logprobs, JSON)
has an engine with something to check. Greedy text depends on the prompt alone, sampled text also on the seed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from loadtests.simulator.sequence import FinishReason
from loadtests.traffic.arrivals import generator_for

END = 0
END_TEXT = "</s>"
CHARACTERS = ["\n", *(chr(code) for code in range(32, 127))]
WORDS_TEXT = (
    "the a an one this that each some no every small large old new good early late cold warm quiet green blue red "
    "house garden river road town field stone tree bird horse boat train letter book table window door lamp clock "
    "morning evening summer winter year day hour week story answer question number word name reason way part side "
    "is was has had can may will goes comes keeps makes takes finds gives shows turns opens closes grows holds reads "
    "writes says asks knows sees hears begins ends waits works helps stays moves in on at by near over under with "
    "without from to for of and or but so because when while then also only often never always soon again here there "
    "it we they you he she who what where why how not very more less first last next two three four five"
)
WORDS = WORDS_TEXT.split()
SENTENCE_ENDS = (".", "!", "?")
VOCABULARY: tuple[str, ...] = (
    END_TEXT,
    *CHARACTERS,
    *(f" {word}" for word in WORDS),
    *(f" {word.capitalize()}" for word in WORDS[:24]),
    *SENTENCE_ENDS,
    ",",
)
SIZE = len(VOCABULARY)
FIRST_WORD = 1 + len(CHARACTERS)
IDS = {text: index for index, text in enumerate(VOCABULARY) if index}
# The prompt shifts the table by position, in a cycle of this length: two prompts give two texts, and a long text says
# much again, so that penalties have something to keep away.
CYCLE = 16
IMPOSSIBLE = -math.inf
Logits = NDArray[np.float64]


@dataclass(frozen=True)
class Sampling:
    """As an OpenAI request has it, with vLLM's own fields. ``seed`` None draws from the request's id."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    include_stop: bool = False
    # As tokens: none of them may be completed.
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Neither penalties nor bias, and nothing forbidden."""
        penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty - 1)
        return not any(penalties) and not self.logit_bias and not self.bad_words and not self.allowed


@dataclass(frozen=True)
class Spoken:
    """A whole answer. ``texts`` are what each token adds to the visible text, cut where a stop string begins;
    ``logits`` what the model made of each position, before sampling settings."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    logits: tuple[Logits, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None

    @property
    def text(self) -> str:
        return "".join(self.texts)


# What an engine makes of the logits of one position.
Numerics = Callable[[Logits], Logits]


@dataclass(frozen=True)
class Rounding:
    """Numerics of a target whose sums depend on what runs beside a request: every logit is off by a normal error of
    this standard deviation (nats), another one in every answer."""

    nats: float
    draw: Generator

    def __call__(self, logits: Logits) -> Logits:
        return logits + self.draw.normal(0.0, self.nats, SIZE)


@cache
def bigrams() -> Logits:
    """Logits of which token follows which; single characters hardly ever follow by themselves."""
    table = generator_for("language", "bigrams").normal(0.0, 1.5, (SIZE, SIZE))
    table[:, :FIRST_WORD] -= 30.0
    table[:, SIZE - 4 :] += 1.5
    return table


def decoded(tokens: Sequence[int]) -> str:
    return "".join(VOCABULARY[token] for token in tokens if token != END)


def encoded(text: str) -> list[int]:
    """Tokens of a text, the longest first; what the vocabulary lacks becomes a question mark."""
    tokens: list[int] = []
    at = 0
    while at < len(text):
        word = next((text[at : at + size] for size in range(12, 1, -1) if text[at : at + size] in IDS), text[at])
        tokens.append(IDS.get(word, IDS["?"]))
        at += len(word)
    return tokens


def speak(
    prompt: str,
    sampling: Sampling,
    *,
    length: int,
    draw: Generator,
    forced: Sequence[int] | None = None,
    numerics: Numerics | None = None,
) -> Spoken:
    """The answer to a prompt. Left alone it ends by itself with its ``length``-th token; ``forced`` are the tokens that
    a grammar leaves no choice in."""
    voice = forced_voice(forced) if forced is not None else free_voice(prompt, sampling, length, draw, numerics)
    tokens: list[int] = []
    logits: list[Logits] = []
    text, searched = "", 0
    for token, told in voice(tokens):
        tokens.append(token)
        logits.append(told)
        text += "" if token == END else VOCABULARY[token]
        if len(tokens) >= sampling.min_tokens:
            stopped = reason_to_stop(token, text, searched, sampling)
            if stopped is not None:
                return spoken(tokens, logits, cut=stopped.cut, stop_reason=stopped.reason)
        searched = len(text)
        if len(tokens) >= sampling.max_tokens:
            return spoken(tokens, logits, finish="length")
    return spoken(tokens, logits)


@dataclass(frozen=True)
class Stopped:
    """``cut`` is the length that the visible text keeps, None where nothing of it goes."""

    reason: str | int | None
    cut: int | None = None


def reason_to_stop(token: int, text: str, searched: int, sampling: Sampling) -> Stopped | None:
    if token == END:
        # Ignored, it is an ordinary token without a text.
        return None if sampling.ignore_eos else Stopped(None)
    if token in sampling.stop_token_ids:
        return Stopped(token)
    # The one that begins first wins, whichever was named first.
    found = [(text.find(stop, max(0, searched - len(stop) + 1)), stop) for stop in sampling.stop]
    at, stop = min(((at, stop) for at, stop in found if at >= 0), default=(-1, ""))
    return Stopped(stop, cut=at + (len(stop) if sampling.include_stop else 0)) if at >= 0 else None


def spoken(
    tokens: list[int],
    logits: list[Logits],
    *,
    finish: FinishReason = "stop",
    cut: int | None = None,
    stop_reason: str | int | None = None,
) -> Spoken:
    texts: list[str] = []
    left = math.inf if cut is None else cut
    for token in tokens:
        text = "" if token == END else VOCABULARY[token]
        texts.append(text if left >= len(text) else text[: int(left)])
        left -= len(texts[-1])
    return Spoken(tuple(tokens), tuple(texts), tuple(logits), finish, stop_reason)


Voice = Callable[[list[int]], Iterator[tuple[int, Logits]]]


@lru_cache(maxsize=64)
def shift_of(prompt: str) -> Logits:
    """What a prompt adds to the logits of each place in the cycle. A suite asks few prompts many times."""
    return generator_for("language", "prompt", prompt).normal(0.0, 2.0, (CYCLE, SIZE))


def free_voice(prompt: str, sampling: Sampling, length: int, draw: Generator, numerics: Numerics | None) -> Voice:
    shift = shift_of(prompt)

    def voice(said: list[int]) -> Iterator[tuple[int, Logits]]:
        while True:
            last = said[-1] if said else IDS["\n"]
            logits = bigrams()[last] + shift[len(said) % CYCLE]
            if numerics is not None:
                logits = numerics(logits)
            ends = len(said) + 1 >= length and not sampling.ignore_eos
            logits[END] = 60.0 if ends else IMPOSSIBLE
            if len(said) < sampling.min_tokens:
                logits[[END, *sampling.stop_token_ids]] = IMPOSSIBLE
            yield choose(logits, said, sampling, draw), logits

    return voice


def forced_voice(tokens: Sequence[int]) -> Voice:
    """A grammar that allows one token at a time gives it the whole probability."""

    def voice(said: list[int]) -> Iterator[tuple[int, Logits]]:
        for token in (*tokens, END):
            logits = np.full(SIZE, IMPOSSIBLE)
            logits[token] = 0.0
            yield token, logits

    return voice


def log_softmax(logits: Logits) -> Logits:
    highest = float(np.max(logits))
    shifted: Logits = logits - highest
    return shifted - math.log(float(np.sum(np.exp(shifted))))


def choose(logits: Logits, said: Sequence[int], sampling: Sampling, draw: Generator) -> int:
    logits = penalised(logits, said, sampling)
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    chances = np.exp(log_softmax(logits / sampling.temperature))
    return int(np.searchsorted(np.cumsum(filtered(chances, sampling)), draw.random(), side="right").clip(max=SIZE - 1))


def penalised(logits: Logits, said: Sequence[int], sampling: Sampling) -> Logits:
    """OpenAI's presence and frequency penalties, the repetition penalty of Keskar et al. (CTRL, 2019), bias, and what
    is forbidden."""
    if sampling.is_plain:
        return logits
    logits = logits.copy()
    counts = np.bincount(said, minlength=SIZE) if said else np.zeros(SIZE, np.int64)
    seen = counts > 0
    if sampling.repetition_penalty != 1:
        factor = np.where(logits > 0, 1 / sampling.repetition_penalty, sampling.repetition_penalty)
        logits[seen] *= factor[seen]
    logits -= sampling.frequency_penalty * counts + sampling.presence_penalty * seen
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    for *before, last in sampling.bad_words:
        if list(said[len(said) - len(before) :]) == before:
            logits[last] = IMPOSSIBLE
    if sampling.allowed:
        others = np.ones(SIZE, bool)
        others[list(sampling.allowed)] = False
        logits[others] = IMPOSSIBLE
    return logits


def filtered(chances: Logits, sampling: Sampling) -> Logits:
    if sampling.top_p >= 1 and not sampling.min_p and not sampling.top_k:
        return chances
    order = np.argsort(-chances, kind="stable")
    ordered = chances[order]
    kept = np.cumsum(ordered) - ordered < sampling.top_p
    kept &= ordered >= sampling.min_p * ordered[0]
    if sampling.top_k > 0:
        kept[sampling.top_k :] = False
    chosen = np.zeros_like(chances)
    chosen[order[kept]] = ordered[kept]
    return chosen / float(np.sum(chosen))
