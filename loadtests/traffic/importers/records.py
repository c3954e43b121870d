"""Lines, tables and JSON lists into records: a number, the line it starts at and its fields by name."""

import codecs
import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from json import JSONDecodeError, JSONDecoder
from typing import Any, NamedTuple, NoReturn

from loadtests.traffic.importers.lines import Line, split_lines
from loadtests.traffic.importers.problems import Problem, Reason, Unreadable, name_shown

WHOLE = "(whole line)"
ONLY = "1"


class Record(NamedTuple):
    """``number`` counts every record of the file from 1, usable or not, so that it names a row for good."""

    number: int
    line: int
    fields: dict[str, Any]


Found = Record | Problem
CheckColumns = Callable[[list[str]], None]


# No clock shows as many digits, and arithmetic with a million of them takes hours.
DIGITS = Context(prec=100, Emin=MIN_EMIN, Emax=MAX_EMAX)


def decimal(text: str) -> Decimal:
    """A JSON number as it was written: a float would lose the nanoseconds of an epoch time."""
    try:
        return DIGITS.create_decimal(text)
    except ArithmeticError:
        raise ValueError("a number is out of all range") from None


def no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def once_each(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Which of two values under one name was meant nobody knows, and readers differ in which they take."""
    found = dict(fields)
    if len(found) < len(fields):
        raise ValueError("an object has a name twice")
    return found


DECODER = JSONDecoder(parse_float=decimal, parse_constant=no_constant, object_pairs_hook=once_each)


def not_json(error: Exception) -> str:
    if isinstance(error, JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def json_lines(chunks: Iterable[bytes], *, limit: int, named: bool = True) -> Iterator[Found]:
    filled = (line for line in split_lines(chunks, limit=limit) if line.size > limit or line.content.strip())
    for number, line in enumerate(filled, start=1):
        yield too_long(line, limit) if line.size > limit else json_line(number, line, named=named)


def json_line(number: int, line: Line, *, named: bool) -> Found:
    try:
        return record_of(number, line.number, DECODER.decode(line.content.decode()), named=named)
    except UnicodeDecodeError as error:
        return Problem(line.number, WHOLE, Reason.NOT_UTF8, f"byte {error.start} of the line")
    except (ValueError, RecursionError) as error:
        reason = Reason.NOT_JSON if line.ended else Reason.TRUNCATED
        return Problem(line.number, WHOLE, reason, not_json(error))


def record_of(number: int, line: int, value: object, *, named: bool) -> Found:
    """Without names, a bare value stands in the column "1"."""
    if isinstance(value, dict):
        return Record(number, line, value)
    if not named:
        return Record(number, line, {ONLY: value})
    return Problem(line, WHOLE, Reason.NOT_AN_OBJECT)


def too_long(line: Line, limit: int) -> Problem:
    return Problem(line.number, WHOLE, Reason.LINE_TOO_LONG, f"{line.size} bytes, the limit is {limit}")


class TableLines:
    """The lines of a table as text for csv.reader, which may take several to a row: those are in ``row``. What is
    wrong with one of them waits in ``problem`` for the row that holds it."""

    def __init__(self, lines: Iterable[Line], limit: int) -> None:
        self._lines, self._limit = iter(lines), limit
        self._again = deque[Line]()
        self.row: list[Line] = []
        self.size = 0
        self.one_column = False
        self.problem: Problem | None = None

    def __iter__(self) -> "TableLines":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.row.append(line)
        self.size += line.size
        if len(self.row) > 1 and self.size > self._limit:
            raise csv.Error(f"a row of more than {self._limit} bytes")
        if line.size > self._limit:
            self.problem = too_long(line, self._limit)
            return "\n"
        return self.decoded(line) + ("\n" if line.ended else "")

    def decoded(self, line: Line) -> str:
        try:
            return line.content.decode()
        except UnicodeDecodeError as error:
            self.problem = Problem(line.number, WHOLE, Reason.NOT_UTF8, f"byte {error.start} of the line")
            return line.content.decode(errors="replace")

    @property
    def ended(self) -> bool:
        return self.row[-1].ended

    def begin_row(self) -> None:
        self.row, self.size = [], 0

    def read_again(self) -> None:
        """The lines after the first of a row that came to nothing."""
        self._again.extendleft(reversed(self.row[1:]))

    def taken(self) -> Problem | None:
        problem, self.problem = self.problem, None
        return problem


Cells = tuple[int, list[str]]


def csv_rows(lines: TableLines) -> Iterator[Cells | Problem]:
    """A quote that never closes spoils its own line: those it ran over are tried again. In a table of one column any
    line of a text would be a row, so there they are reported."""
    # Strict, because a lenient reader makes up a row from a quote that never closes.
    reader = csv.reader(lines, strict=True)
    while True:
        lines.begin_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines.taken()
            reason = Reason.NOT_CSV if lines.ended else Reason.TRUNCATED
            spoilt = lines.row if lines.one_column else lines.row[:1]
            yield from (Problem(line.number, WHOLE, reason, str(error)) for line in spoilt)
            if not lines.one_column:
                lines.read_again()
            continue
        if problem := lines.taken():
            yield problem
        elif cells:
            yield lines.row[0].number, cells


def tsv_rows(lines: TableLines) -> Iterator[Cells | Problem]:
    """A quote is a character like any other here."""
    for text in lines:
        if problem := lines.taken():
            yield problem
        elif line := text.rstrip("\r\n"):
            yield lines.row[0].number, line.split("\t")
        lines.begin_row()


def table(
    chunks: Iterable[bytes],
    *,
    limit: int,
    tabs: bool,
    header: bool,
    check: CheckColumns = lambda names: None,
    names: list[str] | None = None,
    line: int = 0,
    number: int = 0,
) -> Iterator[Found]:
    """Rows by column name; without a header the names are "1", "2" …, as many as the first row has cells.

    For what follows the beginning of a table, ``names`` are its columns, ``line`` and ``number`` what came before.
    """
    lines = TableLines(split_lines(chunks, limit=limit, number=line), limit)
    for row in tsv_rows(lines) if tabs else csv_rows(lines):
        if isinstance(row, Problem) and names is None and header:
            raise Unreadable(f"the header can't be read: {row.reason}{f' ({row.detail})' if row.detail else ''}")
        if not isinstance(row, Problem) and names is None:
            names = [cell.strip() for cell in row[1]] if header else [str(at + 1) for at in range(len(row[1]))]
            check_names(names, check)
            lines.one_column = len(names) == 1
            if header:
                continue
        number += 1
        yield row if isinstance(row, Problem) else table_record(number, row, names or [], ended=lines.ended)


MOST_COLUMNS = 2_000


def check_width(names: list[str]) -> None:
    if len(names) > MOST_COLUMNS:
        raise Unreadable(f"its first line has {len(names):,} columns, {MOST_COLUMNS:,} are the most")


def check_names(names: list[str], check: CheckColumns) -> None:
    check_width(names)
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise Unreadable(f"the header names {', '.join(repr(name_shown(name)) for name in twice)} more than once")
    check(names)


def table_record(number: int, row: Cells, names: list[str], *, ended: bool) -> Found:
    line, cells = row
    if len(cells) == len(names):
        return Record(number, line, dict(zip(names, cells, strict=True)))
    reason = Reason.COLUMNS if ended or len(cells) > len(names) else Reason.TRUNCATED
    return Problem(line, WHOLE, reason, f"{len(cells)} where {len(names)} are expected")


SPACE = re.compile(r"[ \t\r\n]*")
# No string holds a newline, nor a quote without a backslash: where one would, the quotes before it don't pair up.
IN_STRING = re.compile(r'["\\\n]|\}[ \t\r]*,\s*\{\s*"')
OUTSIDE = re.compile(r'["\[\]{},]')
# A number, literal or escape that is cut at the end of the buffer fails within its last characters.
CUT_WITHIN = 16
TRIM_OVER = 1 << 20


class ListText:
    """The text of a JSON list, of which only a window is held."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        # A byte that is no UTF-8 spoils its own element, not the list.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
        self.text = ""
        self.at = 0
        self.line = 1
        self.complete = False
        self.more()
        self.text = self.text.removeprefix("\ufeff")

    def more(self) -> bool:
        """Read about as much again as is held, so that an element is tried a few times only, however long."""
        if self.complete:
            return False
        goal = 2 * len(self.text) + 1
        while len(self.text) < goal and not self.complete:
            chunk = next(self._chunks, None)
            self.complete = chunk is None
            self.text += self._decoder.decode(chunk or b"", final=self.complete)
        return True

    def forward(self, to: int) -> None:
        self.line += self.text.count("\n", self.at, to)
        self.at = to
        if self.at > TRIM_OVER and 2 * self.at > len(self.text):
            self.text, self.at = self.text[self.at :], 0

    def peek(self) -> str:
        """The next character that is no white space, "" at the end."""
        while True:
            match = SPACE.match(self.text, self.at)
            self.forward(match.end() if match else self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def skip_value(self) -> None:
        """To the comma or bracket after a value that can't be read."""
        depth, quoted = 0, False
        while True:
            match = (IN_STRING if quoted else OUTSIDE).search(self.text, self.at)
            if match is None:
                if not self.more_after_end():
                    return
                continue
            sign = match.group()
            if quoted and sign[0] in "}\n":
                self.forward(match.start())
                quoted = False
                continue
            if depth == 0 and not quoted and sign in ",]}":
                self.forward(match.start())
                return
            self.forward(self.past(match, quoted=quoted))
            quoted ^= sign == '"'
            depth += 0 if quoted else (sign in "[{") - (sign in "]}")

    def more_after_end(self) -> bool:
        """Past what is held, but for its last characters: a sign may be cut there."""
        kept = len(self.text) if self.complete else max(self.at, len(self.text) - CUT_WITHIN)
        self.forward(kept)
        self.text, self.at = self.text[self.at :], 0
        return self.more()

    def past(self, match: re.Match[str], *, quoted: bool) -> int:
        """After the sign, and after the character that a backslash protects."""
        if quoted and match.group() == "\\":
            if match.end() >= len(self.text):
                self.more()
            return min(match.end() + 1, len(self.text))
        return match.end()


def may_be_cut(error: Exception, text: str) -> bool:
    if not isinstance(error, JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated") or error.pos >= len(text) - CUT_WITHIN


def json_list(chunks: Iterable[bytes], *, limit: int, named: bool = True) -> Iterator[Found]:
    """The elements of one JSON list. An element that can't be read is skipped to the comma after it."""
    source = ListText(chunks)
    if source.peek() != "[":
        raise Unreadable("not a JSON list: it doesn't begin with [")
    source.forward(source.at + 1)
    number = 0
    while (sign := source.peek()) not in ("]", ""):
        if number:
            if sign != ",":
                yield Problem(source.line, WHOLE, Reason.NOT_JSON, "no comma between elements; the rest is not read")
                return
            source.forward(source.at + 1)
            source.peek()
        number += 1
        found = element(source, number, limit=limit, named=named)
        yield found
        if isinstance(found, Problem) and found.reason is Reason.TRUNCATED:
            return
    yield from after_list(source)


def after_list(source: ListText) -> Iterator[Problem]:
    if not source.peek():
        yield Problem(source.line, WHOLE, Reason.TRUNCATED, "the list has no closing bracket")
        return
    source.forward(source.at + 1)
    if source.peek():
        yield Problem(source.line, WHOLE, Reason.NOT_JSON, "text after the end of the list; it is not read")


def element(source: ListText, number: int, *, limit: int, named: bool) -> Found:
    line = source.line
    while True:
        try:
            value, end = DECODER.raw_decode(source.text, source.at)
        except (ValueError, RecursionError) as error:
            held = len(source.text) - source.at
            if may_be_cut(error, source.text) and held <= limit and source.more():
                continue
            return unreadable(source, line, error, limit=limit, held=held)
        # A number at the end of the buffer may go on after it.
        if end < len(source.text) or not source.more():
            break
    return whole_element(source, number, value, end, limit=limit, named=named)


def whole_element(source: ListText, number: int, value: object, end: int, *, limit: int, named: bool) -> Found:
    line, raw = source.line, source.text[source.at : end]
    source.forward(end)
    if len(raw) > limit:
        return Problem(line, WHOLE, Reason.LINE_TOO_LONG, f"{len(raw)} characters, the limit is {limit}")
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        return Problem(line, WHOLE, Reason.NOT_UTF8, f"character {error.start} of the element")
    return record_of(number, line, value, named=named)


def unreadable(source: ListText, line: int, error: Exception, *, limit: int, held: int) -> Problem:
    cut = may_be_cut(error, source.text)
    source.skip_value()
    if cut and held > limit:
        return Problem(line, WHOLE, Reason.LINE_TOO_LONG, f"more than {limit} characters")
    if cut and not source.peek():
        return Problem(line, WHOLE, Reason.TRUNCATED, "the list ends inside an element")
    # The position counts from the window that is held, which says nothing to anyone.
    detail = error.msg if isinstance(error, JSONDecodeError) else not_json(error)
    return Problem(line, WHOLE, Reason.NOT_JSON, detail)
