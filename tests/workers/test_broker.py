"""The broker of this installation, whichever it is: what is sent by name arrives on the pool's own queue."""

import uuid
from collections.abc import Iterator

import pytest
from celery import current_app
from kombu import Connection

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
