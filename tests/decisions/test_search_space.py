"""The search space of a brief: families expand to candidates whose names say their settings, and nothing else may
differ from the baseline."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from config.demo import create_demo_brief
from decisions.commands.compare import Unusable, brief_in
from decisions.models import Account, BriefRevision, Route
from decisions.rules.brief import BadBrief, Brief, parse_brief, read_brief
from decisions.rules.findings import FACTS_VERSION
from decisions.rules.flagged import preflight
from decisions.rules.search import OutsideSearch
from decisions.services.freeze_brief import freeze_brief
from loadtests.canonical import digest_of
from loadtests.configurations import METHODS, OPTIONS, Speculative
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.planning import plan_boots, plan_document
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.levels import Level
from loadtests.traffic.rows import read_rows
from loadtests.tuning.schedule import Schedule
from tests.support.play import TARGET

FROZEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "support" / "frozen_brief.json").read_bytes())
NGRAM = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5}
FAMILY = {
    "name": "ngram",
    "speculative": NGRAM,
    "draft_lengths": [1, 2, 4, 8],
    "schedules": {"fixed": ["1x8-5x2-9x0"], "propose": True},
}
DRAFTER = {"name": "drafter", "weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64}


def document(family: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    rest = {name: value for name, value in FROZEN.items() if name != "candidates"}
    return rest | {"search": [FAMILY | (family or {})]} | fields


def brief(family: dict[str, Any] | None = None, **fields: Any) -> Brief:
    return read_brief(yaml.safe_dump(document(family, **fields)))


def problems(family: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    with pytest.raises(BadBrief) as refusal:
        brief(family, **fields)
    return refusal.value.problems


def on_gpu() -> dict[str, Any]:
    baseline: dict[str, Any] = json.loads(json.dumps(FROZEN["baseline"]))
    baseline["hardware"]["accelerator"] = "NVIDIA H200"
    # Adaptive verification needs CUDA graphs.
    baseline["arguments"]["enforce_eager"] = False
    return baseline


def test_a_family_is_its_draft_lengths_and_listed_schedules() -> None:
    found = {one.name: one.speculative for one in brief().all_candidates}
    assert {name: one.label for name, one in found.items()} == {
        "ngram-k1": "ngram K=1",
        "ngram-k2": "ngram K=2",
        "ngram-k4": "ngram K=4",
        "ngram-k8": "ngram K=8",
        "ngram-s1x8-5x2-9x0": "ngram K=8 from 1, 2 from 5, 0 from 9",
    }
    assert found["ngram-k4"] == Speculative.model_validate(NGRAM | {"num_speculative_tokens": 4})
    assert found["ngram-s1x8-5x2-9x0"].num_speculative_tokens_per_batch_size == ((1, 4, 8), (5, 8, 2), (9, 16, 0))


def test_a_range_of_draft_lengths_and_the_neutral_form_of_a_schedule() -> None:
    steps = [{"lo": 1, "hi": 3, "k": 4}, {"lo": 4, "k": 1}]
    found = brief({"draft_lengths": {"from": 2, "to": 4}, "schedules": {"fixed": [steps]}})
    assert [one.name for one in found.all_candidates] == ["ngram-k2", "ngram-k3", "ngram-k4", "ngram-s1x4-4x1"]
    assert problems({"draft_lengths": {"from": 4, "to": 2}}) == [
        "search.0.draft_lengths: from 4 to 2 is no range of 1 to 64"
    ]


def test_an_older_brief_keeps_its_digest_and_does_not_race() -> None:
    old = parse_brief(FROZEN)
    assert not old.races
    assert old.digest == "51ce59175564d32db1e42b2da9289ee46b04d2b81b75211f6cc3a2e107497eb5"
    assert {"search", "tuning"}.isdisjoint(json.loads(old.content))


def test_a_frozen_search_is_read_back_as_it_was() -> None:
    found = brief(tuning={"boots": 30, "engine_minutes": 20})
    assert parse_brief(json.loads(found.content)) == found
    assert found.races


def test_the_plan_of_a_tuning_that_is_no_race_is_the_same_to_the_byte() -> None:
    """Digests of plans that the code before there were races made."""
    levels = [
        Level.model_validate(
            {"name": "quiet", "arrival": {"process": "constant", "rate": 0.5}, "duration_s": 12},
        ),
        Level.model_validate(
            {"name": "peak", "arrival": {"process": "gamma", "rate": 1.2, "cv": 2}, "duration_s": 12},
        ),
    ]
    rows = list(read_rows(SUPPORT_ASSISTANT))

    def digest(candidates: int) -> str:
        named = {f"ngram-k{k}": f"{k:064x}" for k in range(1, candidates + 1)}
        boots = plan_boots(
            "tuning", baseline="a" * 64, candidates=named, rows=rows, levels=levels, peak="peak", pairs=4, seed=7
        )
        plan = plan_document("tuning", brief="c" * 64, part="d" * 64, levels=levels, deadlines={}, seed=7, boots=boots)
        return digest_of(plan)

    assert digest(2) == "fbe08760fc0c1b0979a7a9ead16e67ce55cb97ae23c6ac2237f70149def8c16b"
    assert digest(5) == "83ec090778b8a3fcdf6b037ba9f8ffc9ef6213a42d452be21a40d3cc1278d477"


STEPS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 2, 4, 8])), min_size=2, max_size=5)


@settings(deadline=None)
@given(STEPS)
def test_a_name_and_its_setting_follow_from_each_other(steps: list[tuple[int, int]]) -> None:
    starts, lo = {}, 1
    for wide, k in steps:
        starts[lo] = k
        lo += wide
    schedule = Schedule.of(starts)
    found = brief()
    name = f"ngram-s{schedule}" if len(schedule.steps) > 1 else f"ngram-k{schedule.most}"
    if schedule.most == 0:
        return
    setting = found.candidate(name).speculative
    assert Schedule.of_vllm(setting.num_speculative_tokens_per_batch_size or [(1, 16, schedule.most)]) == schedule
    assert found.has_candidate(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ngram-k3", "K = 3 is not among the draft lengths of ngram"),
        ("ngram-k04", "no candidate of this brief"),
        ("ngram-s1x8", "no candidate of this brief"),
        ("ngram-s1x8-5x3", "K = 3 is not among the family's draft lengths"),
        ("ngram-s1x8-17x0", "its step from 17 on never runs: max_num_seqs is 16"),
        ("ngram-s1x8-2x8", "neighbours with the same K"),
        ("ngram-s2x8-5x2", "starts at 1 running sequence"),
        ("eagle-k4", "nor of one of its families (ngram)"),
        ("ngram-s1x1-2x2-3x1-4x2-5x1-6x2-7x1-8x2-9x1-10x2-11x1-12x2-13x1-14x2", "longer than 60 characters"),
    ],
)
def test_a_candidate_outside_the_frozen_search_is_refused(name: str, said: str) -> None:
    with pytest.raises(OutsideSearch) as refusal:
        brief().configuration(name)
    assert said in str(refusal.value)
    assert not brief().has_candidate(name)


def test_no_schedule_is_proposed_where_the_brief_does_not_ask_for_any() -> None:
    closed = brief({"schedules": {"fixed": ["1x8-5x2-9x0"]}})
    assert closed.has_candidate("ngram-s1x8-5x2-9x0")
    with pytest.raises(OutsideSearch, match="lets tuning propose no other"):
        closed.configuration("ngram-s1x4-5x1")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_its_own_options_and_refuses_the_others_by_name(method: str) -> None:
    values: dict[str, Any] = {
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
        "drafter": DRAFTER,
        "custom_class": "house.drafting.Proposer",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8",
        "attention_backend": "FLASH_ATTN",
        "moe_backend": "triton",
        "rejection_sample_method": "standard",
        "draft_sample_method": "greedy",
    }
    options = {name: values.get(name, 1) for name in OPTIONS}
    own = {name: options[name] for name, owners in OPTIONS.items() if method in owners}
    found = brief({"name": "own", "speculative": {"method": method} | own}, baseline=on_gpu())
    assert set(found.all_candidates[0].speculative.options) == set(own)
    said = problems({"name": "all", "speculative": {"method": method} | options}, baseline=on_gpu())
    assert [one.split()[1] for one in said] == [name for name in OPTIONS if name not in own]


@pytest.mark.parametrize(
    ("speculative", "said"),
    [
        (
            NGRAM | {"max_num_seqs": 8},
            f"search.0.speculative.max_num_seqs: vLLM {FACTS_VERSION} has no key max_num_seqs in its speculative "
            "config and wouldn't start: leave it out",
        ),
        (
            NGRAM | {"rejection_sample_method": "synthetic"},
            "search.0.speculative.rejection_sample_method: synthetic fabricates acceptance, and with it the output: "
            "it is never admissible",
        ),
        (
            {"method": "eagle3"},
            "search.0.speculative: eagle3 needs a drafter: write the three lines that manage.py add_checkpoint prints",
        ),
        (
            {"method": "dspark"},
            "search.0.speculative: dspark runs on the engine's new runner alone, which a CPU doesn't have",
        ),
        (
            {"method": "custom_class"},
            "search.0.speculative: custom_class needs custom_class, the proposer's class as package.module.Class",
        ),
    ],
)
def test_a_setting_that_the_engine_would_refuse_is_refused_first(speculative: dict[str, Any], said: str) -> None:
    assert problems({"speculative": speculative}) == [said]


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ({"trained_block": 4}, "search.0: K = 8 is above the drafter's trained block of 4"),
        (
            {"trained_block": 4, "draft_lengths": [2]},
            "search.0: schedule 1x8-5x2-9x0: K = 8 is above the drafter's trained block of 4",
        ),
        ({"draft_lengths": [2, 2]}, "search.0.draft_lengths: a draft length stands there twice"),
        (
            {"schedules": {"fixed": ["1x4"]}},
            "search.0: schedule 1x4: it has one step: write its K among the draft lengths",
        ),
        (
            {"schedules": {"fixed": ["1x8-20x0"]}},
            "brief: search ngram, schedule 1x8-20x0: its step from 20 on never runs: max_num_seqs is 16",
        ),
    ],
)
def test_what_no_family_may_hold(family: dict[str, Any], said: str) -> None:
    assert problems(family) == [said]


def test_a_brief_names_some_candidate_and_none_twice() -> None:
    assert problems(search=[]) == ["brief: candidates and search name 0 candidates: it takes 1 to 50"]
    assert problems(search=[FAMILY, FAMILY]) == ["brief: two families of the search have the same name"]
    twice = [{"name": "ngram-k64", "speculative": NGRAM | {"num_speculative_tokens": 2}}]
    assert problems(candidates=twice) == ["brief: candidate ngram-k64: such names are formed by the family ngram"]


def test_tuning_keeps_within_the_budget_of_the_brief() -> None:
    assert problems(tuning={"engine_minutes": 1e6}) == [
        f"brief: tuning.engine_minutes 1e+06 is more than budget_engine_minutes {FROZEN['budget_engine_minutes']:g}"
    ]


def test_a_schedule_under_data_parallelism_is_refused() -> None:
    baseline = on_gpu()
    baseline["arguments"]["data_parallel_size"] = 2
    assert problems(baseline=baseline) == [
        "search.0.speculative: the engine ignores a schedule with data parallelism: write one K, or "
        "data_parallel_size 1"
    ]


def test_block_verification_is_flagged_where_the_runner_runs_another() -> None:
    block = {"speculative": NGRAM | {"rejection_sample_method": "block"}}
    found = {one.rule: (one.of, one.severity) for one in preflight(brief(block))}
    assert found["block-runs-standard"] == ("family ngram", "flagged")
    for other in (brief(block, baseline=on_gpu()), brief()):
        assert "block-runs-standard" not in [one.rule for one in preflight(other)]


WHOLE = FROZEN["baseline"] | {
    "arguments": FROZEN["baseline"]["arguments"] | {"max_num_seqs": 8},
    "speculative": NGRAM | {"num_speculative_tokens": 2},
}
SLY = [{"name": "sly", "configuration": WHOLE}]
SAID = "candidate sly differs from the baseline in more than the speculative setting: arguments.max_num_seqs: 16 → 8"


@pytest.mark.django_db
def test_a_candidate_that_changes_more_is_refused_with_the_difference_on_the_page(
    route: Route, engineer: Account, client: Client
) -> None:
    source = document(candidates=SLY, route=route.slug)
    client.force_login(engineer)
    page = client.post(reverse("brief-new"), {"route": route.slug, "source": yaml.safe_dump(source)})
    assert page.status_code == 422
    assert SAID in page.content.decode()
    assert not BriefRevision.objects.exists()


def test_a_command_refuses_it_in_the_same_words(tmp_path: Path) -> None:
    path = tmp_path / "brief.yaml"
    path.write_text(yaml.safe_dump(document(candidates=SLY)))
    with pytest.raises(Unusable) as refusal:
        brief_in(path)
    assert str(refusal.value).endswith(SAID)


@pytest.mark.django_db
def test_the_demo_has_a_brief_that_searches(route: Route, engineer: Account) -> None:
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service="support-assistant", seed=7)
    draft = create_demo_brief(route, TARGET, traffic, search=True)
    freeze_brief(revision=draft, by=engineer)
    assert [one.name for one in draft.document.all_candidates] == [
        *("ngram-k1", "ngram-k2", "ngram-k4", "ngram-k8", "ngram-s1x8-2x4-4x1")
    ]
    assert draft.document.races


def test_one_setting_under_two_names_is_refused() -> None:
    twice = "search.0: schedule 1x8-5x2 stands there twice: leave one out"
    steps = [{"lo": 1, "hi": 4, "k": 8}, {"lo": 5, "k": 2}]
    assert problems({"schedules": {"fixed": ["1x8-5x2", steps]}}) == [twice]
    written = {"name": "mine", "speculative": NGRAM | {"num_speculative_tokens": 4}}
    assert problems(candidates=[written]) == ["mine and ngram-k4 have the same setting: leave one out"]
    ranges = {"num_speculative_tokens": 4, "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 16, 4]]}
    scheduled = {"name": "mine", "speculative": NGRAM | ranges}
    assert problems(candidates=[scheduled]) == ["mine and ngram-k4 have the same setting: leave one out"]


def test_a_candidate_that_never_drafts_is_refused() -> None:
    idle = {"num_speculative_tokens": 4, "num_speculative_tokens_per_batch_size": [[1, 16, 0]]}
    (problem,) = problems(candidates=[{"name": "idle", "speculative": NGRAM | idle}])
    assert problem.startswith("candidate idle never drafts: K is 0 at every batch up to")


def test_shapes_are_named_in_the_words_of_the_file() -> None:
    assert problems({"draft_lengths": 4}) == ["search.0.draft_lengths: write a list"]
    assert problems({"speculative": "ngram"}) == ["search.0.speculative: write a mapping of fields"]
