"""The engine in real or scaled time: the same steps as in virtual time, each of which now takes its while."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from loadtests.simulator.engine import Engine
from loadtests.simulator.sequence import Demand, Sequence


@dataclass(slots=True)
class Told:
    """How many tokens of a sequence its client may have by now; the engine itself is already a step further."""

    ready: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Live:
    """``speed`` is how many seconds of the engine's clock pass in one of ours."""

    def __init__(self, engine: Engine, speed: float) -> None:
        self.engine, self.speed = engine, speed
        # Time that this program could not keep up: added to the truth of the model, so it must be seen.
        self.behind_s = 0.0
        self._zero = time.monotonic()
        self._work = asyncio.Event()
        self._heard: dict[Sequence, Told] = {}

    def clock(self) -> float:
        return (time.monotonic() - self._zero) * self.speed

    async def run(self) -> None:
        while True:
            await self._work.wait()
            if not self.engine.busy:
                self._work.clear()
                continue
            self.engine.advance(most=1)
            await self._until(self.engine.now)
            self.engine.finished.clear()
            for sequence, told in self._heard.items():
                told.ready = sequence.emitted_by(self.engine.step)
                told.news.set()

    async def _until(self, moment: float) -> None:
        left = (moment - self.clock()) / self.speed
        if left < 0:
            self.behind_s -= left
            # The clock waits for the engine, so that a late step doesn't shorten the next.
            self._zero -= left
        await asyncio.sleep(max(0.0, left))

    def _submit(self, demand: Demand) -> Sequence:
        if not self.engine.busy:
            self.engine.idle_until(self.clock())
        self._work.set()
        return self.engine.submit(demand, min(self.clock(), self.engine.now))

    async def serve(self, demand: Demand, into: list[Sequence]) -> AsyncGenerator[range, None]:
        """The indices of the tokens that came with each step, until all have come. Whoever closes this early (a client
        that has gone) stops the sequence."""
        sequence = self._submit(demand)
        into.append(sequence)
        told = self._heard[sequence] = Told()
        given = 0
        try:
            while given < demand.output_tokens:
                await told.news.wait()
                told.news.clear()
                ready = told.ready
                if ready > given:
                    yield range(given, ready)
                    given = ready
        finally:
            del self._heard[sequence]
            self.engine.abort(sequence)
