"""``draftproof import``: a traffic file into our own rows, with every row that can't be used named."""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from loadtests.commands.printing import print_result
from loadtests.redacting import look_in_working_directory, redaction_of
from loadtests.traffic.importers import (
    FORMAT_NAMES,
    LINE_LIMIT,
    TARGETS,
    UNPACKED_LIMIT,
    ImportRefused,
    Rules,
    Wanted,
    import_file,
    read_mapping,
    read_pattern,
)
from loadtests.traffic.importers.problems import spelt_out

MAX_SEED = 2**53 - 1
STANDARD_INPUT = "/dev/stdin"


class InputFile(click.Path):
    """A file that is there; - is the standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(STANDARD_INPUT if value == "-" else value, param, ctx)


FILE = InputFile(exists=True, dir_okay=False, path_type=Path)


class Refused(click.ClickException):
    """The file can't be imported; nothing was written."""

    exit_code = 2


@click.command("import")
@click.argument("file", type=FILE)
@click.option("--format", "format_", default="auto", show_default=True, type=click.Choice(FORMAT_NAMES))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the set.")
@click.option(
    "--map",
    "pairs",
    multiple=True,
    metavar="COLUMN=FIELD",
    help=f"What a column of another name is; once per column. FIELD: {', '.join(TARGETS)}.",
)
@click.option("--no-header", is_flag=True, help="The columns have no names: map them by number, from 1.")
@click.option(
    "--on-bad-row",
    default="skip",
    show_default=True,
    type=click.Choice(["skip", "refuse"]),
    help="Leave it out and report it, or stop at the first.",
)
@click.option("--class", "class_", help="Class of rows that have none.")
@click.option(
    "--max-tokens",
    default=1024,
    show_default=True,
    type=click.IntRange(1, 2**31 - 1),
    help="Output limit of rows that have none.",
)
@click.option("--max-context", type=click.IntRange(1), help="Leave out and report rows that need more tokens.")
@click.option("--donor", type=FILE, help="Real text for a trace of lengths.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, MAX_SEED), help="Draws the donors.")
@click.option(
    "--redact",
    "patterns",
    multiple=True,
    metavar="PATTERN[=>REPLACEMENT]",
    help="Regular expression whose matches are taken out of every text of a row.",
)
@click.option(
    "--redact-with", metavar="MODULE:FUNCTION", help="Function of text to text, applied to every text of a row."
)
@click.option("--line-limit", default=LINE_LIMIT, show_default=True, type=click.IntRange(1), help="Bytes.")
@click.option(
    "--unpacked-limit",
    default=UNPACKED_LIMIT,
    show_default=True,
    type=click.IntRange(1),
    help="Bytes that a compressed file may hold.",
)
def import_traffic(file: Path, out: Path, **options: Any) -> None:
    """Read a traffic file (- is the standard input) into a directory and print what it holds as JSON.

    Writes rows.jsonl, problems.jsonl and import.json. Rows without an output limit get --max-tokens. Exit status: 0
    when rows were imported, whatever was left out of them; 2 when the file is refused, and nothing was written.
    """
    try:
        with leaving_nothing_behind():
            document = import_file(wanted_of(file, **options), out)
    except (ImportRefused, OSError) as error:
        raise Refused(spelt_out(str(error))) from None
    print_result(json.dumps({**document, "out": spelt_out(str(out))}, indent=2, ensure_ascii=False))


@contextmanager
def leaving_nothing_behind() -> Iterator[None]:
    """A plain kill and a closed terminal end the import as Ctrl-C does: what was begun is taken away."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    asked = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, end) for one in asked}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def wanted_of(
    file: Path,
    *,
    format_: str,
    pairs: Sequence[str],
    no_header: bool,
    on_bad_row: str,
    class_: str | None,
    max_tokens: int,
    max_context: int | None,
    donor: Path | None,
    seed: int,
    patterns: Sequence[str],
    redact_with: str | None,
    line_limit: int,
    unpacked_limit: int,
) -> Wanted:
    """What the options ask for; raises ImportRefused."""
    if redact_with:
        look_in_working_directory()
    redaction = redaction_of([read_pattern(one) for one in patterns], redact_with)
    return Wanted(
        path=file,
        format=format_,
        mapping=read_mapping(pairs),
        header=not no_header,
        refuse=on_bad_row == "refuse",
        rules=Rules(class_=class_, max_tokens=max_tokens, max_context=max_context, redaction=redaction),
        donor=donor,
        seed=seed,
        line_limit=line_limit,
        unpacked_limit=unpacked_limit,
    )
