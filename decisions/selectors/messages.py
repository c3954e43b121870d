from __future__ import annotations

from django.db.models import QuerySet

from decisions.models import Account, Endpoint, MailSwitch, Message, Service
from decisions.rules.notices import HAPPENINGS, wants_mail

SHOWN = 50


def mail_switches(person: Account) -> dict[str, bool]:
    """By happening, whether the person gets mail of it."""
    switched = dict(MailSwitch.objects.filter(person=person).values_list("happening", "on"))
    return {one: wants_mail(one, switched.get(one)) for one in HAPPENINGS}


def mails_to(person: Account) -> list[Message]:
    return list(Message.objects.filter(person=person).order_by("-pk")[:SHOWN])


def endpoints_of(service: Service | None) -> list[Endpoint]:
    """Of a service, or of the whole installation; the disabled ones last."""
    return sorted(Endpoint.objects.filter(service=service), key=lambda one: one.disabled_at is not None)


def endpoint_rows() -> QuerySet[Endpoint]:
    return Endpoint.objects.select_related("service")


def messages_to(endpoint: Endpoint) -> list[Message]:
    return list(endpoint.messages.order_by("-pk")[:SHOWN])
