"""What a trial has recorded so far, on disk: all that is left of it where its client is killed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadtests.evidence.records import RequestRecord
from loadtests.generator.exchange import Exchange, Names

TIMES = ("sent_ns", "first_token_ns", "last_token_ns", "ended_ns")
FIELDS = ("status", *TIMES, "output_tokens", "chunks", "finish_reason", "fingerprint")
STARTED_AT = "started_at"
NO_REASON = "its reason was lost with the client"


class Spool:
    """A line for each request that has ended, and one with the trial's zero before them. Written where progress is
    told, so that no request waits for a disk. Reasons aren't in it: they may repeat a prompt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = False

    def write(self, ended: Iterable[tuple[str, Exchange, Names]], started_at: int) -> None:
        lines = [line_of(name, exchange, names) for name, exchange, names in ended]
        if not self._begun:
            lines.insert(0, json.dumps({STARTED_AT: started_at}))
            self._begun = True
        with self.path.open("a", encoding="utf-8") as sink:
            sink.writelines(f"{line}\n" for line in lines)


def line_of(name: str, exchange: Exchange, names: Names) -> str:
    answer = exchange.answer
    status = exchange.outcome.status if exchange.outcome else None
    times = [exchange.sent_ns, answer.first_token_ns, answer.last_token_ns, exchange.ended_ns]
    return json.dumps([name, status, *times, answer.output_tokens, answer.chunks, *names])


def told_by(spools: Iterable[Path]) -> tuple[dict[str, dict[str, Any]], int | None]:
    """What is known of each request by its name, and the trial's zero in UTC nanoseconds. A line that was cut off is
    left out."""
    known: dict[str, dict[str, Any]] = {}
    started_at: int | None = None
    for path in spools:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if isinstance(told, dict):
                started_at = min(started_at or told[STARTED_AT], told[STARTED_AT])
            else:
                known[told[0]] = dict(zip(FIELDS, told[1:], strict=True))
    return known, started_at


def completed_by(records: Sequence[RequestRecord], known: dict[str, dict[str, Any]]) -> list[RequestRecord]:
    """The records of requests whose end nobody heard, with what is known of those that had ended."""
    return [filled(one, known[one.request_id]) if one.request_id in known else one for one in records]


def filled(record: RequestRecord, fields: dict[str, Any]) -> RequestRecord:
    return replace(record, **fields, error=None if fields["status"] == "completed" else NO_REASON)
