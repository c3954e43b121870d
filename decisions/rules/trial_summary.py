"""What a page shows of each held-out trial by itself, with intervals within it. Nothing gates on them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence, completion_s, has_deadline, within
from loadtests.statistics.attainment import slo_goodput
from loadtests.statistics.bootstrap import CONFIDENCE, quantile_interval, share_interval
from loadtests.statistics.quantiles import quantile

COMPLETION = (0.5, 0.99)
INTERVALS_ARE = f"{100 * CONFIDENCE:g} % within the trial, by moving blocks: they know nothing of another boot"


def trial_rows(brief: Brief, trials: Iterable[TrialEvidence]) -> list[dict[str, Any]]:
    return [trial_row(brief, one) for one in trials if len(one.columns["row"])]


def trial_row(brief: Brief, trial: TrialEvidence) -> dict[str, Any]:
    # Written by whatever order: what came together has to stay together, and equal records to give equal bytes.
    order = np.lexsort((trial.columns["row"], trial.columns["planned_ns"]))
    judged, met = has_deadline(trial, brief)[order], within(trial, brief)[order]
    times = completion_s(trial)[order]
    found = share_interval(met[judged]) if judged.any() else None
    row: dict[str, Any] = {
        "trial": trial.trial,
        "pair": trial.pair,
        "arm": trial.arm,
        "level": trial.level,
        "attainment": float(met[judged].mean()) if judged.any() else None,
        "attainment_interval": found,
        "slo_goodput_per_s": slo_goodput(met[judged], trial.window_s) if judged.any() else None,
        "preemptions": trial.preemptions,
        "intervals_are": INTERVALS_ARE,
    }
    for share in COMPLETION:
        name = f"completion_p{share * 100:g}"
        row |= {f"{name}_s": quantile(times, share), f"{name}_interval_s": quantile_interval(times, share)}
    return row
