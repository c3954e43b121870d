"""What of the history is asked for: the fields of its filter as they stand in an address, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta

from decisions.rules.states import DRAFT, MOVES

# A day that is said without a zone is a day of this one, everywhere.
ZONE = "UTC"
# As long as the longest column; a longer pattern is more than SQLite compares.
LONGEST = 200

# state → the kinds of event after which the brief or the release that it is about was in it.
STATE_KINDS: dict[str, tuple[str, ...]] = {
    **{
        state: tuple(f"brief-{act}" for act, moves in MOVES.items() if state in moves.values())
        for state in dict.fromkeys(state for moves in MOVES.values() for state in moves.values())
    },
    DRAFT: ("brief-created", "brief-edited", "brief-revised"),
    "request-expired": ("request-expired",),
    "fallen": ("signatures-fell-away",),
    "in-force": ("release-in-force",),
    "expired": ("release-expired",),
    "revoked": ("release-revoked",),
}


@dataclass(frozen=True)
class Filter:
    """As it was typed. ``since`` and ``until`` are days, the second one included; ``subject`` may be its beginning."""

    kind: str = ""
    actor: str = ""
    service: str = ""
    route: str = ""
    state: str = ""
    subject: str = ""
    since: str = ""
    until: str = ""

    @property
    def asked(self) -> dict[str, str]:
        """What of it was asked for: the query of its address, in one order."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """None: of every kind."""
        of_state = STATE_KINDS.get(self.state, ()) if self.state else None
        if not self.kind:
            return of_state
        return (self.kind,) if of_state is None or self.kind in of_state else ()

    @property
    def first_moment(self) -> datetime | None:
        day = day_of(self.since)
        return start_of(day) if day else None

    @property
    def end_moment(self) -> datetime | None:
        """The first one that is not asked for any more."""
        day = day_of(self.until)
        return start_of(day) + timedelta(days=1) if day else None


def read_filter(sent: Mapping[str, str]) -> Filter:
    return Filter(**{field.name: sent.get(field.name, "").strip() for field in fields(Filter)})


def filter_problems(asked: Filter) -> dict[str, str]:
    """field → what is wrong with it. A filter that isn't understood must not look like one that found nothing."""
    days = ((name, getattr(asked, name)) for name in ("since", "until"))
    found = {name: f"{typed} is no day: write it as 2026-11-30" for name, typed in days if typed and not day_of(typed)}
    for name, value in asked.asked.items():
        if len(value) > LONGEST:
            return {name: f"that is longer than anything here: {LONGEST} characters at most"}
    if asked.state and asked.state not in STATE_KINDS:
        found["state"] = f"there is no state {asked.state}: there are {', '.join(STATE_KINDS)}"
    first, end = asked.first_moment, asked.end_moment
    if not found and first and end and first >= end:
        found["until"] = f"{asked.until} is before {asked.since}: no day lies between them"
    return found


def day_of(typed: str) -> date | None:
    try:
        day = date.fromisoformat(typed)
    except ValueError:
        return None
    # Other ways to write it, which a date field would show as none, aren't taken.
    if typed != day.isoformat():
        return None
    # A day after it has to exist, and the databases' own years are fewer than Python's.
    return day if 1900 <= day.year < 9999 else None


def start_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
