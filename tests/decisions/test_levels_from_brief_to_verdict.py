"""Levels that replay, warm up and have impatient users, from the brief to the verdict."""

import json
from typing import Any

import pytest
import yaml

from decisions.models import Account, Route
from decisions.rules.brief import BadBrief
from decisions.selectors.evidence import evidence_of
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.start_brief import start_brief
from loadtests.models import TrafficPart
from tests.support.play import play, started_brief

pytestmark = pytest.mark.django_db


def with_peak(route: Route, engineer: Account, **fields: Any) -> str:
    document = json.loads(started_brief(route, engineer).source)
    document["levels"][2] |= {"arrival": {"process": "replay", "time_scale": 0.25}} | fields
    return json.dumps(document)


def test_a_peak_that_is_replayed_after_a_warm_up_is_judged_on_its_window(route: Route, engineer: Account) -> None:
    patience = {"share": 0.5, "after_s": 24}
    source = with_peak(route, engineer, warm_up_s=5, patience=patience, max_concurrency=50)
    revision = create_brief(route=route, source=source, by=engineer)
    freeze_brief(revision=revision, by=engineer)
    start_brief(revision=revision, by=engineer)
    play(revision)
    verdict = revision.verdicts.get()
    assert [one for one in verdict.document["validity"] if one["ok"] is not True] == []

    peak = [one for one in evidence_of(revision, purposes=["held-out"]) if one.level == "peak"]
    assert len(peak) == 8
    held_out = revision.traffic_set.parts.get(kind=TrafficPart.Kind.HELD_OUT) if revision.traffic_set else None
    assert held_out is not None
    for trial in peak:
        # 15 s of the plan are 60 s of recorded time.
        assert (trial.window_s, trial.window_start_ns) == (10, 5_000_000_000)
        assert trial.columns["planned_ns"].min() >= 5_000_000_000 > trial.warm_up_columns["planned_ns"].max()
        assert trial.planned == len(trial.columns["row"])
    assert {len(stretch) for stretch in held_out.stretches} == {2}


def test_a_replay_that_no_stretch_can_hold_is_refused_before_it_is_frozen(route: Route, engineer: Account) -> None:
    source = with_peak(route, engineer, duration_s=3_000)
    draft = create_brief(route=route, source=source, by=engineer)
    with pytest.raises(BadBrief) as refusal:
        freeze_brief(revision=draft, by=engineer)
    assert len(refusal.value.problems) == 2
    for part, problem in zip(("in the tuning part", "the held-out part"), refusal.value.problems, strict=True):
        assert problem.startswith(f"levels: {part}")
        assert "level peak of pair 1 is left without; it replays 12000 s of recorded time" in problem
        assert problem.endswith("split the traffic into longer blocks, or plan a shorter window")


def test_pairs_that_would_run_out_of_recorded_time_are_refused_before_it_is_frozen(
    route: Route, engineer: Account
) -> None:
    """Each window fits somewhere, and all of them together don't: said now, since a frozen plan can't be mended."""
    source = yaml.safe_load(with_peak(route, engineer, duration_s=60))
    source["rule"]["pairs"] = 40
    draft = create_brief(route=route, source=yaml.safe_dump(source), by=engineer)
    with pytest.raises(BadBrief, match="the held-out part has 269 requests; 120 segments need more"):
        freeze_brief(revision=draft, by=engineer)
