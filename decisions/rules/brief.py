"""The acceptance brief as a document: what will be decided, by which rule, frozen before any tuning."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from decisions.rules.as_written import FOREIGN_DIFFERENCE, finding_of
from decisions.rules.findings import Finding
from decisions.rules.preflight import findings_of, refused
from decisions.rules.search import (
    LONGEST_NAME,
    MOST_FAMILIES,
    NAME,
    Family,
    OutsideSearch,
    beyond,
    first_entrants,
    in_search,
)
from loadtests.canonical import canonical, digest
from loadtests.configurations import Configuration, DraftMethod, Speculative, foreign_difference
from loadtests.statistics.looks import Look, planned_looks
from loadtests.strict_yaml import SLIPS, BadYaml
from loadtests.strict_yaml import read_yaml as read_strict_yaml
from loadtests.traffic.levels import ClassName, Deadline, Frozen, Level, deadline_of
from loadtests.traffic.rows import EVERY_CLASS
from loadtests.tuning.schedule import schedule_of

Metric = Literal["attainment", "slo_goodput", "completion_quantile", "output_tokens_per_s", "capacity"]
GuardrailMetric = Literal[
    "failed_share",
    "late_share",
    "cancelled_share",
    "first_token_quantile",
    "completion_quantile",
    "kv_cache_tokens",
    "preemptions",
    "behaviour",
]
# Of the whole engine, not of a class of its requests, and told beside the baseline's alone.
OF_THE_ENGINE = ("kv_cache_tokens", "preemptions")

LONGEST_SOURCE = 200_000  # bytes
MOST_PROBLEMS = 50
LONGEST_PROBLEM = 500  # characters
MOST_CANDIDATES = 50
MOST_REQUESTS = 10_000_000  # in one arm's held-out trials, to plan which takes seconds
LEAST_CONFIDENCE = 0.8
LOWEST_QUANTILE, HIGHEST_QUANTILE = 0.01, 0.9999
LARGEST_WHOLE = 2**53 - 1  # RFC 8785 takes no larger whole number
RESERVED_NAMES = frozenset({"baseline", "control", "candidate", "none"})


def not_reserved(name: str) -> str:
    if name in RESERVED_NAMES:
        raise ValueError(f"the name {name} means something else in every run: choose another")
    return name


CandidateName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=LONGEST_NAME), AfterValidator(not_reserved)
]


class Cell(Frozen):
    """Where something must be shown: a load level and a request class (or all of them)."""

    level: str
    class_: ClassName = Field("all", alias="class")

    @property
    def label(self) -> str:
        return self.level if self.class_ == "all" else f"{self.level}, {self.class_}"


class Outcome(Frozen):
    """What the release is for.

    ``attainment`` is judged as candidate − baseline in shares of 1 (0.02 = 2 points); ``slo_goodput``,
    ``completion_quantile`` and ``output_tokens_per_s`` as the ratio candidate ÷ baseline, and
    ``minimum_improvement`` and ``non_inferiority_margin`` as shares of the baseline (0.05 = 5 % better / worse).
    ``capacity`` is the ratio of the rates that the brief's ladder shows, as a whole: ``improve_in`` names the peak. Its
    ``non_inferiority_margin`` is one of attainment, in shares of 1, at every level.
    """

    metric: Metric
    quantile: float | None = Field(None, gt=0, lt=1)
    improve_in: tuple[Cell, ...] = Field(min_length=1, max_length=50)
    minimum_improvement: float = Field(gt=0, lt=1)
    non_inferiority_margin: float = Field(gt=0, lt=1)

    @model_validator(mode="after")
    def quantile_where_needed(self) -> "Outcome":
        if (self.metric == "completion_quantile") != (self.quantile is not None):
            raise ValueError("quantile belongs to completion_quantile, and completion_quantile needs it")
        return self


class Guardrail(Frozen):
    """Something that must not get worse than its limit.

    ``absolute``: the candidate's own share (failed_share, late_share, cancelled_share) stays at or below ``limit``; a
    quantile of seconds (first_token_quantile, completion_quantile) stays at or below ``limit`` seconds at ``quantile``.
    ``relative``: the ratio candidate ÷ baseline stays at or below 1 + ``limit`` (for kv_cache_tokens, at or above
    1 − ``limit``); for shares, and for preemptions per request, the difference candidate − baseline stays at or below
    ``limit``. ``behaviour`` is absolute and has the limit 0: no case of the preserved-behaviour suite may be broken.
    """

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=60)
    metric: GuardrailMetric
    kind: Literal["absolute", "relative"]
    cell: Cell
    limit: float = Field(ge=0, le=86_400)
    quantile: float | None = Field(None, gt=0, lt=1)

    @model_validator(mode="after")
    def fits_the_metric(self) -> "Guardrail":
        needs_quantile = self.metric.endswith("_quantile")
        if needs_quantile != (self.quantile is not None):
            raise ValueError(f"guardrail {self.id}: quantile belongs to the *_quantile metrics, and they need it")
        if self.metric in OF_THE_ENGINE and self.kind == "absolute":
            raise ValueError(f"guardrail {self.id}: {self.metric} is relative to the baseline")
        if self.metric in OF_THE_ENGINE and self.cell.class_ != "all":
            raise ValueError(f"guardrail {self.id}: {self.metric} is the whole engine's: leave its class out")
        if self.metric == "behaviour" and (self.kind, self.limit) != ("absolute", 0):
            raise ValueError(f"guardrail {self.id}: behaviour is absolute, with the limit 0: no case may be broken")
        return self

    @model_validator(mode="after")
    def limit_is_a_share(self) -> "Guardrail":
        """Only an absolute limit on a quantile is in seconds: every other one is a share of 1."""
        if self.metric == "behaviour" or (self.kind == "absolute" and self.quantile is not None):
            return self
        if self.limit >= 1:
            raise ValueError(f"guardrail {self.id}: limit {self.limit:g} is no share below 1: 0.05 is 5 %")
        if self.kind == "absolute" and self.limit == 0:
            raise ValueError(
                f"guardrail {self.id}: limit must be above 0: that none will ever be counted can't be shown"
            )
        return self


class Ladder(Frozen):
    """Levels at rising rates, to find the rate that an arm carries with attainment ≥ ``target``."""

    levels: tuple[str, ...] = Field(min_length=2, max_length=12)
    target: float = Field(gt=0, lt=1)
    class_: ClassName = Field("all", alias="class")


class Interim(Frozen):
    """A look on the way: after so many pairs, at this much of the rule's alpha (1 − confidence)."""

    pairs: int = Field(ge=4, le=200)
    alpha: float = Field(gt=0, lt=0.5)


class Rule(Frozen):
    """The decision rule: how much evidence, at which confidence, drawn from which seed. ``looks`` counts those on the
    way, in ``interim``, and the last one, after all ``pairs``, which has what is left of alpha."""

    later = ("interim",)
    confidence: float = Field(0.95, gt=0.5, le=0.9999)
    pairs: int = Field(4, ge=4, le=200)
    noise_floor_pairs: int = Field(4, ge=4, le=200)
    looks: int = Field(1, ge=1, le=3)
    interim: tuple[Interim, ...] = ()
    seed: int = Field(ge=0, le=LARGEST_WHOLE)
    max_client_lag_ms: float = Field(
        50, gt=0, le=60_000, description="limit on the 99th percentile of the client's own lag"
    )
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

    @model_validator(mode="after")
    def looks_are_planned(self) -> "Rule":
        if self.looks != len(self.interim) + 1:
            raise ValueError(f"looks is {self.looks}, but interim plans {len(self.interim)} before the last one")
        # Says itself what can't be planned so.
        self.planned_looks  # noqa: B018
        return self

    @property
    def alpha(self) -> float:
        return 1 - self.confidence

    @property
    def planned_looks(self) -> tuple[Look, ...]:
        return planned_looks(self.pairs, self.alpha, [(one.pairs, one.alpha) for one in self.interim])


class Candidate(Frozen):
    name: CandidateName
    speculative: Speculative


class Tuning(Frozen):
    """How far the race of tuning may go, within the budget of the whole brief, and how sure it must be to let a
    candidate fall. ``same``: a difference on the outcome's scale (share of 1, or log ratio) that is worth no boot.
    ``first`` candidates of each family begin; later rounds have at most ``abreast``. The leader has ``confirmed`` boots
    before the race ends, if the budget allows."""

    engine_minutes: float | None = Field(None, gt=0, le=1_000_000)
    boots: int = Field(100, ge=2, le=1_000)
    wall_minutes: float | None = Field(None, gt=0, le=1_000_000)
    confidence: float = Field(0.95, gt=0.5, le=0.9999)
    same: float = Field(0.01, gt=0, lt=1)
    first: int = Field(3, ge=1, le=20)
    abreast: int = Field(3, ge=1, le=20)
    confirmed: int = Field(2, ge=1, le=20)


class Suite(Frozen):
    """How the preserved-behaviour suite asks and judges, where a guardrail rests on it. Sampled output is compared
    under ``temperature``, ``top_p`` and ``top_k`` (0 is no limit): those of the service. ``tie_nats``: two tokens of
    the baseline that are no further apart in log probability are a numerical tie. ``false_alarm`` is the chance that
    the suite calls something broken where nothing is. ``uses`` names request fields that the service's traffic uses:
    that a candidate refuses one of them is then a break. ``cases`` is the digest of the service's own cases. ``only``
    names the cases of the registry that are asked, where not all of them are."""

    later = ("only",)
    thorough: bool = False
    concurrency: int = Field(8, ge=2, le=1_024)
    temperature: float = Field(1.0, gt=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, le=1_000_000)
    tie_nats: float = Field(0.13, ge=0, le=2)
    false_alarm: float = Field(0.01, ge=1e-6, le=0.2)
    uses: tuple[str, ...] = Field((), max_length=50)
    cases: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    only: tuple[str, ...] = Field((), max_length=200)


class Traffic(Frozen):
    """The population: digests of the parts that stand for it."""

    name: str
    set: str = Field(pattern=r"^[0-9a-f]{64}$")
    tuning: str = Field(pattern=r"^[0-9a-f]{64}$")
    held_out: str = Field(pattern=r"^[0-9a-f]{64}$")


class Brief(Frozen):
    """``candidates`` are written out one by one; ``search`` holds families of them. With ``search`` or ``tuning`` the
    candidates race; without both every one of them is measured once."""

    later = ("capacity", "search", "tuning", "behaviour")
    schema_: Literal["draftproof.brief/1"] = Field("draftproof.brief/1", alias="schema")
    title: str = Field(min_length=3, max_length=120)
    service: str
    route: str
    question: str = Field(min_length=10, description="what the owner will have answered, in one sentence")
    population: str = Field(min_length=10, description="which requests the answer is about")
    decision_owner: str
    baseline: Configuration
    candidates: tuple[Candidate, ...] = Field((), max_length=MOST_CANDIDATES)
    search: tuple[Family, ...] = Field((), max_length=MOST_FAMILIES)
    tuning: Tuning | None = None
    traffic: Traffic
    levels: tuple[Level, ...] = Field(min_length=1, max_length=12)
    peak: str = Field(description="the level at which the fallback must be shown")
    deadlines: dict[ClassName, Deadline] = Field(
        min_length=1, max_length=200, description="per class; 'default' for the others"
    )
    outcome: Outcome
    capacity: Ladder | None = None
    guardrails: tuple[Guardrail, ...] = Field(max_length=50)
    behaviour: Suite | None = None
    rule: Rule
    budget_engine_minutes: float = Field(gt=0, le=1_000_000)
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
        pairs = max(self.rule.pairs, self.rule.noise_floor_pairs)
        planned = pairs * sum(level.expected_requests or 0 for level in self.levels)
        if planned > MOST_REQUESTS:
            raise ValueError(f"the levels and pairs plan {planned:,.0f} requests, more than {MOST_REQUESTS:,}")
        if self.baseline.speculative is not None:
            raise ValueError("the baseline must have no speculative setting")
        if len({one.name for one in self.candidates}) != len(self.candidates):
            raise ValueError("two candidates have the same name")
        if len({rail.id for rail in self.guardrails}) != len(self.guardrails):
            raise ValueError("two guardrails have the same id")
        if self.behaviour is not None and self.suite is None:
            raise ValueError("behaviour asks for the suite, but no guardrail has the metric behaviour: add one")
        return self

    @model_validator(mode="after")
    def can_be_searched(self) -> "Brief":
        families = [one.name for one in self.search]
        if len(set(families)) != len(families):
            raise ValueError("two families of the search have the same name")
        for one in self.candidates:
            found = NAME.fullmatch(one.name)
            if found and found["family"] in families:
                raise ValueError(f"candidate {one.name}: such names are formed by the family {found['family']}")
        for family in self.search:
            for schedule in family.fixed:
                problem = beyond(schedule, self.baseline.arguments.max_num_seqs)
                if problem:
                    raise ValueError(f"search {family.name}, schedule {schedule}: {problem}")
        if not 1 <= len(self.all_candidates) <= MOST_CANDIDATES:
            raise ValueError(
                f"candidates and search name {len(self.all_candidates)} candidates: it takes 1 to {MOST_CANDIDATES}"
            )
        return self

    @model_validator(mode="after")
    def tuning_within_its_budget(self) -> "Brief":
        asked = self.tuning.engine_minutes if self.tuning else None
        if asked is not None and asked > self.budget_engine_minutes:
            raise ValueError(
                f"tuning.engine_minutes {asked:g} is more than budget_engine_minutes {self.budget_engine_minutes:g}"
            )
        return self

    @model_validator(mode="after")
    def ladder_can_be_climbed(self) -> "Brief":
        if self.outcome.metric == "capacity":
            self.outcome_is_the_ladders()
        if self.capacity is None:
            return self
        rates: dict[str, float] = {}
        for name in self.capacity.levels:
            level = next((one for one in self.levels if one.name == name), None)
            if level is None:
                raise ValueError(f"capacity: level {name!r} is not among the levels")
            if level.arrival.mean_rate is None:
                raise ValueError(f"capacity: level {name!r} replays recorded times and has no rate of its own")
            if level.arrival.mean_rate in rates.values():
                raise ValueError(f"capacity: level {name!r} has the rate of another one, or is named twice")
            rates[name] = level.arrival.mean_rate
        return self

    def outcome_is_the_ladders(self) -> None:
        if self.capacity is None:
            raise ValueError("the outcome is capacity, which needs a ladder: name its levels and target in capacity")
        cells = [(cell.level, cell.class_) for cell in self.outcome.improve_in]
        if cells != [(self.peak, self.capacity.class_)]:
            said = f"level {self.peak}, class {self.capacity.class_}"
            raise ValueError(f"capacity improves on the ladder as a whole: improve_in names the peak alone ({said})")

    @property
    def content(self) -> bytes:
        return canonical(self.model_dump(mode="json", by_alias=True))

    @property
    def digest(self) -> str:
        return digest(self.content)

    def level(self, name: str) -> Level:
        return next(level for level in self.levels if level.name == name)

    def deadline(self, class_: str, level: str) -> Deadline | None:
        """Of a class at a level: the level's own deadlines replace the brief's of the same name."""
        return deadline_of(class_, self.level(level).deadlines_over(self.deadlines))

    @property
    def races(self) -> bool:
        return bool(self.search) or self.tuning is not None

    @property
    def race(self) -> Tuning:
        """How far the race goes, where there is one."""
        return self.tuning or Tuning()

    @property
    def suite(self) -> Suite | None:
        """How the preserved-behaviour suite runs; None where no guardrail rests on it."""
        asked = any(rail.metric == "behaviour" for rail in self.guardrails)
        return (self.behaviour or Suite()) if asked else None

    @cached_property
    def all_candidates(self) -> tuple[Candidate, ...]:
        """Those written out, then each family's draft lengths and listed schedules; none that tuning proposes."""
        named = (name for family in self.search for name, _ in first_entrants(family))
        return (*self.candidates, *(self.candidate(name) for name in named))

    def candidate(self, name: str) -> Candidate:
        """Also of a schedule that tuning proposed. Raises OutsideSearch for a name outside the frozen search space."""
        written = next((one for one in self.candidates if one.name == name), None)
        if written is not None:
            return written
        most = self.baseline.arguments.max_num_seqs
        family, schedule = in_search(self.search, name, most)
        return Candidate(name=name, speculative=family.speculative_of(schedule, most))

    def has_candidate(self, name: str) -> bool:
        try:
            self.candidate(name)
        except OutsideSearch:
            return False
        return True

    def configuration(self, name: str) -> Configuration:
        """The configuration of 'baseline' or of a candidate by its name. Raises OutsideSearch as ``candidate`` does."""
        return self.baseline if name == "baseline" else self.baseline.with_speculative(self.candidate(name).speculative)


class BadBrief(ValueError):
    """A brief that can't be used; ``problems`` has one sentence per field. ``findings``: those of the preflight among
    them."""

    def __init__(self, problems: list[str], findings: Sequence[Finding] = ()) -> None:
        more = len(problems) - MOST_PROBLEMS
        shown = [printable(problem) for problem in problems[:MOST_PROBLEMS]]
        self.problems = [*shown, f"and {more:,} problems more"] if more > 0 else shown
        self.findings = tuple(findings)
        super().__init__("; ".join(self.problems))

    @property
    def rules(self) -> dict[str, str]:
        """{problem: id of the rule of the preflight that it breaks}"""
        return {printable(one.problem): one.rule for one in self.findings}


def refused_brief(findings: Sequence[Finding]) -> BadBrief:
    return BadBrief([one.problem for one in findings], findings)


def printable(problem: str) -> str:
    """A problem may quote the brief's own words, which may be no text that a page or a database takes."""
    text = problem.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return text if len(text) <= LONGEST_PROBLEM else f"{text[:LONGEST_PROBLEM]}…"


def unreadable_brief(error: ValidationError) -> BadBrief:
    """A sentence for every field in error; those of the speculative settings are what the preflight says of them."""
    slips = error.errors(include_url=False, include_context=False)
    found = [finding_of(one) if place < MOST_PROBLEMS else None for place, one in enumerate(slips)]
    problems = [one.problem if one else explain(slip) for one, slip in zip(found, slips, strict=True)]
    return BadBrief(problems, [one for one in found if one])


# What a brief is written in has lists and mappings, no tuples and no classes.
SHAPES = {
    "tuple_type": "write a list",
    "dict_type": "write a mapping of fields",
    "model_type": "write a mapping of fields",
}


def explain(slip: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in slip["loc"]) or "brief"
    return f"{where}: {SHAPES.get(slip['type']) or slip['msg'].removeprefix('Value error, ')}"


def parse_brief(document: Any) -> Brief:
    try:
        brief = Brief.model_validate(document)
        texts = list(texts_of(brief.model_dump(mode="json", by_alias=True)))
        # What has no canonical form can't be frozen: better said here than at the freeze.
        brief.content  # noqa: B018 - computed for what it raises
    except ValidationError as error:
        raise unreadable_brief(error) from None
    except SLIPS as error:
        raise BadBrief([f"brief: it has no canonical form: {error}"]) from None
    problems = [f"{path}: the character NUL can't be kept" for path, text in texts if "\0" in text]
    if problems:
        raise BadBrief(problems)
    return brief


def texts_of(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a document, keys too, with the dotted name of where it stands."""
    if isinstance(document, str):
        yield path, document
    named = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in named:
        inner = f"{path}.{name}".lstrip(".")
        yield inner, str(name)
        yield from texts_of(value, inner)


def read_brief(text: str) -> Brief:
    """A brief from YAML or JSON text (JSON is YAML). A candidate may also be written as a whole ``configuration``:
    it is then held against the baseline, and any difference besides the speculative setting is refused. So is a
    ``speculative`` beside it that differs from the configuration's."""
    if len(text.encode("utf-8", "surrogatepass")) > LONGEST_SOURCE:
        raise BadBrief([f"the brief is longer than {LONGEST_SOURCE // 1000} kB"])
    document = read_yaml(text)
    if not isinstance(document, dict):
        raise BadBrief(["a brief is a mapping of fields"])
    brief = parse_brief(reduce_candidates(document))
    # Of words that people still write alone: what was frozen earlier stays readable.
    if beyond_bounds := list(out_of_bounds(brief)):
        raise BadBrief(beyond_bounds)
    findings = [*candidate_refusals(brief), *family_refusals(brief)]
    if findings:
        raise refused_brief(findings)
    if problems := [*never_drafting(brief), *settings_twice(brief)]:
        raise BadBrief(problems)
    return brief


def out_of_bounds(brief: Brief) -> Iterator[str]:
    """Numbers that would make a verdict of next to nothing, and names that mean something else."""
    for where, confidence in (("rule", brief.rule.confidence), ("tuning", brief.race.confidence)):
        if confidence < LEAST_CONFIDENCE:
            said = f"{confidence:g} is below {LEAST_CONFIDENCE:g}: more than one in five would be decided by chance"
            yield f"{where}.confidence: {said}"
    quantiles = [("outcome", brief.outcome.quantile)]
    quantiles += [(f"guardrails.{place}", rail.quantile) for place, rail in enumerate(brief.guardrails)]
    for where, quantile in quantiles:
        if quantile is not None and not LOWEST_QUANTILE <= quantile <= HIGHEST_QUANTILE:
            yield f"{where}.quantile: {quantile:g} is outside of {LOWEST_QUANTILE:g} to {HIGHEST_QUANTILE:g}"
    # Two boots, one of them the baseline's, of a window each: a race that can't pay for that never begins.
    least = 2 * sum(float(level.duration_s) for level in brief.levels) / 60
    for name in ("engine_minutes", "wall_minutes"):
        minutes = getattr(brief.tuning, name, None)
        if minutes is not None and minutes < least:
            said = f"{minutes:g} is too little for the first round: two boots at every level take {least:.3g} or more"
            yield f"tuning.{name}: {said}"
    deadlines = [("", brief.deadlines)]
    deadlines += [(f"levels.{place}.", level.deadlines) for place, level in enumerate(brief.levels)]
    for where, named in deadlines:
        if EVERY_CLASS in named:
            said = "stands for all classes together: 'default' is the deadline of those without their own"
            yield f"{where}deadlines.{EVERY_CLASS}: {EVERY_CLASS!r} {said}"


def never_drafting(brief: Brief) -> list[str]:
    """Those that a family forms are refused where they are formed."""
    most = brief.baseline.arguments.max_num_seqs
    return [
        f"candidate {one.name} never drafts: K is 0 at every batch up to {most} (max_num_seqs). Leave it out: no "
        "speculation is in every race"
        for one in brief.candidates
        if not any(step.k for step in schedule_of(one.speculative).steps if step.lo <= most)
    ]


def settings_twice(brief: Brief) -> list[str]:
    """One setting under two names would be measured twice, and its boots counted for two candidates."""
    names: dict[bytes, list[str]] = {}
    for one in brief.all_candidates:
        setting = DraftMethod.model_validate(one.speculative.model_dump(include=set(DraftMethod.model_fields)))
        drafts = {"by": setting.model_dump(mode="json"), "schedule": schedule_of(one.speculative).text}
        names.setdefault(canonical(drafts), []).append(one.name)
    return [f"{' and '.join(found)} have the same setting: leave one out" for found in names.values() if len(found) > 1]


def candidate_refusals(brief: Brief) -> list[Finding]:
    return [
        finding
        for place, one in enumerate(brief.candidates)
        for finding in refused(findings_of(brief.configuration(one.name), where=f"candidates.{place}.speculative"))
    ]


def family_refusals(brief: Brief) -> list[Finding]:
    """What several candidates of a family are refused for is said once."""
    found = [
        finding
        for place, family in enumerate(brief.search)
        for name, _ in first_entrants(family)
        for finding in refused(findings_of(brief.configuration(name), where=f"search.{place}.speculative"))
    ]
    return list(dict.fromkeys(found))


def read_yaml(text: str) -> Any:
    try:
        return read_strict_yaml(text)
    except BadYaml as error:
        raise BadBrief([str(error)]) from None


def reduce_candidates(document: dict[str, Any]) -> dict[str, Any]:
    candidates = document.get("candidates")
    if not isinstance(candidates, list) or len(candidates) > MOST_CANDIDATES:
        return document
    return document | {"candidates": [reduce_candidate(one, document.get("baseline")) for one in candidates]}


def reduce_candidate(candidate: Any, baseline: Any) -> Any:
    if not isinstance(candidate, dict) or "configuration" not in candidate:
        return candidate
    try:
        base = Configuration.model_validate(baseline)
        whole = Configuration.model_validate(candidate["configuration"])
        setting = candidate.get("speculative") and Speculative.model_validate(candidate["speculative"])
    except ValidationError as error:
        raise unreadable_brief(error) from None
    foreign = foreign_difference(base, whole)
    name = candidate["name"] if isinstance(candidate.get("name"), str) else "?"
    if differs := list(FOREIGN_DIFFERENCE.findings((name, foreign))):
        raise refused_brief(differs)
    if "speculative" in candidate and setting != whole.speculative:
        raise BadBrief([f"candidate {name}: speculative differs from the setting in its configuration: write only one"])
    rest = {key: value for key, value in candidate.items() if key != "configuration"}
    return rest | {"speculative": whole.speculative.model_dump(mode="json") if whole.speculative else None}
