"""Load levels: an arrival process over a part of the traffic, with a window and a drain."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Process = Literal["replay", "constant", "poisson", "gamma"]


class Arrival(BaseModel):
    """When requests leave. ``rate`` is requests per second; ``cv`` the coefficient of variation of the gaps of a
    gamma process (1 is Poisson, above 1 is bursty); ``time_scale`` squeezes (< 1) or stretches recorded times."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    process: Process
    rate: float | None = Field(None, ge=1e-6, le=100_000)
    cv: float | None = Field(None, ge=0.01, le=100)
    time_scale: float | None = Field(None, ge=1e-6, le=1e6)

    @model_validator(mode="after")
    def fits_the_process(self) -> "Arrival":
        if self.process == "replay" and self.rate is not None:
            raise ValueError("a replay keeps the recorded times: use time_scale, not rate")
        if self.process != "replay" and self.rate is None:
            raise ValueError(f"a {self.process} process needs a rate in requests per second")
        if (self.process == "gamma") != (self.cv is not None):
            raise ValueError("cv belongs to a gamma process, and a gamma process needs it")
        return self


class Level(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=30)
    arrival: Arrival
    duration_s: float = Field(gt=0, le=86_400)
    drain_s: float = Field(30, ge=0, le=3_600, description="how long open requests may still finish after the window")


class Deadline(BaseModel):
    """Both counted from the planned arrival, in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    first_token_s: float = Field(gt=0, le=86_400)
    completion_s: float = Field(gt=0, le=86_400)
