"""The OpenAI-compatible requests and answers of the simulated engine, in the words of vLLM. Pure."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from loadtests.canonical import digest_of
from loadtests.simulator.counters import phases
from loadtests.simulator.language import (
    END_TEXT,
    SIZE,
    VOCABULARY,
    Logits,
    Sampling,
    Spoken,
    bigrams,
    encoded,
    log_softmax,
)
from loadtests.simulator.model import Speculation
from loadtests.simulator.prompts import rendered
from loadtests.simulator.sequence import Sequence as Served

# JSON has no infinity; vLLM writes this instead.
LEAST_LOGPROB = -9_999.0


class Rejected(Exception):
    """The request can't be served: a 400, with the sentence."""


class StreamOptions(BaseModel):
    include_usage: bool = False


class StructuredOutputs(BaseModel):
    """One of these; ``json`` is a schema."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    schema_: dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def just_one(self) -> "StructuredOutputs":
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("give one of json, regex, choice, grammar and json_object")
        return self


class Asked(BaseModel):
    """What both kinds of request share. Fields that are named nowhere are ignored, as the engine does."""

    model_config = ConfigDict(extra="allow")
    model: str = ""
    max_tokens: int | None = Field(None, ge=1)
    min_tokens: int = Field(0, ge=0)
    n: int = Field(1, ge=1, le=64)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, gt=0)
    logit_bias: dict[int, float] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool = False
    include_stop_str_in_output: bool = False
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = Field(None, ge=0, le=20)

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def called(self) -> str | None:
        """The tool that the answer has to call, if any."""
        return None

    @property
    def constraint(self) -> StructuredOutputs | None:
        """What the answer must follow, if anything; any object for ``json_object``."""
        asked = self.response_format or {"type": "text"}
        if asked.get("type") == "json_object":
            return StructuredOutputs(json_object=True)
        if asked.get("type") != "json_schema":
            return self.structured_outputs
        schema = (asked.get("json_schema") or {}).get("schema")
        if not isinstance(schema, dict):
            raise Rejected("response_format: json_schema needs a schema")
        return StructuredOutputs(json=schema)

    def sampling(self, max_tokens: int, speculating: bool) -> Sampling:
        if speculating and (self.min_p or self.logit_bias):
            # As vLLM does with speculative decoding (shared by all its runners).
            raise Rejected("The min_p and logit_bias sampling parameters are not supported with speculative decoding.")
        named = (*self.stop_token_ids, *(self.logit_bias or {}), *(self.allowed_token_ids or ()))
        if any(not 0 <= token < SIZE for token in named):
            raise Rejected(f"a token id lies outside the vocabulary of {SIZE}")
        if self.allowed_token_ids == []:
            raise Rejected("allowed_token_ids is not None and empty!")
        if self.min_tokens > max_tokens:
            raise Rejected(f"min_tokens {self.min_tokens} is above max_tokens {max_tokens}")
        return Sampling(
            **self.model_dump(
                include={
                    *("temperature", "top_p", "min_p", "seed", "min_tokens", "ignore_eos"),
                    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
                }
            ),
            top_k=max(0, self.top_k),
            max_tokens=max_tokens,
            stop=stops(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            logit_bias=self.logit_bias or {},
            include_stop=self.include_stop_str_in_output,
            bad_words=tuple(tokens for word in self.bad_words or () for tokens in as_tokens(word) if tokens),
            allowed=tuple(self.allowed_token_ids or ()),
        )


def as_tokens(word: str) -> Iterator[tuple[int, ...]]:
    """At the beginning of a text, and behind a space."""
    for text in (word.lstrip(), f" {word.lstrip()}"):
        yield tuple(encoded(text))


def stops(asked: str | list[str] | None) -> tuple[str, ...]:
    found = [asked] if isinstance(asked, str) else asked or []
    if "" in found:
        raise Rejected("stop cannot contain an empty string.")
    return tuple(found)


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class Function(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    parameters: dict[str, Any] = {"type": "object", "properties": {}}


class Tool(BaseModel):
    model_config = ConfigDict(extra="allow")
    function: Function


class NamedFunction(BaseModel):
    name: str


class NamedTool(BaseModel):
    model_config = ConfigDict(extra="allow")
    function: NamedFunction


class AskedChat(Asked):
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    tools: list[Tool] | None = None
    tool_choice: str | NamedTool | None = None

    @model_validator(mode="after")
    def newer_name(self) -> "AskedChat":
        self.max_tokens = self.max_completion_tokens or self.max_tokens
        return self

    @property
    def called(self) -> str | None:
        """A tool that is named, or the first where one is required; left to itself the model calls none."""
        if isinstance(self.tool_choice, NamedTool):
            return self.tool_choice.function.name
        return self.tools[0].function.name if self.tools and self.tool_choice == "required" else None

    @property
    def constraint(self) -> StructuredOutputs | None:
        if self.called is None:
            return super().constraint
        wanted = [one.function.parameters for one in self.tools or () if one.function.name == self.called]
        if not wanted:
            raise Rejected(f"tool_choice: there is no tool {self.called}")
        return StructuredOutputs(json=wanted[0])

    @property
    def prompt(self) -> str:
        return rendered((one.role, one.text) for one in self.messages)

    @property
    def content(self) -> str:
        """The same name for the text as evidence has, so that both engines find the same text equally easy."""
        return digest_of([one.model_dump(exclude_unset=True) for one in self.messages])

    @property
    def most_logprobs(self) -> int | None:
        return self.top_logprobs if self.logprobs else None


class AskedCompletion(Asked):
    prompt: str
    logprobs: int | None = Field(None, ge=0, le=20)

    @property
    def content(self) -> str:
        return digest_of([self.prompt])

    @property
    def most_logprobs(self) -> int | None:
        return self.logprobs


class AskedTokens(BaseModel):
    """Of a text, from ``/tokenize``."""

    prompt: str


class AskedText(BaseModel):
    """Of tokens, from ``/detokenize``."""

    tokens: list[int]


def usage_of(prompt_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }


def metrics_of(
    served: Sequence[Served], spoken: Sequence[Spoken], speculation: Speculation | None, speed: float
) -> dict[str, Any]:
    """As vLLM's per-request metrics: null for several answers, and without rounds where a stop string ended it. In the
    client's time: at ``speed`` 10 the engine is simply ten times as fast."""
    names = ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms", "mean_itl_ms", "tokens_per_second")
    told: dict[str, Any] = dict.fromkeys(names) | {"speculative_decoding": None}
    if len(served) != 1:
        return told
    (one,) = served
    queue, prefill, decode = (seconds * 1e3 / speed for seconds in phases(one)[:3])
    told |= {
        "queue_time_ms": queue,
        "time_to_first_token_ms": prefill,
        "generation_time_ms": decode,
        "mean_itl_ms": decode / (one.output - 1) if one.output > 1 else None,
        # A clock that runs a million times as fast may not have moved meanwhile.
        "tokens_per_second": one.output / (prefill + decode) * 1e3 if prefill + decode else None,
    }
    if speculation is not None and not isinstance(spoken[0].stop_reason, str):
        told["speculative_decoding"] = speculative_metrics(one, speculation)
    return told


def speculative_metrics(one: Served, speculation: Speculation) -> dict[str, Any]:
    rounds, accepted, drafts = one.tally.rounds, one.tally.accepted, one.tally.drafts
    return {
        "mean_acceptance_length": 1 + accepted / rounds if rounds else 1.0,
        "draft_acceptance_rate": accepted / drafts if drafts else 0.0,
        "acceptance_histogram": one.tally.kept.tolist(),
        "num_spec_steps": rounds,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafts,
        "num_spec_tokens": speculation.most,
    }


def written(token: int) -> str:
    return VOCABULARY[token] or END_TEXT


def logprob(logprobs: Logits, token: int) -> float:
    value = float(logprobs[token])
    return value if math.isfinite(value) else LEAST_LOGPROB


def best(logprobs: Logits, most: int) -> list[int]:
    return [int(token) for token in np.argsort(-logprobs, kind="stable")[:most]] if most else []


def chat_logprobs(spoken: Spoken, tokens: range, most: int) -> dict[str, Any]:
    def entry(logprobs: Logits, token: int) -> dict[str, Any]:
        text = written(token)
        return {"token": text, "logprob": logprob(logprobs, token), "bytes": list(text.encode())}

    content = []
    for index in tokens:
        logprobs = log_softmax(spoken.logits[index])
        top = [entry(logprobs, token) for token in best(logprobs, most)]
        content.append(entry(logprobs, spoken.tokens[index]) | {"top_logprobs": top})
    return {"content": content}


def completion_logprobs(spoken: Spoken, tokens: range, most: int) -> dict[str, Any]:
    told: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    offset = sum(len(text) for text in spoken.texts[: tokens.start])
    for index in tokens:
        logprobs, token = log_softmax(spoken.logits[index]), spoken.tokens[index]
        told["text_offset"].append(offset)
        told["tokens"].append(written(token))
        told["token_logprobs"].append(logprob(logprobs, token))
        # The chosen token is always among them, as in vLLM.
        shown = dict.fromkeys([token, *best(logprobs, most)])
        told["top_logprobs"].append({written(one): logprob(logprobs, one) for one in shown} if most else None)
        offset += len(spoken.texts[index])
    return told


def prompt_logprobs(prompt: str, most: int) -> list[dict[str, Any] | None]:
    """Of each token of the prompt but the first, by what stands before it; the prompt's own token is always among
    them, as in vLLM."""
    tokens = encoded(prompt)
    told: list[dict[str, Any] | None] = [None]
    for before, token in pairwise(tokens):
        logprobs = log_softmax(bigrams()[before])
        ranks = {int(one): rank for rank, one in enumerate(np.argsort(-logprobs, kind="stable"), 1)}
        shown = dict.fromkeys([token, *best(logprobs, most)])
        told.append(
            {
                str(one): {"logprob": logprob(logprobs, one), "rank": ranks[one], "decoded_token": written(one)}
                for one in shown
            }
        )
    return told[: len(tokens)]
