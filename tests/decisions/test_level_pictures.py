"""What a page draws of a brief's load levels: bounded for all of them together, and once for each."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache

from decisions.selectors import level_pictures
from decisions.selectors.level_pictures import LevelsShown, levels_shown
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import TrafficPart
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.levels import Level

pytestmark = pytest.mark.django_db


class Planned:
    """As much of a brief as its levels are drawn from."""

    def __init__(self, *levels: Level, seed: int = 1) -> None:
        self.levels, self.peak, self.rule = levels, levels[-1].name, self
        self.seed = seed


def level(name: str, rate: float | None, duration_s: float = 100) -> Level:
    arrival = {"process": "replay"} if rate is None else {"process": "poisson", "rate": rate}
    return Level.model_validate({"name": name, "arrival": arrival, "duration_s": duration_s})


def shown(*levels: Level, part: TrafficPart | None = None, seed: int = 1) -> LevelsShown:
    planned: Any = Planned(*levels, seed=seed)
    return levels_shown(planned, part)


def names(found: LevelsShown) -> list[str]:
    return [trace["name"] for trace in found.chart.figure["data"]] if found.chart else []


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    cache.clear()


def test_all_levels_together_are_bounded_and_the_largest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_pictures, "MOST_DRAWN", 1_000)
    found = shown(level("peak", 8), level("quiet", 1), level("ordinary", 2))
    assert names(found) == ["quiet", "ordinary"]
    assert found.not_drawn == [
        "peak is not drawn: it plans about 800 requests, and a page draws at most 1,000 of all its levels."
    ]


def test_what_was_drawn_once_is_kept_until_anything_of_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    original = level_pictures.drawn_line

    def counted(level: Level, *given: Any) -> Any:
        drawn.append(level.name)
        return original(level, *given)

    monkeypatch.setattr(level_pictures, "drawn_line", counted)
    first = shown(level("quiet", 1), level("peak", 8))
    assert shown(level("quiet", 1), level("peak", 8)) == first
    assert drawn == ["quiet", "peak"]
    shown(level("quiet", 1), level("peak", 9))
    assert drawn == ["quiet", "peak", "peak"]
    shown(level("quiet", 1), seed=2)
    assert drawn == ["quiet", "peak", "peak", "quiet"]


def test_a_replay_is_drawn_from_the_times_alone_and_of_its_own_part(settings: Any) -> None:
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="Two hours", by="engineer", seed=7)
    part = traffic.parts.get(kind="tuning")
    for kept in traffic.parts.all():
        (settings.EVIDENCE_DIR / kept.digest[:2] / kept.digest).unlink(missing_ok=True)
    found = shown(level("ordinary", None, 30), part=part)
    assert names(found) == ["ordinary"]
    assert shown(level("ordinary", None, 30)).not_drawn == [
        "ordinary is not drawn: the traffic set that it replays is not here."
    ]


def test_a_replay_of_more_than_a_page_reads_is_not_read() -> None:
    part = TrafficPart(digest="a" * 64, kind="tuning", rows=2_000_000)
    assert shown(level("ordinary", None, 30), part=part).not_drawn == [
        "ordinary is not drawn: it replays a part of 2,000,000 requests, more than a page can read."
    ]
