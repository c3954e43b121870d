"""An HTTP/1.1 response from bytes that arrive in any pieces (RFC 9112). Pure."""

import re
from collections.abc import Iterable, Iterator

MAX_HEAD_BYTES = 64 << 10
MAX_LINE_BYTES = 4 << 10
# More than is heard of any text: what is cut before that could show a part of a secret.
MAX_TOLD_BYTES = 2_000
STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: ([^\r\n]*))?")
SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
DIGITS = re.compile(r"[0-9]{1,18}")


class BadAnswer(ValueError):
    """What came is no HTTP/1.1 response, or not a whole one."""


class HttpAnswer:
    """``feed`` takes the next bytes and gives what they hold of the body, as soon as it is there. All of it has to be
    gone through: what follows a fault is not known, what came before it is.

    ``status`` is None until the head has come; interim responses (1xx) are passed over. ``end`` says that the
    connection was closed. Both raise BadAnswer.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.complete = False
        self._held = b""
        # Of a head, with those of interim responses before it.
        self._head_bytes = 0
        # Bytes still to come of the body, or of its present chunk; None until the connection ends.
        self._left: int | None = 0
        self._chunked = False
        self._in_trailer = False

    def feed(self, data: bytes) -> Iterable[bytes]:
        if self.complete:
            return ()
        if self.status is None:
            data = self._take_head(self._held + data)
            if self.status is None:
                return ()
        if not self._chunked:
            return self._plain(data)
        return self._chunks(self._held + data)

    @property
    def at_border(self) -> bool:
        """Nothing of a chunk is held: what comes next begins one."""
        return self._chunked and not (self._held or self._left or self._in_trailer)

    def end(self) -> None:
        if self.status is None:
            raise BadAnswer("the connection was closed before an answer" + (" was whole" if self._held else ""))
        if not self.complete and self._left is not None:
            raise BadAnswer("the connection was closed in the middle of the answer")
        self.complete = True

    def _take_head(self, data: bytes) -> bytes:
        """What follows the head; the head is kept until it is whole."""
        while True:
            head, found, rest = data.partition(b"\r\n\r\n")
            if self._head_bytes + len(head) > MAX_HEAD_BYTES:
                raise BadAnswer(f"the head of the answer is longer than {MAX_HEAD_BYTES} bytes")
            if not b"HTTP/1.".startswith(data[:7]):
                raise BadAnswer(f"no HTTP/1.1 answer: {data[:MAX_TOLD_BYTES]!r}")
            if not found:
                self._held = data
                return b""
            self._held = b""
            status = self._read_head(head)
            if status >= 200:
                self.status = status
                self._frame()
                return rest
            self._head_bytes += len(head)
            data = rest

    def _read_head(self, head: bytes) -> int:
        first, *lines = head.split(b"\r\n")
        told = STATUS_LINE.fullmatch(first)
        if told is None:
            raise BadAnswer(f"no HTTP/1.1 answer: {first[:MAX_TOLD_BYTES]!r}")
        self.reason = (told[2] or b"").decode("latin-1")
        self.headers = {}
        for line in lines:
            name, _, value = line.decode("latin-1").partition(":")
            key, value = name.strip().lower(), value.strip()
            self.headers[key] = f"{self.headers[key]}, {value}" if key in self.headers else value
        return int(told[1])

    def _frame(self) -> None:
        """How the end of the body is known (RFC 9112, section 6.3)."""
        coding, length = self.headers.get("transfer-encoding", ""), self.headers.get("content-length")
        if self.status in (204, 304):
            self.complete = True
        elif coding:
            if coding.lower() != "chunked":
                raise BadAnswer(f"the answer has a transfer encoding that was not asked for: {coding}")
            self._chunked = True
        elif length is None:
            self._left = None
        else:
            lengths = {one.strip() for one in length.split(",")}
            if len(lengths) != 1 or not DIGITS.fullmatch(length.split(",")[0].strip()):
                raise BadAnswer(f"the answer has no sensible Content-Length: {length}")
            self._left = int(lengths.pop())
            self.complete = self._left == 0

    def _plain(self, data: bytes) -> list[bytes]:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            self.complete = self._left == 0
        return [data] if data else []

    def _chunks(self, data: bytes) -> Iterator[bytes]:
        at, end = 0, len(data)
        self._held = b""
        while at < end and not self.complete:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                yield piece
                continue
            stop = data.find(b"\r\n", at)
            if (end if stop < 0 else stop) - at > MAX_LINE_BYTES:
                raise BadAnswer(f"a line of the chunked answer is longer than {MAX_LINE_BYTES} bytes")
            if stop < 0:
                self._held = data[at:]
                return
            self._take_line(data[at:stop])
            at = stop + 2

    def _take_line(self, line: bytes) -> None:
        """Between chunks: the end of the last one, the size of the next, or a line of the trailer."""
        if self._in_trailer:
            self.complete = not line
            return
        if not line and self._left == 0:
            # What closes a chunk.
            return
        size = line.partition(b";")[0].strip()
        if not SIZE.fullmatch(size):
            raise BadAnswer(f"the size of a chunk is no number: {line!r}")
        self._left = int(size, 16)
        self._in_trailer = self._left == 0
