"""How the pages write numbers, times, digests and states: a unit on every number, a word beside every colour."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django import template
from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, json_script
from django.utils.safestring import SafeString, mark_safe

from decisions.models import Release
from decisions.rules.brief import Guardrail, Outcome
from decisions.rules.measures import EXCLUDED, measure_of
from decisions.rules.nomination import EXPLORATORY
from decisions.rules.wording import amount, process_words
from decisions.selectors.events import signing_keys, subject_link
from decisions.selectors.identity import fresh_until, means_of
from decisions.selectors.runs import TrialRow
from decisions.selectors.services import release_state
from decisions.verify import utc
from loadtests.traffic.levels import Arrival

register = template.Library()

MINUS, NARROW = "−", "\u202f"

# Up to here a duration is written to the second.
SECONDS_COUNT = 600

ICONS = {
    "check": "M4 10.5 8.2 15 16 5.5",
    "cross": "M5 5l10 10M15 5 5 15",
    "circle": "M10 3.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13",
    "turning": "M10 3.5a6.5 6.5 0 1 0 6.5 6.5",
    "pencil": "M4 16l1-4L13.5 3.5l3 3L8 15z",
    "lock": "M5 9.5h10v7H5zM7 9.5V7a3 3 0 0 1 6 0v2.5",
    "eye": "M2.5 10S5.5 5 10 5s7.5 5 7.5 5-3 5-7.5 5-7.5-5-7.5-5M10 8.2a1.8 1.8 0 1 0 .01 0",
    "back": "M8 5 3.5 9.5 8 14M3.5 9.5H12a4.5 4.5 0 0 1 4.5 4.5v1.5",
    "minus": "M4.5 10h11",
    "stop": "M5 5h10v10H5z",
    "warning": "M10 3.2 18 16.5H2zM10 8v4M10 14.3v.1",
    "question": "M6.6 7.2a3.4 3.4 0 1 1 5 3c-1.1.6-1.6 1.1-1.6 2.3M10 15.6v.1",
    "void": "M10 3.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13M5.5 14.5l9-9",
    "flag": "M5 17.5V3.5h10l-2.2 3.5L15 10.5H5",
    "info": "M10 3.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13M10 9.3v4M10 6.7v.1",
    "clock": "M10 3.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13M10 6.5V10l2.5 1.5",
}

# word in the database → (icon, colour class, what the page says)
STATES = {
    "draft": ("pencil", "", "draft"),
    "frozen": ("lock", "", "frozen"),
    "measuring": ("turning", "run", "measuring"),
    "in-review": ("eye", "wait", "in review"),
    "approved": ("check", "good", "approved"),
    "rejected": ("cross", "bad", "rejected"),
    "changes-requested": ("back", "wait", "changes requested"),
    "withdrawn": ("minus", "", "withdrawn"),
    "cancelled": ("stop", "", "cancelled"),
    "halted": ("warning", "wait", "halted"),
    "queued": ("circle", "", "queued"),
    "waiting": ("circle", "", "waiting"),
    "running": ("turning", "run", "running"),
    "done": ("check", "good", "done"),
    "finished": ("check", "good", "finished"),
    "stopped": ("warning", "wait", "stopped"),
    "refused": ("cross", "bad", "refused"),
    "failed": ("warning", "bad", "failed"),
    "lost": ("warning", "bad", "lost"),
    "void": ("void", "", "void"),
    "cut-off": ("warning", "wait", "cut off"),
    "died": ("cross", "bad", "engine died"),
    "in-force": ("check", "good", "in force"),
    "expired": ("clock", "wait", "expired"),
    "revoked": ("back", "bad", "revoked"),
    "superseded": ("minus", "", "superseded"),
    "PASS": ("check", "good", "PASS"),
    "FAIL": ("cross", "bad", "FAIL"),
    "INCONCLUSIVE": ("question", "wait", "INCONCLUSIVE"),
    "INVALID": ("void", "", "INVALID"),
    "holds": ("check", "good", "holds"),
    "shown": ("check", "good", "shown"),
    "broken": ("cross", "bad", "broken"),
    "open": ("question", "wait", "not shown"),
    # Of the preserved-behaviour suite: what shows nothing has no colour and a broken edge.
    "held": ("check", "good", "held"),
    "changed": ("flag", "wait", "changed"),
    "unsupported": ("minus", "none", "unsupported"),
    "not_exercised": ("circle", "none", "not exercised"),
    "cannot_tell": ("question", "wait", "cannot tell"),
    "answered": ("check", "good", "answered"),
    "passed": ("check", "good", "passed"),
    "not judged": ("question", "wait", "not judged"),
    "approve": ("check", "good", "approved"),
    "reject": ("cross", "bad", "rejected"),
    "request-changes": ("back", "wait", "changes requested"),
    "break-glass": ("warning", "wait", "glass broken"),
    "request-expired": ("clock", "wait", "request expired"),
    "fallen": ("cross", "bad", "fallen away"),
    "sending": ("turning", "run", "sending"),
    "sent": ("check", "good", "sent"),
    "given-up": ("cross", "bad", "given up"),
    "enabled": ("check", "good", "enabled"),
    "disabled": ("stop", "wait", "disabled"),
}


@register.simple_tag
def icon(name: str) -> SafeString:
    return format_html('<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d="{}"/></svg>', ICONS[name])


@register.simple_tag
def state(word: str) -> SafeString:
    """A state as icon and word; an unknown one is written as it is."""
    shape, colour, text = STATES.get(word, ("circle", "", word))
    classes = f"state state-{colour}" if colour else "state"
    return format_html('<span class="{}">{}{}</span>', classes, icon(shape), text)


@register.simple_tag
def moment(at: datetime | None, to_the_second: bool = False) -> SafeString | str:
    """A time in UTC; the script adds the reader's own on hover."""
    if at is None:
        return "–"
    utc = at.astimezone(UTC)
    clock = f"{utc:%H:%M:%S}" if to_the_second else f"{utc:%H:%M}"
    return format_html(
        '<time datetime="{}" class="nowrap">{}</time>',
        utc.isoformat(timespec="seconds").replace("+00:00", "Z"),
        f"{utc.day} {utc:%b %Y}, {clock} UTC",
    )


@register.simple_tag
def day(at: datetime | None) -> SafeString | str:
    if at is None:
        return "–"
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" class="nowrap">{}</time>',
        utc.isoformat(timespec="seconds").replace("+00:00", "Z"),
        f"{utc.day} {utc:%b %Y}",
    )


@register.filter
def short(digest: str) -> str:
    """7f3a…c21e: enough to compare by eye, the whole stands in the title or beside it."""
    return f"{digest[:4]}…{digest[-4:]}" if len(digest) > 12 else digest


@register.simple_tag
def signing_key() -> str:
    """The id of the key that bundles are signed with now; "" before the first."""
    return next((one.key_id for one in reversed(signing_keys())), "")


@register.simple_tag(name="digest")
def digest_tag(value: str, prefix: str = "sha256:") -> SafeString | str:
    return format_html('<code title="{0}{1}">{0}{2}</code>', prefix, value, short(value)) if value else "–"


def missing(value: Any) -> bool:
    """No number: None, not finite, or the empty text that a template makes of a figure that was never taken."""
    return value is None or value == "" or (isinstance(value, float) and not math.isfinite(value))


@register.filter
def number(value: Any) -> str:
    """Thousands apart, at most four significant decimals; a real minus sign."""
    if missing(value):
        return "–"
    if not isinstance(value, int | float):
        return str(value)
    digits = 0 if isinstance(value, int) or value == int(value) or abs(value) >= 1000 else decimals(value)
    return f"{value:,.{digits}f}".replace("-", MINUS)


def decimals(value: float) -> int:
    return 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3


@register.filter
def or_missing(text: str) -> str:
    """What a file doesn't tell is said, where a dash could be read as "not yet"."""
    return "missing" if text == "–" else text


@register.filter
def percent(share: Any, digits: int = 1) -> str:
    return "–" if missing(share) else f"{100 * share:.{digits}f}{NARROW}%".replace("-", MINUS)


@register.filter
def signed_percent(share: Any) -> str:
    return "–" if missing(share) else f"{100 * share:+.1f}{NARROW}%".replace("-", MINUS)


@register.filter
def milliseconds(value: Any) -> str:
    """Milliseconds as a person reads them: ms below a second, seconds above."""
    if missing(value):
        return "–"
    if abs(value) < 10:
        return f"{value:.1f}{NARROW}ms"
    return f"{value:.0f}{NARROW}ms" if abs(value) < 1000 else f"{value / 1000:.2f}{NARROW}s"


@register.filter
def seconds(value: Any) -> str:
    return "–" if missing(value) else f"{value:g}{NARROW}s"


@register.filter
def duration(value: Any) -> str:
    """Seconds as 45 s, 1 min 29 s, 12 min, 1 h 20 min."""
    if missing(value):
        return "–"
    if value < SECONDS_COUNT:
        minutes, rest = divmod(round(value), 60)
        last = f"{rest}{NARROW}s" if rest or not minutes else ""
        return " ".join(filter(None, (f"{minutes}{NARROW}min" if minutes else "", last)))
    minutes = round(value / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes}{NARROW}min"
    return f"{hours}{NARROW}h {rest}{NARROW}min" if rest else f"{hours}{NARROW}h"


@register.filter
def minutes(value: Any) -> str:
    return "–" if missing(value) else f"{whole_or_tenths(value)}{NARROW}min"


def whole_or_tenths(value: float) -> str:
    """120, 12.5: a plan's 120 is no measurement to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


@register.filter
def file_size(size: int) -> str:
    """Bytes as kB, MB or GB, thousands to a step."""
    if size < 1_000_000:
        return f"{max(1, round(size / 1000))}{NARROW}kB" if size else f"0{NARROW}kB"
    if size < 1_000_000_000:
        return f"{whole_or_tenths(size / 1_000_000)}{NARROW}MB"
    return f"{size / 1_000_000_000:.2f}".rstrip("0").rstrip(".") + f"{NARROW}GB"


@register.filter
def sentence(text: str) -> str:
    """A reason as a sentence: a capital at its start and a full stop at its end. A file's name keeps its letters."""
    started = text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text
    return started if started.endswith((".", "!", "?", "…")) or not started else f"{started}."


@register.filter
def lookup(mapping: Mapping[str, Any] | None, key: str) -> Any:
    return (mapping or {}).get(key)


@register.filter
def words(name: str) -> str:
    """first_token_quantile → first token quantile."""
    return str(name).replace("_", " ")


@register.filter
def utc_words(text: str) -> str:
    """A time as events and bundles write it, for people."""
    return utc(text)


@register.filter
def manner_words(manner: str) -> str:
    """cached-stream → cached, streamed."""
    load, _, stream = manner.partition("-")
    return f"{load}, streamed" if stream else load


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


@register.filter
def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(", ", ": "))


@register.filter
def compact(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Without the settings that were left out."""
    return {key: value for key, value in mapping.items() if value is not None}


@register.filter
def document(model: Any) -> dict[str, Any]:
    """A frozen model as the JSON document that is digested."""
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True)
    return dumped


@register.filter
def json_block(value: Any) -> SafeString:
    """A data block for a script to read: never executed, and no text in it can end it."""
    return json_script(value)


@register.filter
def even_spans(levels: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """The ranges of one column, all with the decimals that the column's finest number needs."""
    spreads = [level.get(field) for level in levels]
    known = [value for spread in spreads if spread for value in spread.values() if not missing(value)]
    digits = max((0 if value == int(value) else 2 for value in known), default=0)
    return [span_of(spread, digits) for spread in spreads]


@register.filter
def span_of(spread: Mapping[str, float] | None, digits: int = 2) -> str:
    if not spread:
        return "–"
    low, high = ("–" if missing(spread[end]) else f"{spread[end]:,.{digits}f}" for end in ("from", "to"))
    return low if low == high else f"{low} to {high}"


@register.filter
def at_index(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else ""


@register.filter
def rate(value: Any) -> str:
    """Tokens per second, every row with the same decimals."""
    return "–" if missing(value) else f"{value:,.1f}{NARROW}tokens/s"


@register.filter
def all_over(rows: Sequence[TrialRow]) -> bool:
    return bool(rows) and all(row.over for row in rows)


@register.filter
def release_word(release: Release) -> str:
    return release_state(release, timezone.now())


@register.filter
def cut_path(path: str) -> SafeString:
    """A path that may break after its slashes and nowhere else."""
    return mark_safe(str(conditional_escape(path)).replace("/", "/<wbr>"))  # noqa: S308 - the path is escaped first


@register.filter
def cut_dash(name: str) -> str:
    return name.replace("-", " ")


@register.filter
def text_of(content: bytes | memoryview) -> str:
    return bytes(content).decode()


@register.filter
def lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


@register.filter
def confidence(level: Any) -> str:
    return "–" if missing(level) else f"{100 * level:.4g}{NARROW}%"


# Neither the far end of an interval ("+2.4 to +5.0") nor what was asked for.
FIGURE = re.compile(
    r"(?<!\d to )(?<!for )(?<![\d.,+−])[+−]?\d[\d,.]*(?: (?:%|points?\b|s\b|tokens(?:/s)?))(?! interval)"
)


@register.filter
def figures(sentence: str) -> SafeString:
    """A sentence with its figures and their units in bold and unbroken."""
    return mark_safe(  # noqa: S308 - the sentence is escaped first
        unbroken(FIGURE.sub(lambda found: f'<b class="nowrap">{found[0]}</b>', conditional_escape(sentence)))
    )


UNIT_APART = re.compile(r"(?<=\d) (?=%|points?\b|ms\b|s\b|min\b|tokens\b|requests/s)")


@register.filter
def unbroken(sentence: str) -> str:
    """No line ends between a number and its unit."""
    return UNIT_APART.sub("\u00a0", sentence)


@register.filter
def exploratory_apart(reason: str) -> str:
    """The nomination's reason without the note that every nomination ends with: the page says it once."""
    return reason.removesuffix(EXPLORATORY).rstrip()


@register.filter
def outcome_sentence(outcome: Outcome) -> str:
    """The outcome as one sentence."""
    where = " and ".join(cell.label for cell in outcome.improve_in)
    asked, margin = outcome.minimum_improvement, outcome.non_inferiority_margin
    if outcome.metric == "attainment":
        return (
            "Attainment (requests within deadline ÷ requests planned) must be better by at least "
            f"{amount(asked, 'difference')} at {where}, and nowhere else worse by more than "
            f"{amount(margin, 'difference')}."
        )
    if outcome.metric == "capacity":
        return (
            "Capacity (the rate that the ladder shows an arm to carry) must be better by at least "
            f"{amount(asked, 'ratio')} of the baseline's, and attainment nowhere worse by more than "
            f"{amount(margin, 'difference')}."
        )
    name = "Verified output tokens per second"
    if outcome.metric == "slo_goodput":
        name = "SLO goodput (requests within deadline per second)"
    if outcome.quantile is not None:
        name = f"Completion time at p{100 * outcome.quantile:g}"
    return (
        f"{name} must be better by at least {amount(asked, 'ratio')} of the baseline at {where}, "
        f"and nowhere else worse by more than {amount(margin, 'ratio')}."
    )


@register.filter
def guardrail_sentence(rail: Guardrail) -> str:
    measure = measure_of(rail)
    name = f"{measure.label} ({EXCLUDED})" if rail.metric == "failed_share" else measure.label
    if rail.metric == "behaviour":
        return f"{name}: no case of the suite broken"
    if rail.kind == "absolute":
        limit = f"{rail.limit:g} s" if rail.quantile is not None else amount(rail.limit, "ratio")
        return f"{name} at {rail.cell.label}: at most {limit}"
    if rail.metric == "kv_cache_tokens":
        return f"{name}: at least {amount(1 - rail.limit, 'ratio')} of the baseline's"
    return f"{name} at {rail.cell.label}: at most {amount(rail.limit, measure.scale)} above the baseline"


@register.filter
def arrival_words(arrival: Arrival) -> str:
    return process_words(arrival)


@register.filter
def split_list(text: str) -> list[str]:
    return text.split(",")


@register.filter
def fact(value: Any) -> str:
    """One of the engine's facts: a number with its thousands apart, a list as words, anything deeper as JSON."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return " ".join(str(one) for one in value)
    return value if isinstance(value, str) else "not known" if value is None else compact_json(value)


@register.filter
def gist(details: Mapping[str, Any]) -> str:
    """The first words of an event's details: reasons first, digests shortened."""
    ordered = sorted(details.items(), key=lambda one: one[0] not in ("reason", "verdict", "state", "purpose"))
    parts = [
        f"{words(key)} {short(str(value))}" if looks_hashed(value) else f"{words(key)} {fact(value)}"
        for key, value in ordered
        if value not in ("", None, False)
    ]
    text = ", ".join(parts)
    return text if len(text) <= 90 else f"{text[:88]}…"


def looks_hashed(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and " " not in value


@register.simple_tag
def event_kind(kind: str) -> SafeString:
    """Refusals and losses catch the eye; the rest stays calm."""
    if kind.endswith("-refused"):
        return format_html('<span class="state state-bad">{}{}</span>', icon("cross"), kind)
    if kind.rsplit("-", 1)[-1] in ("lost", "halted", "stopped", "declared", "revoked"):
        return format_html('<span class="state state-wait">{}{}</span>', icon("warning"), kind)
    return format_html("{}", kind)


@register.simple_tag
def event_subject(subject: str) -> SafeString:
    link = subject_link(subject)
    if link is None:
        return format_html("{}", subject)
    return format_html('<a href="{}">{}</a>', reverse(link[0], args=link[1]), subject)


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: Any) -> str:
    """The page's query string with some of its fields changed."""
    asked = context["request"].GET.copy()
    for name, value in changes.items():
        asked[name] = value
    return f"?{asked.urlencode()}"


@register.inclusion_tag("parts/credentials.html", takes_context=True)
def credentials(context: template.Context, of: str) -> dict[str, Any]:
    """The part of a form that asks for proof of who somebody is. ``of``: the form's own word, for its labels."""
    request = context["request"]
    return {
        "of": of,
        "user": request.user,
        "means": means_of(request.user),
        "fresh_until": fresh_until(request.user, request.session.get("fresh-sign-in")),
        "sso": settings.SINGLE_SIGN_ON_NAME,
        "here": request.path,
    }
