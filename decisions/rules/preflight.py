"""What of a speculative setting the engine would refuse or quietly not do, told before any engine time is spent.

The facts are vLLM's, in the version that ``decisions.rules.findings`` names: vllm/config/speculative.py,
vllm/config/vllm.py, vllm/sampling_params.py and the proposers under vllm/v1. Each rule has its paragraph in
docs/preflight.md, under its id.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from decisions.rules.findings import Finding, Rule
from loadtests.canonical import digest_of
from loadtests.checkpoints import CheckpointFacts
from loadtests.configurations import OPTIONS, Checkpoint, Configuration, Method, Speculative

NEEDS_DRAFTER: tuple[Method, ...] = ("draft_model", "eagle", "eagle3", "medusa", "dflash")
# Old runner alone; the new one is an accelerator's default.
V1_ONLY: tuple[Method, ...] = ("suffix", "medusa", "custom_class")
V2_ONLY: tuple[Method, ...] = ("dspark",)
# DFlash 2 and LiLiCorr by their checkpoints: the old runner has no head for them.
CANDIDATE_HEADS = frozenset({"DFlash2DraftModel", "LiLiCorrDraftModel"})
# They draft all positions at once on either runner; with any other method ``parallel_drafting`` needs the old one.
PARALLEL_BY_NATURE: tuple[Method, ...] = ("dflash", "dspark")
SYNCHRONOUS: tuple[Method, ...] = ("ngram", "suffix", "medusa", "custom_class")
READS_HIDDEN_STATES: tuple[Method, ...] = ("eagle", "eagle3", "dflash", "dspark")
SHARES_VOCABULARY: tuple[Method, ...] = ("draft_model", "eagle", "eagle3", "mtp", "dflash", "dspark")
# The engine takes min_p up to this as none (vllm/sampling_params.py).
NO_MIN_P = 1e-5
NO_TOKENIZER = digest_of([])


@dataclass(frozen=True)
class Known:
    """What the house knows beside a brief: of checkpoints, by their digests of weights and tokenizer, and which fields
    of a request the traffic's file had that its set doesn't keep, with counts."""

    checkpoints: Mapping[tuple[str, str], CheckpointFacts] = field(default_factory=dict)
    unread_fields: Mapping[str, int] = field(default_factory=dict)

    def of(self, checkpoint: Checkpoint | None) -> CheckpointFacts | None:
        key = (checkpoint.weights_sha256, checkpoint.tokenizer_sha256) if checkpoint else ("", "")
        return self.checkpoints.get(key)


NOTHING = Known()


@dataclass(frozen=True)
class Subject:
    """A configuration with a speculative setting, and what is known of its two checkpoints."""

    configuration: Configuration
    setting: Speculative
    target: CheckpointFacts | None
    drafter: CheckpointFacts | None

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        return self.setting.num_speculative_tokens_per_batch_size or ()

    @property
    def on_cpu(self) -> bool:
        return runs_on_cpu(self.configuration)

    @property
    def needs_old_runner(self) -> bool:
        one = self.setting
        parallel = bool(one.parallel_drafting) and one.method not in PARALLEL_BY_NATURE
        return one.method in V1_ONLY or parallel or bool(one.use_heterogeneous_vocab)

    @property
    def on_old_runner(self) -> bool:
        return self.on_cpu or self.needs_old_runner


def runs_on_cpu(configuration: Configuration) -> bool:
    """``cpu``, alone or followed by the processor's name."""
    return configuration.hardware.accelerator.partition(":")[0].strip().lower() == "cpu"


# The method and its options.


def foreign_option(one: Subject) -> Iterator[str]:
    for name, owners in OPTIONS.items():
        if getattr(one.setting, name) is not None and one.setting.method not in owners:
            yield f"{name} belongs to {', '.join(owners)}, not to {one.setting.method}: leave it out"


def needs_drafter(one: Subject) -> Iterator[str]:
    """A simulated engine brings its drafters along."""
    simulated = one.configuration.runtime.engine == "simulated"
    if not simulated and one.setting.method in NEEDS_DRAFTER and one.setting.drafter is None:
        yield f"{one.setting.method} needs a drafter: write the three lines that manage.py add_checkpoint prints"


def needs_custom_class(one: Subject) -> Iterator[str]:
    if one.setting.method == "custom_class" and one.setting.custom_class is None:
        yield "custom_class needs custom_class, the proposer's class as package.module.Class"


def heterogeneous_greedy(one: Subject) -> Iterator[str]:
    if one.setting.use_heterogeneous_vocab and one.setting.draft_sample_method == "probabilistic":
        yield "use_heterogeneous_vocab drafts greedily only: leave draft_sample_method out"


def draft_tensor_parallel(one: Subject) -> Iterator[str]:
    size, of_target = one.setting.draft_tensor_parallel_size, one.configuration.arguments.tensor_parallel_size
    if size not in (None, 1, of_target):
        yield f"draft_tensor_parallel_size {size} must be 1 or the target's {of_target}: the engine refuses any other"


def draft_length_limit(one: Subject) -> Iterator[str]:
    asked, of_target = one.setting.max_model_len, one.configuration.arguments.max_model_len
    if asked is not None and asked > of_target:
        yield f"the drafter's max_model_len {asked} is above the target's {of_target}: the engine refuses it"


def suffix_package(one: Subject) -> Iterator[str]:
    if one.setting.method == "suffix":
        yield "suffix needs the package arctic-inference in the engine's environment, which our lists don't install"


# Runners.


def new_runner_only(one: Subject) -> Iterator[str]:
    if not one.on_cpu:
        return
    if one.setting.method in V2_ONLY:
        yield f"{one.setting.method} runs on the engine's new runner alone, which a CPU doesn't have"
    if one.setting.enable_adaptive_verification:
        yield "enable_adaptive_verification needs the engine's new runner, which a CPU doesn't have"
    if one.setting.method == "dflash" and one.drafter and one.drafter.mixed_attention:
        yield "a drafter that mixes sliding and full attention needs the engine's new runner, which a CPU doesn't have"
    if one.setting.method == "dflash" and one.drafter and not CANDIDATE_HEADS.isdisjoint(one.drafter.architectures):
        yield "a drafter with a candidate head needs the engine's new runner, which a CPU doesn't have"


def adaptive_graphs(one: Subject) -> Iterator[str]:
    if one.setting.enable_adaptive_verification and one.configuration.arguments.enforce_eager:
        yield "enable_adaptive_verification needs full CUDA graphs: the baseline's enforce_eager switches them off"


def old_runner(one: Subject) -> Iterator[str]:
    if one.needs_old_runner and not one.on_cpu:
        yield (
            "the engine's old runner (V1) runs it and the new one (V2) the baseline: what is measured is the "
            "difference of the runners too"
        )


def block_runs_standard(one: Subject) -> Iterator[str]:
    if one.setting.rejection_sample_method == "block" and one.on_old_runner:
        yield (
            "block verification is asked for, but its runner takes the word and runs standard verification: the trials "
            "would say nothing about block"
        )


def async_scheduling(one: Subject) -> Iterator[str]:
    why: str | None = None
    if one.setting.method in SYNCHRONOUS:
        why = one.setting.method
    elif one.setting.disable_padded_drafter_batch:
        why = "disable_padded_drafter_batch"
    if why:
        yield (
            f"{why} switches asynchronous scheduling off, which the baseline keeps: what is measured is the price of "
            "that too"
        )


# The schedule. vLLM checks it when the scheduler is built, which is after the weights are loaded.


def schedule_data_parallel(one: Subject) -> Iterator[str]:
    if one.setting.num_speculative_tokens_per_batch_size is None:
        return
    if one.configuration.arguments.data_parallel_size > 1:
        yield "the engine ignores a schedule with data parallelism: write one K, or data_parallel_size 1"


def schedule_start(one: Subject) -> Iterator[str]:
    if one.setting.num_speculative_tokens_per_batch_size is None:
        return
    if not one.ranges or one.ranges[0][0] != 1:
        yield "a schedule starts at 1 running sequence: the engine refuses any other"


def schedule_overlap(one: Subject) -> Iterator[str]:
    if any(right[0] <= left[1] for left, right in pairwise(one.ranges)):
        yield "two ranges of the schedule overlap, or are out of order: the engine refuses them"


def schedule_backwards(one: Subject) -> Iterator[str]:
    if any(high < low for low, high, _ in one.ranges):
        yield "a range of the schedule ends before it begins"


def schedule_gap(one: Subject) -> Iterator[str]:
    most = one.configuration.arguments.max_num_seqs
    for (_, high, k), (low, _, _) in pairwise((*one.ranges, (most + 1, most + 1, 0))):
        if high + 1 < low and high < most:
            yield f"no range holds {high + 1} to {min(low - 1, most)} running sequences: the engine keeps K = {k} there"


def schedule_clamped(one: Subject) -> Iterator[str]:
    most = one.setting.num_speculative_tokens
    for low, _, k in one.ranges:
        if k > most:
            yield f"K = {k} from {low} running sequences on is above num_speculative_tokens: the engine drafts {most}"


def schedule_unreached(one: Subject) -> Iterator[str]:
    most = one.configuration.arguments.max_num_seqs
    for low, _, _ in one.ranges:
        if low > most:
            yield f"the range from {low} running sequences on is never reached: max_num_seqs is {most}"


def schedule_zero(one: Subject) -> Iterator[str]:
    if any(k == 0 for _, _, k in one.ranges):
        yield (
            "K = 0 in a schedule is not off: the drafter stays loaded and its step costs something (6 to 22 % against "
            "a server without speculation was reported), so no figure of it stands for the fallback"
        )


def schedule_graphs(one: Subject) -> Iterator[str]:
    eager = one.configuration.arguments.enforce_eager
    if one.ranges and one.needs_old_runner and not one.on_cpu and not eager:
        yield (
            "under a schedule the old runner takes piecewise CUDA graphs, and the baseline full ones: what is measured "
            "is that too"
        )


# The checkpoints, as far as the house knows them.


def above_trained_block(one: Subject) -> Iterator[str]:
    """The engine takes any K in silence."""
    block, k = one.drafter.trained_block if one.drafter else None, one.setting.num_speculative_tokens
    if one.setting.method in PARALLEL_BY_NATURE and block is not None and k > block:
        yield f"K = {k} is above the block of {block} that the drafter was trained for: lower K"


def drafter_vocabulary(one: Subject) -> Iterator[str]:
    if one.target is None or one.drafter is None or one.setting.use_heterogeneous_vocab:
        return
    of_drafter, of_target = one.drafter.vocab_size, one.target.vocab_size
    if one.setting.method not in SHARES_VOCABULARY or of_drafter is None or of_target is None:
        return
    if of_drafter != of_target:
        yield (
            f"the drafter's vocabulary has {of_drafter:,} tokens and the target's {of_target:,}: its drafts would mean "
            "other tokens"
        )


def drafter_layers(one: Subject) -> Iterator[str]:
    layers = one.target.layers if one.target else None
    asked = one.drafter.target_layer_ids if one.drafter else ()
    outside = [number for number in asked if layers is not None and not 0 <= number < layers]
    if outside:
        yield f"the drafter reads layer {outside[0]} of a target that has {layers}, counted from 0"


def drafter_hidden_size(one: Subject) -> Iterator[str]:
    if one.target is None or one.drafter is None or one.setting.method not in READS_HIDDEN_STATES:
        return
    reads, has = one.drafter.reads_hidden_size, one.target.hidden_size
    if reads is not None and has is not None and reads != has:
        yield f"the drafter reads hidden states of {reads:,} and the target's have {has:,}"


def drafter_tokenizer(one: Subject) -> Iterator[str]:
    drafter, target = one.setting.drafter, one.configuration.target
    if drafter is None or one.setting.method != "draft_model" or one.setting.use_heterogeneous_vocab:
        return
    if drafter.tokenizer_sha256 not in (NO_TOKENIZER, target.tokenizer_sha256):
        yield (
            "the drafter's tokenizer files are not the target's: where their ids mean other tokens, hardly a draft is "
            "ever kept"
        )


def drafter_not_checked(one: Subject) -> Iterator[str]:
    if one.setting.drafter is None:
        return
    unknown = [name for name, facts in (("the drafter", one.drafter), ("the target", one.target)) if facts is None]
    if unknown:
        yield (
            f"not checked whether the drafter fits: the sizes of {' and '.join(unknown)} aren't known on this machine, "
            "where no such checkpoint is recorded"
        )
    elif one.drafter and one.drafter.trained_block is None and one.setting.method in PARALLEL_BY_NATURE:
        yield "not checked whether K fits: the drafter's config.json doesn't say its block"


def dflash_cpu_norm(one: Subject) -> Iterator[str]:
    layers = one.drafter.layers if one.drafter else None
    if one.setting.method == "dflash" and one.on_cpu and layers != 1:
        yield (
            "on a CPU the engine normalises the context keys of every drafter layer with the k_norm of layer 0: unless "
            "k_norm is the same in all layers, acceptance collapses"
        )


def sampled_on_cpu(one: Subject) -> Iterator[str]:
    if one.on_cpu:
        yield (
            "on a CPU the engine divides the logits of drafted positions by a temperature that it never filled in: "
            "with speculation the text is the target's at temperature 0 alone"
        )


def sampling_defaults(one: Subject) -> Iterator[str]:
    min_p = one.target.min_p if one.target else None
    if min_p is not None and min_p > NO_MIN_P:
        yield (
            f"the target's generation_config.json sets min_p {min_p:g} for every request: under speculation the engine "
            "refuses each of them (400), and the baseline answers them"
        )


def openmp_preload(one: Subject) -> Iterator[str]:
    """Our own worker refuses to start without it; of an engine that others start nobody here can tell."""
    if one.on_cpu and one.configuration.runtime.engine == "remote":
        yield (
            "on a CPU vLLM needs libiomp5.so preloaded (LD_PRELOAD), else speculation is measured far too slow: nobody "
            "can see from here whether it is"
        )


SETTING: tuple[Rule[Subject], ...] = (
    Rule("foreign-option", "refused", foreign_option, everywhere=True),
    Rule("needs-drafter", "refused", needs_drafter, everywhere=True),
    Rule("needs-custom-class", "refused", needs_custom_class, everywhere=True),
    Rule("heterogeneous-greedy", "refused", heterogeneous_greedy, everywhere=True),
    Rule("schedule-data-parallel", "refused", schedule_data_parallel, everywhere=True),
    Rule("schedule-start", "refused", schedule_start, everywhere=True),
    Rule("schedule-overlap", "refused", schedule_overlap, everywhere=True),
    Rule("schedule-backwards", "refused", schedule_backwards, everywhere=True),
    Rule("new-runner-only", "refused", new_runner_only),
    Rule("adaptive-graphs", "refused", adaptive_graphs),
    Rule("draft-tensor-parallel", "refused", draft_tensor_parallel),
    Rule("draft-length-limit", "refused", draft_length_limit),
    Rule("above-trained-block", "refused", above_trained_block),
    Rule("drafter-vocabulary", "refused", drafter_vocabulary),
    Rule("drafter-layers", "refused", drafter_layers),
    Rule("drafter-hidden-size", "refused", drafter_hidden_size),
    Rule("sampling-defaults", "refused", sampling_defaults),
    Rule("block-runs-standard", "flagged", block_runs_standard),
    Rule("old-runner", "flagged", old_runner),
    Rule("async-scheduling", "flagged", async_scheduling),
    Rule("schedule-gap", "flagged", schedule_gap, everywhere=True),
    Rule("schedule-clamped", "flagged", schedule_clamped, everywhere=True),
    Rule("schedule-unreached", "flagged", schedule_unreached, everywhere=True),
    Rule("schedule-zero", "flagged", schedule_zero, everywhere=True),
    Rule("schedule-graphs", "flagged", schedule_graphs),
    Rule("drafter-tokenizer", "flagged", drafter_tokenizer),
    Rule("drafter-not-checked", "flagged", drafter_not_checked),
    Rule("dflash-cpu-norm", "flagged", dflash_cpu_norm),
    Rule("sampled-on-cpu", "flagged", sampled_on_cpu),
    Rule("suffix-package", "flagged", suffix_package),
    Rule("openmp-preload", "flagged", openmp_preload),
)


def findings_of(
    configuration: Configuration, known: Known = NOTHING, *, where: str = "", of: str = ""
) -> list[Finding]:
    """Everything that the preflight says of a configuration; nothing without a speculative setting."""
    setting = configuration.speculative
    if setting is None:
        return []
    subject = Subject(configuration, setting, known.of(configuration.target), known.of(setting.drafter))
    on_vllm = configuration.runtime.runs_vllm
    return [
        finding
        for rule in SETTING
        if on_vllm or rule.everywhere
        for finding in rule.findings(subject, where=where, of=of)
    ]


def refused(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.severity == "refused"]
