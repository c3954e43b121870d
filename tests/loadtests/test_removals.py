"""What the history says of text that goes, as often as it goes."""

from typing import Any

import pytest

from decisions.models import Event
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficSet
from loadtests.services import import_traffic as importing
from loadtests.services.delete_text import delete_text
from loadtests.services.import_traffic import import_traffic

pytestmark = pytest.mark.django_db


def imported_again(number: int) -> TrafficSet:
    """The same rows in the same parts as another set: its digest counts the split's stretches too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(importing, "set_digest", lambda *_: str(number) * 64)
        return import_traffic(path=SUPPORT_ASSISTANT, name=f"demo {number}", by="engineer", seed=7)


def told_removed() -> list[str]:
    return [one.subject for one in Event.objects.filter(kind="traffic-text-removed").order_by("sequence")]


def test_rows_that_come_again_go_again_and_the_history_says_so_each_time(settings: Any) -> None:
    store, sets, told = EvidenceStore(settings.EVIDENCE_DIR), list[TrafficSet](), list[str]()
    for number in range(3):
        sets.append(imported_again(number))
        rows = [part.digest for part in sets[-1].parts.all()]
        assert all(map(store.has, rows))
        delete_text(traffic_set=sets[-1], by="owner", reason="the contract says so")
        assert not any(map(store.has, rows))
        # Of every set that held them.
        told += [f"traffic set {one.pk}" for one in sets]
        assert told_removed() == told
