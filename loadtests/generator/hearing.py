"""What an answer on the wire makes of its request: from the head and the pieces of the body to an outcome."""

from collections.abc import Iterable

from loadtests.credentials import without_credentials
from loadtests.generator.answer import Answer, Outcome, error_outcome, outcome_of_code, parse
from loadtests.generator.http_answer import SIZE, BadAnswer, HttpAnswer
from loadtests.generator.said import MAX_HEARD_CHARACTERS, Secrets, brief_text
from loadtests.generator.sse import EventParser

MAX_ERROR_BYTES = 64 << 10
MAX_DOCUMENT_BYTES = 16 << 20
MAX_LOCATION_CHARACTERS = 300
NO_STREAM = ("application/json", "text/html")


def only_event(packet: bytes) -> bytes | None:
    """The data of a packet that is one chunk of one event of one line: what most packets are, told without a loop."""
    size, _, chunk = packet.partition(b"\r\n")
    if not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n\r\n") and SIZE.fullmatch(size)):
        return None
    # Whoever sends another line end, or a second event, has one before the last three.
    if int(size, 16) != len(chunk) - 2 or chunk.find(b"\n") != len(chunk) - 4 or chunk.find(b"\r") != len(chunk) - 2:
        return None
    return chunk[6:-4]


def place_of(location: str, secrets: Secrets) -> str:
    """Where a redirect points to. A longer address is not looked through, for that takes the loop's time, and cut it
    could show a password whose end is gone. The key goes first: it may hold what ends a password or a parameter."""
    if len(location) > MAX_LOCATION_CHARACTERS:
        return f"an address of {len(location)} characters"
    return without_credentials(secrets.without_key(location))


def beginning_of(text: str) -> str:
    """A text that was cut may end in a part of a secret: it is told where so much is left that its end isn't."""
    line = " ".join(text.split())
    return line if len(line) > MAX_HEARD_CHARACTERS else "a long text of hardly anything but spaces"


class Hearing:
    """``take`` says whether all is said. ``outcome`` may be there before that: an error whose text stalls is an error.
    ``take`` and ``end`` raise BadAnswer, EventTooLong."""

    def __init__(self, answer: Answer, *, stream: bool, secrets: Secrets) -> None:
        self.answer = answer
        self.secrets = secrets
        self.stream = stream
        self.outcome: Outcome | None = None
        self._http = HttpAnswer()
        self._events: EventParser | None = None
        # Neither a chunk nor an event has begun.
        self._at_border = False
        self._body = bytearray()
        self._most = MAX_DOCUMENT_BYTES

    def take(self, data: bytes, now_ns: int) -> bool:
        if self._at_border and (event := only_event(data)) is not None:
            self.answer.take_data(event, now_ns)
            return self._settled()
        return self._take_any(data, now_ns)

    def _take_any(self, data: bytes, now_ns: int) -> bool:
        if self.answer.settled:
            return True
        http = self._http
        began = http.status is None
        pieces = http.feed(data)
        if began and http.status is not None:
            self._begin(http.status)
        if self._events is None:
            return self._gather(pieces, now_ns)
        self._hear(self._events, pieces, now_ns)
        self._at_border = http.at_border and self._events.at_border
        return self._settled()

    def _hear(self, events: EventParser, pieces: Iterable[bytes], now_ns: int) -> None:
        for piece in pieces:
            for event in events.feed(piece):
                self.answer.take(event, now_ns)
            if self.answer.settled:
                # Whatever follows, in this packet or in another, changes nothing.
                return

    def _settled(self) -> bool:
        if not self.answer.settled and not self._http.complete:
            return False
        self.outcome = self.answer.conclude()
        return True

    def end(self, now_ns: int) -> None:
        self._http.end()
        self._finish(now_ns)

    def _begin(self, status: int) -> None:
        """Settled before its text is read, where the head alone settles it."""
        kind = self._http.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = self._http.headers.get("content-encoding", "identity")
        if status != 200:
            self.outcome = outcome_of_code(status, self._status_line)
            self._most = MAX_ERROR_BYTES
        elif encoding.lower() != "identity":
            raise BadAnswer(f"the answer is compressed, which was not asked for: {encoding}")
        elif self.stream and kind in NO_STREAM:
            self.outcome = Outcome("failed", f"HTTP 200 carried {kind}, no stream of events")
            self._most = MAX_ERROR_BYTES
        elif self.stream:
            self._events = EventParser()

    @property
    def _status_line(self) -> str:
        return f"HTTP {self._http.status} {self._http.reason}".strip()

    def _gather(self, pieces: Iterable[bytes], now_ns: int) -> bool:
        for piece in pieces:
            self._body += piece
        full = len(self._body) >= self._most
        if full and self.outcome is None:
            raise BadAnswer(f"the answer is longer than {MAX_DOCUMENT_BYTES} bytes")
        if self._http.complete or full:
            self._finish(now_ns)
            return True
        return False

    def _finish(self, now_ns: int) -> None:
        if self._events is not None:
            self.outcome = self.answer.conclude()
            return
        text = bytes(self._body[: self._most]).decode("utf-8", "replace")
        if len(self._body) >= self._most:
            text = beginning_of(text)
        if self._http.status != 200:
            self.outcome = outcome_of_code(self._http.status, f"{self._status_line}: {self._told(text)}")
        elif self.outcome is not None:
            self.outcome = error_outcome(parse(text), "error inside HTTP 200") or self.outcome
        else:
            self._take_document(text, now_ns)

    def _take_document(self, text: str, now_ns: int) -> None:
        document = parse(text)
        if isinstance(document, dict):
            self.answer.take_whole(document, now_ns)
            self.outcome = self.answer.conclude()
        else:
            self.outcome = Outcome("failed", brief_text(f"HTTP 200 carried no JSON object: {text}"))

    def _told(self, text: str) -> str:
        """The reason in the body of an HTTP error, whether it is JSON or a page; where a redirect points to."""
        if "location" in self._http.headers:
            return f"redirect to {place_of(self._http.headers['location'], self.secrets)}, not followed"
        said = error_outcome(parse(text), "error")
        return (said.error if said else None) or text
