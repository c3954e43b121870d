"""Who may read which part of a traffic set; what is read of the held-out part, and every refusal, is an event."""

from datetime import UTC, datetime

import pytest

from decisions.models import Event
from loadtests import seal
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import TrafficPart, TrafficSet
from loadtests.services.import_traffic import import_traffic
from loadtests.services.read_part import read_part
from loadtests.services.refused import Refused
from loadtests.traffic.rows import Row

pytestmark = pytest.mark.django_db

BRIEF = "c" * 64
READINGS = ("held-out-read", "held-out-refused", "tuning-refused", "evaluation-refused")


@pytest.fixture
def traffic() -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer")


def read(traffic: TrafficSet, kind: str, purpose: str) -> list[Row]:
    part = TrafficPart.objects.get(set=traffic, kind=kind)
    return read_part(part=part, purpose=purpose, brief_digest=BRIEF, reader="boot 1", actor="worker")


def refused(traffic: TrafficSet, kind: str, purpose: str) -> str:
    with pytest.raises(Refused) as refusal:
        read(traffic, kind, purpose)
    event = Event.objects.get(kind=f"{kind}-refused")
    part = traffic.parts.get(kind=kind)
    assert (event.subject, event.actor) == (f"traffic set {traffic.pk}", "worker")
    assert event.details == {
        "reader": "boot 1",
        "purpose": purpose,
        "brief": BRIEF,
        "part": part.digest,
        "reason": refusal.value.sentence,
    }
    return refusal.value.sentence


@pytest.mark.parametrize("purpose", ["noise-floor", "tuning", "fallback"])
def test_everything_but_held_out_trials_reads_the_tuning_part_and_leaves_no_event(
    traffic: TrafficSet, purpose: str
) -> None:
    assert len(read(traffic, "tuning", purpose)) == traffic.parts.get(kind="tuning").rows
    assert not Event.objects.filter(kind__in=READINGS).exists()


@pytest.mark.usefixtures("unsealed")
def test_held_out_trials_do_not_read_the_tuning_part(traffic: TrafficSet) -> None:
    assert refused(traffic, "tuning", "held-out") == "a held-out campaign may not read the tuning part of demo"


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize("purpose", ["noise-floor", "tuning", "held-out", "fallback", "training", "anything"])
def test_nobody_reads_the_evaluation_part_yet(traffic: TrafficSet, purpose: str) -> None:
    said = "the evaluation part of demo is for training drafters alone, and no drafter is trained here yet"
    assert refused(traffic, "evaluation", purpose) == said


@pytest.mark.usefixtures("unsealed")
@pytest.mark.parametrize("purpose", ["noise-floor", "tuning", "fallback", "training", "anything"])
def test_an_open_seal_opens_for_held_out_trials_alone(traffic: TrafficSet, purpose: str) -> None:
    assert refused(traffic, "held-out", purpose) == f"a {purpose} campaign may not read the held-out part of demo"


def test_the_part_is_sealed_while_nobody_says_which_briefs_measure(
    traffic: TrafficSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "_registered", [])
    assert refused(traffic, "held-out", "held-out") == seal.UNREGISTERED


def test_a_digest_that_no_frozen_brief_has_opens_nothing(traffic: TrafficSet) -> None:
    assert "no frozen brief with the digest cccccccccccc… names this held-out part" in refused(
        traffic, "held-out", "held-out"
    )


@pytest.mark.usefixtures("unsealed")
def test_deleted_text_is_read_by_nobody_and_says_when_and_by_whom(traffic: TrafficSet) -> None:
    TrafficSet.objects.update(text_deleted_at=datetime(2026, 5, 4, 7, 30, tzinfo=UTC), text_deleted_by="olga")
    said = "the text of demo was deleted on 04 May 2026 at 07:30 UTC by olga: import fresh traffic"
    assert refused(traffic, "held-out", "held-out") == refused(traffic, "tuning", "tuning") == said
