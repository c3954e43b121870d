"""Acts that send to one endpoint: a test, and a message once more."""

from django.urls import reverse
from django.utils import timezone

from decisions import ledger, outbox
from decisions.models import Account, Endpoint, Message
from decisions.services.manage_endpoint import check_may_manage, subject
from decisions.services.refused import Refused
from loadtests.journal import act

TEST = "This is a test: messages of Draftproof arrive here."


def send_test(*, endpoint: Endpoint, by: Account) -> Message:
    check_may_manage(endpoint.service, by, "endpoint-test")
    check_enabled(endpoint)
    with act():
        event = ledger.append("endpoint-tested", subject=subject(endpoint), actor=by.username, details=endpoint.told)
        service = endpoint.service.slug if endpoint.service else ""
        path = reverse("endpoint", args=[endpoint.pk])
        message = outbox.message(event, TEST, path, "", service, endpoint=endpoint)
        outbox.write([message])
    return message


def send_again(*, message: Message, by: Account) -> None:
    """Under its own name: a receiver that has it already knows."""
    endpoint = message.endpoint
    if endpoint is None:
        raise Refused("mail isn't sent again")
    check_may_manage(endpoint.service, by, "message-send-again")
    check_enabled(endpoint)
    with act():
        ended = Message.objects.filter(pk=message.pk, state__in=[Message.State.SENT, Message.State.GIVEN_UP])
        waiting = {"state": Message.State.WAITING, "attempts": 0, "next_at": timezone.now(), "ended_at": None}
        if not ended.update(**waiting):
            raise Refused("it is on its way already")
        details = {**endpoint.told, "message": message.name}
        ledger.append("message-sent-again", subject=subject(endpoint), actor=by.username, details=details)
        outbox.send_on_commit()


def check_enabled(endpoint: Endpoint) -> None:
    if endpoint.disabled_at:
        raise Refused(f"{endpoint} is disabled: enable it first")
