"""Single values: counts, texts and times, exact to the nanosecond."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from loadtests.traffic.importers.problems import BadField, Reason, shown, what_it_is
from loadtests.traffic.rows import NANOSECONDS

# More tokens than this don't fit the records' 32-bit columns, and no model's context.
MOST_TOKENS = 2**31 - 1
# Nanoseconds are kept in 64 bits: 146 years around 1970.
FURTHEST_NS = 2**62
EPOCH = date(1970, 1, 1).toordinal()
UNITS = {"s": NANOSECONDS, "ms": 1_000_000, "us": 1_000, "ns": 1}

NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,2})?")
INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9]):([0-5][0-9])(?:[.,]([0-9]{1,9}))?"
    r" ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
Fields = Mapping[str, Any]


def filled(fields: Fields, name: str) -> Any:
    """The value under a name; null and an empty cell are as good as none."""
    value = fields.get(name)
    if value is None or value == "":
        raise BadField(name, Reason.MISSING)
    return value


def text_of(value: object, field: str) -> str:
    """A text; a whole number will do, since ids are often numbers."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return str(value)
    raise BadField(field, Reason.NOT_TEXT, what_it_is(value))


def optional_text(fields: Fields, name: str) -> str | None:
    value = fields.get(name)
    return None if value is None or value == "" else text_of(value, name)


def count_of(value: object, field: str) -> int:
    """A whole number from 0 to 2³¹ − 1; "21073.0" is one too."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        count: int | Fraction = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    else:
        count = exact(value, field, Reason.NOT_A_COUNT)
    if count != int(count) or not 0 <= count <= MOST_TOKENS:
        raise BadField(field, Reason.NOT_A_COUNT, shown(value))
    return int(count)


def prompt_length(fields: Fields, name: str) -> int:
    length = count_of(filled(fields, name), name)
    if length == 0:
        raise BadField(name, Reason.EMPTY_PROMPT)
    return length


def output_length(fields: Fields, name: str) -> int:
    length = count_of(filled(fields, name), name)
    if length == 0:
        raise BadField(name, Reason.EMPTY_OUTPUT)
    return length


def optional_output(fields: Fields, name: str) -> int | None:
    return None if fields.get(name) in (None, "") else output_length(fields, name)


def exact(value: object, field: str, reason: Reason) -> Fraction:
    """The decimal number that was written; refuses numbers no clock or counter shows before they grow."""
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        value = Decimal(value.strip())
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**80:
        return Fraction(value)
    if isinstance(value, Decimal) and value.is_finite() and -40 < value.adjusted() < 40:
        return Fraction(value)
    raise BadField(field, reason, shown(str(value) if isinstance(value, Decimal) else value))


def offset_ns(value: object, unit: int, field: str) -> int:
    """A number of ``unit`` nanoseconds, relative or since an epoch, to the nearest nanosecond."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return within(int(value) * unit, value, field)
    return within(round(exact(value, field, Reason.NOT_A_TIME) * unit), value, field)


def within(nanoseconds: int, value: object, field: str) -> int:
    if abs(nanoseconds) >= FURTHEST_NS:
        raise BadField(field, Reason.NOT_A_TIME, f"{shown(value)} is out of range")
    return nanoseconds


@lru_cache(maxsize=4096)
def minute_ns(day: str, minute: str) -> int:
    """Nanoseconds from 1970 to the minute, no zone applied; raises ValueError for a day that never was."""
    hours, minutes = minute.split(":")
    days = date.fromisoformat(day).toordinal() - EPOCH
    return (days * 1_440 + int(hours) * 60 + int(minutes)) * 60 * NANOSECONDS


def instant_ns(value: object, field: str) -> tuple[int, bool]:
    """An ISO 8601 time with up to nine fractional digits, and whether it carries a zone. Without one it counts as
    UTC, which is as good as any: only differences are kept."""
    match = INSTANT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise BadField(field, Reason.NOT_A_TIME, shown(value))
    day, minute, second, fraction, zone = match.groups()
    try:
        whole = minute_ns(day, minute) + int(second) * NANOSECONDS - zone_ns(zone)
    except ValueError:
        raise BadField(field, Reason.NOT_A_TIME, shown(value)) from None
    return within(whole + int((fraction or "0").ljust(9, "0")), value, field), zone is not None


@lru_cache(maxsize=64)
def zone_ns(zone: str | None) -> int:
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no such zone")
    return (hours * 60 + minutes) * 60 * NANOSECONDS * (-1 if zone[0] == "-" else 1)
