"""Is there a server, and what does it say of itself?"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from loadtests.generator.answer import entries, mapping, name_of, parse, text_of
from loadtests.generator.endpoint import Endpoint, describe
from loadtests.generator.http_answer import BadAnswer, HttpAnswer
from loadtests.generator.said import PROMPT_RUN, Clean, brief_text, repeated_in
from loadtests.generator.way import Way, request_of

MAX_MODELS_BYTES = 4 << 20
# Owners of a model list whose server returns token ids when it is asked for them, and ignores nothing by doing so.
TELL_TOKEN_IDS = frozenset({"vllm"})


@dataclass(frozen=True)
class Reached:
    """The server answered; ``models`` is None where it has no model list for us. ``token_ids`` says whether it is known
    to return the ids of its tokens."""

    models: tuple[Clean, ...] | None
    token_ids: bool = False


class Unreachable(ConnectionError):
    """Nothing answers at the address, so nothing was sent."""


class ShortAnswer:
    """The whole body of an answer that isn't measured."""

    def __init__(self) -> None:
        self.http, self.body = HttpAnswer(), b""

    def take(self, data: bytes) -> bool:
        self.body += b"".join(self.http.feed(data))
        return self.http.complete or len(self.body) > MAX_MODELS_BYTES

    def end(self) -> None:
        self.http.end()


async def reach(endpoint: Endpoint, *, timeout_s: float = 10, prompts: Iterable[str] = ()) -> Reached:
    """Ask for the model list; any HTTP answer counts as reached. ``prompts`` are what it may have been asked before, by
    another run, and repeat. Raises Unreachable."""
    answer = ShortAnswer()
    try:
        async with asyncio.timeout(timeout_s):
            await Way(endpoint).ask(request_of(endpoint, "GET", endpoint.models_path), answer)
    except (OSError, BadAnswer) as error:
        why = endpoint.secrets.reason(brief_text(describe(error)), prompts)
        raise Unreachable(f"nothing could be sent: {endpoint.base_url} can't be reached ({why})") from None
    return told_by(answer, endpoint, prompts) if answer.http.status == 200 else Reached(None)


def told_by(answer: ShortAnswer, endpoint: Endpoint, prompts: Iterable[str]) -> Reached:
    listed = mapping(parse(answer.body.decode("utf-8", "replace"))).get("data")
    if not isinstance(listed, list):
        return Reached(None)
    cards = entries(listed)
    tells = any(text_of(card.get("owned_by")) in TELL_TOKEN_IDS for card in cards)
    return Reached(names_of([name for card in cards if (name := name_of(card.get("id")))], endpoint, prompts), tells)


def names_of(models: list[str], endpoint: Endpoint, prompts: Iterable[str]) -> tuple[Clean, ...]:
    """The one that we ask for is our own word; a prompt may well name it."""
    strange = [one for one in models if len(one) >= PROMPT_RUN and one != endpoint.model]
    repeated = repeated_in(strange, prompts) if strange else []
    return tuple(Clean(one) if one == endpoint.model else endpoint.secrets.name(one, repeated) for one in models)
