"""A verdict is recomputed years later by the rules that made it: the same bytes, by the version it names.

The golden digests were taken from the code that was in force under that version. They never change: where one fails,
the change belongs in a new version.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.verdict import CODES, FIRST_CODE, VERDICT_CODE, verdict, verdict_content
from loadtests.canonical import canonical, digest
from loadtests.statistics.order import A_A_ARMS, ARMS, arm_orders
from tests.support.judged import BRIEF, GUARDRAILS, NOMINEE, RATES, SEED, S, a_brief, a_trial, failing, in_arm

GOLDEN = Path(__file__).parent / "golden"
REQUESTS = 240


def drawn(pair: int, level: str, speed: float) -> dict[str, Any]:
    """What Python's own generator draws is the same in every version; numpy promises that of none."""
    draw = random.Random(f"{pair} {level}")
    planned = np.array(sorted(int(draw.random() * 120 * S) for _ in range(REQUESTS)))
    alone = np.array([RATES[level] * (0.6 + 6 * draw.random() ** 2) for _ in range(REQUESTS)])
    last = planned + np.round(alone * speed * S).astype(np.int64)
    return {
        "row": np.arange(REQUESTS) + 1000 * pair,
        "class": np.array([("chat", "rewrite")[draw.random() < 0.4] for _ in range(REQUESTS)], dtype=object),
        "prompt_sha256": np.array([f"{pair}-{level}-{row}" for row in range(REQUESTS)], dtype=object),
        "planned_ns": planned,
        "sent_ns": planned + S // 1000,
        "first_token_ns": planned + np.round(0.2 * alone * S).astype(np.int64),
        "last_token_ns": last,
        "ended_ns": last,
        "output_tokens": np.array([20 + int(100 * draw.random()) for _ in range(REQUESTS)]),
    }


def old_trial(
    brief: Brief, purpose: Any, pair: int, arm: str, level: str, speed: float, place: int, **more: Any
) -> TrialEvidence:
    trial = a_trial(brief, purpose, pair, arm, level, speed, place * 400 * S, window_s=120.0, **more)
    columns = {**trial.columns, **drawn(pair, level, speed)}
    return replace(trial, columns=columns, engine_tokens=int(columns["output_tokens"].sum()))


def old_evidence(brief: Brief = BRIEF, speed: float = 0.7, pairs: int = 4) -> list[TrialEvidence]:
    trials = []
    for purpose, arms, shift in (("noise-floor", A_A_ARMS, 0), ("held-out", ARMS, 100)):
        for pair, order in enumerate(arm_orders(pairs, brief.rule.seed, arms=arms)):
            for place, arm in enumerate(order):
                luck = 1 + 0.02 * random.Random(f"{purpose} {pair} {arm}").random()
                factor = luck * (speed if arm == "candidate" else 1.0)
                trials += [
                    old_trial(brief, purpose, pair, arm, level, factor, shift + 2 * pair + place) for level in RATES
                ]
    return trials


def old_tuning(brief: Brief) -> list[TrialEvidence]:
    return [
        old_trial(brief, "tuning", 0, arm, level, speed, place, candidate=candidate)
        for place, (arm, candidate, speed) in enumerate([("baseline", None, 1.0), ("candidate", "ngram-2", 1.1)])
        for level in RATES
    ]


def latency_brief() -> Brief:
    outcome = {
        "metric": "completion_quantile",
        "quantile": 0.9,
        "improve_in": [{"level": "peak"}, {"level": "quiet", "class": "chat"}],
        "minimum_improvement": 0.1,
        "non_inferiority_margin": 0.05,
    }
    late = {"id": "late", "metric": "late_share", "kind": "relative", "cell": {"level": "quiet"}, "limit": 0.05}
    return a_brief(outcome=outcome, guardrails=[late, *GUARDRAILS], rule={"seed": SEED, "pairs": 6})


def tokens_brief() -> Brief:
    outcome = {
        "metric": "output_tokens_per_s",
        "improve_in": [{"level": "quiet"}],
        "minimum_improvement": 0.05,
        "non_inferiority_margin": 0.05,
    }
    tight = GUARDRAILS[2] | {"quantile": 0.999, "limit": 200}
    return a_brief(outcome=outcome, guardrails=[tight])


def with_failures(trials: list[TrialEvidence], every: int) -> list[TrialEvidence]:
    return [
        failing(one, np.arange(REQUESTS) % every == 0) if in_arm(one, "candidate") and one.level == "peak" else one
        for one in trials
    ]


def without_pair(trials: list[TrialEvidence], pair: int) -> list[TrialEvidence]:
    return [one for one in trials if not (one.purpose == "held-out" and one.pair == pair)]


def lagging(trials: list[TrialEvidence]) -> list[TrialEvidence]:
    late = trials[0].columns["planned_ns"] + S
    return [replace(trials[0], columns={**trials[0].columns, "sent_ns": late}), *trials[1:]]


def uneven(trials: list[TrialEvidence]) -> list[TrialEvidence]:
    """Failures in one boot alone: few enough over all requests, too unevenly over the boots."""
    return [
        failing(one, np.arange(REQUESTS) < 4)
        if in_arm(one, "candidate") and (one.pair, one.level) == (1, "peak")
        else one
        for one in trials
    ]


def wrapped(trials: list[TrialEvidence]) -> list[TrialEvidence]:
    """A part so short that rows come twice in a trial."""
    return [replace(one, columns={**one.columns, "row": one.columns["row"] % 150}) for one in trials]


def dead(trials: list[TrialEvidence]) -> list[TrialEvidence]:
    """The candidate's engine died in the middle of one pair."""
    half = np.arange(REQUESTS) >= 120
    return [
        replace(failing(one, half), died=True) if in_arm(one, "candidate") and one.pair == 2 else one for one in trials
    ]


def without_surplus(brief: Brief, trials: list[TrialEvidence]) -> list[TrialEvidence]:
    """The first version took A/A pairs beyond those planned, and two cases have some; later they make INVALID."""
    planned = brief.rule.noise_floor_pairs
    return [one for one in trials if not (one.purpose == "noise-floor" and (one.pair or 0) >= planned)]


Case = tuple[Brief, str | None, list[TrialEvidence]]
CASES: dict[str, Callable[[], Case]] = {
    "pass": lambda: (BRIEF, NOMINEE, old_evidence()),
    "too-small": lambda: (BRIEF, NOMINEE, old_evidence(speed=0.99)),
    "broken-guardrail": lambda: (BRIEF, NOMINEE, with_failures(old_evidence(), 20)),
    "open": lambda: (BRIEF, NOMINEE, old_evidence(speed=0.975)),
    "uneven": lambda: (BRIEF, NOMINEE, uneven(old_evidence())),
    "wrapped": lambda: (BRIEF, NOMINEE, wrapped(old_evidence(speed=0.9))),
    "dead": lambda: (latency_brief(), NOMINEE, dead(old_evidence(latency_brief(), pairs=6))),
    "missing-pair": lambda: (BRIEF, NOMINEE, without_pair(old_evidence(), 3)),
    "lag": lambda: (BRIEF, NOMINEE, lagging(old_evidence())),
    "latency": lambda: (latency_brief(), NOMINEE, old_evidence(latency_brief(), pairs=6)),
    "tokens": lambda: (tokens_brief(), NOMINEE, old_evidence(tokens_brief())),
    "nobody": lambda: (BRIEF, None, old_tuning(BRIEF)),
    "nothing": lambda: (BRIEF, NOMINEE, []),
}
GOLDENS = {
    code: json.loads((GOLDEN / f"verdict-{number}.json").read_text()) for number, code in enumerate(CODES, start=1)
}


@pytest.mark.parametrize("code", CODES)
def test_every_golden_case_is_computed(code: str) -> None:
    assert CASES.keys() == GOLDENS[code].keys()
    assert {one["verdict"] for one in GOLDENS[code].values()} == {"PASS", "FAIL", "INCONCLUSIVE", "INVALID"}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", CASES)
def test_every_version_gives_the_bytes_it_gave(name: str, code: str) -> None:
    brief, nominee, trials = CASES[name]()
    if code != FIRST_CODE:
        trials = without_surplus(brief, trials)
    document = verdict(brief, nominee, trials, code=code)
    assert {"verdict": document["verdict"], "sha256": digest(canonical(document))} == GOLDENS[code][name]


def test_the_first_version_s_document_is_kept_whole() -> None:
    assert canonical(verdict(*CASES["pass"](), code=FIRST_CODE)) == (GOLDEN / "verdict-1-pass.json").read_bytes()


def test_a_verdict_is_made_from_bytes_and_names_its_evidence() -> None:
    brief, nominee, trials = CASES["pass"]()
    content = verdict_content(brief.content, nominee, trials, ["b" * 64, "a" * 64])
    document = json.loads(content)
    assert (document["code"], document["brief"]) == (VERDICT_CODE, digest(brief.content))
    assert document["evidence"] == ["a" * 64, "b" * 64]
    assert content == verdict_content(brief.content, nominee, trials[::-1], ["a" * 64, "b" * 64])


def refusal(code: str, **changes: Any) -> str:
    with pytest.raises(ValueError, match=r"knows no|no verdict code") as raised:
        verdict(a_brief(**changes), NOMINEE, [], code=code)
    return str(raised.value)


def test_a_version_that_there_is_not_and_one_that_did_not_know() -> None:
    assert refusal("draftproof.verdict/9") == (
        "there is no verdict code 'draftproof.verdict/9'; there are: draftproof.verdict/1, draftproof.verdict/2"
    )
    rail = {"id": "given-up", "metric": "cancelled_share", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0.1}
    assert refusal(FIRST_CODE, guardrails=[rail]) == "draftproof.verdict/1 knows no cancelled_share"
    looks = {"seed": SEED, "pairs": 8, "looks": 2, "interim": [{"pairs": 4, "alpha": 0.01}]}
    assert refusal(FIRST_CODE, rule=looks) == "draftproof.verdict/1 knows no ladder, and one look alone"
