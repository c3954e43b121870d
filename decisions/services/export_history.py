from collections.abc import Iterator

from decisions import ledger
from decisions.models import Account, Event
from decisions.rules.exports import COLUMNS, csv_line
from decisions.rules.history import Filter
from decisions.rules.who_may import may_read_ledger
from decisions.selectors.events import events, exported, last_sequence
from decisions.services.people import person
from decisions.services.refuse import refuse
from loadtests.canonical import canonical
from loadtests.journal import act

CSV, JSONL = "csv", "jsonl"
FORMATS = {CSV: "text/csv; charset=utf-8", JSONL: "application/x-ndjson"}
SUBJECT = "history"


def export_history(*, asked: Filter, form: str, by: Account) -> Iterator[bytes]:
    """The filtered history as lines of a file, the oldest event first. Taking it away in bulk is an act: the event of
    it says what was taken, up to where; it is itself not in the file."""
    refusal = may_read_ledger(person(by))
    if refusal:
        refuse("history-export", refusal, subject=SUBJECT, actor=by.username)
    up_to = last_sequence()
    count = events(asked).filter(sequence__lte=up_to).count()
    details: dict[str, object] = {"format": form, "filter": asked.asked, "up_to": up_to, "events": count}
    with act():
        ledger.append("history-exported", subject=SUBJECT, actor=by.username, details=details)
    return csv_lines(asked, up_to) if form == CSV else json_lines(asked, up_to)


def csv_lines(asked: Filter, up_to: int) -> Iterator[bytes]:
    yield csv_line(COLUMNS).encode()
    for event in exported(asked, up_to):
        yield csv_line(cells_of(event)).encode()


def cells_of(event: Event) -> list[str]:
    return [
        str(event.sequence),
        ledger.timestamp(event.at),
        *(event.kind, event.actor, event.subject, event.service or "", event.route or ""),
        *(event.previous, event.hash, event.text),
    ]


def json_lines(asked: Filter, up_to: int) -> Iterator[bytes]:
    """The stored text stands in a field of its own: SHA-256 of its UTF-8 gives the hash beside it."""
    for event in exported(asked, up_to):
        yield canonical(dict(zip(COLUMNS, [event.sequence, *cells_of(event)[1:]], strict=True))) + b"\n"
