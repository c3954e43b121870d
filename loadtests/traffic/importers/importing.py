"""From a file to a directory with rows.jsonl, problems.jsonl and import.json: all of it, or nothing.

This is the edge: what reads and writes is here and in source.py, what decides is in the modules beside it.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from loadtests.canonical import canonical
from loadtests.evidence.store import make_directory, sync_directory
from loadtests.traffic.importers.blocks import Block, table_blocks
from loadtests.traffic.importers.detect import TO_MAP, detect, is_list, shape_of
from loadtests.traffic.importers.drafts import Draft
from loadtests.traffic.importers.entries import (
    COUNTED,
    DEFAULT_CLASS,
    ESTIMATE,
    Entry,
    Rules,
    block_entries,
    class_named,
    entry_of,
)
from loadtests.traffic.importers.formats import FORMATS, Format, Shape, drafts
from loadtests.traffic.importers.gathered import Gathered, Ordered, Spool
from loadtests.traffic.importers.join import Donors
from loadtests.traffic.importers.mapped import ColumnMap, Sightings, mapped_format
from loadtests.traffic.importers.other_files import check_text
from loadtests.traffic.importers.problems import (
    BadField,
    ImportRefused,
    Problem,
    Reason,
    Unreadable,
    file_shown,
    name_shown,
    spelt_out,
)
from loadtests.traffic.importers.records import Found, json_lines, json_list, table
from loadtests.traffic.importers.redaction import Redactor
from loadtests.traffic.importers.source import UNPACKED_LIMIT, Source, opened

AUTO = "auto"
SHAPES: dict[str, Shape] = {"csv": "csv", "tsv": "tsv", "jsonl": "json", "json": "json"}
FORMAT_NAMES = (AUTO, *FORMATS, *SHAPES)
LINE_LIMIT = 8 << 20
MOST_NAMES = 100
# Of a trace, what is left out is left out of its load.
MUCH_LEFT_OUT = 0.05

# Gets the bytes of the file that were read, and those that there are. What it raises ends the import.
Tell = Callable[[int, int], None]


def tell_nobody(done: int, of: int) -> None:
    """Nobody waits for news."""


@dataclass(frozen=True)
class Wanted:
    """What the engineer asked for. The limits are in bytes, ``unpacked_limit`` of what a compressed file holds;
    ``seed`` draws the donors."""

    path: Path
    format: str = AUTO
    mapping: ColumnMap = ()
    header: bool = True
    refuse: bool = False
    rules: Rules = field(default_factory=Rules)
    donor: Path | None = None
    seed: int = 0
    line_limit: int = LINE_LIMIT
    unpacked_limit: int = UNPACKED_LIMIT


def import_file(
    wanted: Wanted, out: Path, tell: Tell = tell_nobody, divided: "Divided | None" = None
) -> dict[str, Any]:
    """Write the set into ``out``, a new or empty directory, and give what import.json says. Where the trace is split
    already, ``divided`` gives its donors to the parts.

    Raises ImportRefused, OSError where the disk fails, and what ``tell`` raises; then ``out`` is as it was.
    """
    check_place(out)
    check_class(wanted.rules)
    # A symbolic link to a directory stays what it is.
    out = out.resolve()
    with workspace(out) as (work, scratch):
        document = imported(wanted, work, scratch, tell, divided)
        write(work / "import.json", [canonical(document), b"\n"])
        sync_directory(work)
        make_directory(out.parent)
        work.rename(out)
        sync_directory(out.parent)
    return document


def check_place(out: Path) -> None:
    """Raises ImportRefused where the set can't be put; better before all the work than after it."""
    if out.is_dir() and (out.is_mount() or out.samefile(Path.cwd())):
        raise ImportRefused(f"{out} can't be replaced by the set: name a new directory in it, such as {out / 'set'}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ImportRefused(f"{out} is there and not empty: a set is never written over")


def check_class(rules: Rules) -> None:
    try:
        class_named(rules.class_ or DEFAULT_CLASS)
    except BadField as bad:
        raise ImportRefused(f"no row can have this class: {bad.detail}") from None


@contextmanager
def workspace(out: Path) -> Iterator[tuple[Path, Path]]:
    """A directory that can become ``out`` by a rename, and one for what nobody keeps; both gone in the end."""
    parent = next(one for one in out.absolute().parents if one.is_dir())
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name[:40]}.importing-", dir=parent))
    work = scratch / "set"
    try:
        work.mkdir()
        yield work, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def imported(wanted: Wanted, work: Path, scratch: Path, tell: Tell, divided: "Divided | None") -> dict[str, Any]:
    with (
        (work / "problems.jsonl").open("wb") as problems,
        tempfile.TemporaryFile(dir=scratch) as rows_file,
        tempfile.TemporaryFile(dir=scratch) as donors_file,
    ):
        donor = read_donor(wanted, wanted.donor, problems, donors_file) if wanted.donor else None
        if donor and divided:
            donor = replace(donor, donors=divided(donor))
        log = Log(file_shown(wanted.path), problems, refuse=wanted.refuse)
        reading = Reading(wanted, log, Gathered(Spool(rows_file)), donor.donors if donor else None, tell)
        source, ordered = read_in_order(reading)
        sync(problems)
        digest = write(work / "rows.jsonl", told(ordered.content(), lambda: tell(source["bytes"], source["bytes"])))
    return described(reading, ordered, donor) | {"digest": digest, "source": source}


def read_in_order(reading: "Reading") -> tuple[dict[str, Any], Ordered]:
    """The description of the file, and its rows; raises ImportRefused where there are none."""
    source = reading.read()
    ordered = reading.rows.ordered()
    reading.log.add_all(ordered.problems())
    if not len(ordered):
        raise ImportRefused(f"{file_shown(reading.wanted.path)} holds no request that can be used{reading.log.why()}")
    return source, ordered


class Log:
    """problems.jsonl, and the count by reason."""

    def __init__(self, file: str, sink: BinaryIO, *, refuse: bool) -> None:
        self._file, self._sink, self._refuse = file, sink, refuse
        self._counts: Counter[Reason] = Counter()
        self._first: Problem | None = None

    def add(self, problem: Problem) -> None:
        if self._refuse:
            raise ImportRefused(
                problem.sentence(self._file) + "; the rest can be imported without it (--on-bad-row skip)"
            )
        self._first = self._first or problem
        self._counts[problem.reason] += 1
        self._sink.write(canonical(problem.document(self._file)) + b"\n")

    def add_all(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.add(problem)

    @property
    def left_out(self) -> int:
        return self._counts.total()

    @property
    def skipped(self) -> dict[str, int]:
        return {str(reason): count for reason, count in sorted(self._counts.items())}

    def why(self) -> str:
        if self._first is None:
            return ""
        counted = ", ".join(f"{count} × {reason}" for reason, count in self.skipped.items())
        return f": {counted}; the first is {self._first.sentence(self._file)}"


class Reading:
    """One pass over one file, into ``rows``."""

    def __init__(
        self, wanted: Wanted, log: Log, rows: Gathered, donors: Donors | None = None, tell: Tell = tell_nobody
    ) -> None:
        self.wanted, self.log, self.rows, self.tell = wanted, log, rows, tell
        self.format = ""
        self.unread: Counter[str] = Counter()
        self.redactor = Redactor(wanted.rules.redaction)
        self._donors = donors

    def read(self) -> dict[str, Any]:
        """Gives the description of the file itself."""
        with opened(self.wanted.path, self.wanted.unpacked_limit) as source:
            try:
                line = self._read_rows(source)
            except Unreadable as error:
                # It names columns and fields of the file, as problems do.
                why = self.redactor.field_name(because(source, error))
                raise ImportRefused(f"{source.name}: {why}") from None
            if source.damage is not None:
                self.log.add(Problem(line, "(file)", Reason.DAMAGED, source.damage))
            return source.document()

    def _read_rows(self, source: Source) -> int:
        size = self.wanted.path.stat().st_size
        chunks = told(source.chunks(), lambda: self.tell(source.bytes_read, size))
        head, chunks = with_head(chunks, self.wanted.line_limit)
        format_ = chosen(self.wanted, head)
        self.format = format_.name
        limit = self.wanted.line_limit
        sightings = Sightings(self.wanted.mapping if format_.shape == "json" else ())
        if format_.blocks and self._donors is None:
            records = table_blocks(chunks, format_.blocks, limit=limit, check=format_.check)
        else:
            records = sightings.among(records_of(format_, head, chunks, limit=limit))
        line = 1
        for draft in drafts(format_, records, self._leave_aside):
            line = draft.line
            if isinstance(draft, Problem):
                self._leave_out(draft)
            elif isinstance(draft, Block):
                self._take_block(draft)
            else:
                self._take(draft)
        sightings.check()
        return line

    def _leave_out(self, problem: Problem) -> None:
        """Its field's name, and the names and numbers of its detail, are as the file has them."""
        clean = self.redactor.field_name
        self.log.add(replace(problem, field=clean(problem.field), detail=clean(problem.detail)))

    def _leave_aside(self, name: str, count: int) -> None:
        name = name_shown(self.redactor.field_name(name))
        if name in self.unread or len(self.unread) < MOST_NAMES:
            self.unread[name] += count

    def _take_block(self, block: Block) -> None:
        entries = block_entries(block, self.wanted.rules)
        problems = entries.problems
        try:
            if entries.lines:
                self.rows.check_zone(entries.zoned)
                self.rows.keep_block(entries)
        except BadField as bad:
            problems = sorted([*problems, *map(bad.at, entries.lines)], key=lambda problem: problem.line)
        self.log.add_all(problems)

    def _take(self, draft: Draft) -> None:
        own_id = draft.id is not None
        try:
            clean, changed = self.redactor.redacted(draft)
            entry = entry_of(clean, self.wanted.rules)
            self.rows.check(entry)
            self.rows.note(entry, own_id=own_id)
            if self._donors:
                entry = self._joined(entry, self._donors)
        except BadField as bad:
            self._leave_out(bad.at(draft.line))
        else:
            self.rows.keep(entry)
            self.redactor.count(changed)

    def _joined(self, entry: Entry, donors: Donors) -> Entry:
        if entry.has_text:
            raise has_text_already(self.wanted.path)
        return donors.joined(entry, self.wanted.rules.max_context)


def has_text_already(path: Path) -> ImportRefused:
    return ImportRefused(f"{file_shown(path)} has text of its own: a donor is for a trace of lengths")


def because(source: Source, error: Unreadable) -> str:
    """Of a compressed file that gives next to nothing, the damage is what its owner must know."""
    return f"{Reason.DAMAGED} ({source.damage}); of what came before, {error}" if source.damage else str(error)


def told(chunks: Iterable[bytes], tell: Callable[[], None]) -> Iterator[bytes]:
    for chunk in chunks:
        tell()
        yield chunk


def with_head(chunks: Iterator[bytes], limit: int) -> tuple[bytes, Iterator[bytes]]:
    """The first chunks up to one whole line or the limit, and all chunks."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) > limit or b"\n" in head.lstrip():
            break
    return head, chain([head], chunks)


def records_of(format_: Format, head: bytes, chunks: Iterator[bytes], *, limit: int) -> Iterator[Found]:
    if format_.shape == "json":
        return (json_list if is_list(head) else json_lines)(chunks, limit=limit, named=format_.header)
    return table(chunks, limit=limit, tabs=format_.shape == "tsv", header=format_.header, check=format_.check)


def chosen(wanted: Wanted, head: bytes) -> Format:
    """The format that was asked for or found; raises ImportRefused where neither tells how to read the file."""
    check_text(head)
    if wanted.mapping:
        if wanted.format in FORMATS:
            raise ImportRefused(f"--map goes with --format {AUTO}, {', '.join(SHAPES)}; {wanted.format} has its names")
        shape = shape_of(head) if wanted.format == AUTO else SHAPES[wanted.format]
        return mapped_format(wanted.mapping, shape, header=wanted.header)
    if wanted.format in SHAPES or not wanted.header:
        raise ImportRefused("say with --map which columns are what")
    return FORMATS[detect(head) if wanted.format == AUTO else wanted.format]


@dataclass(frozen=True)
class Donor:
    donors: Donors
    rows: Gathered
    name: str
    document: dict[str, Any]
    redactor: Redactor


Divided = Callable[[Donor], Donors]


DONOR_FIRST = "import that file by itself first (--map is for the trace alone), and give its rows.jsonl"


def read_donor(wanted: Wanted, path: Path, problems: BinaryIO, file: BinaryIO) -> Donor:
    """The donor set: a file of real text in a format that is known, such as the rows.jsonl of an import."""
    log = Log(file_shown(path), problems, refuse=wanted.refuse)
    asked = Wanted(
        path,
        rules=Rules(redaction=wanted.rules.redaction),
        line_limit=wanted.line_limit,
        unpacked_limit=wanted.unpacked_limit,
    )
    reading = Reading(asked, log, Gathered(Spool(file), payloads=True))
    try:
        source = reading.read()
    except ImportRefused as error:
        raise ImportRefused(TO_MAP.sub(f"; {DONOR_FIRST}", str(error))) from None
    rows = reading.rows
    if not rows.has_text:
        raise ImportRefused(f"{file_shown(path)} holds no text to join{log.why()}")
    rows.spool.flush()
    names = list(rows.classes)
    donors = Donors(
        [names[at] for at in rows.class_of],
        rows.tokens,
        estimated=rows.estimated,
        seed=wanted.seed,
        payload=rows.spool.read,
    )
    document = {**source, "format": reading.format, "rows": len(rows.spool), "skipped": log.skipped}
    return Donor(donors, rows, file_shown(path), document, reading.redactor)


LENGTHS_ALONE = (
    "This set holds lengths and no text. How many draft tokens are accepted depends on the text, so nothing measured "
    "with it says anything about acceptance. Import it again with a file of text as its donor (--donor)."
)


def described(reading: Reading, ordered: Ordered, donor: Donor | None) -> dict[str, Any]:
    wanted, rows = reading.wanted, reading.rows
    usable = bool(rows.has_text) or donor is not None
    left_out = reading.log.left_out
    return {
        **ordered.statistics(),
        "format": reading.format,
        "label": label(rows, donor),
        "needs_arrival_process": ordered.needs_arrival_process,
        "acceptance": {
            "usable": usable,
            "why": None if usable else LENGTHS_ALONE,
            "caution": caution(len(ordered), left_out, donor) if usable else None,
        },
        "left_out": {"rows": left_out, "share": left_out / (left_out + len(ordered))},
        "skipped": reading.log.skipped,
        "unread_fields": dict(sorted(reading.unread.items())),
        "mapping": [spelt_out(f"{source}={target}") for source, target in wanted.mapping],
        "class": wanted.rules.class_,
        "context": {"max": wanted.rules.max_context, "prompt_tokens": whose_count(rows, donor)},
        "output_limit": {"default": wanted.rules.max_tokens, "rows": len(rows.spool) - rows.limits_given},
        "times": {
            "zone": None if rows.zoned is None else "given" if rows.zoned else "none",
            "read_as": read_as(ordered, zoned=rows.zoned),
            "unsorted_rows": ordered.unsorted_rows,
            "repeated": ordered.repeated_times,
        },
        "join": None if donor is None else {**donor.donors.document(), "donor": donor.document},
        # Where text was joined, the donor's rows are counted: the trace has no text to take anything out of.
        "redaction": (donor.redactor if donor else reading.redactor).document(),
    }


def whose_count(rows: Gathered, donor: Donor | None) -> str:
    own = ESTIMATE if rows.estimated else COUNTED
    if donor is None:
        return own
    donors = ESTIMATE if donor.donors.estimated else COUNTED
    return f"of the trace's rows {own}, of the donor's texts {donors}; both must fit"


def read_as(ordered: Ordered, *, zoned: bool | None) -> str:
    if ordered.needs_arrival_process:
        return "nothing: the file has no times"
    if zoned is None:
        return "numbers on a clock of the file's own"
    return "dates with a zone" if zoned else "dates without a zone, taken for UTC"


def caution(kept: int, left_out: int, donor: Donor | None) -> str | None:
    """What can be measured with the set all the same, and yet doesn't say what it seems to."""
    said = [few_texts(donor.donors)] if donor else []
    if left_out > MUCH_LEFT_OUT * (kept + left_out):
        share = f"{left_out:,} of {kept + left_out:,} requests ({left_out / (kept + left_out):.0%}) were left out"
        said.append(f"{share}: the load is that of the others alone.")
    return " ".join(one for one in said if one) or None


def few_texts(donors: Donors) -> str:
    rows, texts = donors.rows.total(), donors.texts
    if rows == texts:
        return ""
    return (
        f"{rows:,} requests carry {texts:,} different text{'s' * (texts > 1)}: acceptance and hits of the prefix cache "
        "will be those of so few."
    )


def label(rows: Gathered, donor: Donor | None) -> str:
    if donor is not None:
        return f"text joined from {donor.name}"
    return "real text" if rows.has_text else "lengths without text"


def write(path: Path, content: Iterable[bytes]) -> str:
    """All of the content, on the disk; gives its digest."""
    hashed = sha256()
    with path.open("wb") as sink:
        for piece in content:
            hashed.update(piece)
            sink.write(piece)
        sync(sink)
    return hashed.hexdigest()


def sync(sink: BinaryIO) -> None:
    sink.flush()
    os.fsync(sink.fileno())
