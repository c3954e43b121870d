"""An import from its request to its end: whole or not at all, and what became of it is said."""

import errno
import gzip
import json
import os
import stat
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from decisions.models import Event
from loadtests import queue, uploads
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficImport, TrafficPart, TrafficSet
from loadtests.services import import_traffic as importing
from loadtests.services import run_import as running
from loadtests.services.cancel_import import cancel_import
from loadtests.services.delete_text import delete_text
from loadtests.services.import_traffic import import_traffic
from loadtests.services.lose_silent_imports import SILENT
from loadtests.services.refused import Refused
from loadtests.services.request_import import request_import
from loadtests.services.retry_import import retry_import
from loadtests.services.run_import import next_import, run_import
from workers import tasks

pytestmark = pytest.mark.django_db(transaction=True)

State = TrafficImport.State
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
WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron"]


def content(rows: int = 40, secret: str = "") -> bytes:
    texts = (f"Request {n}: {WORDS[n % 8]} {WORDS[n // 3 % 8]} {n * 7919} {secret}" for n in range(rows))
    return "".join(json.dumps({"arrival_s": n * 5, "prompt": text}) + "\n" for n, text in enumerate(texts)).encode()


AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"".join(
    b"2023-11-16 18:%02d:00.0000000,%d,20\n" % (minute, 12 + minute % 3) for minute in range(40)
)


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went to the broker."""
    names: list[str] = []
    monkeypatch.setattr(queue, "send_import", lambda: names.append("workers.run_import"))
    return names


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., TrafficImport]:
    def requested(file: bytes | None = None, name: str = "day.jsonl", **options: Any) -> TrafficImport:
        upload = tmp_path / "incoming"
        upload.write_bytes(content() if file is None else file)
        return request_import(
            name="One day", service="", file_name=name, upload=upload, options={**OPTIONS, **options}, by="engineer"
        )

    return requested


def run(wanted: TrafficImport) -> TrafficImport:
    run_import(wanted=wanted, worker="worker-1")
    wanted.refresh_from_db()
    return wanted


def kept() -> list[str]:
    return sorted(one.name for one in uploads.directory().iterdir())


def kinds(wanted: TrafficImport) -> list[str]:
    events = Event.objects.filter(subject=f"traffic import {wanted.pk}").order_by("sequence")
    return [event.kind for event in events]


def test_a_request_is_queued_sent_and_keeps_its_file_for_this_installation_alone(
    ask: Callable[..., TrafficImport], sent: list[str]
) -> None:
    wanted = ask()
    path = uploads.path_of(wanted.upload)
    assert (wanted.state, wanted.file_bytes, path.read_bytes()) == (State.QUEUED, len(content()), content())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (kinds(wanted), sent) == (["traffic-import-requested"], ["workers.run_import"])


def test_a_bomb_is_refused_in_the_words_of_the_form(ask: Callable[..., TrafficImport], settings: Any) -> None:
    settings.UNPACKED_LIMIT_BYTES = 1_000
    wanted = run(ask(gzip.compress(content()), name="bomb.gz"))
    assert (wanted.state, wanted.reason) == (
        State.REFUSED,
        "bomb.gz unpacks to more than 1,000 bytes, the limit for a compressed file: split it, or ask whoever runs this "
        "installation for a higher DRAFTPROOF_UNPACKED_GB",
    )
    assert not TrafficSet.objects.exists()


def test_a_request_that_fails_keeps_nothing(ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "request_import", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask()
    assert (kept(), TrafficImport.objects.count(), Event.objects.count()) == ([], 0, 0)


def test_an_import_ends_in_a_set_and_its_file_is_gone(ask: Callable[..., TrafficImport], sent: list[str]) -> None:
    wanted = run(ask())
    assert (wanted.state, wanted.reason, wanted.upload, kept()) == (State.DONE, "", "", [])
    created = TrafficSet.objects.get()
    assert (wanted.created_set, created.name, created.rows, created.source) == (created, "One day", 40, "day.jsonl")
    assert kinds(wanted) == ["traffic-import-requested", "traffic-import-started", "traffic-import-done"]
    # The next one that waits is sent for.
    assert len(sent) == 2


def test_what_was_asked_for_is_what_is_done(ask: Callable[..., TrafficImport]) -> None:
    lines = "".join(f"{n * 9},{n + 10},{n + 1}\n" for n in range(60))
    wanted = ask(
        f"arrived_at,num_prefill_tokens,num_decode_tokens\n{lines}".encode(),
        "vidur.csv",
        format="csv",
        mapping=["arrived_at=arrival_s", "num_prefill_tokens=prompt_tokens", "num_decode_tokens=max_tokens"],
        max_context=100,
        shares={"tuning": 0.4, "held-out": 0.6},
        **{"class": "trace"},
    )
    created = run(wanted).created_set
    assert created is not None
    assert created.rows == 45
    assert created.imported["mapping"] == wanted.options["mapping"]
    assert created.imported["skipped"] == {"longer than the context": 15}
    assert (created.split["shares"], created.split["seed"]) == ({"tuning": 0.4, "held-out": 0.6}, 3)
    assert created.statistics["classes"] == {"trace": 45}


def test_the_patterns_of_the_service_are_taken_out_before_anything_is_stored(
    ask: Callable[..., TrafficImport], settings: Any
) -> None:
    pattern = {"pattern": r"card \d+", "replacement": "[card]"}
    run(ask(content(secret="card 4111"), redactions=[pattern]))
    store = EvidenceStore(Path(settings.EVIDENCE_DIR))
    texts = [store.get(part.digest) for part in TrafficPart.objects.all()]
    assert not any(b"4111" in text for text in texts)
    assert all(b"[card]" in text for text in texts)


def test_a_donor_gives_its_text_from_the_tuning_part_of_a_set(ask: Callable[..., TrafficImport]) -> None:
    donor = run(ask()).created_set
    assert donor is not None
    created = run(ask(AZURE, "trace.csv", block_s=120, donor={"set": donor.pk})).created_set
    assert created is not None
    assert created.imported["label"] == "text joined from tuning part of One day"
    assert created.imported["join"]["donor"]["rows"] == donor.parts.get(kind="tuning").rows


def test_text_that_is_deleted_while_it_is_joined_is_in_no_new_set(
    ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    donor = run(ask()).created_set
    assert donor is not None
    real = import_traffic

    def imported(**asked: Any) -> TrafficSet:
        def tell(stage: str, done: int, of: int) -> None:
            if stage == "writing" and not TrafficSet.objects.get(pk=donor.pk).text_deleted_at:
                delete_text(traffic_set=donor, by="olga", reason="Asked for by a customer.")

        return real(**{**asked, "tell": tell})

    monkeypatch.setattr(running, "import_traffic", imported)
    wanted = run(ask(AZURE, "trace.csv", block_s=120, donor={"set": donor.pk}))
    assert (wanted.state, wanted.created_set) == (State.REFUSED, None)
    assert wanted.reason == (
        "the text of One day was deleted by olga while it was read for this set: import it again if it may be kept"
    )


def test_an_import_that_fails_brings_no_deleted_text_back(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, halves = tmp_path / "day.jsonl", {"tuning": 0.5, "held-out": 0.5}
    path.write_bytes(content())
    first = import_traffic(path=path, name="First", by="engineer", shares=halves, block_s=10)
    delete_text(traffic_set=first, by="olga", reason="Asked for by a customer.")
    # Another set, since something else in it differs, with the same parts.
    TrafficSet.objects.filter(pk=first.pk).update(digest="f" * 64)

    def failing(*_: object, **__: object) -> None:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(importing, "created", failing)
    with pytest.raises(OperationalError):
        import_traffic(path=path, name="Second", by="engineer", shares=halves, block_s=10)
    store = EvidenceStore(settings.EVIDENCE_DIR)
    assert [store.has(part.digest) for part in first.parts.all()] == [False, False]


def test_a_donor_file_goes_with_its_import(tmp_path: Path) -> None:
    upload, donor = tmp_path / "a", tmp_path / "b"
    upload.write_bytes(AZURE)
    donor.write_bytes(content())
    options = {**OPTIONS, "block_s": 120, "donor": {"file_name": "real.jsonl"}}
    wanted = request_import(
        name="Trace", service="", file_name="trace.csv", upload=upload, donor=donor, options=options, by="engineer"
    )
    created = run(wanted).created_set
    assert created is not None
    assert (created.imported["label"], kept()) == ("text joined from real.jsonl", [])


@pytest.mark.parametrize(
    ("file", "options", "reason"),
    [
        (b"a,b\n1,2\n", {}, "no format that is known"),
        (b"", {}, "the file is empty"),
        (content(), {"block_s": 10_000}, "nothing is left for"),
        (content() + b"{}\n", {"on_bad_row": "refuse"}, "line 41"),
        (content(), {"donor": {"set": 404}}, "choose another one"),
        (content(), {"redactions": [{"pattern": "(", "replacement": ""}]}, "is no regular expression"),
    ],
)
def test_a_file_that_cannot_be_imported_as_asked_is_refused_with_the_reason(
    ask: Callable[..., TrafficImport], file: bytes, options: dict[str, Any], reason: str
) -> None:
    wanted = run(ask(file, **options))
    assert wanted.state == State.REFUSED
    assert reason in wanted.reason
    assert (kept(), TrafficSet.objects.count()) == ([wanted.upload], 0)
    assert kinds(wanted)[-1] == "traffic-import-refused"


def raising(error: Exception) -> Callable[..., TrafficSet]:
    def act(**_: object) -> TrafficSet:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full: make room, then start it again"),
        (OSError(errno.EIO, "Input/output error"), "the disk failed: Input/output error"),
        (OperationalError("gone"), "the database was lost while the set was written: start it again when it is back"),
        (KeyError("the words of a prompt"), "a fault of ours, KeyError: its worker's log says more"),
        (UnicodeError("the words of a prompt"), "a fault of ours, UnicodeError: its worker's log says more"),
    ],
)
def test_a_fault_of_ours_is_told_without_quoting_a_row_and_keeps_the_file(
    ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    monkeypatch.setattr(running, "import_traffic", raising(error))
    wanted = run(ask())
    assert (wanted.state, wanted.reason, kept()) == (State.FAILED, reason, [wanted.upload])


def test_one_import_runs_at_a_time_and_the_oldest_is_next(ask: Callable[..., TrafficImport]) -> None:
    first, second = ask(), ask()
    TrafficImport.objects.filter(pk=first.pk).update(state=State.RUNNING, worker="other", beat_at=timezone.now())
    assert run(second).state == State.QUEUED
    TrafficImport.objects.filter(pk=first.pk).update(state=State.QUEUED)
    assert next_import() == first
    run(first)
    assert next_import() == second


def test_progress_is_written_down_while_it_goes(
    ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ask()
    seen: list[dict[str, Any]] = []

    def slow(*, tell: Callable[[str, int, int], None], **_: object) -> TrafficSet:
        tell("reading", 5, 10)
        seen.extend(TrafficImport.objects.values_list("progress", flat=True))
        raise ValueError("seen enough")

    monkeypatch.setattr(running, "import_traffic", slow)
    assert (run(wanted).reason, seen) == ("seen enough", [{"stage": "reading", "done": 5, "of": 10}])


def test_a_running_import_that_is_cancelled_stops_and_leaves_nothing(
    ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ask()
    monkeypatch.setattr("loadtests.import_pulse.EVERY_S", 0.05)

    def endless(*, tell: Callable[[str, int, int], None], **_: object) -> TrafficSet:
        cancel_import(wanted=wanted, by="engineer")
        until = time.monotonic() + 10
        while time.monotonic() < until:
            tell("reading", 1, 10)
            time.sleep(0.02)
        raise AssertionError("nobody stopped it")

    monkeypatch.setattr(running, "import_traffic", endless)
    ended = run(wanted)
    assert (ended.state, ended.reason, kept()) == (State.CANCELLED, "cancelled by engineer", [])
    assert kinds(wanted)[-2:] == ["traffic-import-cancel-asked", "traffic-import-cancelled"]


def test_a_cancel_that_comes_too_late_does_not_deny_the_set(
    ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, real = ask(), import_traffic

    def whole(**asked: Any) -> TrafficSet:
        created = real(**asked)
        with pytest.raises(Refused, match="has ended already"):
            cancel_import(wanted=wanted, by="engineer")
        return created

    monkeypatch.setattr(running, "import_traffic", whole)
    ended = run(wanted)
    assert (ended.state, ended.reason, ended.created_set) == (State.DONE, "", TrafficSet.objects.get())


def test_one_that_waits_is_cancelled_at_once(ask: Callable[..., TrafficImport]) -> None:
    wanted = ask()
    cancel_import(wanted=wanted, by="engineer")
    assert run(wanted).state == State.CANCELLED
    assert kept() == []
    with pytest.raises(Refused, match="has ended already"):
        cancel_import(wanted=wanted, by="engineer")


def test_a_refused_file_can_be_tried_again_with_other_options_once(ask: Callable[..., TrafficImport]) -> None:
    refused = run(ask(block_s=10_000))
    again = retry_import(wanted=refused, name="Again", service="", options=OPTIONS, by="engineer")
    with pytest.raises(Refused, match="started again already"):
        retry_import(wanted=refused, name="Again", service="", options=OPTIONS, by="engineer")
    assert (run(again).state, kept()) == (State.DONE, [])


def test_removing_the_file_of_a_refused_import_ends_its_tries(ask: Callable[..., TrafficImport]) -> None:
    refused = run(ask(b"x"))
    cancel_import(wanted=refused, by="engineer")
    assert kept() == []
    with pytest.raises(Refused, match="no longer here"):
        retry_import(wanted=refused, name="Again", service="", options=OPTIONS, by="engineer")


def test_a_silent_worker_costs_its_import_and_the_file_stays(
    ask: Callable[..., TrafficImport], sent: list[str], settings: Any
) -> None:
    silent, asked_to_stop, waiting = ask(), ask(), ask()
    long_ago = timezone.now() - timedelta(seconds=3 * settings.HEARTBEAT_S + 1)
    running_since = {"state": State.RUNNING, "worker": "gone", "beat_at": long_ago}
    TrafficImport.objects.filter(pk=silent.pk).update(**running_since)
    TrafficImport.objects.filter(pk=asked_to_stop.pk).update(**running_since, reason="cancelled by engineer")
    sent.clear()
    tasks.reconcile()
    ended = TrafficImport.objects.order_by("pk").values_list("state", "reason")
    assert list(ended) == [(State.FAILED, SILENT), (State.CANCELLED, "cancelled by engineer"), (State.QUEUED, "")]
    assert uploads.is_here(silent.upload)
    # And what waited behind it is sent again.
    assert sent == ["workers.run_import"]
    assert run(waiting).state == State.DONE


def test_one_that_beats_is_left_alone(ask: Callable[..., TrafficImport]) -> None:
    wanted = ask()
    TrafficImport.objects.filter(pk=wanted.pk).update(state=State.RUNNING, worker="alive", beat_at=timezone.now())
    tasks.reconcile()
    wanted.refresh_from_db()
    assert wanted.state == State.RUNNING


def test_a_worker_that_was_given_up_does_not_change_the_end(
    ask: Callable[..., TrafficImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ask()

    def late(**_: object) -> TrafficSet:
        TrafficImport.objects.filter(pk=wanted.pk).update(state=State.FAILED, reason=SILENT)
        raise ValueError("too late")

    monkeypatch.setattr(running, "import_traffic", late)
    assert (run(wanted).reason, kept()) == (SILENT, [wanted.upload])


def test_files_that_nobody_came_back_for_go_after_a_day(ask: Callable[..., TrafficImport]) -> None:
    old, fresh = run(ask(b"x")), run(ask(b"x"))
    TrafficImport.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=1, minutes=1))
    left = uploads.path_of("left behind")
    left.mkdir()
    os.utime(left, (0, 0))
    tasks.reconcile()
    assert kept() == [fresh.upload]
    assert kinds(old)[-1] == "traffic-upload-removed"


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\logs\\day.csv", "day.csv"),
        ("..", "upload"),
        ("", "upload"),
        ("a\0b\n.csv", "ab.csv"),
        (f"{'n' * 300}.jsonl.gz", f"{'n' * 191}.jsonl.gz"),
        (f"{'ж' * 300}.csv", f"{'ж' * 98}.csv"),
        (f"x.{'y' * 300}", f"x.{'y' * 198}"),
    ],
)
def test_a_hostile_name_is_only_a_name(ask: Callable[..., TrafficImport], name: str, safe: str) -> None:
    wanted = run(ask(name=name))
    assert (wanted.file_name, wanted.state, wanted.reason) == (safe, State.DONE, "")
    assert TrafficSet.objects.get().source == safe
