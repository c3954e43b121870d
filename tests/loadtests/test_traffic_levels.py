"""What a level may say, and what its canonical form leaves out."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from loadtests.traffic.levels import NEEDS, Arrival, Deadline, Level, deadline_of


def level(**fields: Any) -> Level:
    plain = {"name": "peak", "arrival": {"process": "poisson", "rate": 2}, "duration_s": 60}
    return Level.model_validate(plain | fields)


def problem(fields: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as refusal:
        level(**fields)
    one = refusal.value.errors()[0]
    return f"{'.'.join(map(str, one['loc']))}: {one['msg']}"


@pytest.mark.parametrize(
    ("arrival", "sentence"),
    [
        ({"process": "replay", "rate": 1}, "a replay keeps the recorded times: use time_scale, not rate"),
        ({"process": "poisson"}, "a poisson process needs a rate in requests per second"),
        ({"process": "gamma", "rate": 1}, "a gamma process needs cv, the coefficient of variation of its gaps"),
        ({"process": "on-off", "rate": 1}, "an on-off process needs on_s, the seconds that a burst lasts"),
        ({"process": "on-off", "rate": 1, "on_s": 1}, "an on-off process needs off_s, the seconds between two bursts"),
        (
            {"process": "on-off", "rate": 1, "on_s": 1, "off_s": 1, "rate_off": 2},
            "rate_off 2 must be below rate 1: rate is that of the bursts",
        ),
        ({"process": "ramp", "rate": 1}, "a ramp process needs rate_to, the requests per second that it ends with"),
        (
            {"process": "poisson", "rate": 1, "on_s": 1},
            "on_s belongs to an on-off process, not to poisson: leave it out",
        ),
        (
            {"process": "ramp", "rate": 1, "rate_to": 2, "rate_off": 1},
            "rate_off belongs to an on-off process, not to ramp: leave it out",
        ),
        ({"process": "replay", "rate_to": 3}, "rate_to belongs to a ramp process, not to replay: leave it out"),
        ({"process": "constant", "rate": 1, "cv": 2}, "cv belongs to a gamma process, not to constant: leave it out"),
    ],
)
def test_an_arrival_process_has_its_own_fields(arrival: dict[str, Any], sentence: str) -> None:
    assert problem({"arrival": arrival}) == f"arrival: Value error, {sentence}"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"warm_up_s": -1}, "warm_up_s: Input should be greater than or equal to 0"),
        ({"warm_up_s": 4_000}, "warm_up_s: Input should be less than or equal to 3600"),
        ({"max_concurrency": 0}, "max_concurrency: Input should be greater than or equal to 1"),
        ({"patience": {"share": 0, "after_s": 1}}, "patience.share: Input should be greater than 0"),
        ({"patience": {"share": 1.5, "after_s": 1}}, "patience.share: Input should be less than or equal to 1"),
        ({"deadlines": {"": {"first_token_s": 1, "completion_s": 2}}}, "String should have at least 1 character"),
        (
            {"patience": {"share": 0.1, "after_s": 100}, "warm_up_s": 10},
            "patience.after_s: after 100 s nobody can give up, since warm-up, window and drain end after 100 s: "
            "shorten it, or leave patience out",
        ),
    ],
)
def test_a_level_says_which_field_is_wrong(fields: dict[str, Any], sentence: str) -> None:
    assert sentence in problem(fields)


def test_exponential_patience_may_be_longer_than_the_level_on_average() -> None:
    assert level(patience={"share": 0.1, "after_s": 500, "spread": "exponential"}).patience is not None


def test_fields_that_came_later_are_left_out_at_their_default() -> None:
    old = {
        "name": "peak",
        "arrival": {"process": "poisson", "rate": 2.0, "cv": None, "time_scale": None},
        "duration_s": 60.0,
        "drain_s": 30.0,
    }
    assert level().model_dump(mode="json") == old
    written_out = level(warm_up_s=0, max_concurrency=None, deadlines={}, patience=None)
    assert written_out.model_dump(mode="json") == old
    used = {"warm_up_s": 5.0, "max_concurrency": 8, "patience": {"share": 0.1, "after_s": 9.0, "spread": "constant"}}
    used["deadlines"] = {"chat": {"first_token_s": 1.0, "completion_s": 2.0}}
    assert level(**used).model_dump(mode="json") == old | used
    bursts = Arrival(process="on-off", rate=2, on_s=1, off_s=3)
    assert bursts.model_dump(mode="json", exclude_none=True) == {
        "process": "on-off",
        "rate": 2.0,
        "on_s": 1.0,
        "off_s": 3.0,
    }


@pytest.mark.parametrize("fields", [{}, {"warm_up_s": 5, "patience": {"share": 0.5, "after_s": 3}}])
def test_a_level_comes_back_from_its_canonical_form(fields: dict[str, Any]) -> None:
    assert Level.model_validate(level(**fields).model_dump(mode="json")) == level(**fields)


@pytest.mark.parametrize(
    ("arrival", "expected"),
    [
        ({"process": "constant", "rate": 2}, 140),
        ({"process": "gamma", "rate": 2, "cv": 3}, 140),
        ({"process": "on-off", "rate": 5, "on_s": 10, "off_s": 30, "rate_off": 1}, 140),
        # It keeps its first rate for the 10 s of warm-up.
        ({"process": "ramp", "rate": 1, "rate_to": 3}, 10 + 120),
        ({"process": "replay"}, None),
    ],
)
def test_how_many_requests_to_expect(arrival: dict[str, Any], expected: float | None) -> None:
    assert level(arrival=arrival, warm_up_s=10).expected_requests == expected


def test_a_level_s_own_deadlines_replace_those_of_the_same_name() -> None:
    def deadline(seconds: float) -> Deadline:
        return Deadline(first_token_s=seconds, completion_s=seconds)

    brief = {"default": deadline(1), "chat": deadline(2)}
    own = level(deadlines={"default": deadline(3), "batch": deadline(4)})
    held = own.deadlines_over(brief)
    assert held == {"default": deadline(3), "chat": deadline(2), "batch": deadline(4)}
    assert [deadline_of(one, held) for one in ("chat", "batch", "other")] == [deadline(2), deadline(4), deadline(3)]
    assert level().deadlines_over(brief) == brief
    assert deadline_of("chat", {}) is None


def test_the_documented_example_is_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "levels.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    levels = [Level.model_validate(one) for one in yaml.safe_load(example)["levels"]]
    assert [one.name for one in levels] == ["quiet", "ordinary", "peak"]
    fields = {*Level.model_fields, *Arrival.model_fields}
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []
    assert [name for name in NEEDS if f"| `{name}` |" not in page] == []
