"""A campaign without candidates, for tests of what becomes of its boots."""

from collections.abc import Sequence
from typing import Any

from loadtests.configurations import Configuration
from loadtests.models import Campaign, TrafficSet
from loadtests.services.create_campaign import create_campaign
from loadtests.traffic.levels import Level


def campaign_of(baseline: Configuration, levels: Sequence[Level], traffic_set: TrafficSet, **asked: Any) -> Campaign:
    """Of the baseline alone, at the levels, the last of which is the peak; ``asked`` says what is to be otherwise."""
    usual: dict[str, Any] = {
        "purpose": "fallback",
        "brief_digest": "c" * 64,
        "candidates": {},
        "pairs": 4,
        "seed": 1,
        "deadlines": {},
        "budget_engine_minutes": 10,
        "max_reattempts": 1,
        "by": "engineer",
    }
    return create_campaign(
        traffic_set=traffic_set, baseline=baseline, levels=list(levels), peak=levels[-1].name, **(usual | asked)
    )
