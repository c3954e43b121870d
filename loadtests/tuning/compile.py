"""A schedule as the settings of an engine: vLLM, TensorRT-LLM or SGLang; what an engine can't hold is refused.

What each engine reads was taken from its source, in the versions that the notes name: vLLM 0.32, TensorRT-LLM 1.3 and
1.4, SGLang's main branch of 2026. Only vLLM's settings were run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from loadtests.configurations import EngineArguments, Speculative
from loadtests.tuning.schedule import BadSchedule, Schedule, Step, with_schedule

EngineName = Literal["vllm", "tensorrt-llm", "sglang"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)

# Each engine's name for a method. What is not here is refused.
TENSORRT_LLM = {
    "ngram": "NGram",
    "draft_model": "DraftTarget",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "dspark": "DSpark",
}
SGLANG = {
    "ngram": "NGRAM",
    "draft_model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    # The target's own layers draft in the worker of EAGLE; there is no draft model to name.
    "mtp": "EAGLE",
    "dflash": "DFLASH",
}
# What is known of a method that an engine lacks, beyond that it has no name there.
WHY_NOT = {
    ("tensorrt-llm", "eagle"): "its PyTorch backend runs EAGLE 3 alone, and drafters of EAGLE 1 and 2 don't fit it",
    ("tensorrt-llm", "medusa"): "its PyTorch backend doesn't run Medusa",
    ("tensorrt-llm", "suffix"): "its suffix automaton drafts by other rules, so that nothing measured here holds there",
    ("sglang", "suffix"): "its n-gram drafter works by other rules, so that nothing measured here holds there",
}
# Options of a speculative setting that the others have a word for; any further one is refused, as without it another
# configuration would run than the one that was measured.
TRANSLATED = ("drafter", "prompt_lookup_min", "prompt_lookup_max")
# SGLang changes K at run time for these alone; for any other it falls back to one K with a line in its log.
SGLANG_ADAPTIVE = ("EAGLE", "EAGLE3")
IDLE_PRICE = (
    "K = 0 costs 6-22 % against a server without speculation (vLLM PR 52087): it is not the same as switching it off"
)
# SGLang's source of 2026 takes 0 in a slot, and its own default slots have it; the drafter still runs there.
SGLANG_ZERO = (
    "K = 0 in a slot needs SGLang PR 23994 (2026): it drafts nothing there, keeps the drafter's cache up to date all "
    "the same, and so isn't off; read in its source, never run here"
)


class Uncompilable(ValueError):
    """An engine can't run it; ``reasons`` has one sentence each, with what to do."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


@dataclass(frozen=True)
class Compiled:
    """``settings``: the document that the engine takes, as JSON. ``notes``: what its reader should know, a sentence
    each: semantics of the version, prices, what was left out."""

    engine: EngineName
    settings: Mapping[str, Any]
    notes: tuple[str, ...]


def compiled(
    engine: EngineName,
    speculative: Speculative,
    schedule: Schedule,
    *,
    arguments: EngineArguments,
    trained_block: int | None = None,
    drafter_path: str | None = None,
) -> Compiled:
    """The speculative setting under ``schedule``, for ``engine``. Raises Uncompilable with every reason at once.

    ``schedule`` replaces the setting's own K (``schedule_of(speculative)`` keeps it). ``arguments`` are the baseline's:
    the last range ends at ``max_num_seqs``. ``trained_block``: the K that the drafter was trained for, None where
    nobody says. ``drafter_path``: where the engine finds the drafter; its checkpoint's name where None.
    """
    wanted = Wanted(speculative, steps_below(schedule, arguments.max_num_seqs), arguments, drafter_path)
    reasons = never_drafts(wanted) + above_block(schedule, trained_block)
    compile_for = {"vllm": for_vllm, "tensorrt-llm": for_tensorrt_llm, "sglang": for_sglang}[engine]
    refused, settings, notes = compile_for(wanted)
    if reasons or refused:
        raise Uncompilable(reasons + refused)
    return Compiled(engine, settings, (*notes, *never_reached(schedule, arguments.max_num_seqs)))


@dataclass(frozen=True)
class Wanted:
    """``steps`` begin at or below the largest batch; the last is closed there."""

    speculative: Speculative
    steps: tuple[Step, ...]
    arguments: EngineArguments
    drafter_path: str | None

    @property
    def most(self) -> int:
        return max(one.k for one in self.steps)

    @property
    def changes(self) -> bool:
        return len(self.steps) > 1

    @property
    def idles(self) -> bool:
        return any(one.k == 0 for one in self.steps)

    @property
    def model(self) -> str | None:
        """Where the drafter's checkpoint lies; None for a method without one."""
        drafter = self.speculative.drafter
        return self.drafter_path or (drafter.name if drafter else None)


# Refusals as sentences, settings, notes.
Answer = tuple[list[str], dict[str, Any], list[str]]


def steps_below(schedule: Schedule, most: int) -> tuple[Step, ...]:
    """Steps that a batch of at most ``most`` reaches, the last one closed there."""
    reached = [one for one in schedule.steps if one.lo <= most]
    return tuple(Step(one.lo, most if one.hi is None else min(one.hi, most), one.k) for one in reached)


def never_reached(schedule: Schedule, most: int) -> list[str]:
    left_out = [f"{one.lo}x{one.k}" for one in schedule.steps if one.lo > most]
    return [f"left out, as no batch is larger than {most} (max_num_seqs): {', '.join(left_out)}"] if left_out else []


def never_drafts(wanted: Wanted) -> list[str]:
    if wanted.most:
        return []
    limit = wanted.arguments.max_num_seqs
    return [
        f"K is 0 at every batch up to {limit} (max_num_seqs): start the server without a speculative setting instead"
    ]


def above_block(schedule: Schedule, trained_block: int | None) -> list[str]:
    try:
        schedule.within(trained_block)
    except BadSchedule as error:
        return [f"{error}: what lies beyond is drafted all the same and hardly ever kept; lower K"]
    return []


def for_vllm(wanted: Wanted) -> Answer:
    """The JSON of ``--speculative-config``."""
    if not wanted.most:
        return [], {}, []
    refused = []
    if wanted.changes and wanted.arguments.data_parallel_size > 1:
        refused.append(
            f"vLLM drops a schedule in silence where data_parallel_size is above 1 (here "
            f"{wanted.arguments.data_parallel_size}) and always runs K = {wanted.most}: use one K, or no such ranks"
        )
    schedule = Schedule.of((one.lo, one.k) for one in wanted.steps)
    setting = with_schedule(wanted.speculative, schedule, max_num_seqs=wanted.arguments.max_num_seqs)
    settings = setting.model_dump(mode="json", exclude_none=True, exclude={"drafter"})
    if wanted.model is not None:
        settings["model"] = wanted.model
    notes = ["give this to vLLM as --speculative-config"]
    if wanted.changes:
        notes.append("the batch is the number of sequences that a step schedules, prompts among them")
        notes.append("with the V1 model runner vLLM takes piecewise CUDA graphs where K changes")
    return refused, settings, notes + idle_notes(wanted)


def idle_notes(wanted: Wanted) -> list[str]:
    return [IDLE_PRICE] if wanted.idles else []


def for_tensorrt_llm(wanted: Wanted) -> Answer:
    """``speculative_config`` of the YAML that ``trtllm-serve --config`` reads (JSON is YAML)."""
    method = wanted.speculative.method
    kind = TENSORRT_LLM.get(method)
    if kind is None:
        return [no_method("TensorRT-LLM", "tensorrt-llm", method)], {}, []
    untold = without_counterpart("TensorRT-LLM", wanted)
    setting: dict[str, Any] = {"decoding_type": kind, "max_draft_len": wanted.most}
    if wanted.model is not None:
        setting["speculative_model"] = wanted.model
    if method == "ngram":
        # vLLM looks up 5 tokens unless it is told otherwise, TensorRT-LLM 2.
        setting["max_matching_ngram_size"] = wanted.speculative.prompt_lookup_max or 5
    notes = ["give this to trtllm-serve in the file of --config"]
    if method == "ngram":
        notes.append("TensorRT-LLM has no shortest match (prompt_lookup_min), and shares one pool of n-grams")
    if not wanted.changes:
        return untold, {"speculative_config": setting}, notes
    setting["draft_len_schedule"] = upper_bounds(wanted.steps)
    notes += [
        "draft_len_schedule reads upper bounds and drafts nothing above the last one (TensorRT-LLM PR 10860, March "
        "2026); versions before it read lower bounds and would run another schedule",
        *(
            ["NGram saves drafting alone: the target still computes max_draft_len positions"]
            if method == "ngram"
            else []
        ),
        *idle_notes(wanted),
    ]
    return untold + tensorrt_llm_limits(wanted), {"speculative_config": setting}, notes


def upper_bounds(steps: tuple[Step, ...]) -> dict[str, int | None]:
    """{hi: K}. What a last step with K = 0 says, the end of the one before it says already."""
    kept = steps[:-1] if steps[-1].k == 0 else steps
    return {str(one.hi): one.k for one in kept}


def tensorrt_llm_limits(wanted: Wanted) -> list[str]:
    refused = []
    if wanted.speculative.method == "dspark":
        refused.append("TensorRT-LLM runs DSpark at one K: its runtime doesn't change it")
    if wanted.steps[0].k != wanted.most:
        refused.append(
            f"TensorRT-LLM wants the K of the smallest batches to be the largest (max_draft_len): here it is "
            f"{wanted.steps[0].k}, and {wanted.most} comes later"
        )
    return refused


def for_sglang(wanted: Wanted) -> Answer:
    """Server arguments by name, and in ``speculative_adaptive_config`` the content of the file that it names."""
    method = wanted.speculative.method
    algorithm = SGLANG.get(method)
    if algorithm is None:
        return [no_method("SGLang", "sglang", method)], {}, []
    untold = without_counterpart("SGLang", wanted)
    first = wanted.steps[0].k
    settings: dict[str, Any] = {"speculative_algorithm": algorithm, "speculative_num_draft_tokens": first + 1}
    if algorithm in (*SGLANG_ADAPTIVE, "STANDALONE"):
        settings |= {"speculative_num_steps": first, "speculative_eagle_topk": 1}
    if wanted.model is not None:
        settings["speculative_draft_model_path"] = wanted.model
    notes = [
        "each name is an argument of sglang.launch_server, with hyphens",
        "speculative_num_draft_tokens counts the last verified token and K drafts",
        *(["its n-gram drafter has other rules of look-up: measure acceptance there"] if method == "ngram" else []),
    ]
    if not wanted.changes:
        return untold, settings, notes
    settings |= {
        "speculative_adaptive": True,
        "speculative_adaptive_config": {str(one.lo): {"candidate_steps": [one.k]} for one in wanted.steps},
    }
    notes.append("write speculative_adaptive_config to a file and name that file; slots by batch need SGLang PR 24055")
    if wanted.idles:
        notes.append(SGLANG_ZERO)
    return untold + sglang_limits(wanted, algorithm, first), settings, notes


def sglang_limits(wanted: Wanted, algorithm: str, first: int) -> list[str]:
    refused = []
    if algorithm not in SGLANG_ADAPTIVE:
        known = " and ".join(SGLANG_ADAPTIVE)
        refused.append(
            f"SGLang changes K at run time for {known} alone: with {algorithm} it would keep to one K, and say so in "
            "its log only"
        )
    if first == 0:
        refused.append(
            "SGLang starts with the K of the smallest batches, and whether it starts with 0 was never checked: use "
            "K = 1 there, or serve that load without speculation"
        )
    if wanted.arguments.data_parallel_size > 1:
        refused.append("SGLang doesn't change K under data-parallel attention, as its ranks would disagree: use one K")
    return refused


def no_method(engine: str, key: str, method: str) -> str:
    because = WHY_NOT.get((key, method), "it has no such method")
    return f"{engine} can't run {method}: {because}"


def without_counterpart(engine: str, wanted: Wanted) -> list[str]:
    names = [name for name in wanted.speculative.options if name not in TRANSLATED]
    return [
        f"{name} has no counterpart that was checked in {engine}: measure the candidate without it" for name in names
    ]
