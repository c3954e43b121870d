"""``python -m loadtests.generator.part``: carries out a share of a trial's plan, for the process that started it.

Standard input brings one JSON line with the share, one with the trial's zero, and then a word a line: ``stop``, or
``ended`` when the server's process has ended. Its end means that nobody waits for the answer: then nothing more is
sent. Standard output gives ``ready``, a JSON line of progress every second, and at last a JSON line with the findings
and the length of the Parquet file that follows.
"""

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import uvloop

from loadtests.evidence.records import records_content
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.progress import Progress
from loadtests.generator.trial import TrialRun, run_trial
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import Row


def told(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


@dataclass(frozen=True)
class Share:
    """What one process sends, and under which level."""

    planned: list[PlannedRequest]
    endpoint: Endpoint
    level: dict[str, Any]

    @property
    def line(self) -> bytes:
        rows = {id(one.traffic_row): one.traffic_row.model_dump(mode="json", by_alias=True) for one in self.planned}
        requests = [
            [one.request_id, one.row, id(one.traffic_row), one.planned_ns, one.give_up_ns, one.warm_up]
            for one in self.planned
        ]
        bundle = self.endpoint.ca_bundle
        endpoint = asdict(self.endpoint) | {"ca_bundle": None if bundle is None else str(bundle)}
        return told({"rows": rows, "requests": requests, "endpoint": endpoint, "level": self.level})

    @classmethod
    def of(cls, line: bytes) -> "Share":
        document = json.loads(line)
        rows = {key: Row.model_validate(row) for key, row in document["rows"].items()}
        bundle = document["endpoint"]["ca_bundle"]
        endpoint = document["endpoint"] | {"ca_bundle": None if bundle is None else Path(bundle)}
        planned = [
            PlannedRequest(name, row, rows[str(key)], planned_ns, give_up_ns, warm_up)
            for name, row, key, planned_ns, give_up_ns, warm_up in document["requests"]
        ]
        return cls(planned, Endpoint(**endpoint), document["level"])


def listen(source: BinaryIO, stop: Callable[[], object], server_ended: Callable[[], object]) -> None:
    for line in source:
        if line == b"ended\n":
            server_ended()
        else:
            break
    stop()


async def carry_out(share: Share, source: BinaryIO, sink: BinaryIO) -> TrialRun:
    loop, stop, ended = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    zero_ns = json.loads(source.readline())

    def end() -> None:
        loop.call_soon_threadsafe(stop.set)

    def tell(progress: Progress) -> None:
        sink.write(told(asdict(progress)))
        sink.flush()

    threading.Thread(target=listen, args=(source, end, ended.set), daemon=True).start()
    return await run_trial(
        share.planned,
        share.endpoint,
        **share.level,
        on_progress=tell,
        stop=stop,
        server_alive=lambda: not ended.is_set(),
        zero_ns=zero_ns,
    )


def main(source: BinaryIO, sink: BinaryIO) -> None:
    # What becomes of the trial is for the process that started it to say.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    share = Share.of(source.readline())
    sink.write(b"ready\n")
    sink.flush()
    run = uvloop.run(carry_out(share, source, sink))
    content = records_content(run.records)
    result = {"stopped": run.stopped, "started_at": run.started_at, "findings": run.findings, "length": len(content)}
    sink.write(told(result) + content)
    sink.flush()


def shares(planned: Sequence[PlannedRequest], processes: int) -> list[list[PlannedRequest]]:
    """Request k goes to process k mod N: the same plan is always split the same way, and evenly in time."""
    return [list(planned[start::processes]) for start in range(processes)]


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
