"""A cost model fitted to evidence of an engine whose costs are known must give that engine's step times."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from loadtests.commands.fit_costs import fit_costs_command
from loadtests.commands.simulate import simulate
from loadtests.configurations import Speculative
from loadtests.evidence.records import records_table
from loadtests.simulator import Boot, EngineModel, preset
from loadtests.simulator.costs import Costs, DrafterCost, RoundCost
from loadtests.simulator.fitting import fit_costs
from loadtests.simulator.model import changed
from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.rows import Row

METHOD, K = "dflash", 3
# From a rate at which the engine has hardly anything to do to one at which it is nearly full.
RAMPS = {"gpu-8b": (2.0, 26.0), "cpu-2core": (0.3, 2.2)}
REQUESTS = 700


def rows() -> list[tuple[int, Row]]:
    words = generator_for("fitting", "words").integers(5, 400, 2 * REQUESTS)
    return [(number, a_row(number, int(count))) for number, count in enumerate(words)]


def a_row(number: int, words: int) -> Row:
    prompt = f"question {number}" + " word" * words
    fields = {"id": f"r{number}", "conversation": f"c{number}", "arrival_s": number, "class": "chat", "max_tokens": 512}
    return Row.model_validate(fields | {"messages": [{"role": "user", "content": prompt}]})


def trial(model: EngineModel, setting: Speculative | None, **more: object) -> pa.Table:
    low, high = RAMPS[model.name]
    ramp = {"process": "ramp", "rate": low, "rate_to": high}
    level = Level.model_validate({"name": "ramp", "arrival": ramp, "duration_s": 2 * REQUESTS / (low + high)} | more)
    planned = plan_level(rows(), level, seed=1, prefix="x")
    run = Boot(model, setting, seed=3).run_trial(planned, level="ramp", window_s=level.duration_s, drain_s=600)
    return records_table(run.records)


def without_nuisances(name: str) -> EngineModel:
    return changed(preset(name), {"nuisances": {}})


def step_seconds(costs: Costs, k: int, context: int, prefill: int) -> list[float]:
    """Of steps with 1 to 16 decoding sequences and as many drafts for each."""
    batch = np.array([1, 4, 8, 12, 16])
    target = costs.round.seconds(batch, batch * (k + 1), batch * context, prefill)
    return [float(one) for one in target + (costs.drafters[METHOD].seconds(k * batch, k) if k else 0.0)]


@pytest.mark.parametrize("name", sorted(RAMPS))
def test_a_fit_gives_the_step_times_of_the_engine_that_the_evidence_is_of(name: str) -> None:
    model = without_nuisances(name)
    setting = Speculative(method=METHOD, num_speculative_tokens=K)
    found = fit_costs([trial(model, None)], [trial(model, setting)], method=METHOD)
    known = Costs(round=model.round, drafters={METHOD: model.drafters[METHOD].cost})
    for context, prefill in ((100, 0), (300, 0), (300, 300)):
        for k in (0, K):
            seconds = [step_seconds(one, k, context, prefill) for one in (found, known)]
            assert seconds[0] == pytest.approx(seconds[1], rel=0.05)
    assert found.round.per_prefill_token_s == pytest.approx(model.round.per_prefill_token_s, rel=0.03)


def test_an_engine_at_fitted_costs_behaves_like_the_measured_one() -> None:
    model = without_nuisances("cpu-2core")
    fitted = model.with_costs(fit_costs([trial(model, None)]))
    means = [float(np.mean(trial(one, None)["server_decode_ms"].to_numpy())) for one in (model, fitted)]
    assert means[1] == pytest.approx(means[0], rel=0.05)


def test_requests_that_were_cut_off_are_in_the_batch_of_the_others() -> None:
    """As far as the client knows: it hears nothing of their prompts' length, nor of those that left in the queue."""
    model = without_nuisances("cpu-2core")
    hasty = trial(model, None, patience={"share": 0.5, "after_s": 4.0, "spread": "exponential"})
    cut = sum(one == "cancelled" for one in hasty["status"].to_pylist())
    assert cut > REQUESTS / 10
    found, known = fit_costs([hasty]).round, model.round
    for batch in (1, 4, 8, 12):
        assert found.seconds(batch, batch, 300 * batch) == pytest.approx(
            known.seconds(batch, batch, 300 * batch), rel=0.08
        )


def test_pauses_of_the_engine_are_no_cost_of_a_step() -> None:
    still = without_nuisances("cpu-2core")
    pausing = changed(still, {"nuisances": {"pauses_per_hour": 60, "pause_mean_s": 0.5}})
    found = [fit_costs([trial(one, None)]).round.seconds(8, 8, 2_000) for one in (still, pausing)]
    assert found[1] == pytest.approx(found[0], rel=0.03)


def test_records_without_the_engines_own_times_are_refused() -> None:
    records = trial(without_nuisances("cpu-2core"), None)
    column = records.column_names.index("server_decode_ms")
    silent = records.set_column(column, "server_decode_ms", pa.nulls(records.num_rows, pa.float64()))
    with pytest.raises(ValueError, match=r"a trial needs 4 completed requests .* and 0 have them"):
        fit_costs([silent])
    with pytest.raises(ValueError, match="at least one trial without speculation"):
        fit_costs([])
    with pytest.raises(ValueError, match="need the name of the method"):
        fit_costs([records], [records])


def test_many_short_trials_are_fitted_together_where_one_of_them_is_too_few() -> None:
    records = trial(without_nuisances("cpu-2core"), None)
    short = [records.slice(first, 8) for first in range(0, 64, 8)]
    whole = fit_costs([records]).round.seconds(8, 8, 2_000)
    # Cut out of one trial they miss those that ran beside them.
    assert fit_costs(short).round.seconds(8, 8, 2_000) == pytest.approx(whole, rel=0.5)
    with pytest.raises(ValueError, match=r"a fit needs 20 requests without speculation, and its trials have \d+"):
        fit_costs(short[:1])


def test_costs_replace_the_models_and_leave_acceptance_and_memory() -> None:
    model = preset("gpu-8b")
    costs = Costs(
        round=RoundCost(fixed_s=0.1, weights_s=0.2, per_token_s=0.3, per_prefill_token_s=0.4),
        drafters={METHOD: DrafterCost(fixed_s=0.5)},
    )
    changed_model = model.with_costs(costs)
    assert changed_model.round == costs.round
    assert changed_model.drafters[METHOD].cost == costs.drafters[METHOD]
    assert changed_model.drafters[METHOD].acceptance == model.drafters[METHOD].acceptance
    assert changed_model.drafters[METHOD].kv_tokens == model.drafters[METHOD].kv_tokens
    assert changed_model.drafters["eagle3"] == model.drafters["eagle3"]
    unknown = costs.model_copy(update={"drafters": {"medusa": DrafterCost()}})
    with pytest.raises(ValueError, match="no drafter for medusa; it has dflash, eagle3, ngram"):
        model.with_costs(unknown)


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(b"".join(row.content + b"\n" for _, row in rows()[:200]))
    return path


LEVEL = json.dumps({"name": "peak", "arrival": {"process": "poisson", "rate": 1}, "duration_s": 100, "drain_s": 300})


def simulated(traffic: Path, out: Path, *more: str) -> Callable[[], str]:
    asked = ["--traffic", str(traffic), "--level", LEVEL, "--out", str(out), *more]
    result = CliRunner().invoke(simulate, asked)
    assert result.exit_code == 0, result.output
    return lambda: result.stdout


def test_what_fit_costs_prints_simulate_reads(traffic: Path, tmp_path: Path) -> None:
    simulated(traffic, tmp_path / "measured")
    fit = CliRunner().invoke(fit_costs_command, [str(tmp_path / "measured")])
    assert fit.exit_code == 0, fit.output
    costs = tmp_path / "costs.json"
    costs.write_text(fit.stdout, encoding="utf-8")
    told = json.loads(simulated(traffic, tmp_path / "again", "--costs", str(costs))())
    expected = preset("cpu-2core").with_costs(Costs.model_validate_json(fit.stdout))
    assert told["engine_model_sha256"] == expected.digest


def test_costs_that_cant_be_read_name_the_file_and_the_field(traffic: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps({"schema": "draftproof.costs/1", "round": {"fixed_s": -1}}), encoding="utf-8")
    asked = ["--traffic", str(traffic), "--level", LEVEL, "--out", str(tmp_path / "out"), "--costs", str(costs)]
    result = CliRunner().invoke(simulate, asked)
    assert result.exit_code == 2
    assert "costs.json, field round.fixed_s" in result.output
    assert not (tmp_path / "out").exists()


def test_a_directory_without_a_trial_cant_be_fitted(tmp_path: Path) -> None:
    result = CliRunner().invoke(fit_costs_command, [str(tmp_path)])
    assert result.exit_code == 2
    assert "has no manifest.json" in result.output
