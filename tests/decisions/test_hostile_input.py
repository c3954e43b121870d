"""Slips and hostile input: everything that can't be used is answered with a sentence, never with a crash."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Route
from decisions.models import Brief as BriefRow
from decisions.pages import problems as problems_page
from decisions.pages.problems import Problem, located
from decisions.rules.brief import BadBrief, Brief, parse_brief, read_brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.verdict import verdict
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.start_brief import start_brief
from decisions.templatetags import draftproof as tags
from loadtests.canonical import canonical
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.import_traffic import import_traffic
from loadtests.statistics.order import A_A_ARMS, ARMS, arm_orders
from tests.support.play import TARGET, helps_when_quiet, run

S = 1_000_000_000
HUGE = "9" * 25
INFINITE = float("inf")

DOCUMENT: dict[str, Any] = {
    "title": "Speculation for chat",
    "service": "support-assistant",
    "route": "chat",
    "question": "May chat run with speculation at its real load?",
    "population": "Requests of the chat route in one week",
    "decision_owner": "owner",
    "baseline": {
        "runtime": {"version": "0.32.0"},
        "target": {"name": "target", "weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64},
        "hardware": {"pool": "cpu", "accelerator": "cpu"},
    },
    "candidates": [{"name": "ngram-4", "speculative": {"method": "ngram", "num_speculative_tokens": 4}}],
    "traffic": {"name": "demo", "set": "1" * 64, "tuning": "2" * 64, "held_out": "3" * 64},
    "levels": [{"name": "peak", "arrival": {"process": "gamma", "rate": 2, "cv": 1.5}, "duration_s": 120}],
    "peak": "peak",
    "deadlines": {"default": {"first_token_s": 2, "completion_s": 6}},
    "outcome": {
        "metric": "attainment",
        "improve_in": [{"level": "peak"}],
        "minimum_improvement": 0.02,
        "non_inferiority_margin": 0.02,
    },
    "guardrails": [
        {"id": "failed", "metric": "failed_share", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0.01}
    ],
    "rule": {"seed": 11},
    "budget_engine_minutes": 60,
    "fallback_plan": "Requests queue at peak; admission is reduced.",
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """A deep copy of the document with one field changed; numbers in the path are places in lists."""
    document: Any = json.loads(json.dumps(DOCUMENT))
    *parents, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    inner = document
    for step in parents:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else inner[step]
    inner[last] = value
    result: dict[str, Any] = document
    return result


def rail(**changes: Any) -> dict[str, Any]:
    return {**DOCUMENT["guardrails"][0], **changes}


def problems_of(document: dict[str, Any]) -> list[str]:
    with pytest.raises(BadBrief) as refused:
        parse_brief(document)
    return refused.value.problems


def problems_in(text: str) -> list[str]:
    with pytest.raises(BadBrief) as refused:
        read_brief(text)
    return refused.value.problems


def test_the_plain_document_is_a_brief() -> None:
    assert parse_brief(DOCUMENT).title == DOCUMENT["title"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("note: 2024-02-30", "not YAML in line 2: '2024-02-30' can't be read as timestamp"),
        ("note: !!bool maybe", "not YAML in line 2: 'maybe' can't be read as bool"),
        ("note: !!int abc", "not YAML in line 2: 'abc' can't be read as int"),
        ("note: !!int ''", "not YAML in line 2: '' can't be read as int"),
        ("note: !!timestamp x", "not YAML in line 2: 'x' can't be read as timestamp"),
        ("note: " + "9" * 5_000, f"not YAML in line 2: '{'9' * 59} can't be read as int"),
        ("note: " + "[" * 5_000, "not YAML: nested too deeply"),
        ("b: {<<: [*a, *a]}", "not YAML in line 2: merge one mapping at a time, not a list"),
        ("? [x]\n: 1", "not YAML in line 2: found unhashable key"),
        ("b: 1\nc: 2\nb: 3", "not YAML in line 4: the key 'b' stands twice in one mapping, first in line 2"),
        ('b: {"c": 1, c: 1}', "not YAML in line 2: the key 'c' stands twice in one mapping, first in line 2"),
    ],
)
def test_a_slip_in_the_yaml_is_named_with_its_line(line: str, said: str) -> None:
    assert problems_in(f"a: &a {{k: 1}}\n{line}\n") == [said]


@pytest.mark.parametrize("escape", [r"\U00110000", r"\UFFFFFFFF"])
def test_an_escape_of_no_character_is_refused_and_not_located(escape: str) -> None:
    source = f'note: "{escape}"\n'
    (problem,) = problems_in(source)
    assert problem.startswith("not YAML: ")
    assert located([problem, "note: wrong"], source) == [Problem("", problem, None), Problem("note", "wrong", None)]


def test_merges_of_merges_do_not_grow_without_bound() -> None:
    keys = ", ".join(f"k{number}: 1" for number in range(150))
    more = ", ".join(f"m{number}: 1" for number in range(150))
    assert problems_in(f"a: &a {{{keys}}}\nb: {{<<: *a, {more}}}\n") == [
        "not YAML in line 2: more than 200 keys in one mapping"
    ]


def test_one_merge_stays_what_it_was() -> None:
    """A candidate's whole configuration is most easily written as the baseline with one setting more."""
    text = yaml.safe_dump({name: value for name, value in DOCUMENT.items() if name not in ("baseline", "candidates")})
    text += f"baseline: &base {json.dumps(DOCUMENT['baseline'])}\n"
    text += "candidates:\n- name: k2\n  configuration:\n    <<: *base\n"
    text += "    speculative: {method: ngram, num_speculative_tokens: 2}\n"
    (candidate,) = read_brief(text).candidates
    assert (candidate.name, candidate.speculative.num_speculative_tokens) == ("k2", 2)


def test_a_field_that_stands_twice_is_refused_in_json_too() -> None:
    """The last one would win unseen: here a brief would lose its guardrails."""
    text = json.dumps(DOCUMENT)[:-1] + ', "guardrails": []}'
    assert problems_in(text) == [
        "not YAML in line 1: the key 'guardrails' stands twice in one mapping, first in line 1"
    ]
    text = yaml.safe_dump(DOCUMENT) + "guardrails: []\n"
    (problem,) = problems_in(text)
    last = text.count("\n")
    assert problem.startswith(f"not YAML in line {last}: the key 'guardrails' stands twice in one mapping, first in ")


def test_one_mapping_merged_twice_has_no_key_twice() -> None:
    text = yaml.safe_dump({name: value for name, value in DOCUMENT.items() if name != "levels"})
    text += "levels:\n- &one {name: peak, arrival: {process: poisson, rate: 2}, duration_s: 120}\n"
    text += "- &two {<<: *one, name: low}\n- {<<: *two, name: lower}\n- {<<: *two, name: lowest}\n"
    assert [one.name for one in read_brief(text).levels] == ["peak", "low", "lower", "lowest"]


@pytest.mark.parametrize("beside", [{"method": "ngram", "num_speculative_tokens": 8}, None])
def test_a_candidate_says_one_setting(beside: dict[str, Any] | None) -> None:
    setting = {"method": "ngram", "num_speculative_tokens": 2}
    one = {"name": "k2", "configuration": DOCUMENT["baseline"] | {"speculative": setting}, "speculative": setting}
    (candidate,) = read_brief(json.dumps(DOCUMENT | {"candidates": [one]})).candidates
    assert candidate.speculative.num_speculative_tokens == 2
    assert problems_in(json.dumps(DOCUMENT | {"candidates": [one | {"speculative": beside}]})) == [
        "candidate k2: speculative differs from the setting in its configuration: write only one"
    ]


def test_a_date_where_words_belong_is_an_error_of_its_field() -> None:
    text = yaml.safe_dump(DOCUMENT) + "note: 2024-02-28\n"
    assert problems_in(text) == ["note: Input should be a valid string"]


def test_a_brief_of_over_200_kb_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(yaml, "load", read)
    monkeypatch.setattr(yaml, "compose", read)
    assert problems_in("note: [" + "1, " * 100_000 + "]") == ["the brief is longer than 200 kB"]
    assert located(["note: wrong"], "note: [" + "1, " * 100_000 + "]") == [Problem("note", "wrong", None)]


def test_no_more_than_fifty_problems_are_listed() -> None:
    problems = problems_of(DOCUMENT | {f"key{number}": 1 for number in range(8_000)})
    assert len(problems) == 51
    assert problems[0] == "key0: Extra inputs are not permitted"
    assert problems[-1] == "and 7,950 problems more"


def test_a_problem_of_many_words_is_cut() -> None:
    (problem,) = problems_of(changed("peak", "p" * 5_000))
    assert len(problem) <= 501


def test_many_problems_in_a_long_mapping_are_located_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "".join(f"k{number}: 1\n" for number in range(3_000))
    passes = {"composed": 0, "children": 0}
    for name in passes:
        monkeypatch.setattr(problems_page, name, counted(passes, name, getattr(problems_page, name)))
    lines = [one.line for one in located([f"k{number}: wrong" for number in range(3_000)], source)]
    assert lines == list(range(1, 3_001))
    assert passes == {"composed": 1, "children": 1}


def counted(passes: dict[str, int], name: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(argument: Any) -> Any:
        passes[name] += 1
        return original(argument)

    return call


def test_a_step_that_is_no_place_in_a_list_is_located_at_the_list() -> None:
    assert located(["a.²: wrong", f"a.{'9' * 5_000}: wrong", "a.0: wrong"], "a:\n  - 1\n") == [
        Problem("a.²", "wrong", 1),
        Problem(f"a.{'9' * 5_000}", "wrong", 1),
        Problem("a.0", "wrong", 2),
    ]


EVERY_NUMBER = [
    "budget_engine_minutes",
    "release_days",
    "rule.seed",
    "rule.pairs",
    "rule.noise_floor_pairs",
    "rule.confidence",
    "rule.max_client_lag_ms",
    "rule.max_reattempts",
    "outcome.minimum_improvement",
    "outcome.non_inferiority_margin",
    "guardrails.0.limit",
    "deadlines.default.first_token_s",
    "deadlines.default.completion_s",
    "levels.0.duration_s",
    "levels.0.drain_s",
    "levels.0.arrival.rate",
    "levels.0.arrival.cv",
    "levels.0.arrival.time_scale",
    "candidates.0.speculative.num_speculative_tokens",
    "candidates.0.speculative.prompt_lookup_min",
    "candidates.0.speculative.prompt_lookup_max",
    "baseline.hardware.count",
    "baseline.arguments.max_model_len",
    "baseline.arguments.max_num_seqs",
    "baseline.arguments.max_num_batched_tokens",
    "baseline.arguments.block_size",
    "baseline.arguments.gpu_memory_utilization",
    "baseline.arguments.tensor_parallel_size",
    "baseline.arguments.data_parallel_size",
    "baseline.arguments.seed",
    "baseline.environment.VLLM_CPU_KVCACHE_SPACE",
]


@pytest.mark.parametrize("number", [INFINITE, -INFINITE, float("nan"), 1e200, 2**53, -(2**53), 10**400])
@pytest.mark.parametrize("path", EVERY_NUMBER)
def test_no_number_is_without_bound(path: str, number: float) -> None:
    problems = problems_of(changed(path, number))
    assert any(problem.startswith((f"{path}:", path.rpartition(".")[0])) for problem in problems), problems


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("levels.0.arrival.cv", 1e-200),
        ("levels.0.arrival.cv", 0.009),
        ("levels.0.arrival.cv", 101),
        ("levels.0.arrival.rate", 1e-320),
        ("levels.0.arrival.rate", 100_001),
        ("candidates.0.speculative.num_speculative_tokens_per_batch_size", [[1, 2, 10**30]]),
        ("rule.pairs", 202),
        ("rule.noise_floor_pairs", 202),
        ("candidates.0.name", "a" * 61),
    ],
)
def test_absurd_values_are_refused_in_their_field(path: str, value: Any) -> None:
    assert problems_of(changed(path, value))[0].startswith(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("levels.0.arrival.cv", 0.01),
        ("levels.0.arrival.cv", 100),
        ("rule.pairs", 200),
        ("rule.noise_floor_pairs", 200),
        ("rule.seed", 2**53 - 1),
        ("candidates.0.name", "a" * 60),
        ("guardrails.0.limit", 0.999),
    ],
)
def test_the_bounds_themselves_are_taken(path: str, value: Any) -> None:
    assert parse_brief(changed(path, value))


@pytest.mark.parametrize("name", ["baseline", "control", "candidate", "none"])
def test_the_names_of_arms_are_no_names_of_candidates(name: str) -> None:
    said = f"candidates.0.name: the name {name} means something else in every run: choose another"
    assert problems_of(changed("candidates.0.name", name))[0] == said


def many(path: str, count: int) -> dict[str, Any]:
    one = DOCUMENT[path][0]
    key = "id" if path == "guardrails" else "name"
    return DOCUMENT | {path: [one, *(one | {key: f"n{number}"} for number in range(count - 1))]}


@pytest.mark.parametrize(("path", "most"), [("candidates", 50), ("levels", 12), ("guardrails", 50)])
def test_lists_have_an_end(path: str, most: int) -> None:
    assert parse_brief(many(path, most))
    assert len(problems_of(many(path, most + 1))) == 1


def test_a_plan_of_endless_requests_is_refused() -> None:
    endless = changed(
        "levels.0", {"name": "peak", "arrival": {"process": "poisson", "rate": 1e5}, "duration_s": 86_400}
    )
    assert problems_of(endless) == ["brief: the levels and pairs plan 34,560,000,000 requests, more than 10,000,000"]


TEXTS = ["title", "question", "note", "decision_owner", "baseline.runtime.version", "traffic.name", "fallback_plan"]


@pytest.mark.parametrize("path", TEXTS)
def test_a_nul_is_refused_in_its_field(path: str) -> None:
    text = "long enough \0 for every field"
    assert problems_of(changed(path, text)) == [f"{path}: the character NUL can't be kept"]
    assert problems_in(json.dumps(changed(path, text))) == [f"{path}: the character NUL can't be kept"]


@pytest.mark.parametrize("path", [*TEXTS, "deadlines.\ud800", "\ud800key"])
def test_half_a_character_is_refused_in_words_that_a_page_can_show(path: str) -> None:
    value: Any = {"first_token_s": 1, "completion_s": 2} if path.startswith("deadlines") else "long enough \ud800 too"
    for problem in problems_of(changed(path, value)):
        problem.encode()


def test_a_nul_in_a_key_is_refused() -> None:
    document = changed("deadlines.x\0", {"first_token_s": 1, "completion_s": 2})
    assert problems_of(document) == [r"deadlines.x\0: the character NUL can't be kept"]


def test_what_looks_like_an_escaped_nul_is_text() -> None:
    assert parse_brief(changed("note", "\\u0000 \\0")).note == "\\u0000 \\0"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.dates(),
    st.binary(max_size=5),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=6
)
PLACES = [*EVERY_NUMBER, *TEXTS, "candidates", "candidates.0", "levels", "guardrails", "deadlines", "baseline", "rule"]


@given(st.sampled_from(PLACES), ANYTHING)
@settings(max_examples=300, deadline=None)
def test_a_document_is_a_brief_with_a_digest_or_a_bad_brief(path: str, value: Any) -> None:
    try:
        brief = parse_brief(changed(path, value))
    except BadBrief as bad:
        problems = bad.problems
    else:
        problems = []
        assert parse_brief(json.loads(brief.content)).digest == brief.digest
    assert b"\0" not in "".join(problems).encode()


YAML_MARKS = """
a b : - ? ! !!int !!float !!bool !!timestamp !!binary !!set !!omap !!pairs !!null &a *a << | > ' " { } [ ] , # % @ ` ---
... .inf .nan 1_0 0x 0b 1:99 190:20:30.15 2024-13-45 2024-02-30 2024-02-28 2001-12-14t21:59:43+99:99 ~ \\ =
"""
YAML_WORDS = st.lists(
    st.one_of(st.sampled_from([*YAML_MARKS.split(), "\n", "\n  ", "\0", "\ud800"]), st.text(max_size=4)), max_size=25
)


@given(YAML_WORDS, st.sampled_from(["", " "]))
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_bad_brief_and_can_be_located(words: list[str], between: str) -> None:
    text = between.join(words)
    for problem in located(problems_in(text), text):
        problem.sentence.encode()


# -- guardrails' limits


@pytest.mark.parametrize(
    "change",
    [
        {"limit": 5},
        {"limit": 1},
        {"limit": 5, "kind": "relative"},
        {"limit": 5, "metric": "late_share"},
        {"limit": 5, "metric": "completion_quantile", "quantile": 0.9, "kind": "relative"},
        {"limit": 5, "metric": "kv_cache_tokens", "kind": "relative"},
    ],
)
def test_a_share_of_one_or_more_is_refused(change: dict[str, Any]) -> None:
    assert problems_of(DOCUMENT | {"guardrails": [rail(**change)]}) == [
        f"guardrails.0: guardrail failed: limit {change['limit']} is no share below 1: 0.05 is 5 %"
    ]


def test_an_absolute_share_of_nothing_is_refused() -> None:
    assert problems_of(DOCUMENT | {"guardrails": [rail(limit=0)]}) == [
        "guardrails.0: guardrail failed: limit must be above 0: that none will ever be counted can't be shown"
    ]
    assert parse_brief(DOCUMENT | {"guardrails": [rail(limit=0, kind="relative")]})


def test_the_kv_cache_has_no_class() -> None:
    cell = {"level": "peak", "class": "chat"}
    assert problems_of(DOCUMENT | {"guardrails": [rail(metric="kv_cache_tokens", kind="relative", cell=cell)]}) == [
        "guardrails.0: guardrail failed: kv_cache_tokens is the whole engine's: leave its class out"
    ]


def test_seconds_may_be_many() -> None:
    assert parse_brief(DOCUMENT | {"guardrails": [rail(metric="completion_quantile", quantile=0.9, limit=30)]})


REQUESTS = 40


def a_trial(brief: Brief, purpose: Any, pair: int, arm: str, start: int) -> TrialEvidence:
    candidate = brief.candidates[0].name if arm == "candidate" else None
    planned = np.linspace(0, 100 * S, REQUESTS).astype(np.int64)
    last = planned + (S if arm == "candidate" else 2 * S) + pair * S // 50
    configuration = brief.configuration(candidate or "baseline").digest
    boot = f"{purpose}-{pair}-{arm}"
    return TrialEvidence(
        trial=boot,
        boot=boot,
        server=boot,
        purpose=purpose,
        pair=pair,
        arm=arm,
        candidate=candidate,
        level="peak",
        evidence_class="measured",
        configuration=configuration,
        planned=REQUESTS,
        window_s=120.0,
        columns={
            "row": np.arange(REQUESTS) + 100 * pair,
            "class": np.full(REQUESTS, "chat", dtype=object),
            "prompt_sha256": np.array([f"{pair}-{row}" for row in range(REQUESTS)], dtype=object),
            "planned_ns": planned,
            "sent_ns": planned,
            "first_token_ns": planned + S // 10,
            "last_token_ns": last,
            "ended_ns": last,
            "status": np.full(REQUESTS, "completed", dtype=object),
            "finish_reason": np.full(REQUESTS, "stop", dtype=object),
            "server_decode_ms": np.full(REQUESTS, 10.0),
            "output_tokens": np.full(REQUESTS, 20),
            "fingerprint": np.full(REQUESTS, configuration, dtype=object),
        },
        engine_tokens=20 * REQUESTS,
        prefix_queries=100,
        prefix_hits=20,
        kv_cache_tokens=90_000,
        boot_started_ns=start,
        boot_stopped_ns=start + 300 * S,
        neighbour_cpu_share=0.01,
        warm_up_planned=2,
        warm_up_completed=2,
        died=False,
    )


def evidence(brief: Brief, failing: bool) -> list[TrialEvidence]:
    trials = []
    for purpose, arms, first in (("noise-floor", A_A_ARMS, 0), ("held-out", ARMS, 100)):
        for pair, order in enumerate(arm_orders(4, brief.rule.seed, arms=arms)):
            trials += [
                a_trial(brief, purpose, pair, arm, (first + 2 * pair + place) * 400 * S)
                for place, arm in enumerate(order)
            ]
    if failing:
        for trial in trials:
            trial.columns["status"][0] = "failed"
    return trials


@pytest.mark.parametrize("limit", [1e-8, 1e-300, 0.02, 0.5, 0.999999])
@pytest.mark.parametrize("failing", [False, True])
def test_a_verdict_has_words_for_every_limit(limit: float, failing: bool) -> None:
    brief = parse_brief(DOCUMENT | {"guardrails": [rail(limit=limit)]})
    document = verdict(brief, "ngram-4", evidence(brief, failing))
    canonical(document)
    assert document["verdict"] in ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")


def test_a_limit_that_takes_endless_requests_says_so() -> None:
    brief = parse_brief(DOCUMENT | {"guardrails": [rail(limit=1e-8)]})
    document = verdict(brief, "ngram-4", evidence(brief, False))
    assert (
        "A revision with a wider limit for the share of failed requests at peak: "
        "at most 1e-06 % takes more than 10,000,000 requests to show."
    ) in document["settles"]


def shares(least: float = 0.0) -> st.SearchStrategy[float]:
    return st.one_of(
        st.floats(least, 1, exclude_min=True, exclude_max=True),
        st.sampled_from([5e-324, 1e-17, 1e-8, 0.5, 1 - 1e-9, 1 - 2**-53]),
    )


@st.composite
def rails(draw: st.DrawFn) -> dict[str, Any]:
    metric = draw(
        st.sampled_from(
            ["failed_share", "late_share", "first_token_quantile", "completion_quantile", "kv_cache_tokens"]
        )
    )
    kind = "relative" if metric == "kv_cache_tokens" else draw(st.sampled_from(["absolute", "relative"]))
    quantile = draw(shares()) if metric.endswith("quantile") else None
    seconds = kind == "absolute" and quantile is not None
    limit = draw(st.floats(0, 86_400) if seconds else shares())
    class_ = "all" if metric == "kv_cache_tokens" else draw(st.sampled_from(["all", "chat", "unheard-of"]))
    return rail(metric=metric, kind=kind, quantile=quantile, limit=limit, cell={"level": "peak", "class": class_})


@st.composite
def outcomes(draw: st.DrawFn) -> dict[str, Any]:
    metric = draw(st.sampled_from(["attainment", "completion_quantile", "output_tokens_per_s"]))
    return {
        "metric": metric,
        "quantile": draw(shares()) if metric == "completion_quantile" else None,
        "improve_in": [{"level": "peak", "class": draw(st.sampled_from(["all", "chat", "unheard-of"]))}],
        "minimum_improvement": draw(shares()),
        "non_inferiority_margin": draw(shares()),
    }


@given(rails(), outcomes(), st.floats(0.5, 0.9999, exclude_min=True), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_brief_that_parses_gets_a_verdict(
    guardrail: dict[str, Any], outcome: dict[str, Any], confidence: float, failing: bool
) -> None:
    document = DOCUMENT | {"guardrails": [guardrail], "outcome": outcome, "rule": {"seed": 1, "confidence": confidence}}
    brief = parse_brief(document)
    canonical(verdict(brief, "ngram-4", evidence(brief, failing)))


# -- numbers on pages


@pytest.mark.parametrize("nothing", [None, "", INFINITE, float("nan")])
@pytest.mark.parametrize(
    "written",
    [
        tags.number,
        tags.percent,
        tags.signed_percent,
        tags.milliseconds,
        tags.seconds,
        tags.duration,
        tags.minutes,
        tags.confidence,
        lambda value: tags.span_of({"from": value, "to": value}),
    ],
)
def test_a_missing_number_is_a_dash(written: Callable[[Any], str], nothing: Any) -> None:
    assert written(nothing) == "–"


# -- pages


@pytest.fixture
def document(route: Route) -> dict[str, Any]:
    slug = route.service.slug
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="Two hours", by="engineer", service=slug, seed=7)
    return brief_document(TARGET, traffic) | {"route": route.slug}


@pytest.fixture
def draft(document: dict[str, Any], route: Route, engineer: Account) -> BriefRevision:
    return create_brief(route=route, source=json.dumps(document), by=engineer)


def test_the_page_of_a_boot_without_a_completed_request(
    draft: BriefRevision, engineer: Account, client: Client
) -> None:
    freeze_brief(revision=draft, by=engineer)
    start_brief(revision=draft, by=engineer)
    boot = claim_boot(pool="cpu", worker="worker-1", host="host-1")
    assert boot is not None
    run(boot, helps_when_quiet, 1.0, random.Random(1))
    for trial in Trial.objects.filter(boot=boot):
        nothing = {"first_token_ms": None, "completion_ms": None, "lag_ms": None, "output_tokens_per_s": None}
        trial.summary = trial.summary | nothing
        trial.save(update_fields=["summary"])
    client.force_login(engineer)
    response = client.get(reverse("boot", args=[boot.pk]))
    assert response.status_code == 200
    assert "<td>–</td><td>–</td><td>–</td><td>–</td><td>–</td></tr>" in response.content.decode()


@pytest.mark.django_db
class TestPages:
    @pytest.mark.parametrize(
        "line", ["note: 2024-02-30", "note: !!bool maybe", "note: !!int ''", "note: " + "9" * 5_000, 'note: "\\ud800"']
    )
    def test_a_slip_is_shown_beside_the_words(self, route: Route, engineer: Account, client: Client, line: str) -> None:
        client.force_login(engineer)
        response = client.post("/briefs/new/", {"route": "chat", "source": line})
        assert response.status_code == 422
        assert response.context["source"] == line
        assert not BriefRow.objects.exists()

    def test_a_slip_in_an_edit_is_shown_too(self, draft: BriefRevision, engineer: Account, client: Client) -> None:
        client.force_login(engineer)
        address = reverse("brief-edit", args=[draft.brief_id, 1])
        response = client.post(address, {"source": "title: !!int abc\n"})
        assert response.status_code == 422
        assert "can&#x27;t be read as int" in response.content.decode()

    @pytest.mark.parametrize(
        "address",
        [
            "/api/v1/routes/%00/configuration",
            "/api/v1/routes/chat/configuration?x=%00",
            "/history/?kind=%00",
            "/history/?a%00=b",
            "/static/%00.css",
        ],
    )
    def test_a_nul_in_an_address_is_a_bad_request(self, client: Client, address: str) -> None:
        response = client.get(address)
        assert (response.status_code, response["Content-Type"]) == (400, "text/plain; charset=utf-8")
        assert "NUL" in response.content.decode()

    def test_a_nul_in_a_form_is_a_bad_request(self, client: Client) -> None:
        assert client.post("/sign-in/", {"username": "a\0", "password": "b"}).status_code == 400
        assert client.post("/sign-in/", "username=a%00&x=1", "application/x-www-form-urlencoded").status_code == 400
        assert client.post("/sign-in/", {"username\0": "a"}).status_code == 400

    def test_a_nul_in_a_cookie_is_a_bad_request(self, client: Client) -> None:
        client.cookies.load('sessionid="abcdefghijk\\000"')
        assert client.get("/sign-in/").status_code == 400

    def test_a_nul_in_an_uploaded_file_is_the_readers_business(self, client: Client) -> None:
        upload = SimpleUploadedFile("traffic.bin", b"\0\0")
        assert client.post("/sign-in/", {"username": "a", "password": "b", "file": upload}).status_code == 200

    @pytest.mark.parametrize(
        "address",
        [
            f"/briefs/{HUGE}/",
            f"/briefs/{HUGE}/1/",
            f"/briefs/1/{HUGE}/",
            f"/briefs/{HUGE}/1/history/",
            f"/traffic/{HUGE}/",
            f"/runs/boots/{HUGE}/",
            f"/runs/trials/{HUGE}/records/",
        ],
    )
    def test_a_number_that_no_row_has_is_not_found(self, engineer: Account, client: Client, address: str) -> None:
        client.force_login(engineer)
        assert client.get(address).status_code == 404

    @pytest.mark.parametrize("release", ["abc", "", "-1", "²", "1.5", "9" * 18, HUGE, "9" * 5_000])
    def test_revoking_a_release_that_is_none_is_not_found(
        self, route: Route, owner: Account, client: Client, release: str
    ) -> None:
        client.force_login(owner)
        address = reverse("revoke", args=[route.service.slug, route.slug])
        response = client.post(address, {"release": release, "password": "x", "reason": "long enough a reason"})
        assert response.status_code == 404
