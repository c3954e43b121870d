"""Load levels: an arrival process over a part of the traffic, with a warm-up, a window and a drain."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

Process = Literal["replay", "constant", "poisson", "gamma", "on-off", "ramp"]
ClassName = Annotated[str, Field(min_length=1, max_length=60)]

NEEDS: dict[Process, tuple[str, ...]] = {
    "replay": (),
    "constant": ("rate",),
    "poisson": ("rate",),
    "gamma": ("rate", "cv"),
    "on-off": ("rate", "on_s", "off_s"),
    "ramp": ("rate", "rate_to"),
}
OWNERS: dict[str, Process] = {
    "cv": "gamma",
    "on_s": "on-off",
    "off_s": "on-off",
    "rate_off": "on-off",
    "rate_to": "ramp",
}
MEANING = {
    "rate": "a rate in requests per second",
    "cv": "cv, the coefficient of variation of its gaps",
    "on_s": "on_s, the seconds that a burst lasts",
    "off_s": "off_s, the seconds between two bursts",
    "rate_to": "rate_to, the requests per second that it ends with",
}


def holds_truth(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(holds_truth, value)))


def takes_numbers(kind: Any) -> bool:
    return kind in (int, float) or any(map(takes_numbers, get_args(kind)))


class Frozen(BaseModel):
    """Fields named in ``later`` were added when briefs were frozen already: at their default they stay out of the
    canonical form, so that those briefs and plans keep their digests."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    later: ClassVar[tuple[str, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts true as 1, and nobody means that."""
        if holds_truth(value) and takes_numbers(cls.model_fields[info.field_name or ""].annotation):
            raise PydanticCustomError("number_type", "Input should be a valid number")
        return value

    @model_serializer(mode="wrap")
    def without_unused_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        unused = [name for name in self.later if getattr(self, name) == fields[name].default]
        return {name: value for name, value in document.items() if name not in unused}


class Arrival(Frozen):
    """When requests leave. ``rate`` is requests per second; ``cv`` the coefficient of variation of the gaps of a
    gamma process (1 is Poisson, above 1 is bursty); ``time_scale`` squeezes (< 1) or stretches recorded times; an
    on-off process sends at ``rate`` for ``on_s`` seconds and at ``rate_off`` for ``off_s``, in turn; a ramp goes
    from ``rate`` to ``rate_to`` over the window."""

    later = ("on_s", "off_s", "rate_off", "rate_to")
    process: Process
    rate: float | None = Field(None, ge=1e-6, le=100_000)
    cv: float | None = Field(None, ge=0.01, le=100)
    time_scale: float | None = Field(None, ge=1e-6, le=1e6)
    on_s: float | None = Field(None, ge=0.001, le=86_400)
    off_s: float | None = Field(None, ge=0.001, le=86_400)
    rate_off: float = Field(0.0, ge=0, le=100_000)
    rate_to: float | None = Field(None, ge=0, le=100_000)

    @model_validator(mode="after")
    def fits_the_process(self) -> "Arrival":
        if self.process == "replay" and self.rate is not None:
            raise ValueError("a replay keeps the recorded times: use time_scale, not rate")
        for field in NEEDS[self.process]:
            if getattr(self, field) is None:
                raise ValueError(f"{article(self.process)} process needs {MEANING[field]}")
        for field, owner in OWNERS.items():
            given = getattr(self, field) != type(self).model_fields[field].default
            if given and self.process != owner:
                raise ValueError(f"{field} belongs to {article(owner)} process, not to {self.process}: leave it out")
        return self

    @model_validator(mode="after")
    def is_quieter_between_bursts(self) -> "Arrival":
        if self.rate_off and self.rate_off >= (self.rate or 0):
            raise ValueError(f"rate_off {self.rate_off:g} must be below rate {self.rate:g}: rate is that of the bursts")
        return self

    @property
    def mean_rate(self) -> float | None:
        """Requests per second over a whole cycle or ramp; None for a replay, which has its own."""
        if self.rate is None:
            return None
        if self.on_s is not None and self.off_s is not None:
            return (self.rate * self.on_s + self.rate_off * self.off_s) / (self.on_s + self.off_s)
        return self.rate if self.rate_to is None else (self.rate + self.rate_to) / 2


def article(process: str) -> str:
    return f"an {process}" if process[0] in "aeiou" else f"a {process}"


class Deadline(Frozen):
    """Both counted from the planned arrival, in seconds."""

    first_token_s: float = Field(gt=0, le=86_400)
    completion_s: float = Field(gt=0, le=86_400)


class Patience(Frozen):
    """When waiting users give up: ``share`` of them, ``after_s`` seconds after their planned arrival, or exponentially
    distributed with that mean. Which ones is drawn by the segment's seed, the same in both arms."""

    share: float = Field(gt=0, le=1)
    after_s: float = Field(gt=0, le=86_400)
    spread: Literal["constant", "exponential"] = "constant"


class Level(Frozen):
    later = ("warm_up_s", "max_concurrency", "deadlines", "patience")
    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=30)
    arrival: Arrival
    duration_s: float = Field(gt=0, le=86_400)
    drain_s: float = Field(30, ge=0, le=3_600, description="how long open requests may still finish after the window")
    warm_up_s: float = Field(0.0, ge=0, le=3_600, description="sent before the window and left out of every number")
    max_concurrency: int | None = Field(None, ge=1, le=100_000, description="most requests open at once; more wait")
    deadlines: dict[ClassName, Deadline] = Field({}, max_length=200, description="replace the brief's of the same name")
    patience: Patience | None = None

    @model_validator(mode="after")
    def somebody_can_give_up(self) -> "Level":
        longest = self.span_s + self.drain_s
        if self.patience and self.patience.spread == "constant" and self.patience.after_s >= longest:
            raise ValueError(
                f"patience.after_s: after {self.patience.after_s:g} s nobody can give up, since warm-up, window and "
                f"drain end after {longest:g} s: shorten it, or leave patience out"
            )
        return self

    @property
    def span_s(self) -> float:
        """The time over which requests are planned: warm-up and window."""
        return self.warm_up_s + self.duration_s

    @property
    def expected_requests(self) -> float | None:
        """Mean number over warm-up and window; None for a replay. A ramp keeps its first rate while it warms up."""
        arrival = self.arrival
        if arrival.rate is None or arrival.mean_rate is None:
            return None
        warm = arrival.rate if arrival.process == "ramp" else arrival.mean_rate
        return warm * self.warm_up_s + arrival.mean_rate * self.duration_s

    def deadlines_over(self, deadlines: Mapping[str, Deadline]) -> dict[str, Deadline]:
        """The deadlines that hold at this level: its own replace the given ones of the same name."""
        return {**deadlines, **self.deadlines}


def deadline_of(class_: str, deadlines: Mapping[str, Deadline]) -> Deadline | None:
    return deadlines.get(class_) or deadlines.get("default")
