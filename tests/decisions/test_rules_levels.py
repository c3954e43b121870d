"""What load levels do to briefs and verdicts: digests that stay, deadlines of a level, warm-up, patience and caps."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decisions.rules.brief import BadBrief, Brief, parse_brief
from decisions.rules.evidence import (
    MISSING,
    Array,
    TrialEvidence,
    completion_s,
    gave_up,
    has_deadline,
    window_and_warm_up,
    within,
)
from decisions.rules.measures import Measure, value
from decisions.rules.tested_range import level_range
from decisions.rules.validity import client_lag, engine_tokens, issued, same_requests
from loadtests.canonical import digest, digest_of
from loadtests.planning import plan_boots, plan_document
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import plan_content
from loadtests.traffic.rows import Row

SUPPORT = Path(__file__).resolve().parent.parent / "support"
DOCUMENT: dict[str, Any] = json.loads((SUPPORT / "frozen_brief.json").read_bytes())
S = 1_000_000_000

# Computed when no level could warm up, cap what is open, give up or have deadlines of its own.
FROZEN = "51ce59175564d32db1e42b2da9289ee46b04d2b81b75211f6cc3a2e107497eb5"
CAMPAIGN = "7eadd1a4120c6c597419e4d08d8f5a9b6d2d386aba402fdbebaf3cc272a60796"
TRIALS = {
    "quiet": "d7ed3c1b52506f8b93934385ed321eadc8e3db3443354a96ea2365b050ad713a",
    "ordinary": "1c42a94f74e218bcfc4f29ad11e20747e5725cc673961d06bbb6a8b98458a256",
    "peak": "307231d5711378dcdfca96fa19962f0301a3302f3ef9c86f9878e8da8fe14701",
    "replayed": "402796f8955e90b6004b36879c2abba59f91dd73f7f8c589f54f95906661cb1e",
}


def brief(**peak: Any) -> Brief:
    levels = [level | peak if level["name"] == "peak" else level for level in DOCUMENT["levels"]]
    return parse_brief(DOCUMENT | {"levels": levels})


BRIEF = brief()


def test_a_brief_frozen_before_levels_could_do_more_keeps_its_digest() -> None:
    assert BRIEF.digest == FROZEN
    assert parse_brief(json.loads(BRIEF.content)) == BRIEF
    written_out: dict[str, Any] = {"warm_up_s": 0, "max_concurrency": None, "patience": None, "deadlines": {}}
    assert brief(**written_out).digest == FROZEN
    assert brief(warm_up_s=1).digest != FROZEN


def test_a_campaign_planned_before_keeps_its_digests() -> None:
    rows = [
        Row.model_validate(
            {
                "id": f"r{number}",
                "conversation": f"c{number}",
                "arrival_s": number * 0.75,
                "class": "chat",
                "messages": [{"role": "user", "content": f"question {number}"}],
                "max_tokens": 8,
            }
        )
        for number in range(600)
    ]
    boots = plan_boots(
        "held-out",
        baseline="b" * 64,
        candidates={"ngram-k4": "c" * 64},
        rows=rows,
        levels=BRIEF.levels,
        peak="peak",
        pairs=4,
        seed=186,
    )
    document = plan_document(
        "held-out",
        brief=BRIEF.digest,
        part="3" * 64,
        levels=BRIEF.levels,
        deadlines={name: one.model_dump() for name, one in BRIEF.deadlines.items()},
        seed=186,
        boots=boots,
    )
    plans = {}
    for trial in boots[0].trials:
        indexed, level = [(index, rows[index]) for index in trial.segment.rows], BRIEF.level(trial.level)
        plans[trial.level] = digest(
            plan_content(plan_level(indexed, level, seed=trial.segment.seed, prefix="t"), level)
        )
    assert (digest_of(document), plans) == (CAMPAIGN, TRIALS)


@pytest.mark.parametrize(
    "arrival",
    [{"process": "on-off", "rate": 600, "on_s": 60, "off_s": 60}, {"process": "ramp", "rate": 200, "rate_to": 400}],
)
def test_requests_of_bursts_and_ramps_are_counted_at_their_mean_rate(arrival: dict[str, Any]) -> None:
    # Four pairs of 300 requests/s: 8,000 s are 9.6 million requests, 9,000 s are 10.8 million.
    assert brief(arrival=arrival, duration_s=8_000)
    with pytest.raises(BadBrief, match=r"the levels and pairs plan 10,800,[0-9]{3} requests, more than 10,000,000"):
        brief(arrival=arrival, duration_s=9_000)


def test_a_problem_of_a_level_names_its_place() -> None:
    with pytest.raises(BadBrief) as refusal:
        brief(patience={"share": 2, "after_s": 1})
    assert refusal.value.problems == ["levels.2.patience.share: Input should be less than or equal to 1"]


REQUESTS = 8
WARM = 2
WARM_UP_S = 10


def columns(**changes: Any) -> dict[str, Array]:
    """Eight requests, one a second; the first two are warm-up. Each takes two seconds."""
    planned = np.arange(REQUESTS, dtype=np.int64) * S + (WARM_UP_S - WARM) * S
    found: dict[str, Any] = {
        "row": np.arange(REQUESTS),
        "class": np.array(["chat"] * REQUESTS, dtype=object),
        "prompt_sha256": np.array([f"prompt {row}" for row in range(REQUESTS)], dtype=object),
        "prompt_tokens": np.full(REQUESTS, 7),
        "planned_ns": planned,
        "due_ns": planned,
        "sent_ns": planned + S // 1000,
        "first_token_ns": planned + S // 2,
        "last_token_ns": planned + 2 * S,
        "ended_ns": planned + 2 * S,
        "give_up_ns": np.full(REQUESTS, MISSING),
        "status": np.array(["completed"] * REQUESTS, dtype=object),
        "finish_reason": np.array(["stop"] * REQUESTS, dtype=object),
        "server_decode_ms": np.full(REQUESTS, 10.0),
        "output_tokens": np.full(REQUESTS, 20),
        "warm_up": np.arange(REQUESTS) < WARM,
    }
    return found | changes


def trial(found: dict[str, Array] | None = None, **fields: Any) -> TrialEvidence:
    window, warm = window_and_warm_up(found or columns())
    named = dict.fromkeys(("trial", "boot", "server", "configuration"), "x")
    counted = {"engine_tokens": 20 * REQUESTS, "prefix_queries": 0, "prefix_hits": 0, "kv_cache_tokens": 9}
    placed = {"purpose": "held-out", "pair": 0, "arm": "candidate", "candidate": "ngram-k2", "level": "peak"}
    times = {"window_s": 6.0, "window_start_ns": WARM_UP_S * S, "boot_started_ns": 0, "boot_stopped_ns": S}
    rest = {"evidence_class": "measured", "neighbour_cpu_share": 0.0, "died": False}
    warmed = {"warm_up_planned": 0, "warm_up_completed": 0}
    made: dict[str, Any] = named | counted | placed | times | rest | warmed
    own = {"planned": len(window["row"]), "columns": window, "warm_up_columns": warm}
    return TrialEvidence(**(made | own | fields))


def changed(name: str, at: int, to: Any) -> dict[str, Array]:
    found = columns()
    found[name] = found[name].copy()
    found[name][at] = to
    return found


def test_a_level_s_own_deadlines_come_first() -> None:
    tight = brief(deadlines={"default": {"first_token_s": 5, "completion_s": 1.5}})
    assert BRIEF.deadline("chat", "peak") == BRIEF.deadlines["default"]
    assert tight.deadline("chat", "peak") == tight.level("peak").deadlines["default"]
    # A class with a deadline of its own in the brief keeps it.
    assert tight.deadline("rewrite", "peak") == BRIEF.deadlines["rewrite"]
    assert tight.deadline("chat", "quiet") == BRIEF.deadlines["default"]
    assert within(trial(), BRIEF).all()
    assert not within(trial(), tight).any()
    assert within(trial(level="quiet"), tight).all()
    assert has_deadline(trial(), tight).all()


def test_warm_up_is_in_no_number() -> None:
    slow_start = changed("last_token_ns", 0, 10**15)
    assert completion_s(trial(slow_start)).tolist() == [2.0] * 6
    failing_start = changed("status", 1, "failed")
    assert value(Measure("failed_share"), trial(failing_start), "all", BRIEF) == 0
    # Six requests of 20 tokens; the last token came 7 s after the window began.
    assert value(Measure("output_tokens_per_s"), trial(), "all", BRIEF) == pytest.approx(120 / 7)
    found = level_range("peak", [trial()])
    assert (found["requests"], found["arrival_rate_per_s"]) == (6, {"from": 1.0, "to": 1.0})
    assert (found["arrivals_in_one_second"], found["running_at_once"]) == (1, 2)


def test_a_request_of_the_warm_up_that_was_never_sent_is_no_gap() -> None:
    assert issued([trial(changed("status", 0, "not_sent"))]).ok
    assert not issued([trial(changed("status", 5, "not_sent"))]).ok
    assert not issued([trial(planned=7)]).ok


def test_the_engine_s_counter_holds_against_everything_that_was_sent() -> None:
    assert engine_tokens([trial()]).ok
    assert engine_tokens([trial()]).sentence == (
        "The engine's token counter equals the sum of the responses in 1 trial."
    )
    window_alone = engine_tokens([trial(engine_tokens=20 * (REQUESTS - WARM))])
    assert (window_alone.ok, window_alone.number) == (False, -40)
    # A warm-up request that was cut off: the engine made tokens that nobody got.
    assert engine_tokens([trial(changed("status", 0, "timed_out"), engine_tokens=999)]).ok


def test_both_arms_warm_up_with_the_same_requests() -> None:
    baseline = trial(arm="baseline", candidate=None)
    assert same_requests([baseline, trial()], BRIEF).ok
    assert not same_requests([baseline, trial(changed("row", 0, 99))], BRIEF).ok


def test_lag_counts_from_when_a_slot_came_free() -> None:
    late = columns()["planned_ns"] + 3 * S
    assert not client_lag([trial(columns(sent_ns=late))], BRIEF).ok
    waited = client_lag([trial(columns(sent_ns=late, due_ns=late - S // 1000))], BRIEF)
    assert (waited.ok, waited.number) == (True, 1.0)
    unknown = columns(due_ns=np.full(REQUESTS, MISSING))
    assert client_lag([trial(unknown)], BRIEF).number == 1.0


def test_who_gave_up_as_planned_is_late_and_not_failed() -> None:
    give_up = columns()["planned_ns"] + S
    status = np.array(["completed"] * REQUESTS, dtype=object)
    status[4:] = "cancelled"
    found = trial(columns(status=status, give_up_ns=give_up, ended_ns=give_up + 1))
    assert gave_up(found).tolist() == [False, False, True, True, True, True]
    assert value(Measure("failed_share"), found, "all", BRIEF) == 0
    assert value(Measure("late_share"), found, "all", BRIEF) == pytest.approx(4 / 6)
    assert value(Measure("attainment"), found, "all", BRIEF) == pytest.approx(2 / 6)
    assert value(Measure("completion_quantile", 0.5), found, "all", BRIEF) == float("inf")
    stopped = trial(columns(status=status, give_up_ns=give_up, ended_ns=give_up - 1))
    assert value(Measure("failed_share"), stopped, "all", BRIEF) == pytest.approx(4 / 6)


def test_evidence_without_these_columns_is_judged_as_before() -> None:
    old = {name: one for name, one in columns().items() if name not in ("due_ns", "give_up_ns")}
    assert not gave_up(trial(old)).any()
    assert client_lag([trial(old)], BRIEF).number == 1.0
    window, warm = window_and_warm_up(columns(warm_up=np.zeros(REQUESTS, dtype=bool)))
    assert (len(window["row"]), len(warm["row"])) == (REQUESTS, 0)
    assert replace(trial(), warm_up_columns={}).with_warm_up("row").tolist() == list(range(2, REQUESTS))
