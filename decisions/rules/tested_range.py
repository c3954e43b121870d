"""The tested range: what the held-out evidence covers, per load level."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from decisions.rules.evidence import MISSING, TrialEvidence, coded

NANOSECONDS = 1e9


def tested_range(trials: Sequence[TrialEvidence]) -> dict[str, Any]:
    """Per level, over the held-out trials of the candidate: arrivals, running at once, lengths and classes."""
    levels: dict[str, list[TrialEvidence]] = {}
    for trial in trials:
        if trial.purpose == "held-out" and trial.arm == "candidate":
            levels.setdefault(trial.level, []).append(trial)
    return {"levels": [level_range(name, levels[name]) for name in sorted(levels)]}


def level_range(name: str, trials: Sequence[TrialEvidence]) -> dict[str, Any]:
    names, places = coded(np.concatenate([trial.columns["class"] for trial in trials]))
    return {
        "level": name,
        "trials": len(trials),
        "requests": sum(trial.planned for trial in trials),
        "arrival_rate_per_s": spread([trial.planned / trial.window_s for trial in trials]),
        "arrivals_in_one_second": max(busiest_second(trial) for trial in trials),
        "running_at_once": max(most_at_once(trial) for trial in trials),
        "prompt_tokens": spread(known(trials, "prompt_tokens")),
        "output_tokens": spread(known(trials, "output_tokens")),
        "classes": dict(zip(map(str, names), np.bincount(places).tolist(), strict=True)),
    }


def known(trials: Sequence[TrialEvidence], column: str) -> list[float]:
    values = np.concatenate([trial.columns[column] for trial in trials])
    return [float(value) for value in values[values != MISSING]]


def spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"from": round(min(values), 4), "to": round(max(values), 4)}


def busiest_second(trial: TrialEvidence) -> int:
    """Most arrivals in one second of the window, counted from its start."""
    offsets = trial.columns["planned_ns"] - trial.window_start_ns
    return int(np.bincount((offsets // int(NANOSECONDS)).astype(int)).max()) if len(offsets) else 0


def most_at_once(trial: TrialEvidence) -> int:
    """Most requests open at the same time, as the client saw it (the engine's running batch is at most that)."""
    sent, ended = trial.columns["sent_ns"], trial.columns["ended_ns"]
    both = (sent != MISSING) & (ended != MISSING)
    times = np.concatenate([sent[both], ended[both]])
    steps = np.concatenate([np.ones(both.sum()), -np.ones(both.sum())])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max()) if len(order) else 0
