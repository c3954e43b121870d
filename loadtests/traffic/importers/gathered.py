"""The usable rows of a file, kept outside memory until the last of them has been read."""

import os
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from loadtests.traffic.importers.drafts import number_of
from loadtests.traffic.importers.entries import DEFAULT_CLASS, BlockEntries, Entry, line_of_row, middle
from loadtests.traffic.importers.problems import BadField, ImportRefused, Problem, Reason
from loadtests.traffic.rows import NANOSECONDS
from loadtests.traffic.spread import spread

NO_TIME = -(2**63)
OWN_CONVERSATION = -1
TO_NUMBER = 0
AT_ONCE = 4_096
# As many as a brief can name deadlines for.
MOST_CLASSES = 200
Int64 = NDArray[np.int64]


class Spool:
    """Byte strings in a file, read back by index."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, content: bytes) -> None:
        self._file.write(content)
        self._ends.append(self._ends[-1] + len(content))

    def extend(self, contents: list[bytes]) -> None:
        self._file.write(b"".join(contents))
        self._ends.extend((np.cumsum([len(one) for one in contents]) + self._ends[-1]).tolist())

    @property
    def sizes(self) -> Int64:
        ends = np.array(self._ends, dtype=np.int64)
        sizes: Int64 = ends[1:] - ends[:-1]
        return sizes

    def read(self, index: int) -> bytes:
        return self.read_run(index, 1)[0]

    def read_run(self, first: int, count: int) -> list[bytes]:
        """The contents of ``count`` indices from ``first`` on, in one read."""
        ends = self._ends[first : first + count + 1]
        start = ends[0]
        held = os.pread(self._file.fileno(), ends[-1] - start, start)
        return [held[one - start : two - start] for one, two in pairwise(ends)]

    def flush(self) -> None:
        self._file.flush()


class Ids:
    """Who is called what. Numbers that stand for an id the source doesn't give take a byte each."""

    UNUSED, IN_CONVERSATION, OF_ITS_OWN = range(3)

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._numbered = bytearray()

    def use(self, id_: str) -> int:
        """UNUSED, or how the row with this id stands: in a conversation of the source, or one of its own."""
        if id_ in self._given:
            return self._given[id_]
        number = number_of(id_)
        return self._numbered[number] if number is not None and number < len(self._numbered) else self.UNUSED

    def note(self, entry: Entry, *, own_id: bool) -> None:
        use = self.OF_ITS_OWN if entry.own_conversation else self.IN_CONVERSATION
        number = None if own_id else number_of(entry.id)
        if number is None:
            self._given[entry.id] = use
        else:
            self._numbered.extend(bytes(max(0, number + 1 - len(self._numbered))))
            self._numbered[number] = use


class Gathered:
    """Per row some 50 bytes of memory; its text is in the spool. Names are kept once."""

    def __init__(self, spool: Spool, *, payloads: bool = False) -> None:
        self.spool = spool
        # Of a donor set only the text is wanted, of any other the middle of each canonical line.
        self._content = (lambda entry: entry.payload) if payloads else middle
        self.times, self.lines = array("q"), array("q")
        self.classes: dict[str, int] = {}
        self.conversations: dict[str, int] = {}
        self.class_of, self.conversation_of, self.turns, self.tokens, self.limits = (array("i") for _ in range(5))
        self.limits_given = 0
        self.estimated = False
        self.has_text: bool | None = None
        self.zoned: bool | None = None
        self._ids = Ids()

    def check(self, entry: Entry) -> None:
        """Raises BadField for a row that doesn't go with the ones before it."""
        if self._ids.use(entry.id) != Ids.UNUSED:
            raise BadField("id", Reason.ID_TWICE)
        self._check_conversation(entry)
        if self.has_text not in (None, entry.has_text):
            raise BadField("prompt", Reason.MIXED)
        self.check_zone(entry.zoned)

    def _check_conversation(self, entry: Entry) -> None:
        """A row that belongs to no conversation is one under its id, which no other may have."""
        known = entry.conversation in self.conversations
        if entry.own_conversation and known:
            raise BadField("id", Reason.ID_TWICE, "a conversation has this name")
        if not entry.own_conversation and not known and self._ids.use(entry.conversation) == Ids.OF_ITS_OWN:
            raise BadField("conversation", Reason.ID_TWICE, "a row that belongs to no conversation has this id")

    def check_zone(self, zoned: bool | None) -> None:
        if zoned is not None and self.zoned not in (None, zoned):
            raise BadField("arrival", Reason.ZONES_MIXED, "the first row has " + ("one" if self.zoned else "none"))

    def note(self, entry: Entry, *, own_id: bool) -> None:
        """What later rows are held against."""
        self._ids.note(entry, own_id=own_id)
        self.has_text = entry.has_text
        self.zoned = self.zoned if entry.zoned is None else entry.zoned

    def keep(self, entry: Entry) -> None:
        self.spool.add(self._content(entry))
        self.times.append(NO_TIME if entry.time_ns is None else entry.time_ns)
        self.lines.append(entry.line)
        self.tokens.append(entry.tokens)
        self.limits.append(entry.max_tokens)
        self.turns.append(TO_NUMBER if entry.turn is None else entry.turn)
        self.class_of.append(self._class(entry.class_ or DEFAULT_CLASS))
        self.conversation_of.append(self._conversation(entry))
        self.limits_given += entry.limit_given
        self.estimated |= entry.estimated

    def keep_block(self, rows: BlockEntries) -> None:
        """Rows of a trace of lengths, each a conversation of its own."""
        self.has_text, self.zoned = False, rows.zoned
        self.spool.extend(rows.middles)
        self.times.extend(rows.times_ns)
        self.lines.extend(rows.lines)
        self.tokens.extend(rows.tokens)
        self.limits.extend(rows.max_tokens)
        count, class_ = len(rows.lines), self.classes.setdefault(rows.class_, len(self.classes))
        self.turns.extend(repeat(1, count))
        self.class_of.extend(repeat(class_, count))
        self.conversation_of.extend(repeat(OWN_CONVERSATION, count))
        self.limits_given += count

    def _class(self, name: str) -> int:
        if name not in self.classes and len(self.classes) == MOST_CLASSES:
            raise ImportRefused(
                f"more than {MOST_CLASSES} classes: a class is a kind of request with deadlines of its own, not a user "
                "or a session (those are tenant and conversation)"
            )
        return self.classes.setdefault(name, len(self.classes))

    def _conversation(self, entry: Entry) -> int:
        if entry.own_conversation:
            return OWN_CONVERSATION
        return self.conversations.setdefault(entry.conversation, len(self.conversations))

    def ordered(self) -> "Ordered":
        self.spool.flush()
        return Ordered(self)


class Ordered:
    """The rows in order of arrival, times rebased to zero. Equal times keep the order of the file, and a file without
    times keeps it altogether."""

    def __init__(self, rows: Gathered) -> None:
        self._rows = rows
        times = np.frombuffer(rows.times, dtype=np.int64) if rows.times else np.empty(0, dtype=np.int64)
        self.needs_arrival_process = not bool((times != NO_TIME).any())
        kept = np.arange(len(times)) if self.needs_arrival_process else np.flatnonzero(times != NO_TIME)
        self._left_out = np.setdiff1d(np.arange(len(times)), kept)
        self.order: Int64 = kept[np.argsort(times[kept], kind="stable")]
        in_file = times[kept]
        timed = not self.needs_arrival_process
        self.arrivals: Int64 = times[self.order] - in_file.min() if timed else np.zeros(len(kept), dtype=np.int64)
        self.unsorted_rows = int((in_file < np.maximum.accumulate(in_file)).sum()) if timed else 0
        self.repeated_times = int((np.diff(self.arrivals) == 0).sum()) if timed else 0

    def __len__(self) -> int:
        return len(self.order)

    def problems(self) -> Iterator[Problem]:
        for index in self._left_out.tolist():
            yield Problem(self._rows.lines[index], "arrival_s", Reason.NO_TIME)

    def content(self) -> Iterator[bytes]:
        """The canonical lines, many at a time."""
        turns = Counter[int]()
        for start in range(0, len(self), AT_ONCE):
            order, arrivals = (all_[start : start + AT_ONCE].tolist() for all_ in (self.order, self.arrivals))
            middles = self._middles(order)
            numbered = (self._turn(index, turns) for index in order)
            yield b"".join(map(line_of_row, arrivals, middles, numbered))

    def _middles(self, order: list[int]) -> list[bytes]:
        # In a file that is sorted, as most are, they lie one after the other.
        if order == list(range(order[0], order[0] + len(order))):
            return self._rows.spool.read_run(order[0], len(order))
        return [self._rows.spool.read(index) for index in order]

    def _turn(self, index: int, turns: Counter[int]) -> int:
        if self._rows.turns[index] != TO_NUMBER:
            return self._rows.turns[index]
        conversation = self._rows.conversation_of[index]
        turns[conversation] += 1
        return turns[conversation]

    def statistics(self) -> dict[str, Any]:
        rows = self._rows
        conversations = np.asarray(rows.conversation_of)[self.order]
        counts = np.bincount(np.asarray(rows.class_of)[self.order], minlength=len(rows.classes)).tolist()
        classes = {name: counts[at] for name, at in sorted(rows.classes.items()) if counts[at]}
        own = int((conversations == OWN_CONVERSATION).sum())
        duration_s = None if self.needs_arrival_process else int(self.arrivals[-1]) / NANOSECONDS
        return {
            "rows": len(self),
            "classes": classes,
            "conversations": own + len(np.unique(conversations[conversations != OWN_CONVERSATION])),
            "duration_s": duration_s,
            "requests_per_s": len(self) / duration_s if duration_s else None,
            "prompt_tokens": spread(np.asarray(rows.tokens)[self.order]),
            "max_tokens": spread(np.asarray(rows.limits)[self.order]),
        }
