"""Server-sent events from bytes that arrive in any pieces (WHATWG HTML, section 9.2). Pure."""

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 4 << 20


class Event(NamedTuple):
    data: str
    name: str = "message"


class EventTooLong(ValueError):
    def __init__(self) -> None:
        super().__init__(f"an event is longer than {MAX_EVENT_BYTES} bytes")


class EventParser:
    """``feed`` takes the next bytes and returns the events they complete; any split gives the same events.

    Lines end in LF, CR LF or CR. An event that no blank line ends is not an event, as the standard says. Lines are
    decoded whole, so a character that is split between packets is no special case.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._data: list[bytes] = []
        self._name = b""
        self._held = 0

    def feed(self, packet: bytes) -> list[Event]:
        if not packet:
            return []
        packet = self._with_lf(packet)
        if b"\n" in packet:
            *lines, line = (bytes(self._line) + packet).split(b"\n")
            self._line = bytearray(line)
        else:
            # One line may come in millions of pieces.
            self._line += packet
            lines = []
        events = [event for line in lines if (event := self._take(line)) is not None]
        # What came whole before it counts, so the fault is told when nothing else is left to tell.
        if not events and len(self._line) + self._held > MAX_EVENT_BYTES:
            raise EventTooLong
        return events

    @property
    def at_border(self) -> bool:
        """Nothing of an event is held: what comes next begins one."""
        return not (self._line or self._data or self._name or self._after_cr or self._first)

    def _with_lf(self, packet: bytes) -> bytes:
        ends_in_cr = packet.endswith(b"\r")
        if self._after_cr:
            packet = packet.removeprefix(b"\n")
        self._after_cr = ends_in_cr
        return packet.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in packet else packet

    def _take(self, line: bytes) -> Event | None:
        if self._first:
            line, self._first = line.removeprefix(BOM), False
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._held += len(value) + 1
        elif name == b"event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        parts, name = self._data, self._name
        self._data, self._name, self._held = [], b"", 0
        if not parts:
            return None
        return Event(b"\n".join(parts).decode("utf-8", "replace"), name.decode("utf-8", "replace") or "message")
