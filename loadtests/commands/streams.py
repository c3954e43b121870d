"""A command's three standard files, whatever it was started with: closed ones, and a standard error that is full."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Forgiving(io.FileIO):
    """What can't be told on it isn't told: no warning is worth a measurement."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def steady_streams() -> None:
    """Before anything else is opened: it would get the number of a closed one, and be taken for it. ``sys.stdout``
    stays None where there is no standard output, so that whoever prints a result knows."""
    for number in (0, 1, 2):
        fill(number)
    if sys.stderr is sys.__stderr__:
        encoding = sys.stderr.encoding if sys.stderr else "utf-8"
        told = io.BufferedWriter(Forgiving(2, "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(told, encoding, "backslashreplace", line_buffering=True, write_through=True)


def fill(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        # Of processes that this one starts as well.
        os.set_inheritable(number, True)
