"""The decision benchmark's own arithmetic: calibration, what is kept of a run, what the tables count."""

import json
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from decisions.commands.boots import Boot as KeptBoot
from decisions.commands.boots import Place as KeptPlace
from decisions.commands.directories import evidence_in
from decisions.rules.evidence import COLUMNS, Purpose, TrialEvidence, columns_of
from decisions.rules.verdict import verdict
from loadtests.evidence.directories import KeptTrial
from loadtests.evidence.manifest import Digests, Manifest, counters_around, this_client, timestamp
from loadtests.evidence.plans import Plan
from loadtests.evidence.records import RequestRecord, records_table
from loadtests.simulator.model import EngineModel, changed
from tests.benchmarks import decision, decision_fleet
from tests.benchmarks.decision_fleet import trials
from tests.benchmarks.decision_rules import decide, judge, todays_choice
from tests.benchmarks.decision_table import count_all, counted, held_up_to, most_false, page
from tests.benchmarks.decision_truths import (
    CLEAR,
    FIGURES,
    GOOD,
    LIMITS,
    NULLS,
    OUTCOME,
    TRUTHS,
    deserves,
    estimate,
    halved,
    regret,
)
from tests.benchmarks.decision_world import (
    COMPLETION,
    FIRST_TOKEN,
    GRID,
    LATE,
    MINIMUM,
    NOMINEE,
    PAIRS,
    Arm,
    Drafter,
    Place,
    brief,
    columns_from,
    engine_model,
    level,
    run_boot,
    trial,
)

SPREAD = 0.03


@pytest.mark.parametrize("rises", [True, False])
def test_halving_finds_the_knob_at_which_the_effect_is_as_wanted(rises: bool) -> None:
    def off(knob: float) -> float:
        return (1 if rises else -1) * (knob**2 - 0.09)

    knob, slope = halved(off, 0.0, 1.0, rises=rises)
    assert knob == pytest.approx(0.3, abs=1e-3)
    assert slope == pytest.approx(0.6 if rises else -0.6, rel=0.05)


def test_a_knob_that_never_gets_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no crossing between 0 \(\+1\.0000\) and 1 \(\+2\.0000\)"):
        halved(lambda knob: 1 + knob, 0.0, 1.0, rises=True)
    with pytest.raises(ValueError, match="no crossing"):
        halved(lambda knob: 0.5 - knob, 0.0, 1.0, rises=True)


def test_regressing_out_the_luck_leaves_the_mean_and_narrows_it() -> None:
    """effect = 1 + 2 z + z² + small noise has the mean 2: z² − 1 is a Hermite polynomial."""
    rng = np.random.default_rng(1)
    luck = rng.standard_normal((400, 1))
    effects = 1 + 2 * luck[:, 0] + luck[:, 0] ** 2 + 0.1 * rng.standard_normal(400)
    found = estimate(effects, luck)
    assert found.mean == pytest.approx(2, abs=4 * found.se)
    assert found.se < 0.1 * found.sd / 20


def kept(place: Place, drafter: Drafter | None) -> KeptBoot:
    """As ``draftproof compare`` has it after reading a directory."""
    boot, run = run_boot(SPREAD, place, drafter)
    manifest = Manifest(
        evidence_class="simulated",
        level=level().model_dump(mode="json"),
        model=boot.model.name,
        started_at=timestamp(0),
        window_s=level().duration_s,
        drain_s=level().drain_s,
        stopped=False,
        digests=Digests(plan="0" * 64, records="0" * 64, configuration=boot.fingerprint),
        planned=len(run.records),
        statuses={},
        lag_ms=None,
        fingerprints={},
        engine={
            "server_id": f"simulated-{place.boot_seed:012x}",
            "kv_cache_tokens": boot.engine.capacity * boot.model.block_size,
        },
        counters=counters_around(run.before, run.after),
        neighbour_cpu_share=0.0,
        client=this_client(["test"]),
    )
    found = KeptTrial(Path(), manifest, "0" * 64, level(), plan_of(run.records), records_table(run.records))
    name = f"k{place.k}" if place.k else None
    return KeptBoot(KeptPlace(place.purpose, place.pair, place.arm, name), [found])


def plan_of(records: Sequence[RequestRecord]) -> Plan:
    count = len(records)
    return Plan(
        document={},
        request_ids=pa.array([one.request_id for one in records]),
        rows=np.array([one.row for one in records]),
        row_keys=np.arange(count, dtype=np.uint64),
        planned_ns=np.array([one.planned_ns for one in records]),
        give_up_ns=np.full(count, -1),
    )


def all_places(number: int) -> list[Place]:
    sides: list[tuple[Purpose, Arm, int | None]] = [
        ("noise-floor", "baseline", None),
        ("noise-floor", "control", None),
        ("held-out", "baseline", None),
        ("held-out", "candidate", NOMINEE),
    ]
    return [Place("test", number, side, pair, arm, k) for pair in range(PAIRS[SPREAD]) for side, arm, k in sides]


def test_the_verdict_is_the_one_that_compare_gives_on_the_same_trials() -> None:
    drafters = {place: GOOD if place.k else None for place in all_places(0)}
    ours = verdict(brief(SPREAD), f"k{NOMINEE}", [trial(SPREAD, *one)[0] for one in drafters.items()])
    theirs = evidence_in(brief(SPREAD), [kept(*one) for one in drafters.items()])
    assert verdict(brief(SPREAD), f"k{NOMINEE}", theirs) == ours
    assert ours["verdict"] == "PASS"


@pytest.mark.parametrize("drafter", [GOOD, GOOD.with_(chat=0.3, code=0.3), GOOD.with_(step_s=0.012)])
def test_what_is_kept_of_a_decision_is_what_its_verdict_says(drafter: Drafter) -> None:
    trials = [trial(SPREAD, place, drafter if place.k else None)[0] for place in all_places(3)]
    document = verdict(brief(SPREAD), f"k{NOMINEE}", trials)
    rows = [*document["outcome"], *document["guardrails"]]
    found = judge(brief(SPREAD), NOMINEE, trials)
    assert found["verdict"] == document["verdict"]
    assert found["p_holds"] == {row["id"]: round(row["p_holds"], 5) for row in rows if row["p_holds"] is not None}
    unshown = [row["id"] for row in rows if row["shown"] not in (None, "shown")]
    unshown += [check["id"] for check in document["validity"] if not check["ok"]]
    assert found["open"] == unshown + ([] if document["noise_floor"]["ok"] else ["noise-floor"])


# Drafters of which everything is kept and nothing, and one so slow that requests pile up.
WILD = [GOOD, GOOD.with_(chat=0.0, step_s=0.012), GOOD.with_(chat=1.0, code=0.3)]


@pytest.mark.parametrize("spread", [SPREAD, 0.12])
def test_boots_side_by_side_are_the_simulator_s_to_the_nanosecond(spread: float) -> None:
    wanted: list[tuple[Place, Drafter | None]] = [(Place("test", 3, "held-out", 1, "baseline"), None)]
    wanted += [(Place("test", 3, "held-out", 1, "candidate", k), one) for k in GRID for one in WILD]
    for (ours, our_luck), (place, drafter) in zip(trials(spread, wanted), wanted, strict=True):
        theirs, luck = trial(spread, place, drafter)
        assert ours is not theirs
        assert our_luck == luck
        assert set(ours.columns) == set(theirs.columns)
        for name, values in ours.columns.items():
            assert values.dtype == theirs.columns[name].dtype
            if name in ("first_token_ns", "last_token_ns", "ended_ns"):
                assert np.abs(values - theirs.columns[name]).max() <= 1
            elif name == "server_decode_ms":
                np.testing.assert_allclose(values, theirs.columns[name], rtol=0, atol=1e-5)
            else:
                assert values.tolist() == theirs.columns[name].tolist()
        for field in fields(TrialEvidence):
            if field.name not in ("columns", "warm_up_columns"):
                assert getattr(ours, field.name) == getattr(theirs, field.name)


def test_a_boot_that_is_not_simple_is_the_simulator_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a few sequences they wait and are preempted, which arrays know nothing of."""
    place = Place("test", 4, "held-out", 0, "baseline")
    for name in ("decision_world", "decision_fleet"):
        monkeypatch.setattr(f"tests.benchmarks.{name}.engine_model", small_model)
    decision_fleet.capacity_of.cache_clear()
    ((ours, _),) = trials(SPREAD, [(place, None)])
    decision_fleet.capacity_of.cache_clear()
    assert (ours.preemptions or 0) > 0
    assert ours.columns["last_token_ns"].tolist() == trial(SPREAD, place, None)[0].columns["last_token_ns"].tolist()


def small_model(spread: float, drafter: Drafter | None) -> EngineModel:
    return changed(engine_model(spread, drafter), {"kv_tokens": 3_000, "max_model_len": 2_000})


def test_the_columns_are_those_of_the_records_file() -> None:
    _, run = run_boot(SPREAD, Place("test", 0, "held-out", 0, "candidate", NOMINEE), GOOD)
    short = [*run.records[:20], replace(run.records[20], status="timed_out", output_tokens=None, server_decode_ms=None)]
    read = columns_of(records_table(short))
    found = columns_from(short)
    assert set(found) == set(COLUMNS)
    for name, values in found.items():
        assert values.dtype == read[name].dtype
        np.testing.assert_array_equal(values, read[name])


def test_a_decision_depends_on_its_number_and_its_truth_alone() -> None:
    useless = GOOD.with_(chat=0.02, code=0.02, translate=0.02)
    both = decide(SPREAD, 1, {"good": GOOD, "useless": useless})
    assert both["good"]["verdict"] == "PASS"
    assert both["good"]["open"] == []
    assert both["good"]["today"] == NOMINEE
    assert both["useless"]["verdict"] == "FAIL"
    assert both["useless"]["today"] is None
    assert decide(SPREAD, 1, {"useless": useless}) == {"useless": both["useless"]}
    first, second = (trial(SPREAD, Place("decision", number, "tuning", 0, "baseline"), None)[0] for number in (1, 2))
    assert first.columns["planned_ns"].tolist() != second.columns["planned_ns"].tolist()


def test_todays_rule_looks_at_the_guardrails_means() -> None:
    def tuning(drafter: Drafter) -> list[TrialEvidence]:
        sides: list[tuple[Arm, int | None]] = [("baseline", None), *(("candidate", k) for k in GRID)]
        places = [Place("test", 7, "tuning", 0, arm, k) for arm, k in sides]
        return [trial(SPREAD, place, drafter if place.k else None)[0] for place in places]

    assert todays_choice(brief(SPREAD), tuning(GOOD)) == 4
    assert todays_choice(brief(SPREAD), tuning(GOOD.with_(step_s=0.012))) is None


def made_up(seconds: dict[str, int]) -> dict[str, Any]:
    """Stand-ins for what takes long, which give the same for the same arguments."""

    def ground(spread: float) -> dict[str, Any]:
        seconds["ground"] += 1
        return {"baseline": [[spread]], "control_sd": dict.fromkeys(FIGURES, 0.1)}

    def calibrate(spread: float, name: str, shared: dict[str, Any]) -> dict[str, Any]:
        drafter = dict.fromkeys(("chat", "code", "translate", "step_s"), shared["baseline"][0][0])
        return {"drafter": drafter, "knob": spread, "name": name}

    def decide(spread: float, number: int, drafters: dict[str, Drafter]) -> dict[str, Any]:
        return {name: {"verdict": "PASS", "said": f"{one.chat} {number}"} for name, one in drafters.items()}

    return {"ground": ground, "calibrate": calibrate, "decide": decide}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, one in made_up({"ground": 0}).items():
        monkeypatch.setattr(decision, name, one)


def in_order(done: decision.Done) -> list[str]:
    """Without the time each took; processes finish in any order."""
    lines = [{name: value for name, value in one.items() if name != "seconds"} for one in done.lines]
    return sorted(json.dumps(one, sort_keys=True) for one in lines)


@pytest.mark.usefixtures("quick")
def test_a_run_that_was_killed_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    whole = decision.Done.opened(tmp_path / "whole", "settings")
    assert decision.run(whole, [0.03, 0.06], 5, 2, until=float("inf"))
    content = whole.path.read_bytes()
    assert len(whole.lines) == 1 + 2 * (1 + len(TRUTHS) + 5)
    for cut in (len(content) // 3, len(content) - 7):
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        (directory / decision.DONE).write_bytes(content[:cut])
        resumed = decision.Done.opened(directory, "settings")
        assert 1 < len(resumed.lines) < len(whole.lines)
        assert decision.run(resumed, [0.03, 0.06], 5, 1, until=float("inf"))
        assert in_order(decision.Done.opened(directory, "settings")) == in_order(whole)


@pytest.mark.usefixtures("quick")
def test_ctrl_c_ends_the_processes_and_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(done: decision.Done) -> None:
        if len(done.lines) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(decision, "tell", interrupted)
    done = decision.Done.opened(tmp_path, "settings")
    with pytest.raises(KeyboardInterrupt):
        decision.run(done, [0.03], 5, 2, until=float("inf"))
    assert multiprocessing.active_children() == []
    assert decision.Done.opened(tmp_path, "settings").lines == done.lines


@pytest.mark.usefixtures("quick")
def test_nothing_new_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    done = decision.Done.opened(tmp_path, "settings")
    assert not decision.run(done, [0.03], 5, 1, until=time.time() - 1)
    assert len(done.lines) == 1


@pytest.mark.usefixtures("quick")
def test_decisions_made_again_are_compared_with_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = decision.Done.opened(tmp_path, "settings")
    decision.run(done, [0.03], 3, 1, until=float("inf"))
    assert decision.again(done, 2)
    assert capsys.readouterr().out.endswith("decision 0 at 3%: the same\ndecision 1 at 3%: the same\n")
    done.of("decision")[0]["truths"][CLEAR]["verdict"] = "FAIL"
    assert not decision.again(done, 3)


@pytest.mark.usefixtures("quick")
def test_another_machine_goes_on_from_what_was_kept_beside_the_tables(tmp_path: Path) -> None:
    done = decision.Done.opened(tmp_path / "here", "settings")
    decision.run(done, [0.03], 3, 2, until=float("inf"))
    kept = tmp_path / decision.KEPT
    done.keep(kept)
    there = decision.Done.opened(tmp_path / "there", "settings", kept)
    assert in_order(there) == in_order(done)
    assert decision.run(there, [0.03], 5, 1, until=float("inf"))
    assert len(there.of("decision")) == 5
    assert decision.Done.opened(tmp_path / "there", "settings", kept).lines == there.lines
    assert len(decision.Done.opened(tmp_path / "anew", "other settings", kept).lines) == 1


def test_results_of_other_settings_are_refused(tmp_path: Path) -> None:
    decision.Done.opened(tmp_path, "these")
    with pytest.raises(decision.Stale, match=r"done\.jsonl holds results of other settings or rules"):
        decision.Done.opened(tmp_path, "those")


def effects(outcome: float, first: float = 0.0, late: float = -0.2, completion: float = 0.0) -> dict[str, Any]:
    means = {OUTCOME: outcome, FIRST_TOKEN: first, LATE: late, COMPLETION: completion}
    return {name: {"mean": mean, "se": 0.001, "sd": 0.05} for name, mean in means.items()}


def a_calibration(by_k: dict[int, dict[str, Any]]) -> dict[str, Any]:
    shared = {"knob": 0.3, "target": MINIMUM, "se": 0.001, "residual": 0.0}
    return shared | {"effects": {str(k): one for k, one in by_k.items()}}


AT_LIMIT = a_calibration(
    {1: effects(0.05), 2: effects(0.2), 4: effects(0.3, late=LIMITS[LATE])},
)


def test_what_is_at_its_limit_does_not_deserve_a_release() -> None:
    assert [deserves(AT_LIMIT, k) for k in (1, 2, 4)] == [False, True, False]
    nearly = a_calibration({k: effects(MINIMUM + 0.0015) for k in (1, 2, 4)})
    assert not deserves(nearly, 1)


def test_regret_is_what_the_best_draft_length_that_keeps_the_guardrails_brings_more() -> None:
    assert [regret(AT_LIMIT, k) for k in (None, 1, 2, 4)] == pytest.approx([0.1, 0.15, 0.0, 0.1])
    nobody = a_calibration({k: effects(0.05) for k in (1, 2, 4)})
    assert regret(nobody, None) == 0
    assert regret(nobody, 2) == pytest.approx(0.05)


def a_row(number: int, *, verdict: str, after_tuning: str, nominee: int | None, today: int | None) -> dict[str, Any]:
    told = {"verdict": verdict, "after_tuning": after_tuning, "nominee": nominee, "today": today}
    return {"kind": "decision", "spread": 0.06, "number": number, "truths": dict.fromkeys(TRUTHS, told)}


ROWS = [
    a_row(0, verdict="PASS", after_tuning="PASS", nominee=2, today=4),
    a_row(1, verdict="INCONCLUSIVE", after_tuning="PASS", nominee=4, today=4),
    a_row(2, verdict="FAIL", after_tuning="FAIL", nominee=4, today=2),
    a_row(3, verdict="INCONCLUSIVE", after_tuning="INCONCLUSIVE", nominee=1, today=None),
]


def test_the_table_counts_verdicts_releases_and_regret() -> None:
    found = counted(0.06, LATE, ROWS, AT_LIMIT)
    assert found is not None
    assert found.verdicts == {"PASS": 1, "FAIL": 1, "INCONCLUSIVE": 2, "INVALID": 0}
    assert (found.passed_after_tuning, found.false_after_tuning) == (2, 1)
    assert (found.accepted_today, found.false_today) == (3, 2)
    assert found.regret_after_tuning == pytest.approx((0 + 0.1 + 0.1 + 0.1) / 4)
    assert found.regret_today == pytest.approx((0.1 + 0.1 + 0 + 0.1) / 4)
    assert counted(0.12, LATE, ROWS, AT_LIMIT) is None


def test_27_of_400_false_passes_are_no_evidence_against_alpha_and_28_are() -> None:
    assert most_false(400) == 27
    rows = [
        a_row(one, verdict="PASS" if one < 27 else "FAIL", after_tuning="FAIL", nominee=4, today=None)
        for one in range(400)
    ]
    calibrations = {(0.06, name): AT_LIMIT for name in TRUTHS}
    held = {one.truth: one.holds for one in count_all(rows, calibrations)}
    assert held == dict.fromkeys(NULLS, True) | {CLEAR: False}
    rows[27]["truths"] = rows[0]["truths"]
    assert not any(one.holds for one in count_all(rows, calibrations))


def test_alpha_holds_up_to_the_spread_before_the_first_at_which_it_does_not() -> None:
    def rows_at(spread: float, passed: int) -> list[dict[str, Any]]:
        verdicts = ["PASS"] * passed + ["FAIL"] * (400 - passed)
        return [
            a_row(0, verdict=one, after_tuning="FAIL", nominee=4, today=None) | {"spread": spread} for one in verdicts
        ]

    calibrations = {(spread, name): AT_LIMIT for spread in PAIRS for name in TRUTHS}
    rows = rows_at(0.03, 20) + rows_at(0.06, 27) + rows_at(0.12, 40)
    counts = count_all(rows, calibrations)
    assert held_up_to(counts) == 0.06
    assert held_up_to(count_all(rows_at(0.06, 0), calibrations)) is None
    machine = {"processor": "x", "cores": 2, "python": "3.11", "processor_hours": 1.0, "rules": "r"}
    assert "α = 5% is shown to hold up to a between-boot spread of 6%" in page(counts, calibrations, machine)
    assert "Unfinished" not in page(counts, calibrations, machine)


def test_few_decisions_show_nothing_about_alpha() -> None:
    calibrations = {(0.03, name): AT_LIMIT for name in TRUTHS}
    rows = [row | {"spread": 0.03} for row in ROWS[2:]]
    counts = count_all(rows, calibrations)
    assert all(one.holds for one in counts if one.truth in NULLS)
    assert held_up_to(counts) is None
    machine = {"processor": "x", "cores": 2, "python": "3.11", "processor_hours": 1.0, "rules": "r"}
    assert "Unfinished: a spread without all 400 decisions shows nothing yet." in page(counts, calibrations, machine)
