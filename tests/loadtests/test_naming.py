"""Files are named and removed one at a time, so that no set ever names a file that is on its way out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.models import Removal, TrafficSet
from loadtests.naming import Held, HeldBySession, NamingLockLost, naming_lock
from loadtests.services import import_traffic as importing
from loadtests.services import remove_unwanted as removing
from loadtests.services.sweep_evidence import sweep_evidence

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def held_by_another() -> Iterator[None]:
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with naming_lock(patience_s=30) as lock:
            if lock is not None:
                taken.set()
                done.wait(60)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert taken.wait(60)
        yield
    finally:
        done.set()
        other.join()


def test_the_lock_is_had_by_one_and_free_again_after_it() -> None:
    with held_by_another(), naming_lock(patience_s=0) as lock:
        assert lock is None
    for _ in range(2):
        with naming_lock(patience_s=0) as lock:
            assert lock is not None
            lock.check()


def test_a_holder_whose_session_has_ended_notices_it() -> None:
    """A lock on a file is none of the session's."""
    with naming_lock(patience_s=30) as lock:
        assert lock is not None
        connection.close()
        lost = connection.vendor == "postgresql"
        with pytest.raises(NamingLockLost, match="was lost with its database session") if lost else nullcontext():
            lock.check()
    with naming_lock(patience_s=0) as again:
        assert again is not None


def lose_lock(nth: int, patched: pytest.MonkeyPatch) -> None:
    """Of whichever kind it is here, when it is looked at for the nth time."""
    looks = count(1)

    def check(_: Held) -> None:
        if next(looks) == nth:
            raise NamingLockLost("the lock was lost")

    for kind in (Held, HeldBySession):
        patched.setattr(kind, "check", check)


@pytest.mark.parametrize(("nth", "left"), [(1, [True, True]), (2, [False, True]), (3, [False, True])])
def test_nothing_more_is_removed_once_the_lock_is_lost(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, nth: int, left: list[bool]
) -> None:
    """It is looked at before a file goes, and again before that is written down."""
    store = EvidenceStore(settings.EVIDENCE_DIR)
    digests = sorted(store.put(one) for one in (b"a row", b"another"))
    removing.ask_removal(digests)
    with monkeypatch.context() as patched:
        lose_lock(nth, patched)
        removing.remove_unwanted()
    assert [store.has(one) for one in digests] == left
    assert Removal.objects.count() == (1 if nth == 3 else 2)
    assert "the lock was lost" in caplog.text
    removing.remove_unwanted()
    assert not any(store.has(one) for one in digests)
    assert not Removal.objects.exists()


def test_no_set_is_made_once_the_lock_is_lost(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_lock(1, monkeypatch)
    with pytest.raises(NamingLockLost):
        importing.import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", seed=7)
    assert not TrafficSet.objects.exists()
    assert [one for one in Path(settings.EVIDENCE_DIR).rglob("*") if one.is_file()] == []


def test_what_is_to_be_removed_waits_for_whoever_names_files(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "PATIENCE_S", 0.0)
    store = EvidenceStore(settings.EVIDENCE_DIR)
    digest = store.put(b"a row")
    removing.ask_removal([digest])
    with held_by_another():
        removing.remove_unwanted()
        assert store.has(digest)
    removing.remove_unwanted()
    assert not store.has(digest)
    assert not Removal.objects.exists()


def test_an_import_that_can_not_name_its_files_fails_and_leaves_none(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removing, "PATIENCE_S", 0.0)
    monkeypatch.setattr(importing, "NAMING_PATIENCE_S", 0.0)
    with held_by_another(), pytest.raises(EvidenceUnreachable, match="other files of the store are being removed"):
        importing.import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", seed=7)
    assert not TrafficSet.objects.exists()
    sweep_evidence()
    assert [one for one in Path(settings.EVIDENCE_DIR).rglob("*") if one.is_file()] == []


def test_no_row_is_removed_that_a_set_names_meanwhile(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for after the files were put, and before the set was written."""
    written = importing.written

    def asked_for_meanwhile(found: importing.Found, **asked: Any) -> TrafficSet:
        removing.ask_removal(found.files)
        return written(found, **asked)

    monkeypatch.setattr(importing, "written", asked_for_meanwhile)
    created = importing.import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", seed=7)
    sweep_evidence()
    store = EvidenceStore(settings.EVIDENCE_DIR)
    assert all(store.has(part.digest) and store.has(part.index_digest) for part in created.parts.all())
