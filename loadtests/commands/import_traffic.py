"""``draftproof import``: a traffic file into our own rows, with every row that can't be used named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from loadtests.redacting import look_in_working_directory, redaction_of
from loadtests.traffic.importers import (
    FORMAT_NAMES,
    LINE_LIMIT,
    ImportRefused,
    Rules,
    Wanted,
    import_file,
    read_mapping,
    read_pattern,
)

MAX_SEED = 2**53 - 1
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Refused(click.ClickException):
    """The file can't be imported; nothing was written."""

    exit_code = 2


@click.command("import")
@click.argument("file", type=FILE)
@click.option("--format", "format_", default="auto", show_default=True, type=click.Choice(FORMAT_NAMES))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the set.")
@click.option("--map", "pairs", multiple=True, metavar="COLUMN=FIELD", help="What a column of another name is.")
@click.option("--no-header", is_flag=True, help="The columns have no names: map them by number, from 1.")
@click.option("--on-bad-row", default="skip", show_default=True, type=click.Choice(["skip", "refuse"]))
@click.option("--class", "class_", help="Class of rows that have none.")
@click.option("--max-tokens", default=1024, show_default=True, type=click.IntRange(1, 2**31 - 1))
@click.option("--max-context", type=click.IntRange(1), help="Leave out and report rows that need more tokens.")
@click.option("--donor", type=FILE, help="Real text for a trace of lengths.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, MAX_SEED), help="Draws the donors.")
@click.option(
    "--redact",
    "patterns",
    multiple=True,
    metavar="PATTERN[=>REPLACEMENT]",
    help="Regular expression whose matches are taken out of every message.",
)
@click.option("--redact-with", metavar="MODULE:FUNCTION", help="Function of text to text, applied to every message.")
@click.option("--line-limit", default=LINE_LIMIT, show_default=True, type=click.IntRange(1), help="Bytes.")
def import_traffic(file: Path, out: Path, **options: Any) -> None:
    """Read a traffic file into a directory and print what it holds as JSON.

    Writes rows.jsonl, problems.jsonl and import.json. Rows without an output limit get --max-tokens. Exit status: 0
    when rows were imported, whatever was left out of them; 2 when the file is refused, and nothing was written.
    """
    try:
        document = import_file(wanted_of(file, **options), out)
    except (ImportRefused, OSError) as error:
        raise Refused(str(error)) from None
    click.echo(json.dumps({**document, "out": str(out)}, indent=2, ensure_ascii=False))


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
    )
