"""One trial carried out by several processes, where one can't send fast enough. One plan, one zero, one result."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadtests.evidence.records import RequestRecord, measured, read_records, records_of
from loadtests.evidence.summary import lag_ms
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.part import Share, shares, told
from loadtests.generator.progress import Progress, Tell, end_tasks, telling
from loadtests.generator.spool import completed_by, told_by
from loadtests.generator.trial import TrialRun, run_trial
from loadtests.generator.unserved import unserved
from loadtests.traffic.planned import PlannedRequest

# From when all are ready: time for the zero to reach every process.
LEAD_NS = 200_000_000
LOOK_S = 0.05
UNKNOWN = "the client process that had this request was lost: what became of it is unknown"


class GeneratorLost(RuntimeError):
    """A process of the client ended before its requests did: a fault of ours, so the trial is no result.

    ``partial`` is what the others recorded until they were stopped, marked as stopped, and what the lost process had
    spooled; its other requests are ``failed`` there, with the reason that what became of them is unknown.
    """

    def __init__(self, reason: str, partial: TrialRun) -> None:
        super().__init__(reason)
        self.partial = partial


class Part:
    """A process and what it has told."""

    def __init__(self, share: Share, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.share, self.process = share, process
        self.orders, self.answers = process.stdin, process.stdout
        self.progress = Progress(len(share.planned), 0, {}, 0.0)
        self.result: dict[str, Any] = {}
        self.records: list[RequestRecord] | None = None

    @classmethod
    async def begin(cls, share: Share) -> "Part":
        command = [sys.executable, "-m", "loadtests.generator.part"]
        # Ctrl-C reaches a whole group, and would end it before it can ignore that.
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
        part = cls(share, process)
        part.orders.write(share.line)
        return part

    async def ready(self) -> None:
        if await self.answers.readline() != b"ready\n":
            raise EOFError

    def order(self, line: bytes) -> None:
        if not self.orders.is_closing():
            self.orders.write(line)

    async def hear(self) -> None:
        """Until it has told its records, or has ended without."""
        while line := await self.answers.readline():
            document = json.loads(line)
            if "length" in document:
                self.records = records_of(read_records(await self.answers.readexactly(document["length"])))
                self.result = document
                return
            self.progress = Progress(**document)

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def run_several(
    planned: Sequence[PlannedRequest],
    endpoint: Endpoint,
    *,
    processes: int,
    level: str,
    window_s: float,
    drain_s: float,
    warm_up_s: float = 0.0,
    max_concurrency: int | None = None,
    on_progress: Tell | None = None,
    stop: asyncio.Event | None = None,
    server_alive: Callable[[], bool] | None = None,
    spool: str | None = None,
) -> TrialRun:
    """Like ``run_trial``, by ``processes`` processes of one machine. Request k of the plan goes to process k mod N; all
    count from one zero on the monotonic clock; records are in plan order. Raises GeneratorLost, and ValueError for a
    level that caps what is open: its slots are one queue, which only one process can keep.
    """
    limits = {"level": level, "window_s": window_s, "drain_s": drain_s, "warm_up_s": warm_up_s}
    if processes == 1:
        return await run_trial(
            planned,
            endpoint,
            **limits,  # type: ignore[arg-type]
            max_concurrency=max_concurrency,
            on_progress=on_progress,
            stop=stop,
            server_alive=server_alive,
            spool=spool,
        )
    if max_concurrency is not None:
        raise ValueError("a level that caps what is open needs one client process: its slots are one queue")
    parts = [
        await Part.begin(Share(one, endpoint, limits | {"spool": spool and f"{spool}.{number}"}))
        for number, one in enumerate(shares(planned, processes))
    ]
    try:
        async with telling(on_progress, lambda: together(parts)) as findings:
            await carry_out(parts, stop or asyncio.Event(), server_alive)
    finally:
        await asyncio.gather(*(part.end() for part in parts))
    return merged(parts, planned, limits, findings)


async def carry_out(parts: Sequence[Part], stop: asyncio.Event, server_alive: Callable[[], bool] | None) -> None:
    """Start all at one moment and hear them out; when one is lost, the others are stopped."""
    await asyncio.gather(*(part.ready() for part in parts), return_exceptions=True)
    zero_ns = time.monotonic_ns() + LEAD_NS
    for part in parts:
        part.order(told(zero_ns))
    hearing = {asyncio.create_task(part.hear()): part for part in parts}
    watching = [asyncio.create_task(stop.wait()), asyncio.create_task(ended(server_alive))]
    pending: set[asyncio.Task[Any]] = {*hearing, *watching}
    try:
        while pending & hearing.keys():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if watching[1] in done:
                watching[1].result()
                tell_all(parts, b"ended\n")
            if watching[0] in done or any(one in hearing and hearing[one].records is None for one in done):
                tell_all(parts, b"stop\n")
    finally:
        await end_tasks(*watching, *hearing)


def tell_all(parts: Sequence[Part], line: bytes) -> None:
    for part in parts:
        part.order(line)


async def ended(server_alive: Callable[[], bool] | None) -> None:
    while server_alive is None or server_alive():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


def together(parts: Sequence[Part]) -> Progress:
    each = [part.progress for part in parts]
    counts: Counter[str] = Counter()
    for one in each:
        counts.update(one.ended)
    planned, sent = sum(one.planned for one in each), sum(one.sent for one in each)
    return Progress(planned, sent, dict(counts), max(one.elapsed_s for one in each))


def merged(
    parts: Sequence[Part], planned: Sequence[PlannedRequest], limits: dict[str, Any], findings: list[str]
) -> TrialRun:
    """The parts' records in plan order; raises GeneratorLost where a part has none."""
    lost = [number for number, part in enumerate(parts, start=1) if part.records is None]
    records: list[RequestRecord | None] = [None] * len(planned)
    for start, part in enumerate(parts):
        records[start :: len(parts)] = part.records if part.records is not None else unknown(part, limits["level"])
    whole = [one for one in records if one is not None]
    reason = f"client process {', '.join(map(str, lost))} of {len(parts)} ended before its requests did"
    run = TrialRun(
        records=whole,
        started_at=min((part.result["started_at"] for part in parts if part.result), default=time.time_ns()),
        window_s=limits["window_s"],
        drain_s=limits["drain_s"],
        stopped=bool(lost) or any(part.result["stopped"] for part in parts),
        lag_ms=lag_ms(whole),
        fingerprints=dict(Counter(one.fingerprint for one in measured(whole) if one.status == "completed")),
        findings=[*found_by(parts), *findings, *([f"{reason}: the trial was given up"] if lost else [])],
    )
    if lost:
        raise GeneratorLost(reason, run)
    return run


def unknown(part: Part, level: str) -> list[RequestRecord]:
    """With what its spool knows, where it has one."""
    records = unserved(part.share.planned, model=part.share.endpoint.model, level=level, reason=UNKNOWN)
    spool = part.share.level["spool"]
    return completed_by(records, told_by([Path(spool)] if spool and Path(spool).exists() else [])[0])


def found_by(parts: Sequence[Part]) -> list[str]:
    """Findings that count requests are added up; each is "N requests: what"."""
    counts: Counter[str] = Counter()
    for part in parts:
        for finding in part.result.get("findings", []):
            number, _, what = finding.partition(" requests: ")
            counts.update({what: int(number)} if what and number.isdigit() else {f"\0{finding}": 1})
    return [one[1:] if one.startswith("\0") else f"{count} requests: {one}" for one, count in sorted(counts.items())]
