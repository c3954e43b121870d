"""The rules of the suite's cases, on answers that were written down, and how an answer is read from its bytes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.behaviour.case import NEEDS, SERIAL, Heard, Seen, Settings
from loadtests.behaviour.cases import lengths, logprobs, parity, settings, stops, streaming, structured, tools
from loadtests.behaviour.cases.asking import LISTED_TOKENS
from loadtests.behaviour.own_cases import BadCases, read_own_cases
from loadtests.behaviour.prompts import OPEN
from loadtests.behaviour.reading import Reading
from loadtests.behaviour.registry import CASES, suite_plan
from loadtests.behaviour.reply import Call, Choice, Reply, Token
from loadtests.behaviour.result import Finding
from loadtests.generator.http_answer import BadAnswer
from loadtests.generator.said import Secrets

TEXT = "The cold river goes by the old mill, and a red boat waits near the bridge for the evening train."


def tokens(text: str, size: int = 4) -> tuple[Token, ...]:
    """The text in tokens of a few characters, each of them certain."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return tuple(Token(one, -0.1, tuple(one.encode()), ((one, -0.1), ("~", -3.0))) for one in pieces)


def answer(text: str, *, finish: str = "length", **fields: Any) -> Reply:
    told = fields.pop("tokens", tokens(text))
    ids = fields.pop("token_ids", tuple(range(100, 100 + len(told or ()))))
    usage = fields.pop("usage", {"prompt_tokens": 5, "completion_tokens": len(ids or ())})
    choice = Choice(0, (text,), ids, told, fields.pop("calls", ()), finish, fields.pop("stop_reason", None))
    return Reply("answered", (choice,), usage=usage, http_status=200, **fields)


def heard(baseline: Seen, candidate: Seen) -> Heard:
    return Heard("case", SERIAL, baseline, candidate, None, 0.01, Settings())


def stopped(stop: str, text: str = TEXT, *, size: int = 4, more: int = 0, **fields: Any) -> Reply:
    """As a right answer is: cut where the stop string begins, with the tokens up to the one that completes it."""
    end = text.index(stop) + len(stop)
    told = tokens(text, size)[: -(-end // size) + more]
    return answer(text[: text.index(stop)], tokens=told, **({"finish": "stop", "stop_reason": stop} | fields))


def test_every_case_says_what_it_is_and_what_it_descends_from() -> None:
    ids = [case.id for case in CASES]
    assert len(set(ids)) == len(ids)
    for case in CASES:
        assert case.id == case.id.lower().replace("_", "-")
        assert case.title
        assert case.descends_from, case.id
        assert set(case.needs) <= set(NEEDS)
    assert {case.tier for case in CASES} == {"T1", "T2", "T3"}


def test_labels_are_unique_within_a_case() -> None:
    for case in CASES:
        asks = case.steps[0]({}, Settings())
        labels = [ask.label for ask in asks]
        assert labels
        assert len(set(labels)) == len(labels), case.id


def probes() -> dict[str, Reply]:
    return {"probe": answer(TEXT)}


def right_stops(close: bool = False, **fields: Any) -> dict[str, Reply]:
    asked = (stops.neighbours if close else stops.scattered)(TEXT)
    won = {label: stops.winner(TEXT, both) for label, both in asked.items()}
    return {label: stopped(one[0], **fields) for label, one in won.items() if one is not None}


def test_a_stop_string_that_is_heeded_holds() -> None:
    for close in (False, True):
        found = stops.stop_rule(probes() | right_stops(close), close=close)
        assert found.state == "held", found.said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda one: replace(one, choices=(replace(one.choice, pieces=(TEXT[:60],)),)), "doesn't end at the first"),
        (lambda one: replace(one, choices=(replace(one.choice, finish_reason="length"),)), "the answer names length"),
        (
            lambda one: replace(one, choices=(replace(one.choice, stop_reason="other"),)),
            "the answer names stop, 'other'",
        ),
        (lambda one: replace(one, usage={"completion_tokens": 99}), "usage: 99 tokens came"),
        (lambda one: replace(one, choices=(replace(one.choice, token_ids=tuple(range(40))),)), "token ids: 40 tokens"),
    ],
)
def test_a_stop_string_that_is_passed_breaks(wrong: Any, said: str) -> None:
    seen = probes() | right_stops()
    seen["stop-2"] = wrong(seen["stop-2"])
    found = stops.stop_rule(seen, close=False)
    assert found.state == "broken"
    assert said in found.said


def test_tokens_past_the_stop_string_break() -> None:
    seen = probes() | right_stops() | {"stop-1": stopped(stops.scattered(TEXT)["stop-1"][1], more=2)}
    found = stops.stop_rule(seen, close=False)
    assert found.state == "broken"
    assert "the stop string was complete with" in found.said


def test_the_later_of_two_stop_strings_must_not_win() -> None:
    label, (later, _) = next(iter(stops.neighbours(TEXT).items()))
    found = stops.stop_rule(probes() | {label: stopped(later)}, close=True)
    assert found.state == "broken"
    assert found.differences[0].answer == label


def test_without_tokens_the_text_alone_is_judged() -> None:
    plain = {"probe": answer(TEXT, tokens=None, token_ids=None, usage=None)}
    right = {label: replace(one, choices=(replace(one.choice, tokens=None),)) for label, one in right_stops().items()}
    assert stops.stop_rule(plain | right, close=False).state == "held"
    wrong = right | {"stop-0": answer(TEXT, tokens=None, token_ids=None)}
    assert stops.stop_rule(plain | wrong, close=False).state == "broken"


def test_a_stop_string_that_never_came_proves_nothing() -> None:
    other = answer("Something else was said this time, and none of it is a stop.")
    found = stops.stop_rule(probes() | {"stop-0": other}, close=False)
    assert found.state == "not_exercised"


@given(st.text(alphabet="abc ,.", max_size=60), st.lists(st.text(alphabet="abc", min_size=1, max_size=3), min_size=1))
def test_the_stop_string_that_wins_is_the_first_that_is_complete(text: str, wanted: list[str]) -> None:
    won = stops.winner(text, wanted)
    ends = [text.find(one) + len(one) for one in wanted if one in text]
    if won is None:
        assert not ends
    else:
        stop, begins = won
        assert text[begins : begins + len(stop)] == stop
        assert begins + len(stop) == min(ends)


def test_limits_hold_to_the_token() -> None:
    right = {f"most-{most}": answer("x" * 4 * most) for most in lengths.LIMITS}
    assert lengths.limit_rule(right).state == "held"
    for wrong in (answer("x" * 16), answer("x" * 20, finish="stop"), answer("x" * 20, usage={"completion_tokens": 4})):
        assert lengths.limit_rule(right | {"most-5": wrong}).state == "broken"
    untold = answer("x" * 20, tokens=None, token_ids=None, usage=None)
    assert lengths.limit_rule({"most-5": untold}).state == "cannot_tell"


@pytest.mark.parametrize(
    ("ids", "state"),
    [
        ((1, 2, 24, 4, 5, 6, 8, 9, 3), "broken"),
        ((1, 2, 4, 5, 6, 8, 9, 10, 24), "held"),
        ((1, 2, 4, 5, 6, 8, 9, 10, 11, 12), "held"),
        ((1, 2, 4, 5, 6, 8, 9), "broken"),
        ((1, 2, 4, 5, 6, 8, 9, 10, 24, 11), "broken"),
    ],
)
def test_min_tokens_forbids_the_stop_token_until_then(ids: tuple[int, ...], state: str) -> None:
    probe = answer(TEXT, token_ids=(1, 2, 7, *range(20, 41)), tokens=None)
    found = lengths.least_rule({"probe": probe, "least-8": answer("x", token_ids=ids, tokens=None)})
    assert found.state == state, found.said


def test_an_end_that_is_to_be_ignored_is_asked_for_where_one_came() -> None:
    short = answer("Yes." * 3, finish="stop")
    seen = {"short-0": short, "short-1": answer("on and on " * 40)}
    assert [ask.body["max_tokens"] for ask in lengths.endless_asks(seen, Settings())] == [3 + lengths.MORE]
    assert lengths.endless_rule(seen | {"endless-0": answer("Yes!" * (3 + lengths.MORE))}).state == "held"
    assert lengths.endless_rule(seen | {"endless-0": short}).state == "broken"
    assert lengths.endless_rule({"short-1": seen["short-1"]}).state == "not_exercised"


def test_usage_ids_and_log_probabilities_tell_one_number() -> None:
    full = answer("x" * 4 * LISTED_TOKENS)
    assert lengths.usage_rule({"a": full, "b": answer("yes.", finish="stop")}).state == "held"
    wrong = {
        "usage": answer("x" * 4 * LISTED_TOKENS, usage={"completion_tokens": 3}),
        "reason": answer("x" * 4 * LISTED_TOKENS, finish="tool_calls"),
        "cut": answer("x" * 8, finish="length"),
        "prompt": replace(full, prompt_token_ids=(1, 2, 3)),
    }
    assert {name: lengths.usage_rule({"a": one}).state for name, one in wrong.items()} == dict.fromkeys(wrong, "broken")


TRAIN = {"line": "mill", "late": True, "stops": ["A", "B", "C"], "engine": {"kind": "steam", "cars": 2}}


@pytest.mark.parametrize(
    ("text", "finish", "state"),
    [
        (json.dumps(TRAIN), "stop", "held"),
        (json.dumps(TRAIN)[:-1], "stop", "broken"),
        (json.dumps(TRAIN)[:-1], "length", "cannot_tell"),
        (json.dumps(TRAIN | {"line": "quarry"}), "stop", "broken"),
        (json.dumps(TRAIN | {"draft": 1}), "stop", "broken"),
        ("", "stop", "broken"),
    ],
)
def test_a_json_answer_follows_its_schema_or_breaks(text: str, finish: str, state: str) -> None:
    rule = structured.follows(structured.schema_check(structured.TRAINS))
    assert rule({"a": answer(text, finish=finish)}).state == state


def test_patterns_and_grammars_are_checked_to_the_end() -> None:
    plate, total = (
        structured.follows(structured.pattern_check(one)) for one in (structured.PLATE, structured.SUM_PATTERN)
    )
    assert plate({"a": answer("north-1212-red-3434", finish="stop")}).state == "held"
    assert plate({"a": answer("north-1212-red-34345", finish="stop")}).state == "broken"
    assert total({"a": answer("sum: 100 + 200 + 300", finish="stop")}).state == "held"
    assert total({"a": answer("sum: 100 + 200", finish="stop")}).state == "broken"


def test_a_schema_that_refers_elsewhere_asks_nobody() -> None:
    check = structured.schema_check({"$ref": "http://127.0.0.1:9/schema.json"})
    assert "refers to" in (check("{}") or "")


def called(arguments: str, name: str = tools.NAME, finish: str = "stop") -> Reply:
    return answer("", calls=(Call(name, arguments),), finish=finish)


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (called(json.dumps(TRAIN)), "held"),
        (called(json.dumps(TRAIN) + "}"), "broken"),
        (called(json.dumps(TRAIN), "other"), "broken"),
        (called("{", finish="length"), "cannot_tell"),
        (answer("I would announce a train."), "broken"),
    ],
)
def test_a_tool_call_has_arguments_that_follow_its_schema(reply: Reply, state: str) -> None:
    assert tools.rule({"call": reply}).state == state


def repeating(free: int, least: int) -> dict[str, Reply]:
    """Answers of 48 tokens, so many of which repeat."""

    def one(count: int) -> Reply:
        return answer("x", token_ids=tuple(range(settings.LENGTH - count)) + (0,) * count)

    return {"probe": one(free)} | {name: one(least) for name in settings.PENALTIES}


def test_a_penalty_without_effect_breaks_where_the_baseline_has_one() -> None:
    baseline = repeating(40, 10)
    assert settings.penalty_judge(heard(baseline, repeating(40, 12))).state == "held"
    assert settings.penalty_judge(heard(baseline, repeating(40, 39))).state == "broken"
    assert settings.penalty_judge(heard(repeating(12, 10), repeating(12, 12))).state == "not_exercised"


def test_forbidden_words_and_tokens_break() -> None:
    words = tuple(Token(text, -0.1) for text in ("The", " river", " goes", " by"))
    probe = answer("The river goes by", tokens=words, token_ids=(5, 6, 7, 8))
    clean, banned = answer("A boat", tokens=words[:1]), answer("A river", tokens=words[1:2])
    assert settings.banned_rule({"probe": probe, "banned": clean}).state == "held"
    assert settings.banned_rule({"probe": probe, "banned": banned}).state == "broken"
    assert settings.allowed_rule({"probe": probe, "allowed": answer("x", token_ids=(5, 7, 5))}).state == "held"
    assert settings.allowed_rule({"probe": probe, "allowed": answer("x", token_ids=(5, 6))}).state == "broken"


def test_a_bias_that_is_dropped_breaks_where_the_baseline_honours_it() -> None:
    probe = answer("x", token_ids=(5, 6))
    honoured, dropped = ({"probe": probe, "bias": answer("x", token_ids=ids)} for ids in ((6, 6), (5, 6)))
    assert settings.bias_judge(heard(honoured, honoured)).state == "held"
    assert settings.bias_judge(heard(honoured, dropped)).state == "broken"
    assert settings.bias_judge(heard(dropped, dropped)).state == "cannot_tell"


def several_texts(name: str, *texts: str) -> dict[str, Reply]:
    return {f"{name}-{index}": answer(text) for index, text in enumerate(texts)}


def test_sampling_from_one_token_gives_one_text() -> None:
    one, many = several_texts("min-p", *"aaaa"), several_texts("min-p", *"abcd")
    assert settings.narrow_judge(heard(one, one), "min-p").state == "held"
    assert settings.narrow_judge(heard(one, several_texts("min-p", *"aaab")), "min-p").state == "held"
    assert settings.narrow_judge(heard(one, many), "min-p").state == "broken"
    assert settings.narrow_judge(heard(many, many), "min-p").state == "cannot_tell"


def seeded(repeats: int) -> dict[str, Reply]:
    found = {f"seed-{seed}-0": answer(f"text {seed}") for seed in range(settings.SEEDS)}
    again = {f"seed-{seed}-1": answer(f"text {seed if seed < repeats else -seed}") for seed in range(settings.SEEDS)}
    return found | again


def test_seeds_repeat_as_far_as_on_the_baseline() -> None:
    assert settings.seed_judge(heard(seeded(6), seeded(5))).state == "held"
    assert settings.seed_judge(heard(seeded(6), seeded(1))).state == "broken"
    assert settings.seed_judge(heard(seeded(1), seeded(1))).state == "cannot_tell"


def test_as_many_answers_come_as_were_asked_for() -> None:
    def several(*texts: str, tokens: int = 12) -> Reply:
        choices = tuple(Choice(at, (text,), tuple(range(tokens)), None, (), "length") for at, text in enumerate(texts))
        return Reply("answered", choices, usage={"completion_tokens": 48})

    assert settings.several_rule({"four-open": several("a", "b", "c", "d")}).state == "held"
    for wrong in (several("a", "b", "c"), several("a", "a", "a", "a"), several("a", "b", "c", "d", tokens=11)):
        assert settings.several_rule({"four-open": wrong}).state == "broken"


def certain(texts: Sequence[str], values: Sequence[float], *, top: bool = True) -> Reply:
    others = tuple((f"~{at}", -9.0) for at in range(3))
    told = tuple(
        Token(text, value, None, ((text, value), *others) if top else ())
        for text, value in zip(texts, values, strict=True)
    )
    return answer("".join(texts), tokens=told)


def test_samples_are_asked_for_several_at_a_time_and_some_alone_to_tell_their_drafts() -> None:
    asks = parity.sampled_asks({}, Settings(), penalties={})
    many = Counter({ask.label.partition("-")[0]: 0 for ask in asks})
    for ask in asks:
        many[ask.label.partition("-")[0]] += ask.body.get("n", 1)
    assert set(many.values()) == {parity.SAMPLES}
    assert sum("n" not in ask.body for ask in asks) == parity.ALONE * parity.PANEL
    thorough = parity.sampled_asks({}, Settings(thorough=True), penalties={})
    assert sum(ask.body.get("n", 1) for ask in thorough) == parity.THOROUGH_SAMPLES * len(OPEN)


def test_answers_of_one_request_are_samples_each_and_the_lonely_ones_tell_their_drafts() -> None:
    two = replace(answer("ab"), choices=(answer("ab").choice, replace(answer("abcd").choice, index=1)))
    seen = {"0-0000": answer("ab", draft_tokens=4), "0-0001": answer("ab", draft_tokens=0), "0-0002": two}
    found = parity.samples_of(seen, parity.Names())
    assert found is not None
    assert len(found["0"]) == 4
    assert parity.drafts_told(heard({}, seen), "0-") == [True, False]
    assert parity.drafts_told(heard({}, {"0-0002": two}), "0-") == [False]


def test_log_probabilities_have_a_shape() -> None:
    right = certain(["a", "b"], [-0.1, -0.2])
    assert logprobs.shape_rule({"a": right}).state == "held"
    first, second = right.choice.tokens or ()
    for wrong in (
        (first, replace(second, logprob=0.5)),
        (first, replace(second, logprob=None)),
        (first, replace(second, top=second.top[:2])),
        (first, replace(second, logprob=-1.5)),
        (first, replace(second, top=(("c", -0.05), *second.top[1:]), logprob=-5.0)),
    ):
        found = logprobs.shape_rule({"a": replace(right, choices=(replace(right.choice, tokens=wrong),))})
        assert found.state == "broken", wrong
    short = replace(right, choices=(replace(right.choice, tokens=(first,)),))
    assert logprobs.shape_rule({"a": short}).state == "broken"


def test_log_probabilities_are_the_baselines_up_to_where_texts_part() -> None:
    old = {"a": certain(["a", "b", "c"], [-0.1, -0.2, -0.3])}
    assert logprobs.values_judge(heard(old, {"a": certain(["a", "b", "d"], [-0.2, -0.1, -2.0])})).state == "held"
    assert logprobs.values_judge(heard(old, {"a": certain(["a", "b", "c"], [-0.1, -1.2, -0.3])})).state == "broken"


def test_prompts_have_the_baselines_log_probabilities() -> None:
    def told(*values: Mapping[str, float] | None) -> Seen:
        return {"a": replace(answer("x"), prompt_logprobs=tuple(None if one is None else dict(one) for one in values))}

    old = told(None, {"7": -0.5}, {"8": -0.1, "9": -4.0})
    assert logprobs.prompt_judge(heard(old, old)).state == "held"
    assert logprobs.prompt_judge(heard(old, told(None, {"7": -0.6}, {"8": -0.2, "6": -3.9}))).state == "held"
    for wrong in (told(None, {"7": -2.5}, {"8": -0.1}), told(None, {"7": -0.5}), {"a": answer("x")}):
        assert logprobs.prompt_judge(heard(old, wrong)).state == "broken"


def test_streamed_and_whole_answers_are_one() -> None:
    def both(streamed: Reply) -> Finding:
        return streaming.same_rule({"list-whole": answer(TEXT), "list-streamed": streamed})

    assert both(answer(TEXT)).state == "held"
    assert both(answer(TEXT[1:])).state == "broken"
    assert both(answer(TEXT, finish="stop")).state == "broken"
    assert both(answer(TEXT[:40], tokens=tokens(TEXT))).state == "broken"


def test_texts_that_part_at_a_tie_prove_nothing() -> None:
    tied = tuple(replace(one, top=((one.text, -0.69), ("~", -0.70))) for one in tokens(TEXT))
    whole = answer(TEXT, tokens=tied)
    other = answer(TEXT[:40] + "~", tokens=tokens(TEXT[:40] + "~"))
    assert streaming.same_rule({"a-whole": whole, "a-streamed": other}).state == "cannot_tell"
    assert streaming.same_rule({"a-whole": answer(TEXT), "a-streamed": other}).state == "broken"


def test_half_a_character_in_a_stream_breaks() -> None:
    def both(whole: str, streamed: str) -> str:
        return streaming.unicode_rule({"a-whole": answer(whole), "a-streamed": answer(streamed)}).state

    assert both("Grüße 🌍", "Grüße 🌍") == "held"
    assert both("Grüße 🌍", "Gr\ufffd\ufffdße 🌍") == "broken"
    assert both("plain", "plain") == "not_exercised"


def test_the_text_is_that_of_its_tokens() -> None:
    words = Reply("answered", document={"prompt": f" {TEXT}"})
    assert streaming.decoded_rule({"a": answer(TEXT), "a-decoded": words}).state == "held"
    assert streaming.decoded_rule({"a": answer(TEXT[5:]), "a-decoded": words}).state == "broken"
    assert streaming.decoded_rule({"a": answer(TEXT)}).state == "cannot_tell"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\n\r\n"


def event(document: Any) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def streamed_answer() -> bytes:
    chunks: list[Any] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]},
        {"choices": [{"index": 0, "delta": {"content": "Grü"}, "token_ids": [3]}]},
        {"choices": [{"index": 1, "delta": {"content": "no"}, "token_ids": [9], "finish_reason": "stop"}]},
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": "ße"},
                    "token_ids": [4, 5],
                    "logprobs": {"content": [{"token": "ße", "logprob": -0.5, "bytes": [1], "top_logprobs": []}]},
                    "finish_reason": "stop",
                    "stop_reason": 5,
                }
            ]
        },
        {
            "choices": [],
            "usage": {"prompt_tokens": 2, "completion_tokens": 4},
            "metrics": {"speculative_decoding": {"num_draft_tokens": 8, "num_accepted_draft_tokens": 3}},
        },
    ]
    return HEAD % b"text/event-stream" + b"".join(map(event, chunks)) + b"data: [DONE]\n\n"


def read(content: bytes, cuts: Sequence[int] = (), *, stream: bool = True) -> Reply:
    reading = Reading(stream=stream, secrets=Secrets())
    edges = [0, *sorted(cuts), len(content)]
    for start, end in pairwise(edges):
        if start < end and reading.take(content[start:end]):
            return reading.reply()
    reading.end()
    return reading.reply()


@given(st.lists(st.integers(0, len(streamed_answer())), max_size=20))
def test_an_answer_is_the_same_wherever_its_bytes_are_cut(cuts: list[int]) -> None:
    assert read(streamed_answer(), cuts) == read(streamed_answer())


def test_everything_that_a_server_says_is_kept() -> None:
    reply = read(streamed_answer())
    first, second = reply.choices
    assert (first.pieces, first.token_ids, first.finish_reason, first.stop_reason) == (
        ("Grü", "ße"),
        (3, 4, 5),
        "stop",
        5,
    )
    assert first.tokens == (Token("ße", -0.5, (1,), ()),)
    assert (second.text, second.token_ids) == ("no", (9,))
    assert (reply.draft_tokens, reply.accepted_tokens, reply.output_tokens) == (8, 3, 4)
    assert reply.prompt_token_ids == (1, 2)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (event({"error": {"message": "too long", "code": 400}}), "refused", "too long"),
        (event({"error": {"message": "broke", "code": 500}}), "failed", "broke"),
        (event({"choices": [{"index": 0, "delta": {"content": "x"}}]}), "failed", "[DONE], a finish reason"),
        (b"data: nonsense\n\n", "failed", "no JSON object"),
        (
            event({"choices": [{"index": 0, "finish_reason": "abort"}]}) + b"data: [DONE]\n\n",
            "failed",
            "gave the request up",
        ),
    ],
)
def test_what_is_no_answer_is_told_apart(body: bytes, status: str, said: str) -> None:
    reply = read(HEAD % b"text/event-stream" + body)
    assert reply.status == status
    assert said in (reply.error or "")


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_make_the_reading_raise_anything_but_a_bad_answer(body: bytes, stream: bool) -> None:
    kind = b"text/event-stream" if stream else b"application/json"
    for content in (body, HEAD % kind + body):
        try:
            read(content, stream=stream)
        except BadAnswer:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def shaken() -> Iterator[Any]:
    yield {"choices": [{"index": 0, "message": {"content": "x", "tool_calls": [{}]}, "finish_reason": "stop"}]}
    yield {"choices": [{"logprobs": {"content": [{}]}, "token_ids": [None]}], "usage": {"completion_tokens": -1}}
    yield {"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": None}}], "prompt_logprobs": [{"1": 3}, None]}


@given(JSON | st.sampled_from(list(shaken())))
def test_no_document_makes_the_reading_raise_or_keeps_what_evidence_cannot(document: Any) -> None:
    reply = read(HEAD % b"application/json" + json.dumps(document).encode(), stream=False)
    json.dumps(reply.as_document(), allow_nan=False).encode()


OWN = """
schema: draftproof.behaviour-cases/1
cases:
  - id: refund-form
    title: The form is filled in
    request: {messages: [{role: user, content: "Fill in the form."}], max_tokens: 50, temperature: 0}
    expect:
      json_schema: {type: object, required: [amount]}
      stop: ["</form>"]
    manners: [serial, cached-stream]
"""


def test_an_owners_case_is_a_case_like_any_other() -> None:
    cases = read_own_cases(OWN.encode(), "own.yaml")
    (own,) = (one.case for one in cases.cases)
    assert own.rule is not None
    assert own.rule({"asked": answer('{"amount": 3}', finish="stop")}).state == "held"
    assert own.rule({"asked": answer('{"amount": 3}</form>', finish="stop")}).state == "broken"
    assert own.rule({"asked": answer("{}", finish="stop")}).state == "broken"
    assert [one.id for one in own.manners_of(Settings(thorough=True))] == ["serial", "cached-stream"]
    other = read_own_cases(OWN.replace("amount", "sum").encode(), "own.yaml")
    assert cases.digest != other.digest
    assert suite_plan(own=[own]).digest != suite_plan(own=[other.cases[0].case]).digest


@pytest.mark.parametrize(
    ("wanted", "right", "wrong"),
    [
        ("golden: Yes.", answer("Yes."), answer("Yes")),
        ("regex: '[0-9]+'", answer("12", finish="stop"), answer("12 ", finish="stop")),
        ("tool_call: {name: book}", called("{}", "book"), called("{}", "cancel")),
        ("tool_call: {name: book, arguments: {type: object}}", called("{}", "book"), called("[]", "book")),
    ],
)
def test_an_owner_may_expect(wanted: str, right: Reply, wrong: Reply) -> None:
    text = OWN.replace("json_schema: {type: object, required: [amount]}", wanted).replace(
        '      stop: ["</form>"]\n', ""
    )
    rule = read_own_cases(text.encode(), "own.yaml").cases[0].case.rule
    assert rule is not None
    assert (rule({"asked": right}).state, rule({"asked": wrong}).state) == ("held", "broken")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("refund-form", "Refund Form", "line 4, cases.0.id"),
        ("type: object, required", "type: thing, required", "line 8, cases.0.expect.json_schema: it is no JSON schema"),
        (
            "json_schema: {type: object, required: [amount]}",
            "regex: '('",
            "line 8, cases.0.expect.regex: it is no regular",
        ),
        (
            "json_schema: {type: object, required: [amount]}",
            "regex: '(?=a)b'",
            "line 8, cases.0.expect.regex: it is no regular expression of RE2",
        ),
        (
            "type: object, required: [amount]",
            "anyOf: [{pattern: '(a)\\1'}]",
            "line 8, cases.0.expect.json_schema: it is no regular expression of RE2",
        ),
        (
            "type: object, required: [amount]",
            "items: {properties: {pattern: {type: object, patternProperties: {'^a': true}}}}",
            "line 8, cases.0.expect.json_schema: patternProperties isn't checked here",
        ),
        ("max_tokens: 50", "stream: true", "cases.0: request: stream is set by the suite"),
        ("messages:", "massages:", "give either messages or a prompt"),
        ("serial, cached", "serially, cached", "line 10, cases.0.manners.0"),
        ("/1", "/9", "line 2, schema"),
        (
            "title: The form is filled in",
            "title: 2024-01-01",
            "line 5: '2024-01-01' is read as a timestamp: put it in quotes",
        ),
        (
            "title: The form is filled in",
            "title: a\n    title: b",
            "line 6: it can't be read as YAML or JSON: the key 'title' stands twice",
        ),
        ("title: The form is filled in", "title: &a x\n    other: *a", "uses a YAML alias"),
        ("cases:", "cases: [", "it can't be read as YAML or JSON"),
        ("temperature: 0", "temperature: .nan", "JSON has no word for"),
    ],
)
def test_a_document_that_cannot_be_used_says_where(old: str, new: str, said: str) -> None:
    with pytest.raises(BadCases) as caught:
        read_own_cases(OWN.replace(old, new, 1).encode(), "own.yaml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("own.yaml")


@pytest.mark.parametrize("named", ["properties", "$defs", "dependentRequired"])
def test_a_field_may_be_called_as_a_keyword_is(named: str) -> None:
    value = "[amount]" if named == "dependentRequired" else "{type: string}"
    text = OWN.replace("type: object, required", f"{named}: {{pattern: {value}, patternProperties: {value}}}, required")
    assert len(read_own_cases(text.encode(), "own.yaml").cases) == 1


@pytest.mark.parametrize("expected", ["regex: '([a-z]+)+!'", "json_schema: {type: string, pattern: '^([a-z]+)+!$'}"])
def test_a_pattern_that_can_be_matched_in_many_ways_takes_no_longer(expected: str) -> None:
    text = OWN.replace("json_schema: {type: object, required: [amount]}", expected)
    rule = read_own_cases(text.encode(), "own.yaml").cases[0].case.rule
    assert rule is not None
    quote = '"' if "schema" in expected else ""
    assert rule({"asked": answer(f"{quote}{'a' * 5_000}{quote}", finish="stop")}).state == "broken"
    assert rule({"asked": answer(f"{quote}{'a' * 5_000}!{quote}", finish="stop")}).state == "held"


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ({"$ref": "#"}, "1", "the schema refers to itself without an end"),
        ({"$ref": "#/nowhere"}, "1", "the schema refers to /nowhere, which isn't in it"),
        ({"multipleOf": 0.1}, "1e400", "it holds a number that is too large to be checked"),
        ({"pattern": "b"}, '"\\ud800"', "it doesn't follow the schema at the whole: '\\ud800' does not match 'b'"),
        ({"pattern": "a"}, '"\\ud800a"', None),
    ],
)
def test_no_schema_and_no_answer_end_the_judging(schema: dict[str, Any], text: str, said: str | None) -> None:
    assert structured.schema_check(schema)(text) == said


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_no_bytes_make_the_parser_of_cases_raise_anything_but_bad_cases(content: bytes) -> None:
    with pytest.raises(BadCases):
        read_own_cases(content, "own.yaml")
