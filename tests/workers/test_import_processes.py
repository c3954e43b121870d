"""An import's own process: whatever happens in there, it is ended, said, and leaves nothing of what people wrote."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from decisions.models import Event
from loadtests import queue, uploads
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficImport, TrafficSet
from loadtests.services import import_traffic as importing
from loadtests.services.cancel_import import cancel_import
from loadtests.services.remove_left_behind import remove_left_behind
from loadtests.services.request_import import request_import
from loadtests.services.run_import import next_import
from workers import imports, tasks
from workers.imports import spawn, watch_import

pytestmark = pytest.mark.django_db(transaction=True)

State = TrafficImport.State
# A usual way to write an address, and a row on which it takes longer than anyone lives.
ADDRESS = {"pattern": r"([a-zA-Z0-9]+\.?)+@example\.com", "replacement": "[address]"}
ENDLESS = "a1b2c3d4e5f6" * 6
OPTIONS: dict[str, Any] = {
    "format": "auto",
    "mapping": [],
    "header": True,
    "on_bad_row": "skip",
    "class": "",
    "max_tokens": 256,
    "max_context": None,
    "donor": None,
    "shares": {"tuning": 0.5, "held-out": 0.5},
    "seed": 3,
    "block_s": 10,
    "similarity": 0.8,
    "redactions": [],
}


def content(rows: int = 40, more: str = "") -> bytes:
    own = (" ".join(str(n * 7_919 % power) for power in range(9_000, 9_030)) for n in range(1, rows + 1))
    records = ({"arrival_s": n * 5, "prompt": f"{words} {more}"} for n, words in enumerate(own))
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


@pytest.fixture(autouse=True)
def process_of_this_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The import's process reads its settings anew: it finds the test's directories and its database."""
    monkeypatch.setenv("DRAFTPROOF_VAR", str(tmp_path))
    monkeypatch.setenv("DRAFTPROOF_SECRET_KEY", "of this test")
    found = connection.settings_dict
    if connection.vendor == "postgresql":
        address = f"postgres://{found['USER']}:{found['PASSWORD']}@{found['HOST']}:{found['PORT']}/{found['NAME']}"
        monkeypatch.setenv("DATABASE_URL", address)
        return
    monkeypatch.setenv("DATABASE_URL", "")
    (tmp_path / "draftproof.sqlite3").symlink_to(found["NAME"])


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "BEAT_S", 0.1)
    monkeypatch.setattr(queue, "send_import", lambda: None)


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., TrafficImport]:
    def requested(file: bytes | None = None, **options: Any) -> TrafficImport:
        upload = tmp_path / "incoming"
        upload.write_bytes(content() if file is None else file)
        return request_import(
            name="One day",
            service="",
            file_name="day.jsonl",
            upload=upload,
            options={**OPTIONS, **options},
            by="engineer",
        )

    return requested


@pytest.fixture
def endless(ask: Callable[..., TrafficImport]) -> TrafficImport:
    return ask(content(more=ENDLESS), redactions=[ADDRESS])


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that were started; none outlives its test."""
    started: list[subprocess.Popen[bytes]] = []

    def noted(wanted: TrafficImport, worker: str) -> subprocess.Popen[bytes]:
        started.append(spawn(wanted, worker))
        return started[-1]

    monkeypatch.setattr(imports, "spawn", noted)
    yield started
    for process in started:
        imports.kill_group(process)


def watched(wanted: TrafficImport, stopping: threading.Event | None = None) -> TrafficImport:
    watch_import(wanted, "worker-1", stopping or threading.Event())
    wanted.refresh_from_db()
    return wanted


def later(act: Callable[[], object], when: Callable[[], object]) -> threading.Thread:
    """Does it, beside the watch, as soon as something is so."""

    def wait() -> None:
        until = time.monotonic() + 30
        while not when() and time.monotonic() < until:
            time.sleep(0.05)
        act()
        connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def is_busy(processes: list[subprocess.Popen[bytes]]) -> Callable[[], bool]:
    """It has begun to read its file, and so it hangs."""

    def busy() -> bool:
        return bool(processes) and TrafficImport.objects.exclude(progress={}).exists()

    return busy


def kept() -> list[str]:
    return sorted(one.name for one in uploads.directory().iterdir())


def stored(settings: Any) -> list[Path]:
    return [path for path in Path(settings.EVIDENCE_DIR).rglob("*") if path.is_file()]


def last_event(wanted: TrafficImport) -> str:
    return Event.objects.filter(subject=f"traffic import {wanted.pk}").latest("sequence").kind


def test_an_import_is_done_in_a_process_of_its_own(
    ask: Callable[..., TrafficImport], spawned: list[subprocess.Popen[bytes]]
) -> None:
    wanted = watched(ask())
    created = TrafficSet.objects.get()
    assert (wanted.state, wanted.reason, wanted.created_set, kept()) == (State.DONE, "", created, [])
    assert (len(spawned), created.rows, last_event(wanted)) == (1, 40, "traffic-import-done")


def test_a_refusal_is_said_by_the_process_itself(ask: Callable[..., TrafficImport]) -> None:
    wanted = watched(ask(b"a,b\n1,2\n"))
    assert wanted.state == State.REFUSED
    assert "no format that is known" in wanted.reason


def test_one_that_hangs_in_an_expression_is_cancelled_at_once(
    endless: TrafficImport, spawned: list[subprocess.Popen[bytes]]
) -> None:
    cancelling = later(lambda: cancel_import(wanted=endless, by="engineer"), is_busy(spawned))
    watched(endless)
    cancelling.join()
    assert (endless.state, endless.reason, kept()) == (State.CANCELLED, "cancelled by engineer", [])
    assert spawned[0].returncode == -signal.SIGKILL


def test_one_that_says_nothing_new_is_ended_with_the_likely_cause(
    endless: TrafficImport, spawned: list[subprocess.Popen[bytes]], settings: Any
) -> None:
    settings.IMPORT_SILENCE_S = 4
    watched(endless)
    assert endless.state == State.FAILED
    assert endless.reason.startswith("nothing moved for 4 seconds: most likely one of the service's patterns")
    assert (kept(), spawned[0].returncode) == ([endless.upload], -signal.SIGKILL)


def test_one_that_takes_too_long_is_ended(endless: TrafficImport, settings: Any) -> None:
    settings.IMPORT_LIMIT_S = 1
    watched(endless)
    assert (endless.state, last_event(endless)) == (State.FAILED, "traffic-import-failed")
    assert endless.reason == "it took longer than 1 seconds. Split the file, then start it again"


def test_a_process_that_is_killed_is_told_from_one_that_refused(
    endless: TrafficImport, spawned: list[subprocess.Popen[bytes]]
) -> None:
    killing = later(lambda: os.kill(spawned[0].pid, signal.SIGKILL), is_busy(spawned))
    watched(endless)
    killing.join()
    assert endless.state == State.FAILED
    assert endless.reason.startswith("its process was killed by SIGKILL, as a machine does that is out of memory.")
    assert kept() == [endless.upload]


def test_a_worker_that_is_stopped_puts_its_import_back(
    endless: TrafficImport, spawned: list[subprocess.Popen[bytes]]
) -> None:
    stopping = threading.Event()
    stopped = later(stopping.set, is_busy(spawned))
    watched(endless, stopping)
    stopped.join()
    assert (endless.state, endless.worker, endless.progress) == (State.QUEUED, "", {})
    assert (kept(), spawned[0].returncode) == ([endless.upload], -signal.SIGKILL)
    assert (next_import(), last_event(endless)) == (endless, "traffic-import-put-back")


def test_one_that_was_given_up_is_ended_before_another_begins(
    endless: TrafficImport, ask: Callable[..., TrafficImport], spawned: list[subprocess.Popen[bytes]]
) -> None:
    lost = later(lambda: TrafficImport.objects.update(state=State.FAILED, reason="it was lost"), is_busy(spawned))
    watched(endless)
    lost.join()
    assert (endless.reason, spawned[0].returncode) == ("it was lost", -signal.SIGKILL)
    assert watched(ask()).state == State.DONE


def test_the_second_place_of_two_workers_stays_empty(ask: Callable[..., TrafficImport]) -> None:
    running, waiting = ask(), ask()
    TrafficImport.objects.filter(pk=running.pk).update(state=State.RUNNING, worker="other", beat_at=timezone.now())
    assert next_import() is None
    assert watched(waiting).state == State.QUEUED


WORKER = """
import django, sys, threading
django.setup()
from loadtests.models import TrafficImport
from workers import imports
imports.BEAT_S = 0.1
imports.watch_import(TrafficImport.objects.get(), "worker-1", threading.Event())
"""


def test_a_worker_that_is_killed_takes_its_import_with_it(endless: TrafficImport, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent.parent
    with subprocess.Popen([sys.executable, "-c", WORKER], cwd=root) as worker:
        until = time.monotonic() + 40
        while not TrafficImport.objects.exclude(progress={}).exists() and time.monotonic() < until:
            time.sleep(0.1)
        children = psutil.Process(worker.pid).children()
        worker.kill()
    assert len(children) == 1
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert len(kept()) > 1
    tasks.reconcile()
    assert kept() == [endless.upload]


# What a kill leaves.

KILLED_AT = {
    "before anything is stored": "EvidenceStore.put_file = lambda self, source: os.kill(os.getpid(), 9)",
    "between two parts": """
first = []
def put_file(self, source, put=EvidenceStore.put_file):
    if first: os.kill(os.getpid(), 9)
    first.append(put(self, source))
EvidenceStore.put_file = put_file""",
    "before the set is written": "importing.created = lambda *_, **__: os.kill(os.getpid(), 9)",
    "after the set is written": """
def created(found, made=importing.created, **asked):
    made(found, **asked)
    os.kill(os.getpid(), 9)
importing.created = created""",
}
IMPORT = """
import django, os, pathlib, sys
django.setup()
from loadtests.evidence.store import EvidenceStore
from loadtests.services import import_traffic as importing
{killed}
importing.import_traffic(path=pathlib.Path(sys.argv[1]), name="One day", by="engineer", block_s=10)
"""


@pytest.mark.parametrize("moment", KILLED_AT)
def test_a_kill_at_any_point_leaves_no_text_that_no_set_names(moment: str, tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(content(80))
    root = Path(__file__).resolve().parent.parent.parent
    code = IMPORT.format(killed=KILLED_AT[moment])
    ended = subprocess.run([sys.executable, "-c", code, str(path)], cwd=root, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(kept()) == 1
    remove_left_behind()
    parts = [part for one in TrafficSet.objects.all() for part in one.parts.all()]
    named = [digest for part in parts for digest in (part.digest, part.index_digest)]
    assert (kept(), len(stored(settings))) == ([], len(named))
    assert len(named) == (6 if moment == "after the set is written" else 0)
    for digest in named:
        EvidenceStore(settings.EVIDENCE_DIR).check(digest)


def test_what_a_living_import_works_with_is_left_alone(ask: Callable[..., TrafficImport]) -> None:
    with uploads.workplace("set-") as place:
        uploads.intend(place, ["a" * 64])
        remove_left_behind()
        assert uploads.intended(place) == ["a" * 64]
        uploads.settled(place)
    assert kept() == []


def test_where_nobody_can_tell_what_is_used_it_is_taken_away_later(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(content(80))

    def lost(*_: object, **__: object) -> None:
        raise DatabaseError

    with monkeypatch.context() as patched:
        patched.setattr(importing, "created", lost)
        patched.setattr(importing, "drop_unused", lost)
        with pytest.raises(DatabaseError):
            importing.import_traffic(path=path, name="One day", by="engineer", block_s=10)
    assert stored(settings)
    remove_left_behind()
    assert (kept(), stored(settings)) == ([], [])


def test_temporary_files_of_an_hour_ago_are_swept_and_younger_ones_are_not(settings: Any) -> None:
    store = EvidenceStore(settings.EVIDENCE_DIR)
    digest = store.put(b"a row")
    places = [store.base, store.path(digest).parent]
    old = [place / name for place in places for name in (".incoming-1", ".outline-1")]
    young = [place / ".incoming-2" for place in places]
    for path in [*old, *young]:
        path.write_bytes(b"text")
    for path in old:
        os.utime(path, (time.time() - 3700,) * 2)
    tasks.sweep()
    assert sorted(stored(settings)) == sorted([*young, store.path(digest)])
