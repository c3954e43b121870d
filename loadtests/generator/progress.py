"""Telling how far a trial is, without slowing it down."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

PROGRESS_S = 1.0


@dataclass(frozen=True)
class Progress:
    planned: int
    sent: int
    ended: dict[str, int]
    elapsed_s: float


Tell = Callable[[Progress], None]


class Reporter:
    """Tells the progress from a thread of its own: the callback may block, and the pace may not."""

    def __init__(self, tell: Tell, progress: Callable[[], Progress]) -> None:
        self.tell, self.progress = tell, progress
        self.thread = ThreadPoolExecutor(1, "progress")
        self.findings: list[str] = []

    async def report(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self.thread, self.tell, self.progress())
        except Exception as error:
            self.findings[:] = [f"progress could not be told: {type(error).__name__}: {error}"]

    async def repeat(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            await self.report()


async def end_tasks(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def telling(tell: Tell | None, progress: Callable[[], Progress]) -> AsyncIterator[list[str]]:
    """Progress every second while the block runs and once when it has ended; yields what went wrong in telling it."""
    if tell is None:
        yield []
        return
    reporter = Reporter(tell, progress)
    repeating = asyncio.create_task(reporter.repeat())
    try:
        yield reporter.findings
    finally:
        await end_tasks(repeating)
        await reporter.report()
        reporter.thread.shutdown()
