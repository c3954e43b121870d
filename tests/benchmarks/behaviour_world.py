"""One run of the behaviour suite where nothing differs: the baseline, the baseline again, and the same target behind a
drafter whose exact rule leaves its output as it is.

The suite's own code asks, reads, collects and judges. What is left out is what costs most and changes no answer: no
socket lies between the suite and the simulated server (the bytes are the same), a request has the engine to itself
instead of waiting for its clock, the evidence files are not written, and the samples of T3, two thirds of all answers,
are drawn for a whole prompt at once, by the same model, with no engine behind them.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.random import Generator
from pydantic import ValidationError

from loadtests.behaviour.answers import Answers
from loadtests.behaviour.case import Ask
from loadtests.behaviour.cases.parity import SAMPLED
from loadtests.behaviour.collect import Collecting
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import Server as ServerName
from loadtests.behaviour.result import SuiteResult
from loadtests.behaviour.server import Abilities, Server
from loadtests.configurations import Speculative
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.way import Listener, Way
from loadtests.simulator import preset
from loadtests.simulator.answering import CLASS, Answering, Work
from loadtests.simulator.api import AskedChat, AskedCompletion, AskedText, AskedTokens, Rejected
from loadtests.simulator.engine import Engine
from loadtests.simulator.exposition import metrics_text
from loadtests.simulator.language import (
    CYCLE,
    END,
    IDS,
    IMPOSSIBLE,
    VOCABULARY,
    Logits,
    Numerics,
    bigrams,
    decoded,
    encoded,
    shift_of,
)
from loadtests.simulator.live import Live
from loadtests.simulator.model import Nuisances, changed, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.server import VERSION, documents, error_document, event, first_problem
from loadtests.traffic.arrivals import generator_for

DRAFTER = Speculative(method="dflash", num_speculative_tokens=4)
MODEL = "simulated"
ENDPOINT = Endpoint("http://127.0.0.1:1", MODEL)
# Nats by which the logits of two answers differ. At 0.02 the next best token comes now and then where it is within a
# tie, and seldom where it is a little further away; in every arm alike.
WORLDS = {"rounding": 0.02, "exact": 0.0}
STEPS = 4_096
# What the request of a sample consists of, and how many are drawn at once.
OF_A_SAMPLE = {"prompt", "max_tokens", "temperature", "top_p", "top_logprobs", "return_tokens_as_token_ids", "seed"}
BATCH = 448
# The position, counted from 0, at which a bias is planted.
MOVED = 3
ABILITIES = Abilities(token_ids=True, tokenizer=True, counters=True, version=VERSION)
ASKED: dict[str, type[AskedChat] | type[AskedCompletion]] = {
    "/v1/chat/completions": AskedChat,
    "/v1/completions": AskedCompletion,
}


@dataclass(frozen=True)
class Flipping:
    """At this share of positions but the first, which no drafter proposes, the best token and the next change
    places."""

    share: float
    draw: Generator
    before: Numerics | None
    positions: Iterator[int] = field(default_factory=count)

    def __call__(self, logits: Logits) -> Logits:
        logits = logits if self.before is None else self.before(logits)
        if next(self.positions) and self.draw.random() < self.share:
            best, other = np.argsort(logits)[[-1, -2]]
            logits[[best, other]] = logits[[other, best]]
        return logits


class AtOnce(Answering):
    """Answers without a clock: the engine runs one sequence to its end, and another only then."""

    flips = 0.0

    def numerics(self, number: int, index: int) -> Numerics | None:
        found = super().numerics(number, index)
        if not self.flips:
            return found
        return Flipping(self.flips, generator_for("flips", self.engine.seed, number, index), found)

    async def tokens(self, work: Work) -> AsyncGenerator[tuple[int, range], None]:
        for index, demand in enumerate(work.demands):
            sequence = self.engine.submit(demand, self.engine.now)
            work.served.append(sequence)
            given = 0
            while given < demand.output_tokens:
                self.engine.advance(most=1 if work.asked.stream else STEPS)
                ready = demand.output_tokens if sequence.ended_at is not None else sequence.emitted_by(self.engine.step)
                if ready > given:
                    yield index, range(given, ready)
                    given = ready
            self.engine.finished.clear()


@dataclass(frozen=True)
class Told:
    status: int
    kind: str
    body: bytes

    @property
    def content(self) -> bytes:
        head = f"HTTP/1.1 {self.status} Told\r\nContent-Type: {self.kind}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        return head.encode() + self.body


def told(document: Any, status: int = 200) -> Told:
    return Told(status, "application/json", json.dumps(document).encode())


class InsideWay(Way):
    """The way to a server in this process: takes the bytes of a request, and hands over those of the answer."""

    def __init__(self, endpoint: Endpoint, answering: Answering) -> None:
        super().__init__(endpoint)
        self.answering = answering

    async def ask(self, request: bytes, listener: Listener) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].decode()
        try:
            found = await self.answer(path, body)
        except ValidationError as error:
            found = told(error_document(first_problem(error)), 400)
        except Rejected as rejected:
            found = told(error_document(str(rejected)), 400)
        if not listener.take(found.content):
            listener.end()

    async def answer(self, path: str, body: bytes) -> Told:
        if path == "/metrics":
            return Told(200, "text/plain", metrics_text(self.answering.live, MODEL).encode())
        if path == "/tokenize":
            return told({"tokens": encoded(AskedTokens.model_validate_json(body).prompt)})
        if path == "/detokenize":
            return told({"prompt": decoded(AskedText.model_validate_json(body).tokens)})
        asked = ASKED[path].model_validate_json(body)
        if not asked.stream:
            return told(await self.answering.whole(self.answering.work(asked)))
        async with aclosing(documents(self.answering, asked)) as chunks:
            events = [event(one) async for one in chunks]
        return Told(200, "text/event-stream", b"".join(events) + b"data: [DONE]\n\n")


class Inside(Server):
    """The simulated server, in this process."""

    def __init__(self, answering: Answering, seed: int, bias: float = 0.0) -> None:
        super().__init__(ENDPOINT, timeout_s=60)
        self._way, self.abilities = InsideWay(ENDPOINT, answering), ABILITIES
        self.engine, self.bias = answering.engine, bias
        self.draw = generator_for("samples", seed)
        self.samples: dict[str, list[list[int]]] = {}

    async def ask(self, ask: Ask, *, stream: bool) -> Reply:
        return self.sampled(ask) if is_sample(ask) else await super().ask(ask, stream=stream)

    def sampled(self, ask: Ask) -> Reply:
        told = [tuple(self.next_sample(ask)) for _ in range(ask.body.get("n", 1))]
        choices = [
            Choice(index, tuple(VOCABULARY[token] for token in tokens), tokens, finish_reason="length")
            for index, tokens in enumerate(told)
        ]
        # Of several answers no engine tells the drafts.
        speculation = self.engine.speculation if len(told) == 1 else None
        drafts = None if speculation is None else speculation.most * bool(told[0][1:])
        return Reply("answered", tuple(choices), http_status=200, draft_tokens=drafts)

    def next_sample(self, ask: Ask) -> list[int]:
        prompt = ask.body["prompt"]
        left = self.samples.setdefault(prompt, [])
        if not left:
            model = self.engine.model.lengths.of(CLASS)
            found = sampled(prompt, BATCH, self.draw, ask.body["temperature"], (model.median, model.sigma))
            left.extend(biased(found, prompt, self.bias, self.draw))
        return left.pop()


def is_sample(ask: Ask) -> bool:
    return set(ask.body) - {"n"} == OF_A_SAMPLE


def sampled(
    prompt: str, count: int, draw: Generator, temperature: float, length: tuple[float, float]
) -> list[list[int]]:
    """So many sampled beginnings of an answer, as ``speak`` samples one by one. ``length``: median and sigma of the
    answers' log-normal lengths."""
    lasts = np.full(count, IDS["\n"])
    ends = np.maximum(1, np.round(length[0] * np.exp(length[1] * draw.standard_normal(count))))
    said = []
    for position in range(SAMPLED):
        logits = bigrams()[lasts] + shift_of(prompt)[position % CYCLE]
        logits[:, END] = np.where(position + 1 >= ends, 60.0, IMPOSSIBLE)
        chances = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature).cumsum(axis=1)
        lasts = (chances < draw.random((count, 1)) * chances[:, -1:]).sum(axis=1)
        said.append(lasts)
    return [cut(one) for one in np.stack(said, axis=1).tolist()]


def cut(tokens: list[int]) -> list[int]:
    """Up to the end, which is a token too."""
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


def biased(samples: list[list[int]], prompt: str, share: float, draw: Generator) -> list[list[int]]:
    """As a drafter whose drafts from the prompt are kept too readily: in this share of them the token at one drafted
    position is one of the prompt's."""
    drafts = encoded(prompt)
    token = drafts[len(drafts) // 2]
    for one in samples:
        if len(one) > MOVED and draw.random() < share:
            one[MOVED] = token
    return samples


class Unkept(Answers):
    """Answers of which no file is made."""

    content = b""


def serving(
    setting: Speculative | None, seed: int, *, rounding: float = 0.0, bias: float = 0.0, flips: float = 0.0
) -> Server:
    model = changed(preset("cpu-2core"), {"nuisances": Nuisances()})
    engine = Engine(model, speculation_of(model, setting), pace=Pace(model.nuisances, 1), seed=seed)
    answering = AtOnce(Live(engine, 1.0), model=MODEL, fingerprint=model.digest, rounding=rounding)
    answering.flips = flips
    return Inside(answering, seed, bias)


def asked(asking: Server, plan: SuitePlan, name: ServerName) -> Answers:
    found: list[Answers] = []

    async def collect() -> None:
        # Returned by it, all answers would be written out by asyncio, which names its task as it leaves.
        found.append(await Collecting(asking, plan, name, None, asyncio.Event()).run())

    asyncio.run(collect())
    return found[0]


def one_run(plan: SuitePlan, world: str, number: int, *, bias: float = 0.0, flips: float = 0.0) -> SuiteResult:
    """The control is the baseline's server, asked again."""
    rounding = WORLDS[world]
    baseline = serving(None, 2 * number, rounding=rounding)
    candidate = serving(DRAFTER, 2 * number + 1, rounding=rounding, bias=bias, flips=flips)
    servers: dict[ServerName, Server] = {"baseline": baseline, "control": baseline, "candidate": candidate}
    answers = {name: Unkept(**vars(asked(one, plan, name))) for name, one in servers.items()}
    return judge(plan, answers["baseline"], answers["candidate"], answers["control"])
