"""From a request to the documents that answer it: the text is settled at once, the engine says when it comes."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from numpy.random import Generator

from loadtests.simulator.api import (
    AskedChat,
    AskedCompletion,
    Rejected,
    StructuredOutputs,
    chat_logprobs,
    completion_logprobs,
    metrics_of,
    prompt_logprobs,
    usage_of,
)
from loadtests.simulator.grammar_text import grammar_text, pattern_text
from loadtests.simulator.language import Numerics, Rounding, Sampling, Spoken, encoded, speak
from loadtests.simulator.live import Live
from loadtests.simulator.prompts import natural_length, pieces, prefix_blocks, too_long
from loadtests.simulator.schema_text import json_text, pick
from loadtests.simulator.sequence import Demand, Sequence
from loadtests.traffic.arrivals import generator_for

CLASS = "default"
ANY_OBJECT = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@dataclass
class Work:
    """One accepted request: what will be said, and for each of its answers what is asked of the engine."""

    asked: AskedChat | AskedCompletion
    id: str
    created: int
    prompt_tokens: int
    spoken: list[Spoken]
    demands: list[Demand]
    served: list[Sequence] = field(default_factory=list)

    @property
    def is_chat(self) -> bool:
        return isinstance(self.asked, AskedChat)

    @property
    def output_tokens(self) -> int:
        return sum(len(one.tokens) for one in self.spoken)


class Answering:
    """``rounding``: how far, in nats, the logits of two answers to one request lie apart (see ``Rounding``)."""

    def __init__(self, live: Live, *, model: str, fingerprint: str, rounding: float = 0.0) -> None:
        self.live, self.model, self.fingerprint, self.rounding = live, model, fingerprint, rounding
        self.engine = live.engine
        self._numbers = itertools.count(1)

    @property
    def card(self) -> dict[str, Any]:
        limit = self.engine.model.max_model_len
        return {"id": self.model, "object": "model", "owned_by": "simulator", "max_model_len": limit}

    def work(self, asked: AskedChat | AskedCompletion) -> Work:
        """Raises Rejected, with the sentence for the client."""
        if asked.model not in ("", self.model):
            raise Rejected(f"The model `{asked.model}` does not exist.")
        prompt = pieces(asked.prompt)
        limit = self.engine.model.max_model_len
        max_tokens = asked.max_tokens or (16 if isinstance(asked, AskedCompletion) else max(1, limit - len(prompt)))
        if refusal := too_long(limit, max(1, len(prompt)), max_tokens):
            raise Rejected(refusal)
        sampling = asked.sampling(max_tokens, self.engine.speculation is not None)
        number = next(self._numbers)
        spoken = [self.speak(asked, sampling, number, index) for index in range(asked.n)]
        name = f"{'chatcmpl' if isinstance(asked, AskedChat) else 'cmpl'}-{number:08d}"
        prefix = prefix_blocks(prompt, self.engine.model.block_size) if self.engine.cache else ()
        demands = [
            Demand(
                f"{name}-{index}", CLASS, asked.content, max(1, len(prompt)), len(one.tokens), one.finish_reason, prefix
            )
            for index, one in enumerate(spoken)
        ]
        return Work(asked, name, int(time.time()), max(1, len(prompt)), spoken, demands)

    def speak(self, asked: AskedChat | AskedCompletion, sampling: Sampling, number: int, index: int) -> Spoken:
        draw = drawing(sampling, number, index)
        # Greedy answers to one text are all of one length, sampled ones are not.
        labels = [asked.content] if sampling.temperature == 0 else [asked.content, int(draw.integers(2**32))]
        length = natural_length(self.engine.model.lengths, CLASS, self.engine.content_seed, *labels)
        forced, numerics = forced_tokens(asked), self.numerics(number, index)
        return speak(asked.prompt, sampling, length=length, draw=draw, forced=forced, numerics=numerics)

    def numerics(self, number: int, index: int) -> Numerics | None:
        """The boot's own: two servers of one target round otherwise."""
        if not self.rounding:
            return None
        return Rounding(self.rounding, generator_for("rounding", self.engine.seed, number, index))

    async def chunks(self, work: Work) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of a stream in their order, from all of the request's answers."""
        if work.is_chat:
            for index in range(work.asked.n):
                yield self.chunk(work, index, {"delta": first_delta(work, index)})
        async with aclosing(self.tokens(work)) as ready:
            async for index, tokens in ready:
                piece = self.piece(work, index, tokens)
                if piece is not None:
                    yield self.chunk(work, index, piece)
        if work.asked.include_usage:
            yield self.document(work, choices=[]) | self.told_at_the_end(work)

    async def tokens(self, work: Work) -> AsyncGenerator[tuple[int, range], None]:
        """(answer, tokens that it has now) as they come. Closing this stops all of the request's sequences."""
        ready: asyncio.Queue[tuple[int, range]] = asyncio.Queue()

        async def hear(index: int, demand: Demand) -> None:
            async with aclosing(self.live.serve(demand, work.served)) as steps:
                async for tokens in steps:
                    ready.put_nowait((index, tokens))

        hearing = [asyncio.create_task(hear(index, demand)) for index, demand in enumerate(work.demands)]
        left = work.output_tokens
        try:
            while left:
                index, tokens = await ready.get()
                left -= len(tokens)
                yield index, tokens
        finally:
            for task in hearing:
                task.cancel()
            await asyncio.gather(*hearing, return_exceptions=True)

    async def whole(self, work: Work) -> dict[str, Any]:
        async with aclosing(self.tokens(work)) as ready:
            async for _ in ready:
                pass
        choices = [self.choice(work, index) for index in range(work.asked.n)]
        told = self.document(work, choices=choices, suffix="") | self.told_at_the_end(work)
        if (most := work.asked.prompt_logprobs) is not None:
            # A chat tells of its prompt beside the choices, a completion in each of them.
            for place in [told] if work.is_chat else choices:
                place["prompt_logprobs"] = prompt_logprobs(work.asked.prompt, most)
        return told

    def choice(self, work: Work, index: int) -> dict[str, Any]:
        spoken = work.spoken[index]
        said = {"message": message(work, index, spoken.text)} if work.is_chat else {"text": spoken.text}
        return {"index": index} | said | self.beside(work, spoken, range(len(spoken.tokens)))

    def piece(self, work: Work, index: int, tokens: range) -> dict[str, Any] | None:
        """What a chunk says of these tokens; None where there is nothing to say (the text is cut at a stop string)."""
        spoken = work.spoken[index]
        text = "".join(spoken.texts[tokens.start : tokens.stop])
        beside = self.beside(work, spoken, tokens)
        if not text and beside["finish_reason"] is None and beside["logprobs"] is None and "token_ids" not in beside:
            return None
        if work.asked.called is not None:
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]} if text else {}
            return {"delta": delta} | beside
        return ({"delta": {"content": text}} if work.is_chat else {"text": text}) | beside

    def beside(self, work: Work, spoken: Spoken, tokens: range) -> dict[str, Any]:
        ended = tokens.stop == len(spoken.tokens)
        told: dict[str, Any] = {
            "logprobs": logprobs_of(work.asked, spoken, tokens),
            "finish_reason": spoken.finish_reason if ended else None,
            "stop_reason": spoken.stop_reason if ended else None,
        }
        if work.asked.return_token_ids:
            told["token_ids"] = list(spoken.tokens[tokens.start : tokens.stop])
        return told

    def chunk(self, work: Work, index: int, piece: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": index, "logprobs": None, "finish_reason": None} | piece
        return self.document(work, choices=[choice])

    def document(self, work: Work, *, choices: list[dict[str, Any]], suffix: str = ".chunk") -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if work.is_chat else "text_completion"
        return {"id": work.id, "object": kind, "created": work.created, "model": self.model, "choices": choices}

    def told_at_the_end(self, work: Work) -> dict[str, Any]:
        return {
            "usage": usage_of(work.prompt_tokens, work.output_tokens),
            "system_fingerprint": self.fingerprint,
            "metrics": metrics_of(work.served, work.spoken, self.engine.speculation, self.live.speed),
        }


def drawing(sampling: Sampling, number: int, index: int) -> Generator:
    """With a seed the draws are the seed's, without one the request's own."""
    if sampling.seed is None:
        return generator_for("sampling", "request", number, index)
    return generator_for("sampling", "seed", sampling.seed, index)


def forced_tokens(asked: AskedChat | AskedCompletion) -> list[int] | None:
    constraint = asked.constraint
    if constraint is None:
        return None
    try:
        text = constrained_text(constraint, generator_for("language", "schema", asked.content))
    except ValueError as error:
        raise Rejected(str(error)) from None
    if not text.isascii():
        raise Rejected("the simulator's vocabulary has no character beyond ASCII")
    return encoded(text)


def constrained_text(wanted: StructuredOutputs, draw: Generator) -> str:
    """Raises ValueError for what the simulator's grammar doesn't know."""
    if wanted.regex is not None:
        return pattern_text(wanted.regex, draw)
    if wanted.grammar is not None:
        return grammar_text(wanted.grammar, draw)
    if wanted.choice is not None:
        return str(pick(wanted.choice, draw))
    return json_text(ANY_OBJECT if wanted.schema_ is None else wanted.schema_, draw)


def call_of(work: Work, index: int) -> dict[str, Any]:
    return {"id": f"call-{work.id}-{index}", "type": "function"}


def message(work: Work, index: int, text: str) -> dict[str, Any]:
    """A whole answer: a text, or the call of the tool that the request names."""
    if (name := work.asked.called) is None:
        return {"role": "assistant", "content": text}
    call = call_of(work, index) | {"function": {"name": name, "arguments": text}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def first_delta(work: Work, index: int) -> dict[str, Any]:
    if (name := work.asked.called) is None:
        return {"role": "assistant", "content": ""}
    call = {"index": 0} | call_of(work, index) | {"function": {"name": name, "arguments": ""}}
    return {"role": "assistant", "tool_calls": [call]}


def logprobs_of(asked: AskedChat | AskedCompletion, spoken: Spoken, tokens: range) -> dict[str, Any] | None:
    most = asked.most_logprobs
    if most is None:
        return None
    return (chat_logprobs if isinstance(asked, AskedChat) else completion_logprobs)(spoken, tokens, most)
