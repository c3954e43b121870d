"""The document that describes a simulated engine: limits, costs, drafters, nuisances and how long its answers are."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from loadtests.canonical import canonical, digest
from loadtests.configurations import EngineArguments, Speculative
from loadtests.simulator.acceptance import Acceptance
from loadtests.simulator.costs import Costs, DrafterCost, RoundCost
from loadtests.traffic.levels import Frozen

Document = TypeVar("Document", bound=Frozen)


class Drafter(Frozen):
    """What one method brings along. ``kv_tokens`` is its price in memory: tokens that the target's KV cache loses."""

    cost: DrafterCost
    acceptance: Acceptance
    kv_tokens: int = Field(0, ge=0)


class Nuisances(Frozen):
    """What makes two boots of one configuration differ."""

    boot_sd: float = Field(0.0, ge=0, le=1, description="standard deviation of the log of a boot's time factor")
    drift_sd_per_hour: float = Field(0.0, ge=0, le=1, description="of the slope of that log over the boot")
    pauses_per_hour: float = Field(0.0, ge=0, le=3_600, description="Poisson: nothing is computed for a while")
    pause_mean_s: float = Field(0.5, gt=0, le=600, description="exponential")


class ClassLength(Frozen):
    """Log-normal natural length of an answer in tokens; the request's limit cuts it."""

    median: float = Field(gt=0, le=1_000_000)
    sigma: float = Field(ge=0, le=3)


class Lengths(Frozen):
    default: ClassLength = ClassLength(median=100, sigma=0.6)
    classes: dict[str, ClassLength] = Field(default_factory=dict)

    def of(self, class_: str) -> ClassLength:
        return self.classes.get(class_, self.default)


class EngineModel(Frozen):
    schema_: Literal["draftproof.engine-model/1"] = Field("draftproof.engine-model/1", alias="schema")
    name: str = Field(min_length=1, max_length=100)
    max_num_seqs: int = Field(ge=1, le=10_000)
    max_num_batched_tokens: int = Field(ge=1)
    max_model_len: int = Field(ge=2)
    block_size: int = Field(16, ge=1)
    kv_tokens: int = Field(ge=1, description="the KV cache's size without a drafter")
    prefix_caching: bool = False
    round: RoundCost
    drafters: dict[str, Drafter] = Field(default_factory=dict, description="by method")
    nuisances: Nuisances = Nuisances()
    lengths: Lengths = Lengths()

    @model_validator(mode="after")
    def fits_itself(self) -> "EngineModel":
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"a step holds {self.max_num_batched_tokens} tokens and {self.max_num_seqs} sequences need one each: "
                "raise max_num_batched_tokens or lower max_num_seqs"
            )
        if self.kv_tokens // self.block_size < ceil(self.max_model_len / self.block_size):
            raise ValueError(
                f"the KV cache of {self.kv_tokens} tokens can't hold one sequence of {self.max_model_len}: "
                "raise kv_tokens or lower max_model_len"
            )
        return self

    @property
    def content(self) -> bytes:
        return canonical(self.model_dump(mode="json", by_alias=True))

    @property
    def digest(self) -> str:
        return digest(self.content)

    def with_arguments(self, arguments: EngineArguments) -> "EngineModel":
        """The model under a configuration's engine arguments; what they leave open stays as it was."""
        wanted = {
            "max_num_seqs": arguments.max_num_seqs,
            "max_model_len": arguments.max_model_len,
            "prefix_caching": arguments.enable_prefix_caching,
            "max_num_batched_tokens": arguments.max_num_batched_tokens,
            "block_size": arguments.block_size,
        }
        return changed(self, {name: value for name, value in wanted.items() if value is not None})

    def with_costs(self, costs: Costs) -> "EngineModel":
        """The model at other costs; what its drafters get accepted and take of memory stays. Raises ValueError for a
        drafter that it doesn't have."""
        for method in costs.drafters:
            if method not in self.drafters:
                known = ", ".join(sorted(self.drafters)) or "none"
                raise ValueError(f"the engine model {self.name} has no drafter for {method}; it has {known}")
        drafters = {name: one.model_dump() for name, one in self.drafters.items()}
        for method, cost in costs.drafters.items():
            drafters[method]["cost"] = cost.model_dump()
        return changed(self, {"round": costs.round.model_dump(), "drafters": drafters})


def changed(model: EngineModel, fields: Mapping[str, object]) -> EngineModel:
    """As ``model_copy`` with an update, but validated."""
    return EngineModel.model_validate(model.model_dump(by_alias=True) | dict(fields))


def read_model(path: Path) -> EngineModel:
    """The model of a saved document; raises ValueError that names the file and the field."""
    return read_document(path, EngineModel)


def read_costs(path: Path) -> Costs:
    """Saved costs, as ``draftproof fit-costs`` prints them; errors as in ``read_model``."""
    return read_document(path, Costs)


def read_document(path: Path, kind: type[Document]) -> Document:
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole document)"
        raise ValueError(f"{path.name}, field {field}: {first['msg']}") from None


@dataclass(frozen=True)
class Speculation:
    """A speculative setting on a model: the drafter, and K by the number of running sequences (from 0 up);
    ``scheduled`` where it is not always the same K."""

    method: str
    most: int
    by_batch: tuple[int, ...]
    drafter: Drafter
    scheduled: bool

    def k(self, sequences: int) -> int:
        return self.by_batch[sequences]


def speculation_of(model: EngineModel, speculative: Speculative | None) -> Speculation | None:
    """Raises ValueError where the model knows no such drafter, or can't hold its drafts or its memory."""
    if speculative is None:
        return None
    if speculative.method not in model.drafters:
        known = ", ".join(sorted(model.drafters)) or "none"
        raise ValueError(f"the engine model {model.name} has no drafter for {speculative.method}; it has {known}")
    by_batch = lengths_by_batch(speculative, model.max_num_seqs)
    found = Speculation(
        method=speculative.method,
        most=speculative.num_speculative_tokens,
        by_batch=by_batch,
        drafter=model.drafters[speculative.method],
        scheduled=len(set(by_batch)) > 1,
    )
    check_fit(model, found)
    return found


def lengths_by_batch(speculative: Speculative, sequences: int) -> tuple[int, ...]:
    """K for 0, 1, … running sequences; a gap between two ranges, and all above the last, inherits what was before."""
    most = speculative.num_speculative_tokens
    ranges = speculative.num_speculative_tokens_per_batch_size
    if ranges is None:
        return (most,) * (sequences + 1)
    if not ranges or ranges[0][0] > 1:
        raise ValueError("a schedule of draft lengths starts at 1 running sequence")
    lengths = [min(ranges[0][2], most)]
    for batch in range(1, sequences + 1):
        named = [min(k, most) for low, high, k in ranges if low <= batch <= high]
        lengths.append(named[0] if named else lengths[-1])
    return tuple(lengths)


def check_fit(model: EngineModel, speculation: Speculation) -> None:
    needed = max(batch * (1 + k) for batch, k in enumerate(speculation.by_batch))
    if needed > model.max_num_batched_tokens:
        raise ValueError(
            f"{model.max_num_seqs} sequences with {speculation.most} drafts need {needed} tokens a step and "
            f"max_num_batched_tokens is {model.max_num_batched_tokens}: raise it, or lower max_num_seqs or K"
        )
    if kv_blocks(model, speculation) < ceil((model.max_model_len + speculation.most) / model.block_size):
        raise ValueError(
            f"with the drafter's price of {speculation.drafter.kv_tokens} tokens the KV cache can't hold one sequence "
            f"of {model.max_model_len} and its drafts: lower max_model_len or max_num_seqs"
        )


def kv_blocks(model: EngineModel, speculation: Speculation | None) -> int:
    price = speculation.drafter.kv_tokens if speculation else 0
    return max(0, model.kv_tokens - price) // model.block_size
