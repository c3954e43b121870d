"""What goes wrong with speculative decoding in the field, one fault at a time: each takes a request and gives an answer
that a server with this fault would give. The names are those that tests and tables use.

Where it can be done, the server itself is asked for something else (a setting left out, a limit moved by one), so that
the faulty answer is whole in every other respect.
"""

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.support.exchanges import (
    GRAMMARS,
    Answer,
    Asked,
    Document,
    Exchange,
    calls,
    logprob_lists,
    say,
    speaking,
    text_of,
)
from tests.support.retelling import PENALTIES, biased, flipping, is_plain, retold

# Tokens that one round may bring: what falls within them falls into one round.
ROUND = 5
# Every so many requests one is lost, and so many at once are a crowd.
LOST_EVERY, CROWD = 5, 3
FLIPPED, FLIPPED_IN_A_CROWD, MOVED = 0.02, 0.2, 0.05
# Counted from 0: the second to the sixth token.
DRAFTED = range(1, 6)
SWAPPED = {"stop": "length", "length": "stop"}
OTHER_SCHEMA: Document = {
    "type": "object",
    "properties": {"draft": {"type": "boolean"}},
    "required": ["draft"],
    "additionalProperties": False,
}

Act = Callable[[Exchange], Awaitable[Answer]]


@dataclass(frozen=True)
class Fault:
    says: str
    act: Act


FAULTS: dict[str, Fault] = {}


def fault(says: str) -> Callable[[Act], Act]:
    """Registers the fault under the function's name."""

    def register(act: Act) -> Act:
        FAULTS[act.__name__.replace("_", "-")] = Fault(says, act)
        return act

    return register


def asked_as(name: str, says: str, change: Callable[[Asked], Asked]) -> None:
    """A fault of a server that answers another request than it was asked."""

    async def act(one: Exchange) -> Answer:
        return await one.ask(change(one.asked))

    FAULTS[name] = Fault(says, act)


def ignored(name: str, *fields: str) -> None:
    asked_as(name, f"{' and '.join(fields)} ignored in silence", lambda asked: asked.without(*fields))


ignored("penalties-ignored", *PENALTIES, "repetition_penalty")
ignored("bad-words-ignored", "bad_words")
ignored("allowed-tokens-ignored", "allowed_token_ids")
ignored("min-p-dropped", "min_p")
ignored("logit-bias-dropped", "logit_bias")
ignored("end-not-ignored", "ignore_eos")
ignored("stop-tokens-ignored", "stop_token_ids")
ignored("seeds-ignored", "seed")
ignored("top-p-and-top-k-ignored", "top_p", "top_k")
ignored("stop-strings-missed", "stop")
ignored("grammar-not-followed", "response_format", *GRAMMARS)
asked_as(
    "grammar-lost-for-several",
    "a grammar is followed for one answer, not for n > 1",
    lambda asked: asked.without("response_format", *GRAMMARS) if asked.answers > 1 else asked,
)
asked_as(
    "min-tokens-one-less",
    "min_tokens is off by one",
    lambda asked: asked.but(min_tokens=asked.body["min_tokens"] - 1) if asked.body.get("min_tokens") else asked,
)
asked_as(
    "max-tokens-one-more",
    "max_tokens is off by one",
    lambda asked: asked if asked.most_tokens is None else asked.at_most(asked.most_tokens + 1),
)
asked_as(
    "fewer-answers",
    "n > 1 gives one answer too few",
    lambda asked: asked.but(n=asked.answers - 1) if asked.answers > 1 else asked,
)


def with_other_schema(asked: Asked) -> Asked:
    format_ = asked.body.get("response_format") or {}
    if format_.get("type") == "json_schema":
        named = format_["json_schema"] | {"schema": OTHER_SCHEMA}
        return asked.but(response_format=format_ | {"json_schema": named})
    grammar = asked.body.get("structured_outputs") or {}
    return asked.but(structured_outputs=grammar | {"json": OTHER_SCHEMA}) if grammar.get("json") else asked


asked_as("another-schema", "valid JSON of another schema", with_other_schema)


@fault("of two stop strings that fall into one round, the later one wins")
async def wrong_stop_wins(one: Exchange) -> Answer:
    asked = one.asked
    found = await one.whole() if len(asked.stops) > 1 and asked.repeatable and asked.answers == 1 else None
    if found is None or found.failed:
        return await one.ask()
    others = [stop for stop in asked.stops if stop != found.last.get("stop_reason")]
    if len(others) == len(asked.stops):
        return await one.ask()
    later = await one.whole(asked.but(stop=others))
    near = later.last.get("stop_reason") in others and later.tokens - found.tokens <= ROUND
    return await one.ask(asked.but(stop=others) if near else asked)


async def past_the_stop(one: Exchange) -> tuple[str, Asked] | None:
    """The stop string that ends the answer, and a request for the answer with the rest of its round."""
    asked = one.asked
    if not (asked.stops and asked.repeatable and asked.answers == 1):
        return None
    found = await one.whole()
    reason = None if found.failed else found.last.get("stop_reason")
    if not isinstance(reason, str):
        return None
    return reason, asked.without("stop").at_most(found.tokens + 2)


@fault("the stop string and the rest of its round are in the text")
async def text_past_the_stop(one: Exchange) -> Answer:
    further = await past_the_stop(one)
    if further is None:
        return await one.ask()
    reason, asked = further
    answer = await one.ask(asked)
    answer.last.update(finish_reason="stop", stop_reason=reason)
    return answer


@fault("tokens and logprobs go on past the stop string")
async def logprobs_past_the_stop(one: Exchange) -> Answer:
    answer, further = await one.ask(), await past_the_stop(one)
    if further is None:
        return answer
    longer = await one.whole(further[1])
    had = list(answer.choices)
    for name, values in logprob_lists(longer.last).items():
        count = sum(len(logprob_lists(choice).get(name, ())) for choice in had)
        told = answer.last.get("logprobs") or {}
        answer.last["logprobs"] = told | {name: [*(told.get(name) or ()), *values[count:]]}
    if answer.last.get("token_ids") is not None:
        count = sum(len(choice.get("token_ids") or ()) for choice in had)
        answer.last["token_ids"] = answer.last["token_ids"] + longer.last["token_ids"][count:]
    return answer


@fault("an answer under a grammar ends in the middle, as if it were whole")
async def grammar_ends_early(one: Exchange) -> Answer:
    found = await one.whole() if one.asked.has_grammar and one.asked.answers == 1 else None
    if found is None or found.failed or found.tokens < 2:
        return await one.ask()
    answer = await one.ask(one.asked.at_most(found.tokens // 2))
    answer.last["finish_reason"] = "stop"
    return answer


@fault("a grammar is killed, and the answer is empty")
async def grammar_killed(one: Exchange) -> Answer:
    answer = await one.ask()
    if one.asked.has_grammar and not answer.failed:
        blank(answer)
    return answer


def blank(answer: Answer) -> None:
    for choice in answer.choices:
        say(choice, "")
        if choice.get("token_ids"):
            choice["token_ids"] = []
        for values in logprob_lists(choice).values():
            values.clear()
    for usage in answer.usages:
        usage.update(completion_tokens=0, total_tokens=usage["prompt_tokens"])


@fault("a streamed answer lacks a letter")
async def stream_lacks_a_letter(one: Exchange) -> Answer:
    answer = await one.ask()
    said = speaking(answer)
    if answer.streamed and said:
        choice = said[len(said) // 2]
        say(choice, text_of(choice)[1:])
    return answer


@fault("the arguments of a tool call lack their end")
async def tool_arguments_cut(one: Exchange) -> Answer:
    answer = await one.ask()
    for choice in () if answer.streamed else answer.choices:
        for function in calls(choice):
            function["arguments"] = function["arguments"][:-1]
    return answer


@fault("a piece of a streamed tool call's arguments comes twice")
async def streamed_tool_arguments_repeat(one: Exchange) -> Answer:
    answer = await one.ask()
    pieces = [function for choice in answer.choices for function in calls(choice) if function.get("arguments")]
    if answer.streamed and pieces:
        pieces[-1]["arguments"] *= 2
    return answer


@fault("usage counts a draft that was rejected")
async def usage_counts_a_draft(one: Exchange) -> Answer:
    answer = await one.ask()
    for usage in answer.usages:
        usage["completion_tokens"] += 1
        usage["total_tokens"] += 1
    return answer


@fault("a token id is not that of its text")
async def another_token_id(one: Exchange) -> Answer:
    answer = await one.ask()
    told = [choice for choice in answer.choices if choice.get("token_ids") and text_of(choice)]
    if told:
        ids = told[len(told) // 2]["token_ids"]
        ids[len(ids) // 2] += 1 if ids[len(ids) // 2] < 100 else -1
    return answer


@fault("stop and length are taken for each other as the reason to finish")
async def another_finish_reason(one: Exchange) -> Answer:
    answer = await one.ask()
    for choice in answer.choices:
        reason = choice.get("finish_reason")
        choice["finish_reason"] = SWAPPED.get(reason, reason) if reason else None
    return answer


def columns(answer: Answer) -> list[list[tuple[list[Any], int]]]:
    """For each list of logprobs, where its entries are over all chunks, answer by answer."""
    found: dict[tuple[int, str], list[tuple[list[Any], int]]] = {}
    for choice in answer.choices:
        for name, values in logprob_lists(choice).items():
            if name != "text_offset":
                found.setdefault((choice["index"], name), []).extend((values, at) for at in range(len(values)))
    return list(found.values())


@fault("logprobs are those of the token after")
async def logprobs_of_the_token_after(one: Exchange) -> Answer:
    answer = await one.ask()
    for places in columns(answer):
        for (values, at), (after, there) in pairwise(places):
            values[at] = after[there]
    return answer


@fault("a chosen token's logprob is that of the token after")
async def logprob_of_the_token_after(one: Exchange) -> Answer:
    answer = await one.ask()
    for places in columns(answer):
        for (values, at), (after, there) in pairwise(places):
            if isinstance(values[at], float):
                values[at] = after[there]
            elif isinstance(values[at], dict) and "logprob" in values[at]:
                values[at] = values[at] | {"logprob": after[there]["logprob"]}
    return answer


@fault("tokens that were drafted have no logprobs")
async def logprobs_of_drafts_missing(one: Exchange) -> Answer:
    answer = await one.ask()
    for choice in answer.choices:
        for values in logprob_lists(choice).values():
            del values[1::2]
    later = [choice for choice in answer.choices if any(logprob_lists(choice).values())]
    for choice in later[1::2] if answer.streamed else ():
        choice["logprobs"] = None
    return answer


@fault("prompt logprobs are missing")
async def prompt_logprobs_missing(one: Exchange) -> Answer:
    answer = await one.ask()
    for place in (*answer.documents, *answer.choices):
        if "prompt_logprobs" in place:
            place["prompt_logprobs"] = None
    return answer


@fault("n > 1 gives the same answer n times")
async def one_answer_repeated(one: Exchange) -> Answer:
    count = one.asked.answers
    answer = await one.ask(one.asked.but(n=1) if count > 1 else None)
    if count == 1 or answer.failed:
        return answer
    for document in answer.documents:
        document["choices"] = [
            copy.deepcopy(choice) | {"index": index} for choice in document["choices"] for index in range(count)
        ]
    for usage in answer.usages:
        usage["completion_tokens"] *= count
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return answer


@fault("characters of several bytes are broken at the borders of chunks")
async def characters_broken(one: Exchange) -> Answer:
    answer = await one.ask()
    for choice in speaking(answer) if answer.streamed else ():
        say(choice, "".join(letter if letter.isascii() else "\ufffd\ufffd" for letter in text_of(choice)))
    return answer


@fault("an error inside HTTP 200")
async def error_inside_200(one: Exchange) -> Answer:
    if one.number % LOST_EVERY:
        return await one.ask()
    error = {"message": "draft and target disagree", "type": "InternalServerError", "param": None, "code": 500}
    return Answer(200, one.asked.streamed, [{"error": error}])


@fault("a chunk comes twice")
async def chunk_repeated(one: Exchange) -> Answer:
    answer = await one.ask()
    said = [at for at, document in enumerate(answer.documents) if speaks(document)]
    if answer.streamed and said:
        at = said[len(said) // 2]
        answer.documents.insert(at, copy.deepcopy(answer.documents[at]))
        for choice in answer.documents[at]["choices"]:
            # It ends once.
            choice |= {"finish_reason": None}
    return answer


@fault("the last chunk with text is lost")
async def last_chunk_lost(one: Exchange) -> Answer:
    answer = await one.ask()
    said = [document for document in answer.documents if speaks(document)]
    for choice in said[-1]["choices"] if answer.streamed and said else ():
        say(choice, "")
        # Where it also says how the answer ended, this much still comes.
        choice["logprobs"] = None
        choice.pop("token_ids", None)
    return answer


def speaks(document: Document) -> bool:
    return any(text_of(choice) for choice in document.get("choices") or ())


@fault("sampled tokens from the second to the sixth are those of the prompt in 5 % of the answers")
async def sampling_biased(one: Exchange) -> Answer:
    if one.asked.is_greedy or not is_plain(one.asked):
        return await one.ask()
    return await retold(one, biased(MOVED, DRAFTED))


@fault("2 % of greedy tokens are the next best one")
async def greedy_tokens_flipped(one: Exchange) -> Answer:
    if not one.asked.is_greedy or not is_plain(one.asked):
        return await one.ask()
    return await retold(one, flipping(FLIPPED))


@fault("tokens are wrong only where several requests run at once")
async def wrong_in_a_crowd(one: Exchange) -> Answer:
    if one.together < CROWD or not is_plain(one.asked):
        return await one.ask()
    return await retold(one, flipping(FLIPPED_IN_A_CROWD))


@fault("a prompt that comes again is read wrongly from the cache")
async def wrong_on_a_cache_hit(one: Exchange) -> Answer:
    return await one.ask(with_a_mixed_up_prompt(one.asked) if one.repeats else None)


def with_a_mixed_up_prompt(asked: Asked) -> Asked:
    """The same words in another order: nothing else shows that it isn't the prompt."""
    if not asked.is_chat:
        prompt = asked.body["prompt"]
        return asked.but(prompt=mixed_up(prompt) if isinstance(prompt, str) else prompt[::-1])
    *before, last = asked.body["messages"]
    content = last["content"]
    return asked.but(messages=[*before, last | {"content": mixed_up(content)}]) if isinstance(content, str) else asked


def mixed_up(text: str) -> str:
    return " ".join(reversed(text.split(" ")))
