"""JSON values of files that others wrote, each with the place where it stands, so that an error can name it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import JsonValue

from loadtests.credentials import ROOM, address_without_credentials, beginning_without_credentials

NANOSECONDS = 1_000_000_000
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NANOSECONDS, "sec": NANOSECONDS, "seconds": NANOSECONDS}
MAX_COUNT = 2**31 - 1
# Differences of two instants below this fit in the 64 bits of the records.
MAX_INSTANT_NS = 2**62
# No run takes 115 days.
LONGEST_S = 10_000_000
MAX_SAFE_INTEGER = 2**53 - 1
LONGEST_TEXT = 300
LONGEST_KEY = 60

Key = str | int


class BadField(Exception):
    """A value that isn't what its field promises. ``what`` begins with a verb: "is no count …"."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where or 'the document'} {what}")


def clean(text: str, limit: int = LONGEST_TEXT) -> str:
    """One line that UTF-8 and every database can hold, without credentials, cut: a NUL and half of a surrogate pair
    become U+FFFD. Every text that is kept of a file goes through here."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    line = " ".join(whole.replace("\0", "\ufffd").split())
    return beginning_without_credentials(line, limit)


def address(raw: object) -> str | None:
    """A server's address without user, password, query and fragment; None where it is no text, or too long for an
    address: cut, it could end before the @ that tells a password."""
    if not isinstance(raw, str) or len(raw) > ROOM * LONGEST_TEXT:
        return None
    return clean(address_without_credentials(raw)) or None


def spelt(path: tuple[Key, ...]) -> str:
    whole = "".join(f"[{key}]" if isinstance(key, int) else f".{clean(key, LONGEST_KEY)}" for key in path).removeprefix(
        "."
    )
    # A place in the file, such as "line 3:", stands before the names.
    return whole.replace(":.", ": ", 1) if path and str(path[0]).endswith(":") else whole


@dataclass(frozen=True, slots=True)
class Value:
    """A value that may be missing: every reading gives None then, and raises BadField where it is something else."""

    raw: Any
    path: tuple[Key, ...] = ()

    def __getitem__(self, name: str) -> "Value":
        found = self.raw.get(name) if isinstance(self.raw, dict) else None
        return Value(found, (*self.path, name))

    def at(self, *names: str) -> "Value":
        value = self
        for name in names:
            value = value[name]
        return value

    def __bool__(self) -> bool:
        return self.raw is not None

    def bad(self, what: str) -> BadField:
        return BadField(clean(spelt(self.path)), what)

    def fields(self) -> dict[str, Any]:
        """The object's fields, {} where it is missing."""
        if self.raw is None:
            return {}
        if not isinstance(self.raw, dict):
            raise self.bad("is no JSON object")
        return self.raw

    def elements(self) -> list[Any] | None:
        if self.raw is not None and not isinstance(self.raw, list):
            raise self.bad("is no list")
        return self.raw

    def items(self) -> "list[Value] | None":
        found = self.elements()
        return None if found is None else [Value(one, (*self.path, number)) for number, one in enumerate(found)]

    def text(self) -> str | None:
        if self.raw is None:
            return None
        if not isinstance(self.raw, str):
            raise self.bad("is no text")
        return self.raw

    def flag(self) -> bool:
        if self.raw is not None and not isinstance(self.raw, bool):
            raise self.bad("is neither true nor false")
        return bool(self.raw)

    def number(self) -> int | float | None:
        if self.raw is None:
            return None
        if isinstance(self.raw, bool) or not isinstance(self.raw, int | float):
            raise self.bad("is no number")
        return self.raw

    def count(self) -> int | None:
        number = self.number()
        if number is None:
            return None
        if not 0 <= number <= MAX_COUNT or number != int(number):
            raise self.bad(f"is {shown(number)}, no whole number from 0 to {MAX_COUNT}")
        return int(number)

    def duration_s(self) -> float | None:
        """Seconds from 0 up."""
        number = self.number()
        if number is not None and not 0 <= number <= LONGEST_S:
            raise self.bad(f"is {shown(number)}, no duration in s")
        return None if number is None else float(number)

    def duration_ns(self, unit: str) -> int | None:
        """A duration in the unit that is named, as nanoseconds."""
        if (scale := UNITS_NS.get(unit)) is None:
            raise self.bad(f"is in {clean(unit, 20)!r}, which is no unit of time that is known here")
        number = self.number()
        if number is None:
            return None
        if not 0 <= number <= LONGEST_S * NANOSECONDS // scale:
            raise self.bad(f"is {shown(number)}, no duration in {unit}")
        return round(number * scale)

    def total_s(self) -> int:
        """The sum of a list of durations in seconds, as nanoseconds. Lists of gaps hold most of a file's numbers, so
        only the first that is no duration is looked at by itself."""
        found = self.elements() or []
        for number, one in enumerate(found):
            if type(one) not in (int, float) or not 0 <= one <= LONGEST_S:
                raise Value(one, (*self.path, number)).bad(f"is {told(one)}, no duration in s")
        total = math.fsum(found)
        if total > LONGEST_S:
            raise self.bad("adds up to no duration")
        return round(total * NANOSECONDS)

    def instant_ns(self) -> int | None:
        """Whole nanoseconds since some origin."""
        if self.raw is None:
            return None
        if isinstance(self.raw, bool) or not isinstance(self.raw, int) or not 0 <= self.raw < MAX_INSTANT_NS:
            raise self.bad("is no time in whole nanoseconds")
        return self.raw

    def instant_s(self) -> int | None:
        """Seconds since some origin, as nanoseconds: all digits of the file count, not those of a product of floats."""
        number = self.number()
        if number is None:
            return None
        if not 0 <= number < MAX_INSTANT_NS // NANOSECONDS:
            raise self.bad(f"is {shown(number)}, no time in seconds")
        return int((Decimal(repr(number)) * NANOSECONDS).to_integral_value())


def shown(number: float) -> str:
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return f"{number:.6g}" if abs(number) < 1e300 else "a number out of all range"


def told(raw: object) -> str:
    """A number as it was found. What isn't one is not shown: it may be a prompt."""
    return shown(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else "no number"


def plain(raw: object) -> JsonValue:
    """A number, text or truth value in a form that canonical JSON can hold; None for what is none of them."""
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        return clean(raw)
    if isinstance(raw, int):
        return raw if abs(raw) <= MAX_SAFE_INTEGER else clean(str(raw))
    if isinstance(raw, float):
        return raw if math.isfinite(raw) else str(raw)
    return None


def leaves(value: Value, name: str = "") -> Iterator[tuple[str, int | float]]:
    """The numbers inside, each under its dotted name. An object that counted nothing is passed over: what stands
    beside a count of 0 are defaults."""
    raw = value.raw
    if isinstance(raw, dict):
        if raw.get("count") == 0:
            return
        for key in raw:
            yield from leaves(value[key], f"{name}.{key}" if name else key)
    elif isinstance(raw, list):
        for number, one in enumerate(raw):
            yield from leaves(Value(one), f"{name}.{number}")
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        yield name, raw
