"""Feeds for programs that can't sign in: a person's own address holds the secret that lets them read."""

from __future__ import annotations

import icalendar
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, Event, FeedToken
from decisions.pages.access import posted_from, require
from decisions.pages.tokens import whole
from decisions.rules.who_may import OPERATOR, may_read_ledger
from decisions.selectors import feeds as selectors
from decisions.services.make_feed_token import NewFeedToken, make_feed_token
from decisions.services.refused import Refused
from decisions.services.revoke_feed_token import revoke_feed_token
from decisions.services.use_feed_token import use_feed_token


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def feeds(request: HttpRequest) -> HttpResponse:
    """Not led elsewhere after making one: the address is shown in this answer and never again."""
    account = require(request, may_read_ledger)
    made = make_feed_token(person=account) if request.method == "POST" else None
    context = {
        "made": addresses(request, made) if made else {},
        "token": selectors.feed_token_of(account),
        "others": selectors.feed_tokens_of_others(account) if OPERATOR in account.group_names else [],
    }
    return render(request, "history/feeds.html", context)


def addresses(request: HttpRequest, made: NewFeedToken) -> dict[str, str]:
    names = {"atom": "feed-decisions", "ics": "feed-expiries"}
    return {form: request.build_absolute_uri(reverse(name, args=[made.secret])) for form, name in names.items()}


@posted_from("ledger-feeds")
@login_required
def revoke(request: HttpRequest) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(FeedToken.objects.select_related("person"), pk=whole(request.POST.get("token", "")))
    try:
        revoke_feed_token(token=found, by=account)
    except Refused as refusal:
        messages.error(request, f"{str(refusal).rstrip('.').capitalize()}.")
    else:
        messages.success(request, f"The address {found.prefix}… is revoked: it answers nobody.")
    return redirect("ledger-feeds")


def reader(secret: str) -> Account:
    """Whoever has no such secret learns nothing, not even that feeds are here."""
    found = use_feed_token(secret=secret)
    if found is None:
        raise Http404("there is no such feed")
    return found


@require_safe
@never_cache
def decisions(request: HttpRequest, secret: str) -> HttpResponse:
    """It calls itself by an address without the secret: readers keep and show that."""
    reader(secret)
    feed = Atom1Feed(
        title="Draftproof: decisions",
        link=request.build_absolute_uri(reverse("ledger")),
        description="What owners have approved, rejected, sent back and revoked",
        feed_url=request.build_absolute_uri(reverse("ledger-feeds")),
    )
    for event in selectors.decisions():
        add(request, feed, event)
    return HttpResponse(feed.writeString("utf-8"), content_type=feed.content_type)


def add(request: HttpRequest, feed: Atom1Feed, event: Event) -> None:
    feed.add_item(
        title=selectors.said_of(event),
        link=request.build_absolute_uri(reverse("ledger-event", args=[event.sequence])),
        description=f"By {event.actor}, event {event.sequence} of the history. Its page has the reason.",
        author_name=event.actor,
        pubdate=event.at,
        updateddate=event.at,
        # The same wherever the site is reached: no reader shows a decision twice.
        unique_id=f"urn:sha256:{event.hash}",
    )


@require_safe
@never_cache
def expiries(request: HttpRequest, secret: str) -> HttpResponse:
    reader(secret)
    calendar = icalendar.Calendar()
    calendar.add("prodid", "-//Draftproof//expiries//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "Draftproof: expiries")
    for one in selectors.expiries():
        calendar.add_component(entry(request, one))
    return HttpResponse(calendar.to_ical(), content_type="text/calendar; charset=utf-8")


def entry(request: HttpRequest, one: selectors.Expiry) -> icalendar.Event:
    event = icalendar.Event()
    event.add("uid", f"{one.key}@{settings.ORIGIN}")
    event.add("dtstamp", one.since)
    event.add("dtstart", one.at)
    event.add("summary", one.summary)
    event.add("description", one.description)
    event.add("url", request.build_absolute_uri(one.path))
    # Nobody is busy at that time.
    event.add("transp", "TRANSPARENT")
    return event
