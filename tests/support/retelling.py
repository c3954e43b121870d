"""An answer taken apart into its tokens, changed, and told again as the server would have told it.

For faults in which tokens themselves are others: text, ids, logprobs, usage and chunks of the new answer agree, so that
nothing but the tokens gives it away.
"""

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadtests.simulator.language import END, END_TEXT, IDS, encoded
from tests.support.exchanges import COMPLETIONS, GRAMMARS, Answer, Asked, Document, Exchange, say

AS_ID = "token_id:"
LEAST_LOGPROB = -9_999.0
# Alternatives that are asked for, of which one is no special token.
ALTERNATIVES = 5
# A changed token could make a stop fall elsewhere, or weigh with a penalty: such answers are left as they are.
PARTICULAR = (
    "stop",
    "stop_token_ids",
    "tools",
    "min_tokens",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    *GRAMMARS,
)
PENALTIES = ("presence_penalty", "frequency_penalty")


@dataclass(frozen=True)
class Token:
    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Told:
    """One answer of a request."""

    tokens: tuple[Token, ...]
    finish_reason: str
    stop_reason: str | int | None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(one.id for one in self.tokens)

    @property
    def visible(self) -> tuple[int, ...]:
        """Without the token that ended it."""
        ended = self.finish_reason == "stop" and not isinstance(self.stop_reason, str)
        return self.ids[:-1] if ended else self.ids


Edit = Callable[[Exchange, Document, Told], Awaitable[Told]]


def is_plain(asked: Asked) -> bool:
    body = asked.body
    special = any(body.get(name) for name in (*PARTICULAR, *PENALTIES)) or asked.has_grammar
    return not special and body.get("repetition_penalty") in (None, 1)


async def retold(one: Exchange, edit: Edit) -> Answer:
    """The answer with each of its choices edited; as it is where it can't be taken apart."""
    found = await one.whole(detailed(one.asked))
    if found.failed or any(not choice.get("token_ids") for choice in found.choices):
        return await one.ask()
    (document,) = found.documents
    # The simulated engine ignores the field.
    asked_for_ids = bool(one.asked.body.get("return_tokens_as_token_ids"))
    one.names_ids = asked_for_ids and any(names_ids(choice) for choice in document["choices"])
    told = [await edit(one, document, told_of(choice)) for choice in document["choices"]]
    tell = streamed if one.asked.streamed else whole
    return Answer(200, one.asked.streamed, await tell(one, document, told))


def detailed(asked: Asked) -> Asked:
    asked = asked.without("echo", "prompt_logprobs").but(return_token_ids=True, return_tokens_as_token_ids=True)
    if asked.is_chat:
        return asked.but(logprobs=True, top_logprobs=max(asked.body.get("top_logprobs") or 0, ALTERNATIVES))
    return asked.but(logprobs=max(asked.body.get("logprobs") or 0, ALTERNATIVES))


def id_of(written: str) -> int:
    """vLLM writes ids when it is asked to; the simulated engine writes texts."""
    if written.startswith(AS_ID):
        return int(written.removeprefix(AS_ID))
    return END if written == END_TEXT else IDS[written]


def names_ids(choice: Document) -> bool:
    return AS_ID in json.dumps(choice["logprobs"])


def told_of(choice: Document) -> Told:
    logprobs, ids = choice["logprobs"], choice["token_ids"]
    if "content" in logprobs:
        tops = [[(id_of(top["token"]), top["logprob"]) for top in one["top_logprobs"]] for one in logprobs["content"]]
        values = [one["logprob"] for one in logprobs["content"]]
    else:
        tops = [[(id_of(token), value) for token, value in one.items()] for one in logprobs["top_logprobs"]]
        values = logprobs["token_logprobs"]
    ordered = [tuple(sorted(one, key=lambda pair: -pair[1])) for one in tops]
    tokens = tuple(Token(*one) for one in zip(ids, values, ordered, strict=True))
    return Told(tokens, choice["finish_reason"], choice.get("stop_reason"))


def flipping(share: float, *, within: float = math.inf) -> Edit:
    """At this share of positions the next best token stands, if it is as near as ``within`` nats, and the answer goes
    on from there."""

    async def flip(one: Exchange, document: Document, told: Told) -> Told:
        # The first token comes of the prompt and is never drafted.
        at = 0
        while True:
            at += int(one.draw.geometric(share))
            if at >= len(told.visible):
                return told
            other = await next_best(one, told.tokens[at])
            if other is not None and told.tokens[at].logprob - other.logprob <= within:
                told = await continued(one, document, (*told.tokens[:at], other))

    return flip


async def next_best(one: Exchange, token: Token) -> Token | None:
    """The likeliest token of another text that ends nothing."""
    chosen = await one.decode((token.id,))
    for id_, logprob in token.top:
        text = await one.decode((id_,))
        if text not in ("", chosen) and not text.startswith("<|"):
            return replace(token, id=id_, logprob=logprob)
    return None


async def continued(one: Exchange, document: Document, head: tuple[Token, ...]) -> Told:
    """What the server makes of an answer that begins like this."""
    most = one.asked.most_tokens
    if most is not None and len(head) >= most:
        return Told(head, "length", None)
    kept = one.asked.without("messages", "top_logprobs", "stream_options", "n", "max_completion_tokens")
    ids = tuple(token.id for token in head)
    prompt = await continued_prompt(one, document, ids)
    limit = {} if most is None else {"max_tokens": most - len(head)}
    further = Asked(COMPLETIONS, kept.body | limit | {"prompt": prompt})
    found = await one.whole(detailed(further.without("logprobs")))
    if found.failed:
        return Told(head, "length", None)
    rest = told_of(found.last)
    return replace(rest, tokens=(*head, *rest.tokens))


async def continued_prompt(one: Exchange, document: Document, ids: tuple[int, ...]) -> Any:
    told = prompt_ids(document)
    # The simulated engine takes text alone, and any text gives one.
    return one.asked.prompt + await one.decode(ids) if told is None else [*told, *ids]


def prompt_ids(document: Document) -> list[int] | None:
    found: list[int] | None = document.get("prompt_token_ids") or document["choices"][0].get("prompt_token_ids")
    return found


def biased(share: float, positions: range) -> Edit:
    """As if drafts taken from the prompt were accepted too readily: at each of these positions this share of the
    answers has a token of the prompt instead of its own. What follows stays, so each position's share is exact."""

    async def bias(one: Exchange, document: Document, told: Told) -> Told:
        drafts = prompt_ids(document) or encoded(one.asked.prompt)
        middle = len(drafts) // 2
        tokens = list(told.tokens)
        for at in positions:
            if at < len(told.visible) and one.draw.random() < share:
                tokens[at] = redrawn(tokens[at], drafts[(middle + at) % len(drafts)])
        return replace(told, tokens=tuple(tokens))

    return bias


def redrawn(token: Token, id_: int) -> Token:
    return replace(token, id=id_, logprob=dict(token.top).get(id_, LEAST_LOGPROB))


async def whole(one: Exchange, document: Document, told: Sequence[Told]) -> list[Document]:
    choices = []
    for choice, said in zip(document["choices"], told, strict=True):
        made = choice | {"message": dict(choice["message"])} if "message" in choice else dict(choice)
        say(made, await one.decode(said.visible))
        choices.append(made | await beside(one, said, range(len(said.tokens)), ended=True))
    return [unasked_left_out(one.asked, document | {"choices": choices, "usage": usage_of(document, told)})]


def usage_of(document: Document, told: Sequence[Told]) -> Document:
    count = sum(len(one.tokens) for one in told)
    before: Document = document["usage"]
    return before | {"completion_tokens": count, "total_tokens": before["prompt_tokens"] + count}


async def beside(one: Exchange, told: Told, which: range, *, ended: bool) -> Document:
    """What a choice says of these tokens beside their text."""
    return {
        "logprobs": await logprobs_of(one, told, which),
        "token_ids": list(told.ids[which.start : which.stop]),
        "finish_reason": told.finish_reason if ended else None,
        "stop_reason": told.stop_reason if ended else None,
    }


async def streamed(one: Exchange, document: Document, told: Sequence[Told]) -> list[Document]:
    """A chunk for each token."""
    asked = one.asked
    shared = {name: document[name] for name in ("id", "created", "model")}
    shared["object"] = "chat.completion.chunk" if asked.is_chat else "text_completion"
    chunks: list[Document] = []
    for index, said in enumerate(told):
        if asked.is_chat:
            chunks.append({"choices": [{"index": index, "delta": {"role": "assistant", "content": ""}}]})
        for at, text in enumerate(await texts_of(one, said)):
            ended = at == len(said.tokens) - 1
            spoken = {"delta": {"content": text}} if asked.is_chat else {"text": text}
            chunks.append(
                {"choices": [{"index": index} | spoken | await beside(one, said, range(at, at + 1), ended=ended)]}
            )
    first = chunks[0] if asked.is_chat else chunks[0]["choices"][0]
    first["prompt_token_ids"] = prompt_ids(document)
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        end = {name: document.get(name) for name in ("system_fingerprint", "metrics")}
        chunks.append({"choices": [], "usage": usage_of(document, told)} | end)
    return [unasked_left_out(asked, shared | chunk) for chunk in chunks]


async def texts_of(one: Exchange, told: Told) -> list[str]:
    """What each token adds; half a character waits for its other half."""
    texts, said = [], ""
    for count in range(1, len(told.visible) + 1):
        text = await one.decode(told.visible[:count])
        new = "" if text.endswith("\ufffd") and count < len(told.visible) else text[len(said) :]
        said += new
        texts.append(new)
    return texts + [""] * (len(told.tokens) - len(told.visible))


def unasked_left_out(asked: Asked, document: Document) -> Document:
    if not asked.body.get("return_token_ids"):
        for one in (document, *document["choices"]):
            one.pop("prompt_token_ids", None)
            one.pop("token_ids", None)
    return document


async def logprobs_of(one: Exchange, told: Told, which: range) -> Document | None:
    body = one.asked.body
    tokens = told.tokens[which.start : which.stop]
    if one.asked.is_chat:
        if not body.get("logprobs"):
            return None
        most = body.get("top_logprobs") or 0
        entries = [
            await entry(one, token.id, token.logprob)
            | {"top_logprobs": [await entry(one, *top) for top in token.top[:most]]}
            for token in tokens
        ]
        return {"content": entries}
    if body.get("logprobs") is None:
        return None
    return await completion_logprobs(one, told, which, body["logprobs"])


async def entry(one: Exchange, id_: int, logprob: float) -> Document:
    text = await written(one, id_)
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


async def completion_logprobs(one: Exchange, told: Told, which: range, most: int) -> Document:
    tokens = told.tokens[which.start : which.stop]
    shown = [dict([(token.id, token.logprob), *token.top[:most]]) for token in tokens]
    texts = await texts_of(one, told)
    return {
        "text_offset": [len("".join(texts[:at])) for at in which],
        "token_logprobs": [token.logprob for token in tokens],
        "tokens": [await written(one, token.id) for token in tokens],
        "top_logprobs": [{await written(one, id_): value for id_, value in each.items()} for each in shown],
    }


async def written(one: Exchange, id_: int) -> str:
    return f"{AS_ID}{id_}" if one.names_ids else await one.decode((id_,)) or END_TEXT
