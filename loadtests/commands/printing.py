"""How a command prints its result: all of it on standard output, or an exit status that says that it isn't there."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb

import click

UNPRINTED = 7


def print_result(document: str | bytes, *, otherwise: int = UNPRINTED) -> None:
    """JSON in UTF-8, whatever the terminal's encoding, with JSON's own escape for what UTF-8 can't hold. Where standard
    output is closed or full, or a pipe that nobody reads, the command ends with the status ``otherwise``."""
    content = document if isinstance(document, bytes) else document.encode("utf-8", "backslashreplace")
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        click.echo(content)
    except OSError as error:
        say_unprinted("result", error)
        raise click.exceptions.Exit(otherwise) from None


@contextmanager
def help_printed() -> Iterator[None]:
    """What click prints by itself (help, version) has the same status where it can't be printed."""
    try:
        yield
    except OSError as error:
        if not while_printing(error):
            raise
        say_unprinted("help", error)
        raise SystemExit(UNPRINTED) from None


def while_printing(error: OSError) -> bool:
    return any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__))


def say_unprinted(what: str, error: OSError) -> None:
    let_go_of_standard_output()
    with suppress(OSError):
        said = f"the {what} could not be printed on standard output ({error.strerror or error})"
        click.echo(f"Error: {said}", err=True)


def let_go_of_standard_output() -> None:
    """What is left in its buffer would fail again when the interpreter ends, and change the exit status."""
    if sys.stdout is None:
        return
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
