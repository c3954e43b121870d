"""What feeds tell programs that watch: decisions, and what will expire. Neither reasons nor prompts are in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse

from decisions.models import Account, Brief, Event, FeedToken, Release, SignatureRequest
from decisions.rules.signing import BREAK_GLASS

# act → what the feed says; the acts of ``rules.states`` and the end of a release, by which owners decide.
DECISIONS = {
    "brief-approve": "Approved",
    "brief-approve-in-part": "Approved in part",
    "brief-reject": "Rejected",
    "brief-reject-in-part": "Rejected in part",
    "brief-request-changes": "Changes requested",
    "brief-break-glass": "Glass broken",
    "release-revoked": "Revoked",
}
DECISIONS_IN_A_FEED = 50
# Control characters and what is no character: XML 1.0 has no way to write them.
UNHELD = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Expiry:
    """``key`` is the same for as long as the thing lives; ``path`` leads to its page."""

    key: str
    at: datetime
    since: datetime
    summary: str
    description: str
    path: str


def decisions() -> list[Event]:
    return list(Event.objects.filter(kind__in=DECISIONS).order_by("-sequence")[:DECISIONS_IN_A_FEED])


def said_of(event: Event) -> str:
    place = f" on {event.service}/{event.route}" if event.route else ""
    return f"{DECISIONS[event.kind]}: {titled(event.subject)}{place}"


def titled(subject: str) -> str:
    """brief 4 revision 2 → its title and revision."""
    words = subject.split(" ")
    if len(words) != 4 or words[0] != "brief":
        return subject
    title = Brief.objects.filter(pk=words[1]).values_list("title", flat=True).first()
    return f"{plain(title)}, revision {words[3]}" if title else subject


def plain(title: str) -> str:
    """On one line, of what XML and a calendar can hold: one title must not end everybody's feed."""
    return UNHELD.sub("\ufffd", " ".join(title.split()))


def expiries() -> list[Expiry]:
    return sorted([*releases_ending(), *requests_expiring()], key=lambda one: (one.at, one.key))


def releases_ending() -> Iterator[Expiry]:
    """Those that nothing has replaced, also the ones that have expired: a calendar keeps the day."""
    found = Release.objects.filter(revoked_at=None, superseded_at=None)
    for one in found.select_related("route__service", "revision__brief", "signature"):
        glass, revision = one.signature.meaning == BREAK_GLASS, one.revision
        yield Expiry(
            key=f"release-{one.pk}",
            at=one.expires_at,
            since=one.released_at,
            summary=f"Release on {one.route} expires" + (" (broken glass)" if glass else ""),
            description=f"{plain(revision.brief.title)}, revision {revision.number}. Then the baseline answers.",
            path=reverse("route", args=[one.route.service.slug, one.route.slug]),
        )


def requests_expiring() -> Iterator[Expiry]:
    """A broken glass has to be answered for: its request doesn't expire, and what is due is the decision."""
    found = SignatureRequest.objects.filter(closed_at=None)
    for one in found.select_related("revision__brief__route__service"):
        revision = one.revision
        said = f"{plain(revision.brief.title)}, revision {revision.number}"
        path = reverse("brief-sign-off", args=[revision.brief_id, revision.number])
        if one.glass_broken_at is None:
            summary = f"Request for signatures on {revision.brief.route} expires"
            yield Expiry(f"request-{one.pk}", one.expires_at, one.opened_at, summary, f"{said}.", path)
        else:
            due = one.glass_broken_at + timedelta(hours=one.policy.break_glass_hours)
            summary = f"Follow up on the broken glass on {revision.brief.route}"
            described = f"{said}. The owners have to decide before the release ends."
            yield Expiry(f"follow-up-{one.pk}", due, one.glass_broken_at, summary, described, path)


def feed_token_of(person: Account) -> FeedToken | None:
    return FeedToken.objects.filter(person=person, revoked_at=None).first()


def feed_tokens_of_others(person: Account) -> list[FeedToken]:
    return list(FeedToken.objects.filter(revoked_at=None).exclude(person=person).select_related("person"))
