"""What of a speculative setting the engine would refuse or quietly not do, told before any engine time is spent.

The facts are vLLM 0.32's (vllm/config/speculative.py and vllm/config/vllm.py).
"""

from itertools import pairwise

from loadtests.configurations import OPTIONS, Configuration, DraftMethod, Method, Speculative

NEEDS_DRAFTER: tuple[Method, ...] = ("draft_model", "eagle", "eagle3", "medusa", "dflash")
# Old runner alone; the new one is an accelerator's default.
V1_ONLY: tuple[Method, ...] = ("suffix", "medusa", "custom_class")
V2_ONLY: tuple[Method, ...] = ("dspark",)


def refusals(configuration: Configuration) -> list[str]:
    """Why the configuration can't be run as written, one sentence each; none without a speculative setting."""
    setting = configuration.speculative
    if setting is None:
        return []
    found = [*method_refusals(setting, configuration.runtime.engine), *schedule_refusals(configuration, setting)]
    if configuration.runtime.engine == "vllm" and runs_on_cpu(configuration):
        found += cpu_refusals(setting)
    return found


def method_refusals(method: DraftMethod, engine: str = "vllm") -> list[str]:
    """Of the method and its options alone. A simulated engine brings its drafters along."""
    found = [
        f"{name} belongs to {', '.join(owners)}, not to {method.method}: leave it out"
        for name, owners in OPTIONS.items()
        if getattr(method, name) is not None and method.method not in owners
    ]
    if engine != "simulated" and method.method in NEEDS_DRAFTER and method.drafter is None:
        found.append(f"{method.method} needs a drafter: write the three lines that manage.py add_checkpoint prints")
    if method.method == "custom_class" and method.custom_class is None:
        found.append("custom_class needs custom_class, the proposer's class as package.module.Class")
    if method.use_heterogeneous_vocab and method.draft_sample_method == "probabilistic":
        found.append("use_heterogeneous_vocab drafts greedily only: leave draft_sample_method out")
    return found


def schedule_refusals(configuration: Configuration, setting: Speculative) -> list[str]:
    ranges = setting.num_speculative_tokens_per_batch_size
    if ranges is None:
        return []
    found = []
    if configuration.arguments.data_parallel_size > 1:
        found.append("the engine ignores a schedule with data parallelism: write one K, or data_parallel_size 1")
    if not ranges or ranges[0][0] != 1:
        found.append("a schedule starts at 1 running sequence: the engine refuses any other")
    if any(right[0] <= left[1] for left, right in pairwise(ranges)):
        found.append("two ranges of the schedule overlap, or are out of order: the engine refuses them")
    if any(high < low for low, high, _ in ranges):
        found.append("a range of the schedule ends before it begins")
    return found


def cpu_refusals(setting: DraftMethod) -> list[str]:
    found = []
    if setting.method in V2_ONLY:
        found.append(f"{setting.method} runs on the engine's new runner alone, which a CPU doesn't have")
    if setting.enable_adaptive_verification:
        found.append("enable_adaptive_verification needs the engine's new runner, which a CPU doesn't have")
    return found


def flags(configuration: Configuration) -> list[str]:
    """What its author should know, though it runs."""
    setting = configuration.speculative
    if setting is None or setting.rejection_sample_method != "block" or not on_old_runner(configuration, setting):
        return []
    return [
        "asks for block verification, but its runner takes the word and runs standard verification: the trials would "
        "say nothing about block"
    ]


def on_old_runner(configuration: Configuration, setting: DraftMethod) -> bool:
    parallel_draft_model = setting.method == "draft_model" and bool(setting.parallel_drafting)
    return runs_on_cpu(configuration) or setting.method in V1_ONLY or parallel_draft_model


def runs_on_cpu(configuration: Configuration) -> bool:
    """``cpu``, alone or followed by the processor's name."""
    return configuration.hardware.accelerator.partition(":")[0].strip().lower() == "cpu"
