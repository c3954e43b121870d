"""The search space of tuning: families of candidates that differ in draft length or schedule alone.

A family's candidates are named so that the setting follows from the name alone, and the name from the setting:
``ngram-k4`` is the family ngram at K = 4, ``ngram-s1x8-5x2-17x0`` the same under a schedule, K = 8 from 1 running
sequence, 2 from 5 and 0 from 17 on. So a schedule that tuning proposes later is a candidate of the frozen brief as soon
as it lies inside the family's space.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from loadtests.configurations import LONGEST_DRAFT, DraftMethod, Speculative
from loadtests.traffic.levels import Frozen
from loadtests.tuning.schedule import BadSchedule, Schedule, with_schedule

LONGEST_NAME = 60
MOST_FAMILIES = 12
MOST_FIXED = 20
# The last K or schedule of a name; what stands before it is the family.
NAME = re.compile(r"(?P<family>.+?)-(?:k(?P<k>[1-9]\d{0,2})|s(?P<schedule>\d+x\d+(?:-\d+x\d+)+))")


def without_range(value: Any) -> Any:
    """``{from: 1, to: 8}`` stands for every draft length from 1 to 8."""
    if not isinstance(value, dict):
        return value
    if set(value) != {"from", "to"} or not all(type(one) is int for one in value.values()):
        raise ValueError("write a list of draft lengths, or {from: 1, to: 8}")
    low, high = value["from"], value["to"]
    if not 1 <= low <= high <= LONGEST_DRAFT:
        raise ValueError(f"from {low} to {high} is no range of 1 to {LONGEST_DRAFT}")
    return list(range(low, high + 1))


def in_order(lengths: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(lengths)) != len(lengths):
        raise ValueError("a draft length stands there twice")
    return tuple(sorted(lengths))


def without_shorthand(value: Any) -> Any:
    """A schedule may be written short (``1x8-5x2-17x0``), and the last step's open end left out."""
    if isinstance(value, str):
        return Schedule.parse(value).document
    if isinstance(value, list):
        return [{"hi": None} | one if isinstance(one, dict) else one for one in value]
    return value


class ScheduleStep(Frozen):
    """K drafts while ``lo`` to ``hi`` sequences run, both included; ``hi`` null is everything above."""

    lo: int
    hi: int | None
    k: int


def sound(steps: tuple[ScheduleStep, ...]) -> tuple[ScheduleStep, ...]:
    schedule_of_steps(steps)
    return steps


def schedule_of_steps(steps: tuple[ScheduleStep, ...]) -> Schedule:
    return Schedule.of_document([step.model_dump() for step in steps])


DraftLength = Annotated[int, Field(ge=1, le=LONGEST_DRAFT)]
Steps = Annotated[
    tuple[ScheduleStep, ...], BeforeValidator(without_shorthand), Field(max_length=20), AfterValidator(sound)
]


class Schedules(Frozen):
    """``fixed`` run as written; with ``propose`` tuning may add others, from the family's draft lengths and 0."""

    fixed: tuple[Steps, ...] = Field((), max_length=MOST_FIXED)
    propose: bool = False


class Family(Frozen):
    """A way of drafting, with the draft lengths and schedules that tuning may try. ``trained_block`` is the longest
    draft that its drafter was trained for, where that is known: no K may be above it."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=30)
    speculative: DraftMethod
    draft_lengths: Annotated[
        tuple[DraftLength, ...],
        BeforeValidator(without_range),
        Field(min_length=1, max_length=LONGEST_DRAFT),
        AfterValidator(in_order),
    ]
    schedules: Schedules = Schedules()
    trained_block: int | None = Field(None, ge=1, le=1_024)

    @model_validator(mode="after")
    def fits_its_drafter(self) -> "Family":
        for k in self.draft_lengths:
            if self.is_above_block(k):
                raise above_block(k, self.trained_block)
        for schedule in self.fixed:
            if self.is_above_block(schedule.most):
                raise above_block(schedule.most, self.trained_block, f"schedule {schedule}: ")
            problem = self.why_not_run(schedule)
            if problem:
                raise ValueError(f"schedule {schedule}: {problem}")
            if self.fixed.count(schedule) > 1:
                raise ValueError(f"schedule {schedule} stands there twice: leave one out")
        return self

    def is_above_block(self, k: int) -> bool:
        return self.trained_block is not None and k > self.trained_block

    @property
    def fixed(self) -> list[Schedule]:
        return [schedule_of_steps(steps) for steps in self.schedules.fixed]

    def why_not_run(self, schedule: Schedule) -> str | None:
        """What no schedule of the family may be, whoever wrote it."""
        if len(schedule.steps) == 1:
            return "it has one step: write its K among the draft lengths"
        if self.is_above_block(schedule.most):
            return f"K = {schedule.most} is above the drafter's trained block of {self.trained_block}"
        if len(self.named_schedule(schedule)) > LONGEST_NAME:
            return f"its name would be longer than {LONGEST_NAME} characters: write fewer steps"
        return None

    def why_not(self, schedule: Schedule) -> str | None:
        """Why the schedule lies outside the family's search space; None where it lies inside."""
        problem = self.why_not_run(schedule)
        if problem or schedule in self.fixed:
            return problem
        if not self.schedules.propose:
            return "the brief lists its schedules and lets tuning propose no other"
        foreign = sorted(set(schedule.draft_lengths) - {0, *self.draft_lengths})
        return f"K = {foreign[0]} is not among the family's draft lengths" if foreign else None

    def named_k(self, k: int) -> str:
        return f"{self.name}-k{k}"

    def named_schedule(self, schedule: Schedule) -> str:
        return f"{self.name}-s{schedule}"

    def speculative_of(self, schedule: Schedule, max_num_seqs: int) -> Speculative:
        """Raises BadSchedule for one that never drafts."""
        fixed = Speculative.model_validate(self.speculative.model_dump() | {"num_speculative_tokens": schedule.most})
        return with_schedule(fixed, schedule, max_num_seqs=max_num_seqs) if len(schedule.steps) > 1 else fixed


def above_block(k: int, block: int | None, where: str = "") -> PydanticCustomError:
    """Named as the rule of the preflight is."""
    return PydanticCustomError(
        "above-trained-block",
        "{where}K = {k} is above the drafter's trained block of {block}",
        {"where": where, "k": k, "block": block},
    )


def first_entrants(family: Family) -> Iterator[tuple[str, Schedule]]:
    """(name, schedule) of every draft length and every schedule that the brief lists; a fixed K has one step."""
    for k in family.draft_lengths:
        yield family.named_k(k), Schedule.fixed(k)
    for schedule in family.fixed:
        yield family.named_schedule(schedule), schedule


class OutsideSearch(ValueError):
    """A name that no candidate of the brief has; the text says why."""


def in_search(families: tuple[Family, ...], name: str, max_num_seqs: int) -> tuple[Family, Schedule]:
    """The family and schedule that a name stands for. Raises OutsideSearch where it lies outside the search space."""
    family, schedule = parsed(families, name)
    if len(schedule.steps) == 1:
        if schedule.most not in family.draft_lengths:
            raise OutsideSearch(f"{name}: K = {schedule.most} is not among the draft lengths of {family.name}")
        return family, schedule
    problem = family.why_not(schedule) or beyond(schedule, max_num_seqs)
    if problem:
        raise OutsideSearch(f"{name}: {problem}")
    return family, schedule


def beyond(schedule: Schedule, max_num_seqs: int) -> str | None:
    """Steps where nothing ever runs would give one setting two names."""
    last = schedule.steps[-1].lo
    return f"its step from {last} on never runs: max_num_seqs is {max_num_seqs}" if last > max_num_seqs else None


def parsed(families: tuple[Family, ...], name: str) -> tuple[Family, Schedule]:
    found = NAME.fullmatch(name)
    family = next((one for one in families if found and one.name == found["family"]), None)
    if found is None or family is None:
        known = ", ".join(one.name for one in families) or "none"
        raise OutsideSearch(f"{name!r} is no candidate of this brief, nor of one of its families ({known})")
    if found["k"]:
        k = int(found["k"])
        if k > LONGEST_DRAFT:
            raise OutsideSearch(f"{name}: K = {k} is above {LONGEST_DRAFT}")
        return family, Schedule.fixed(k)
    try:
        return family, Schedule.parse(found["schedule"])
    except BadSchedule as error:
        raise OutsideSearch(f"{name}: {error}") from None
