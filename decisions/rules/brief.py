"""The acceptance brief as a document: what will be decided, by which rule, frozen before any tuning."""

from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from loadtests.canonical import canonical, digest
from loadtests.configurations import Configuration, Speculative, foreign_difference
from loadtests.traffic.levels import Deadline, Level

Metric = Literal["attainment", "completion_quantile", "output_tokens_per_s"]
GuardrailMetric = Literal[
    "failed_share", "late_share", "first_token_quantile", "completion_quantile", "kv_cache_tokens"
]


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(Frozen):
    """Where something must be shown: a load level and a request class (or all of them)."""

    level: str
    class_: str = Field("all", alias="class")

    @property
    def label(self) -> str:
        return self.level if self.class_ == "all" else f"{self.level}, {self.class_}"


class Outcome(Frozen):
    """What the release is for.

    ``attainment`` is judged as candidate − baseline in shares of 1 (0.02 = 2 points);
    ``completion_quantile`` and ``output_tokens_per_s`` as the ratio candidate ÷ baseline, and
    ``minimum_improvement`` and ``non_inferiority_margin`` as shares of the baseline (0.05 = 5 % better / worse).
    """

    metric: Metric
    quantile: float | None = Field(None, gt=0, lt=1)
    improve_in: tuple[Cell, ...] = Field(min_length=1)
    minimum_improvement: float = Field(gt=0, lt=1)
    non_inferiority_margin: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def quantile_where_needed(self) -> "Outcome":
        if (self.metric == "completion_quantile") != (self.quantile is not None):
            raise ValueError("quantile belongs to completion_quantile, and completion_quantile needs it")
        return self


class Guardrail(Frozen):
    """Something that must not get worse than its limit.

    ``absolute``: the candidate's own share (failed_share, late_share) stays at or below ``limit``; a quantile of
    seconds (first_token_quantile, completion_quantile) stays at or below ``limit`` seconds at ``quantile``.
    ``relative``: the ratio candidate ÷ baseline stays at or below 1 + ``limit`` (for kv_cache_tokens, at or above
    1 − ``limit``); for shares the difference candidate − baseline stays at or below ``limit``.
    """

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    metric: GuardrailMetric
    kind: Literal["absolute", "relative"]
    cell: Cell
    limit: float = Field(ge=0)
    quantile: float | None = Field(None, gt=0, lt=1)

    @model_validator(mode="after")
    def fits_the_metric(self) -> "Guardrail":
        needs_quantile = self.metric.endswith("_quantile")
        if needs_quantile != (self.quantile is not None):
            raise ValueError(f"guardrail {self.id}: quantile belongs to the *_quantile metrics, and they need it")
        if self.metric == "kv_cache_tokens" and self.kind == "absolute":
            raise ValueError(f"guardrail {self.id}: kv_cache_tokens is relative to the baseline")
        return self


class Rule(Frozen):
    """The decision rule: how much evidence, at which confidence, drawn from which seed."""

    confidence: float = Field(0.95, gt=0.5, lt=1)
    pairs: int = Field(4, ge=4)
    noise_floor_pairs: int = Field(4, ge=4)
    looks: Literal[1] = 1
    seed: int = Field(ge=0)
    max_client_lag_ms: float = Field(50, gt=0, description="limit on the 99th percentile of the client's own lag")
    max_reattempts: int = Field(1, ge=0, le=5, description="whole pairs that a proven fault of ours may repeat")
    # "best-in-improve-cells" nominates nobody where tuning shows no candidate better than no speculation;
    # "best-candidate" sends the best one to held-out traffic all the same, where tuning is too short to rule it out.
    nomination: Literal["best-in-improve-cells", "best-candidate"] = "best-in-improve-cells"

    @model_validator(mode="after")
    def even(self) -> "Rule":
        for name in ("pairs", "noise_floor_pairs"):
            if getattr(self, name) % 2:
                raise ValueError(f"{name} must be even: the order of the arms is drawn per block of two pairs")
        return self

    @property
    def alpha(self) -> float:
        return 1 - self.confidence


class Candidate(Frozen):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    speculative: Speculative


class Traffic(Frozen):
    """The population: digests of the parts that stand for it."""

    name: str
    set: str = Field(pattern=r"^[0-9a-f]{64}$")
    tuning: str = Field(pattern=r"^[0-9a-f]{64}$")
    held_out: str = Field(pattern=r"^[0-9a-f]{64}$")


class Brief(Frozen):
    schema_: Literal["draftproof.brief/1"] = Field("draftproof.brief/1", alias="schema")
    title: str = Field(min_length=3, max_length=120)
    service: str
    route: str
    question: str = Field(min_length=10, description="what the owner will have answered, in one sentence")
    population: str = Field(min_length=10, description="which requests the answer is about")
    decision_owner: str
    baseline: Configuration
    candidates: tuple[Candidate, ...] = Field(min_length=1)
    traffic: Traffic
    levels: tuple[Level, ...] = Field(min_length=1)
    peak: str = Field(description="the level at which the fallback must be shown")
    deadlines: dict[str, Deadline] = Field(min_length=1, description="per class; 'default' for the others")
    outcome: Outcome
    guardrails: tuple[Guardrail, ...]
    rule: Rule
    budget_engine_minutes: float = Field(gt=0)
    release_days: int = Field(90, ge=1, le=730)
    fallback_plan: str = Field(min_length=10, description="what happens when speculation is switched off at peak")
    note: str = ""

    @model_validator(mode="after")
    def hangs_together(self) -> "Brief":
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError("two levels have the same name")
        cells = [*self.outcome.improve_in, *(rail.cell for rail in self.guardrails)]
        for wanted in {cell.level for cell in cells} | {self.peak}:
            if wanted not in names:
                raise ValueError(f"level {wanted!r} is used but not among the levels: {', '.join(names)}")
        if self.baseline.speculative is not None:
            raise ValueError("the baseline must have no speculative setting")
        if len({one.name for one in self.candidates}) != len(self.candidates):
            raise ValueError("two candidates have the same name")
        if len({rail.id for rail in self.guardrails}) != len(self.guardrails):
            raise ValueError("two guardrails have the same id")
        return self

    @property
    def content(self) -> bytes:
        return canonical(self.model_dump(mode="json", by_alias=True))

    @property
    def digest(self) -> str:
        return digest(self.content)

    def level(self, name: str) -> Level:
        return next(level for level in self.levels if level.name == name)

    def deadline(self, class_: str) -> Deadline | None:
        return self.deadlines.get(class_) or self.deadlines.get("default")

    def configuration(self, name: str) -> Configuration:
        """The configuration of 'baseline' or of a candidate by its name."""
        if name == "baseline":
            return self.baseline
        candidate = next(one for one in self.candidates if one.name == name)
        return self.baseline.with_speculative(candidate.speculative)


class BadBrief(ValueError):
    """A brief that can't be used; ``problems`` has one sentence per field."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def explain(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(str(part) for part in one['loc']) or 'brief'}: {one['msg'].removeprefix('Value error, ')}"
        for one in error.errors()
    ]


def parse_brief(document: Any) -> Brief:
    try:
        return Brief.model_validate(document)
    except ValidationError as error:
        raise BadBrief(explain(error)) from None


def read_brief(text: str) -> Brief:
    """A brief from YAML or JSON text (JSON is YAML). A candidate may also be written as a whole ``configuration``:
    it is then held against the baseline, and any difference besides the speculative setting is refused."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise BadBrief([f"not YAML: {error}"]) from None
    if not isinstance(document, dict):
        raise BadBrief(["a brief is a mapping of fields"])
    return parse_brief(reduce_candidates(document))


def reduce_candidates(document: dict[str, Any]) -> dict[str, Any]:
    candidates = document.get("candidates")
    if not isinstance(candidates, list):
        return document
    return document | {"candidates": [reduce_candidate(one, document.get("baseline")) for one in candidates]}


def reduce_candidate(candidate: Any, baseline: Any) -> Any:
    if not isinstance(candidate, dict) or "configuration" not in candidate:
        return candidate
    try:
        base = Configuration.model_validate(baseline)
        whole = Configuration.model_validate(candidate["configuration"])
    except ValidationError as error:
        raise BadBrief(explain(error)) from None
    foreign = foreign_difference(base, whole)
    if foreign:
        raise BadBrief([refusal(str(candidate.get("name", "?")), foreign)])
    rest = {key: value for key, value in candidate.items() if key != "configuration"}
    return rest | {"speculative": whole.speculative.model_dump(mode="json") if whole.speculative else None}


def refusal(name: str, foreign: dict[str, tuple[Any, Any]]) -> str:
    changes = ", ".join(f"{key}: {left!r} → {right!r}" for key, (left, right) in foreign.items())
    return f"candidate {name} differs from the baseline in more than the speculative setting: {changes}"
