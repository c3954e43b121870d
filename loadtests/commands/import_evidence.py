"""``draftproof import-evidence``: a result file of another load generator as evidence that can be inspected."""

import json
from pathlib import Path

import click

from loadtests.apart import bound
from loadtests.commands.printing import print_result
from loadtests.evidence.foreign import FORMATS, EvidenceRefused, import_evidence


class Refused(click.ClickException):
    """The file can't be imported; nothing was written."""

    exit_code = 2


class OutOfMemory(click.ClickException):
    """It may be a good file; nothing was written."""

    exit_code = 3


@click.command("import-evidence")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", "format_", default="auto", show_default=True, type=click.Choice(FORMATS))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the runs.")
# PARENT SECONDS BYTES, of a web process that waits for this one.
@click.option("--bounds", nargs=3, type=int, hidden=True)
def import_evidence_command(file: Path, format_: str, out: Path, bounds: tuple[int, int, int] | None) -> None:
    """Read a result file of vllm bench serve, AIPerf or GuideLLM and print what it holds as JSON.

    Writes one directory a run: manifest.json, and records.parquet where requests are told one by one. Imported
    evidence is shown and compared, and never carries an approval: the manifest says what it lacks. Exit status: 0 when
    the file was imported; 2 when it is refused, 3 when memory is too short for it, and nothing was written; 7 when it
    was imported and the summary could not be printed.
    """
    if bounds:
        bound(parent=bounds[0], seconds=bounds[1], memory_bytes=bounds[2])
    try:
        summary = import_evidence(file, out, format_)
    except EvidenceRefused as error:
        raise Refused(str(error)) from None
    except OSError as error:
        # A full disk names no file of its own. Where a web process waits, a page shows this: no paths of ours.
        where = "the disk failed" if bounds else error.filename or f"{file} could not be imported into {out}"
        raise Refused(f"{where}: {error.strerror or error}") from None
    except MemoryError:
        raise OutOfMemory("memory is too short to read it") from None
    print_result(json.dumps(summary, indent=2, ensure_ascii=False))
