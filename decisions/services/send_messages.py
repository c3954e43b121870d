"""Sends what waits in the outbox. Any number of senders may run at once, and each may be killed at any moment."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from smtplib import SMTPRecipientsRefused
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import F
from django.urls import reverse
from django.utils import timezone
from standardwebhooks import Webhook

from decisions import ledger, outbox
from decisions.at_rest import Unreadable, decrypted
from decisions.models import Endpoint, Message
from decisions.models.message import MessageQuerySet
from decisions.posting import encoded, one_line, post
from decisions.rules.delivery import GONE, MOST_ATTEMPTS, MOST_GIVEN_UP, SLACK, slack_body, wait_s, webhook_body
from loadtests.journal import act

logger = logging.getLogger(__name__)

ACTOR = "draftproof"
# Longer than any sending takes: whoever claimed it before that is gone.
CLAIM_HOLDS = timedelta(minutes=5)
# How long the signature by the secret before still comes along.
BOTH_SECRETS = timedelta(days=1)
# In one turn: the next beat goes on.
MOST_AT_ONCE = 500
MAIL = 0


@dataclass(frozen=True)
class Outcome:
    """``for_good``: trying again would change nothing. ``well``: the receiver answers, and it is about this message
    alone."""

    sent: bool
    words: str = ""
    status: int | None = None
    for_good: bool = False
    well: bool = False


def send_messages() -> int:
    """How many were tried. Where a receiver doesn't answer, its other messages wait for the next turn."""
    take_back_claims()
    tried, silent = 0, set[int]()
    while tried < MOST_AT_ONCE and (message := claim(silent)):
        outcome = sent(message)
        record(message, outcome)
        if not (outcome.sent or outcome.for_good or outcome.well):
            silent.add(message.endpoint_id or MAIL)
        tried += 1
    return tried


def request_due() -> None:
    """Asks the worker of messages for a turn, where there is something to send."""
    now = timezone.now()
    if Message.objects.due(now).exists() or left_behind(now).exists():
        outbox.request_sending()


def left_behind(now: datetime) -> MessageQuerySet:
    return Message.objects.filter(state=Message.State.SENDING, claimed_at__lt=now - CLAIM_HOLDS)


def take_back_claims() -> None:
    """Of senders that ended in the middle. Nobody knows whether theirs arrived: it is sent again under its name."""
    lost = left_behind(timezone.now())
    lost.filter(attempts__lt=MOST_ATTEMPTS).update(state=Message.State.WAITING)
    for one in lost.filter(attempts__gte=MOST_ATTEMPTS).select_related("endpoint"):
        record(one, Outcome(False, "its sender ended in the middle, at the last attempt"))


def claim(silent: set[int]) -> Message | None:
    """By compare-and-swap: whichever sender changes the row has it."""
    now = timezone.now()
    while True:
        due = Message.objects.due(now).exclude(endpoint__in=silent - {MAIL})
        if MAIL in silent:
            due = due.filter(person=None)
        found = due.select_related("person", "endpoint").first()
        if found is None:
            return None
        if (
            Message.objects.due(now)
            .filter(pk=found.pk, attempts=found.attempts)
            .update(state=Message.State.SENDING, claimed_at=now, attempts=F("attempts") + 1)
        ):
            found.attempts, found.claimed_at = found.attempts + 1, now
            return found


def sent(message: Message) -> Outcome:
    try:
        return mailed(message) if message.endpoint is None else posted(message, message.endpoint)
    except Unreadable as error:
        said = f"its address or secret can't be read: {error}. Add the address anew, and disable this one"
        return Outcome(False, said, for_good=True)
    except Exception as error:
        # One that can't be sent, for whatever reason, keeps no other from being sent.
        logger.exception("%s could not be sent", message)
        return Outcome(False, one_line(f"{type(error).__name__}: {error}"))


def mailed(message: Message) -> Outcome:
    person = message.person
    if person is None or not person.is_active or not person.email:
        return Outcome(False, "the account is not active, or has no address", for_good=True)
    if not settings.EMAIL_URL:
        return Outcome(False, "no mail server is named: set EMAIL_URL")
    switches = absolute(reverse("notifications"))
    host = urlsplit(settings.SITE_URL).hostname or "localhost"
    mail = EmailMessage(
        subject=f"[Draftproof] {message.sentence}",
        body=f"{message.sentence}\n\n{absolute(message.path)}\n\n-- \nWhich mails you get: {switches}\n",
        to=[person.email],
        headers={"Message-ID": f"<{message.name}@{host}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        mail.send()
    except OSError as error:  # smtplib's errors are some
        # One address that the server doesn't take keeps no other person's mail waiting.
        return Outcome(False, one_line(str(error)), well=isinstance(error, SMTPRecipientsRefused))
    return Outcome(True)


def posted(message: Message, endpoint: Endpoint) -> Outcome:
    if endpoint.disabled_at:
        return Outcome(False, f"{endpoint} is disabled", for_good=True)
    body, headers = content_of(message, endpoint)
    answer = post(
        decrypted(endpoint.address),
        body,
        {"Content-Type": "application/json", "User-Agent": "Draftproof", **headers},
        hosts=settings.NOTIFY_HOSTS,
        plain_loopback=settings.EMBEDDED,
    )
    return Outcome(answer.arrived, answer.words, answer.status, for_good=answer.status == GONE)


def content_of(message: Message, endpoint: Endpoint) -> tuple[bytes, dict[str, str]]:
    """(body, headers)"""
    link = absolute(message.path)
    if endpoint.kind == SLACK:
        return encoded(slack_body(message.sentence, link)), {}
    data = {
        "sentence": message.sentence,
        "link": link,
        "service": message.service or None,
        "subject": message.subject,
        "actor": message.actor,
        "event": message.event,
    }
    body = encoded(webhook_body(kind=message.kind, at=message.at, data=data))
    return body, signed_headers(message.name, body, endpoint)


def signed_headers(name: str, body: bytes, endpoint: Endpoint) -> dict[str, str]:
    now = datetime.now(UTC)
    secrets = [endpoint.secret]
    if endpoint.old_secret and endpoint.secret_set_at + BOTH_SECRETS > now:
        secrets.append(endpoint.old_secret)
    signatures = [Webhook(decrypted(one)).sign(name, now, body.decode()) for one in secrets]
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def absolute(path: str) -> str:
    return f"{settings.SITE_URL}{path}"


def record(message: Message, outcome: Outcome) -> None:
    """By compare-and-swap on the attempt: where the claim was taken back meanwhile, the other sender's word counts."""
    now, tried = timezone.now(), message.attempts
    claimed = Message.objects.filter(pk=message.pk, state=Message.State.SENDING, attempts=tried)
    told = {"status": outcome.status, "answer": outcome.words}
    if outcome.sent:
        if claimed.update(state=Message.State.SENT, ended_at=now, **told) and message.endpoint_id:
            Endpoint.objects.filter(pk=message.endpoint_id).exclude(given_up=0).update(given_up=0)
    elif outcome.for_good or tried >= MOST_ATTEMPTS:
        give_up(message, outcome)
    else:
        again = now + timedelta(seconds=wait_s(tried, random.random()))  # noqa: S311
        claimed.update(state=Message.State.WAITING, next_at=again, **told)


def give_up(message: Message, outcome: Outcome) -> None:
    logger.warning("%s was given up after %s attempts: %s", message, message.attempts, outcome.words)
    with act():
        claimed = Message.objects.filter(pk=message.pk, state=Message.State.SENDING, attempts=message.attempts)
        told = {"status": outcome.status, "answer": outcome.words}
        if not claimed.update(state=Message.State.GIVEN_UP, ended_at=timezone.now(), **told):
            return
        if message.endpoint_id:
            count_given_up(message.endpoint_id, outcome)


def count_given_up(pk: int, outcome: Outcome) -> None:
    """Within an act: where so many are given up one after the other, or the receiver says that it is gone for good,
    nothing more is sent there until somebody enables it."""
    enabled = Endpoint.objects.filter(pk=pk, disabled_at=None)
    enabled.update(given_up=F("given_up") + 1)
    endpoint = enabled.select_related("service").first()
    if endpoint is None or (endpoint.given_up < MOST_GIVEN_UP and outcome.status != GONE):
        return
    why = f"the answer {outcome.status}" if outcome.status else outcome.words
    note = f"{endpoint.given_up} message{'' if endpoint.given_up == 1 else 's'} in a row given up, the last for {why}"
    enabled.update(disabled_at=timezone.now(), disabled_note=note)
    ledger.append("endpoint-given-up", subject=f"endpoint {pk}", actor=ACTOR, details={**endpoint.told, "reason": note})
