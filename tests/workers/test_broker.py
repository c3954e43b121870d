"""The broker of this installation, whichever it is: what is sent by name arrives on the pool's own queue."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from celery import current_app
from kombu import Connection
from kombu.exceptions import ChannelError

from loadtests import queue


@pytest.fixture
def pool() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def connection() -> Iterator[Connection]:
    with current_app.connection_for_read() as connection:
        yield connection


def test_a_requested_boot_arrives_on_its_pool(pool: str, connection: Connection) -> None:
    queue.send_boot(pool)
    with connection.SimpleQueue(f"engine.{pool}") as waiting:
        message = waiting.get(timeout=5)
        message.ack()
    assert message.headers["task"] == "workers.run_next_boot"
    assert message.payload[0] == [pool]
    assert message.headers["expires"] is not None


def test_a_broker_that_is_away_is_survived(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(current_app, "send_task", refuse)
    queue.send_boot("cpu")
    assert "the reconciler will send boots of pool cpu again" in caplog.text


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Any]:
    """A channel of the embedded broker in folders of its own, whatever this installation's broker is."""
    folder = str(tmp_path)
    options = {"data_folder_in": folder, "data_folder_out": folder, "control_folder": str(tmp_path / "control")}
    with Connection(transport="config.broker:WholeFiles", transport_options=options) as connection:
        yield connection.channel()


def test_a_consumer_beside_a_producer_never_finds_half_a_message(files: Any) -> None:
    payloads = [{"number": number, "filler": "x" * 20_000} for number in range(200)]
    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(lambda: [files._put("waiting", one) for one in payloads])
        taken: list[dict[str, Any]] = []
        while len(taken) < len(payloads):
            with suppress(Empty):
                taken.append(files._get("waiting"))
        producing.result()
    assert sorted(one["number"] for one in taken) == list(range(200))


def test_a_message_that_cannot_be_written_whole_is_not_there(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        path.write_bytes(text[:10].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ChannelError, match="No space left on device"):
        files._put("waiting", {"number": 1})
    assert [one for one in tmp_path.iterdir() if one.is_file()] == []
    with pytest.raises(Empty):
        files._get("waiting")


def table_of(tmp_path: Path, exchange: str) -> Path:
    return tmp_path / "control" / f"{exchange}.exchange"


@pytest.mark.parametrize("left", [b"", b'[["waiting", "", "wai', b"null"])
def test_a_table_that_a_killed_process_left_empty_is_written_again(files: Any, tmp_path: Path, left: bytes) -> None:
    # What is bound is remembered for the process, so another test's name would be bound already.
    name = f"waiting-{uuid.uuid4().hex[:8]}"
    files.queue_declare(name)
    files.exchange_declare(name, "direct")
    files.queue_bind(name, name, name)
    table_of(tmp_path, name).write_bytes(left)
    files.basic_publish(files.prepare_message("work"), name, name)
    assert files._get(name)["body"]
    assert [entry.queue for entry in files.get_table(name)] == [name]


def test_a_table_that_was_empty_before_anyone_came_is_filled_by_the_first_who_binds(files: Any, tmp_path: Path) -> None:
    # A name of its own: another test of this process may have bound any real one, and what is bound is written again.
    name = f"waiting-{uuid.uuid4().hex[:8]}"
    (tmp_path / "control").mkdir()
    table_of(tmp_path, name).touch()
    assert files.get_table(name) == []
    files._queue_bind(name, name, "", name)
    assert [entry.queue for entry in files.get_table(name)] == [name]


def test_queues_that_are_bound_at_once_are_all_in_the_table(files: Any, tmp_path: Path) -> None:
    names = [f"queue-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: files._queue_bind("all", name, "", name), names))
    assert sorted(entry.queue for entry in files.get_table("all")) == sorted(names)
    files._delete(names[0], "all", names[0], "")
    assert len(files.get_table("all")) == len(names) - 1
    assert [one.name for one in (tmp_path / "control").iterdir() if one.name.endswith(".draft")] == []
