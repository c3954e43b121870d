"""The slots of a level that caps how many requests are open at once: first come, first served."""

import asyncio
from collections import deque


class Slots:
    """Times are nanoseconds from the trial's start. Without ``most`` there is always a free one."""

    def __init__(self, most: int | None) -> None:
        self.unlimited = most is None
        # When each free slot came free: from the start, or when its last request ended.
        self.free: deque[int] = deque([0] * (most or 0))
        self.waiting: deque[asyncio.Future[int]] = deque()

    @property
    def full(self) -> bool:
        return not self.unlimited and not self.free

    async def take(self) -> int:
        """Wait for a slot; says when it came free. One that is cancelled meanwhile leaves its place to the next."""
        if self.unlimited:
            return 0
        if self.free:
            return self.free.popleft()
        slot: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append(slot)
        try:
            return await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.give_back(slot.result())
            raise

    def give_back(self, now_ns: int) -> None:
        if self.unlimited:
            return
        while self.waiting:
            slot = self.waiting.popleft()
            if not slot.done():
                slot.set_result(now_ns)
                return
        self.free.append(now_ns)
