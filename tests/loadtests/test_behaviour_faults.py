"""The behaviour suite against faults that are known: a simulated server that drafts, behind a proxy that plants them.

What the simulated engine can't show (it knows no character beyond ASCII) is planted in front of a real one:
``tests/workers/test_behaviour_on_vllm.py``.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest

from loadtests.behaviour.answers import Answers
from loadtests.behaviour.case import Settings
from loadtests.behaviour.cases import parity
from loadtests.behaviour.collect import collect
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.registry import CASES, suite_plan
from loadtests.behaviour.result import Server, SuiteResult
from loadtests.generator.endpoint import Endpoint
from loadtests.simulator import EngineModel, preset
from loadtests.simulator.acceptance import Acceptance, ClassAcceptance
from loadtests.simulator.model import ClassLength, Drafter, Lengths, Nuisances, changed
from tests.support.faults import FAULTS
from tests.support.faulty_proxy import FaultyProxy, proxy_before

MODEL = "simulated"
SPEED = "1000000"
# What has to break, by the fault.
NAMED: dict[str, tuple[str, ...]] = {
    "greedy-tokens-flipped": ("greedy-parity",),
    "wrong-in-a-crowd": ("greedy-parity",),
    "wrong-on-a-cache-hit": ("greedy-parity",),
    "top-p-and-top-k-ignored": ("sampled-parity",),
    "seeds-ignored": ("seeds",),
    "grammar-not-followed": ("json-schema", "json-object", "regex", "choice", "grammar"),
    "grammar-ends-early": ("json-schema",),
    "grammar-killed": ("json-schema", "json-object"),
    "grammar-lost-for-several": ("several-with-schema",),
    "another-schema": ("json-schema",),
    "wrong-stop-wins": ("stop-string-that-wins",),
    "stop-strings-missed": ("stop-strings", "stop-string-that-wins"),
    "text-past-the-stop": ("stop-strings",),
    "logprobs-past-the-stop": ("stop-strings",),
    "stop-tokens-ignored": ("stop-tokens",),
    "end-not-ignored": ("ignore-eos",),
    "min-tokens-one-less": ("min-tokens",),
    "max-tokens-one-more": ("max-tokens", "ignore-eos"),
    "usage-counts-a-draft": ("usage-and-finish-reason", "max-tokens"),
    "another-finish-reason": ("usage-and-finish-reason", "max-tokens"),
    "bad-words-ignored": ("bad-words",),
    "penalties-ignored": ("penalties",),
    "allowed-tokens-ignored": ("allowed-tokens",),
    "min-p-dropped": ("min-p",),
    "logit-bias-dropped": ("logit-bias",),
    "fewer-answers": ("several-answers", "several-with-schema"),
    "one-answer-repeated": ("several-answers",),
    "logprobs-of-the-token-after": ("logprobs-values",),
    "logprob-of-the-token-after": ("logprobs-values", "logprobs-shape"),
    "logprobs-of-drafts-missing": ("logprobs-shape", "usage-and-finish-reason"),
    "prompt-logprobs-missing": ("prompt-logprobs",),
    "another-token-id": ("text-is-of-its-tokens",),
    "tool-arguments-cut": ("tool-call",),
    "streamed-tool-arguments-repeat": ("tool-call-streamed",),
    "stream-lacks-a-letter": ("streaming",),
    "chunk-repeated": ("streaming",),
    "last-chunk-lost": ("streaming",),
    "error-inside-200": ("max-tokens",),
}
# Caught in front of a real engine.
ON_VLLM = {"characters-broken"}
# The service's own settings, where they matter.
SETTINGS = {"top-p-and-top-k-ignored": Settings(top_p=0.5)}


def model_with(acceptance: float | None = None) -> EngineModel:
    """Answers are short, so that some end by themselves. Drafts are kept as often as in the preset, or as is said."""
    changes: dict[str, object] = {
        "nuisances": Nuisances(),
        "lengths": Lengths(default=ClassLength(median=28, sigma=0.3)).model_dump(),
    }
    model = preset("cpu-2core")
    if acceptance is not None:
        drafter = model.drafters["dflash"].model_dump()
        drafter["acceptance"] = Acceptance(default=ClassAcceptance(positions=(acceptance,))).model_dump()
        changes["drafters"] = {"dflash": Drafter.model_validate(drafter).model_dump()}
    return changed(model, changes)


@contextmanager
def simulated(directory: Path, *, drafts: bool, acceptance: float | None = None) -> Iterator[str]:
    """Its address."""
    document = directory / f"model-{drafts}-{acceptance}.json"
    document.write_bytes(model_with(acceptance).content)
    command = [sys.executable, "-m", "loadtests.simulator.server", "--model", str(document), "--speed", SPEED]
    if drafts:
        command += ["--speculative", '{"method":"dflash","num_speculative_tokens":4}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)


@dataclass
class Rig:
    baseline: str
    candidate: str
    proxy: FaultyProxy

    @cached_property
    def known(self) -> dict[Server, Answers]:
        """What the baseline answers to the whole suite, once and again."""
        return self.twice(suite_plan())

    def twice(self, plan: SuitePlan) -> dict[Server, Answers]:
        return {name: asked(self.baseline, plan, name) for name in ("baseline", "control")}

    def of_baseline(self, plan: SuitePlan) -> dict[Server, Answers]:
        """Each request has a seed of its own by its name, so part of the answers is what part of the suite gets."""
        if plan.settings != Settings():
            return self.twice(plan)
        return {name: part_of(answers, plan) for name, answers in self.known.items()}

    def result(self, plan: SuitePlan, address: str) -> SuiteResult:
        return judge(plan, candidate=asked(address, plan, "candidate"), **self.of_baseline(plan))

    def with_fault(self, fault: str | None, *only: str) -> SuiteResult:
        self.proxy.plant(fault)
        settings = SETTINGS.get(fault or "", Settings())
        return self.result(suite_plan(only=only, settings=settings), self.proxy.base_url)


def asked(address: str, plan: SuitePlan, server: Server) -> Answers:
    return asyncio.run(collect(Endpoint(address, MODEL), plan, server=server))


def part_of(answers: Answers, plan: SuitePlan) -> Answers:
    ids = {case.id for case in plan.cases}
    lines = tuple(line for line in answers.lines if line.case in ids)
    return replace(answers, plan_sha256=plan.digest, lines=lines)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("models")
    with (
        simulated(directory, drafts=False) as baseline,
        simulated(directory, drafts=True) as candidate,
        proxy_before(candidate) as proxy,
    ):
        yield Rig(baseline, candidate, proxy)


def told(result: SuiteResult) -> str:
    """For a person who wonders why nothing was found."""
    runs = [
        f"{case.id} {run.manner}: {run.finding.said} {run.finding.numbers}"
        for case in result.cases
        for run in case.runs
    ]
    return "\n".join([result.sentence, *runs])


@pytest.mark.parametrize("fault", sorted(NAMED))
def test_every_fault_is_caught_and_named(rig: Rig, fault: str) -> None:
    result = rig.with_fault(fault, *NAMED[fault])
    assert result.outcome == "broken", told(result)
    assert set(result.broken) == set(NAMED[fault]), told(result)


def test_a_bias_of_five_percent_is_noticed_with_samples_enough(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the suite takes in a usual run promise to notice larger shifts alone."""
    monkeypatch.setattr(parity, "SAMPLES", 400)
    plan = suite_plan(only=["sampled-parity"])
    rig.proxy.plant("sampling-biased")
    result = judge(plan, candidate=asked(rig.proxy.base_url, plan, "candidate"), **rig.twice(plan))
    assert result.broken == ("sampled-parity",), told(result)


def test_every_fault_is_planted_somewhere() -> None:
    assert NAMED.keys() | ON_VLLM | {"sampling-biased"} == FAULTS.keys()


def test_without_a_fault_nothing_breaks_and_every_comparison_comes_to_something(rig: Rig) -> None:
    result = rig.with_fault(None)
    assert result.outcome == "held", told(result)
    assert result.broken == ()
    assert set(result.named("changed")) == {"min-p", "logit-bias"}
    assert {case.state for case in result.cases if case.tier in ("T1", "T3")} == {"held"}


def test_a_fault_is_named_among_all_cases_that_rest_on_rules(rig: Rig) -> None:
    result = rig.with_fault("wrong-stop-wins", *(case.id for case in CASES if case.tier == "T2"))
    assert result.outcome == "broken"
    assert result.broken == ("stop-string-that-wins",), told(result)
    assert "stop-string-that-wins" in result.sentence


def test_a_server_that_never_drafts_shows_nothing(rig: Rig) -> None:
    result = rig.result(suite_plan(only=["greedy-parity", "max-tokens", "json-schema"]), rig.baseline)
    assert (result.outcome, result.exercised) == ("not_exercised", False), told(result)
    assert result.broken == ()


def test_drafts_that_are_all_accepted_show_nothing(rig: Rig, tmp_path: Path) -> None:
    plan = suite_plan(only=["max-tokens", "stop-strings"])
    with simulated(tmp_path, drafts=True, acceptance=1.0) as address:
        result = rig.result(plan, address)
    assert (result.outcome, result.exercised) == ("not_exercised", False), told(result)
