"""Synthetic evidence for verdicts: pairs whose candidate is so many times as slow, with one fault or effect planted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from decisions.rules.brief import Brief, parse_brief
from decisions.rules.evidence import MISSING, TrialEvidence
from loadtests.statistics.order import A_A_ARMS, ARMS, arm_orders

S = 1_000_000_000
RATES = {"quiet": 0.6, "peak": 1.0}
REQUESTS = 240
FASTER = 0.7
SEED = 11

GUARDRAILS = [
    {"id": "failed", "metric": "failed_share", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0.01},
    {
        "id": "first-token",
        "metric": "first_token_quantile",
        "kind": "relative",
        "cell": {"level": "peak"},
        "limit": 0.2,
        "quantile": 0.5,
    },
    {
        "id": "completion-p90",
        "metric": "completion_quantile",
        "kind": "absolute",
        "cell": {"level": "quiet"},
        "limit": 6,
        "quantile": 0.9,
    },
    {"id": "kv", "metric": "kv_cache_tokens", "kind": "relative", "cell": {"level": "peak"}, "limit": 0.1},
]


def a_brief(**changes: Any) -> Brief:
    document: dict[str, Any] = {
        "schema": "draftproof.brief/1",
        "title": "Speculation for chat",
        "service": "support-assistant",
        "route": "chat",
        "question": "May chat run with speculation at its real load?",
        "population": "Requests of the chat route in one week",
        "decision_owner": "owner",
        "baseline": {
            "runtime": {"engine": "vllm", "version": "0.32.0"},
            "target": {"name": "target", "weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64},
            "hardware": {"pool": "cpu", "accelerator": "cpu"},
        },
        "candidates": [
            {"name": f"ngram-{k}", "speculative": {"method": "ngram", "num_speculative_tokens": k}} for k in (2, 4, 8)
        ],
        "traffic": {"name": "demo", "set": "1" * 64, "tuning": "2" * 64, "held_out": "3" * 64},
        "levels": [{"name": name, "arrival": {"process": "poisson", "rate": 2.0}, "duration_s": 120} for name in RATES],
        "peak": "peak",
        "deadlines": {"default": {"first_token_s": 2, "completion_s": 6}},
        "outcome": {
            "metric": "attainment",
            "improve_in": [{"level": "peak"}],
            "minimum_improvement": 0.02,
            "non_inferiority_margin": 0.02,
        },
        "guardrails": GUARDRAILS,
        "rule": {"seed": SEED},
        "budget_engine_minutes": 60,
        "fallback_plan": "Requests queue at peak; admission is reduced.",
    }
    return parse_brief(document | changes)


BRIEF = a_brief()
NOMINEE = "ngram-4"


def requests(
    pair: int, level: str, fingerprint: str, speed: float, tokens: float = 1.0
) -> dict[str, np.ndarray[Any, Any]]:
    """What an arm ``speed`` times as slow as the baseline makes of the pair's requests: the same in both arms."""
    draw = np.random.default_rng([pair, sorted(RATES).index(level)])
    planned = np.sort(draw.integers(0, 120 * S, REQUESTS))
    alone = 2.5 * RATES[level] * np.exp(0.65 * draw.normal(size=REQUESTS))
    output = np.round(draw.integers(20, 120, REQUESTS) * tokens).astype(np.int64)
    classes = np.array(["chat", "rewrite"], dtype=object)[draw.integers(0, 2, REQUESTS)]
    last = planned + np.round(alone * speed * S).astype(np.int64)
    return {
        "row": np.arange(REQUESTS) + 1000 * pair,
        "class": classes,
        "prompt_sha256": np.array([f"{pair}-{level}-{row}" for row in range(REQUESTS)], dtype=np.bytes_),
        "planned_ns": planned,
        "sent_ns": planned + S // 1000,
        "first_token_ns": planned + np.round(0.2 * alone * S).astype(np.int64),
        "last_token_ns": last,
        "ended_ns": last,
        "status": np.full(REQUESTS, "completed", dtype=object),
        "finish_reason": np.full(REQUESTS, "stop", dtype=object),
        "server_decode_ms": np.full(REQUESTS, 10.0),
        "output_tokens": output,
        "fingerprint": np.full(REQUESTS, fingerprint, dtype=object),
    }


def a_trial(
    brief: Brief, purpose: Any, pair: int, arm: str, level: str, speed: float, start: int, **more: Any
) -> TrialEvidence:
    candidate = more.pop("candidate", NOMINEE if arm == "candidate" else None)
    configuration = brief.configuration(candidate or "baseline").digest
    columns = requests(pair, level, configuration, speed, more.pop("tokens", 1.0))
    name = f"{purpose}-{pair}-{arm}-{candidate or ''}"
    fields: dict[str, Any] = {
        "trial": f"{name}-{level}",
        "boot": name,
        "server": f"server of {name}",
        "purpose": purpose,
        "pair": pair,
        "arm": arm,
        "candidate": candidate,
        "level": level,
        "evidence_class": "measured",
        "configuration": configuration,
        "planned": REQUESTS,
        "window_s": 120.0,
        "columns": columns,
        "engine_tokens": int(columns["output_tokens"].sum()),
        "prefix_queries": 10_000,
        "prefix_hits": 2_000,
        "kv_cache_tokens": 90_000 if arm == "candidate" else 93_184,
        "boot_started_ns": start,
        "boot_stopped_ns": start + 300 * S,
        "neighbour_cpu_share": 0.01,
        "warm_up_planned": 2,
        "warm_up_completed": 2,
        "died": False,
    }
    return TrialEvidence(**(fields | more))


def pairs_of(
    brief: Brief, purpose: Any, arms: tuple[str, str], speed: float, pairs: int, **more: Any
) -> list[TrialEvidence]:
    trials = []
    noise = np.random.default_rng(sum(map(ord, purpose)))
    for pair, order in enumerate(arm_orders(pairs, brief.rule.seed, arms=arms)):
        for place, arm in enumerate(order):
            start = 1_760_000_000 * S + (2 * pair + place) * 400 * S + (0 if purpose == "held-out" else -(10**5) * S)
            boot = float(np.exp(0.01 * noise.normal()))
            for level in RATES:
                factor = boot * (speed if arm == "candidate" else 1.0)
                changes = more if arm == "candidate" else {}
                trials.append(a_trial(brief, purpose, pair, arm, level, factor, start, **changes))
    return trials


def evidence(brief: Brief = BRIEF, speed: float = FASTER, pairs: int = 4, **more: Any) -> list[TrialEvidence]:
    """Noise floor and held-out pairs with a candidate ``speed`` times as slow as the baseline."""
    floor = pairs_of(brief, "noise-floor", A_A_ARMS, 1.0, brief.rule.noise_floor_pairs)
    return floor + pairs_of(brief, "held-out", ARMS, speed, pairs, **more)


def in_arm(trial: TrialEvidence, arm: str, purpose: str = "held-out") -> bool:
    return (trial.purpose, trial.arm) == (purpose, arm)


def changed(
    trials: Sequence[TrialEvidence], which: Callable[[TrialEvidence], bool], **fields: Any
) -> list[TrialEvidence]:
    return [replace(one, **fields) if which(one) else one for one in trials]


def with_columns(trial: TrialEvidence, **columns: Any) -> TrialEvidence:
    return replace(trial, columns={**trial.columns, **columns})


def failing(trial: TrialEvidence, which: Any, status: str = "failed") -> TrialEvidence:
    """The same trial in which some requests ended as ``status``; what the engine made for them it still counted."""
    found = {name: np.array(trial.columns[name], copy=True) for name in trial.columns}
    found["status"][which] = status
    for name in ("first_token_ns", "last_token_ns", "output_tokens"):
        found[name][which] = MISSING
    return replace(trial, columns=found)


def check(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["validity"] if one["id"] == name)
    return found


def row(document: dict[str, Any], name: str) -> dict[str, Any]:
    rows = [*document["outcome"], *document["guardrails"]]
    found: dict[str, Any] = next(one for one in rows if one["id"] == name)
    return found
