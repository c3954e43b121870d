"""Engines whose truth is stated: the shape of a GPU with an 8B model, and the two CPU cores that were measured."""

from collections.abc import Callable

from loadtests.simulator.acceptance import Acceptance, ClassAcceptance
from loadtests.simulator.costs import DrafterCost, RoundCost
from loadtests.simulator.model import ClassLength, Drafter, EngineModel, Lengths, Nuisances


def gpu_8b() -> EngineModel:
    """A GPU that reads 16 GB of weights in 9 ms and whose arithmetic catches up at 64 tokens a step. KV reads are
    131 kB per token of context at 1.6 TB/s. Not measured: a shape."""
    return EngineModel(
        name="gpu-8b",
        max_num_seqs=256,
        max_num_batched_tokens=8_192,
        max_model_len=8_192,
        block_size=16,
        kv_tokens=200_000,
        round=RoundCost(
            fixed_s=0.001,
            per_sequence_s=5e-6,
            weights_s=0.009,
            per_token_s=0.009 / 64,
            per_prefill_token_s=6e-5,
            per_context_token_s=8e-8,
        ),
        drafters={
            # A one-layer head that drafts one token after the other (the shape of EAGLE).
            "eagle3": Drafter(
                cost=DrafterCost(fixed_s=0.0002, per_position_s=0.0003, per_draft_token_s=5e-6, idle_s=0.0006),
                acceptance=Acceptance(default=ClassAcceptance(positions=(0.78, 0.75, 0.72, 0.70), spread=0.5)),
                kv_tokens=12_000,
            ),
            # A block drafter: all K positions in one pass.
            "dflash": Drafter(
                cost=DrafterCost(fixed_s=0.0007, per_draft_token_s=1e-5, idle_s=0.0009),
                acceptance=Acceptance(default=ClassAcceptance(positions=(0.80, 0.76, 0.72, 0.68, 0.64), spread=0.5)),
                kv_tokens=20_000,
            ),
            "ngram": Drafter(
                cost=DrafterCost(fixed_s=0.0004, idle_s=0.0002),
                acceptance=Acceptance(default=ClassAcceptance(positions=(0.69,), spread=0.7, proposes=0.25)),
            ),
        },
        nuisances=Nuisances(boot_sd=0.06, drift_sd_per_hour=0.02, pauses_per_hour=4, pause_mean_s=0.3),
        lengths=Lengths(default=ClassLength(median=150, sigma=0.7)),
    )


def cpu_2core() -> EngineModel:
    """SmolLM2-135M on two CPU cores (one computes), eager: docs/simulator.md has the table that it follows."""
    return EngineModel(
        name="cpu-2core",
        max_num_seqs=16,
        max_num_batched_tokens=2_048,
        max_model_len=2_048,
        block_size=128,
        kv_tokens=46_000,
        round=RoundCost(
            fixed_s=0.024,
            per_sequence_s=0.0007,
            weights_s=0.008,
            per_token_s=0.0023,
            per_prefill_token_s=0.0015,
            per_context_token_s=1e-7,
        ),
        drafters={
            "ngram": Drafter(
                cost=DrafterCost(fixed_s=0.0002, idle_s=0.0002),
                acceptance=Acceptance(default=ClassAcceptance(positions=(0.69,), spread=0.3, proposes=0.1)),
            ),
            "dflash": Drafter(
                cost=DrafterCost(fixed_s=0.003, per_draft_token_s=0.0001, idle_s=0.003),
                acceptance=Acceptance(default=ClassAcceptance(positions=(0.39, 0.25, 0.15, 0.1), spread=0.4)),
                kv_tokens=2_000,
            ),
        },
        nuisances=Nuisances(boot_sd=0.08, drift_sd_per_hour=0.05, pauses_per_hour=6, pause_mean_s=0.3),
        lengths=Lengths(default=ClassLength(median=90, sigma=0.6)),
    )


PRESETS: dict[str, Callable[[], EngineModel]] = {"gpu-8b": gpu_8b, "cpu-2core": cpu_2core}


def preset(name: str) -> EngineModel:
    """Raises ValueError, with the names that there are."""
    if name not in PRESETS:
        raise ValueError(f"there is no engine model {name}; there are {', '.join(sorted(PRESETS))}")
    return PRESETS[name]()
