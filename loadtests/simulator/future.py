"""What every coming step will hold if nothing new happens: the reason why the simulator need not walk step by step."""

import numpy as np
from numpy.typing import NDArray

# Rows of the table: decoding sequences, tokens checked (drafts and the token before them), context tokens, KV blocks.
SEQUENCES, VERIFIED, CONTEXT, BLOCKS = range(4)
Plan = NDArray[np.int64]
FIRST_WIDTH = 4_096


class Future:
    """A table with a column for each coming step. Each sequence adds its own plan when it starts to decode, and takes
    the rest of it back when it is stopped; a sum over the running batch is never computed."""

    def __init__(self) -> None:
        self.table = np.zeros((4, FIRST_WIDTH), np.int64)
        self.first = 0

    def add(self, step: int, plan: Plan) -> None:
        start = self._column(step, plan.shape[1])
        self.table[:, start : start + plan.shape[1]] += plan

    def take(self, step: int, plan: Plan) -> None:
        start = self._column(step, plan.shape[1])
        self.table[:, start : start + plan.shape[1]] -= plan

    def window(self, step: int, steps: int) -> Plan:
        start = self._column(step, steps)
        return self.table[:, start : start + steps]

    def at(self, step: int) -> list[int]:
        """One step's column: what arrays are slow for."""
        found: list[int] = self.table[:, self._column(step, 1)].tolist()
        return found

    def blocks(self, step: int) -> int:
        return self.table.item(BLOCKS, self._column(step, 1))

    def forget(self, step: int) -> None:
        """The columns before the step are never asked for again."""
        passed = step - self.first
        if passed < self.table.shape[1] // 2:
            return
        self.table = np.concatenate([self.table[:, passed:], np.zeros((4, passed), np.int64)], axis=1)
        self.first = step

    def _column(self, step: int, width: int) -> int:
        start = step - self.first
        if start + width > self.table.shape[1]:
            more = max(self.table.shape[1], start + width - self.table.shape[1])
            self.table = np.concatenate([self.table, np.zeros((4, more), np.int64)], axis=1)
        return start
