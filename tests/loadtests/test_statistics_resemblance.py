import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.statistics.resemblance import Sample, comparison, pooled


def sample(seed: int, rows: int = 2_000, *, longer: float = 1.0, chat: float = 0.5, slower: float = 1.0) -> Sample:
    rng = np.random.default_rng(seed)
    return Sample(
        prompt_lengths=(rng.lognormal(6, 1, rows) * longer).astype(int) + 1,
        unit="characters",
        output_limits=rng.integers(8, 64, rows),
        classes={"chat": round(rows * chat), "rewrite": rows - round(rows * chat)},
        gaps_s=rng.exponential(slower, rows),
    )


def differing(found: dict[str, object]) -> list[str]:
    measures: list[dict[str, object]] = found["measures"]  # type: ignore[assignment]
    return [str(one["name"]) for one in measures if one["differs"]]


def test_two_samples_of_one_population_resemble_each_other() -> None:
    found = comparison(sample(1), sample(2))
    assert found["resembles"]
    assert found["warning"] == ""
    assert [(one["name"], one["test"]) for one in found["measures"]] == [
        ("prompt length", "Kolmogorov–Smirnov"),
        ("output limit", "Kolmogorov–Smirnov"),
        ("class", "χ²"),
        ("inter-arrival time", "Kolmogorov–Smirnov"),
    ]


def test_what_differs_is_named_with_both_sides() -> None:
    found = comparison(sample(1), sample(2, longer=2, chat=0.2))
    assert differing(found) == ["prompt length", "class"]
    assert not found["resembles"]
    assert found["warning"] == (
        "Held-out doesn't resemble tuning in prompt length (median 395 characters in tuning, 782 characters in "
        "held-out); class (rewrite is 50% of the requests in tuning, 80% in held-out). What is tuned on one may not "
        "hold on the other: choose another seed, or shorter blocks."
    )


def test_a_difference_too_small_to_matter_is_none_however_many_requests_show_it() -> None:
    found = comparison(sample(1, 200_000), sample(2, 200_000, slower=1.1))
    (gap,) = (one for one in found["measures"] if one["name"] == "inter-arrival time")
    assert gap["p"] < 1e-6
    assert gap["distance"] < 0.1
    assert found["resembles"]


def test_a_large_difference_of_few_requests_is_none_yet() -> None:
    assert comparison(sample(1, 8), sample(2, 8, longer=3))["resembles"]


def test_without_times_three_measures_are_left() -> None:
    untimed = Sample(np.array([3, 4]), "tokens", np.array([1, 2]), {"chat": 2}, np.empty(0))
    found = comparison(untimed, untimed)
    assert [one["p"] for one in found["measures"]] == [1.0, 1.0, 1.0]
    assert [one["distance"] for one in found["measures"]] == [0.0, 0.0, 0.0]


def test_a_class_that_one_side_lacks_counts() -> None:
    one, other = sample(1), sample(2)
    assert differing(comparison(one, Sample(**{**vars(other), "classes": {"code": 2_000}}))) == ["class"]


def test_rare_classes_are_counted_as_one() -> None:
    assert pooled(np.array([[50, 40, 3, 4, 3], [48, 42, 4, 3, 3]])).tolist() == [[10, 40, 50], [10, 42, 48]]
    assert pooled(np.array([[50, 40, 1], [48, 42, 1]])).tolist() == [[41, 50], [43, 48]]
    assert pooled(np.array([[50, 40], [48, 42]])).tolist() == [[50, 40], [48, 42]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
def test_any_mix_of_classes_can_be_compared(counts: list[tuple[int, int]]) -> None:
    sides = [{f"k{at}": count for at, count in enumerate(side) if count} for side in zip(*counts, strict=True)]
    if not all(sides):
        return
    values = np.array([1, 2, 3])
    found = comparison(*(Sample(values, "tokens", values, classes, values) for classes in sides))
    assert all(0 <= one["p"] <= 1 and 0 <= one["distance"] <= 1 + 1e-12 for one in found["measures"])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_side_of_one_request_can_be_compared(rows: int) -> None:
    assert comparison(sample(1, rows), sample(2, 500))["resembles"] in (True, False)


def test_one_value_against_one_tells_nothing() -> None:
    one, other = (
        Sample(np.array([length]), "characters", np.array([8]), {"chat": 1}, np.array([])) for length in (3, 9)
    )
    measures = comparison(one, other)["measures"]
    assert {measure["name"]: measure["p"] for measure in measures} == {
        "prompt length": 1,
        "output limit": 1,
        "class": 1,
    }
