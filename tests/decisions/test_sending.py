"""Messages are sent: to a server that verifies their signatures by the specification alone, that fails, hangs and leads
elsewhere; by senders that race and that are killed; and by mail."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from decisions import outbox, posting
from decisions.models import Account, Endpoint, Event, Message, Route, Service
from decisions.posting import Posted, post
from decisions.rules.delivery import MOST_ATTEMPTS, MOST_GIVEN_UP
from decisions.services import send_messages as sending
from decisions.services.add_endpoint import add_endpoint
from decisions.services.rotate_endpoint import rotate_endpoint
from decisions.services.send_again import TEST, send_again, send_test
from decisions.services.send_messages import CLAIM_HOLDS, request_due, send_messages
from decisions.services.switch_endpoint import enable_endpoint
from decisions.services.tidy import tidy
from loadtests import journal
from tests.support.mailbox import mailbox
from tests.support.receiver import Receiver, Reply, is_signed, receiver

HERE = ["127.0.0.1"]


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture
def hosts(settings: Any) -> None:
    settings.NOTIFY_HOSTS, settings.EMBEDDED = HERE, True
    settings.SITE_URL = "https://draftproof.house.example"
    settings.EMAIL_URL = ""


@pytest.fixture
def operator(account: Callable[..., Account]) -> Account:
    return account("operator", "operator", email="operator@house.example")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    began = timezone.now()

    def go_on(by: timedelta) -> None:
        monkeypatch.setattr(timezone, "now", lambda: began + by)

    return go_on


def added(
    operator: Account, address: str, kind: str = "webhook", service: Service | None = None
) -> tuple[Endpoint, str]:
    made = add_endpoint(service=service, kind=kind, name="pipeline", address=address, by=operator)
    return made.endpoint, made.secret


def lately(message: Message) -> Message:
    return Message.objects.get(pk=message.pk)


@pytest.mark.usefixtures("hosts")
@pytest.mark.django_db
class TestPosting:
    def test_a_webhook_is_signed_as_the_specification_asks(
        self, there: Receiver, operator: Account, route: Route
    ) -> None:
        endpoint, secret = added(operator, there.address, service=route.service)
        message = send_test(endpoint=endpoint, by=operator)
        assert send_messages() == 1
        (got,) = there.got
        assert (got.path, got.headers["content-type"]) == ("/hook?for=draftproof", "application/json")
        assert is_signed(got, secret)
        assert not is_signed(got, "whsec_" + "A" * 43 + "=")
        event = Event.objects.get(kind="endpoint-tested")
        assert json.loads(got.body) == {
            "type": "endpoint.tested",
            "timestamp": event.at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "data": {
                "sentence": TEST,
                "link": f"https://draftproof.house.example/endpoints/{endpoint.pk}/",
                "service": "support-assistant",
                "subject": f"endpoint {endpoint.pk}",
                "actor": "operator",
                "event": event.sequence,
            },
        }
        sent = lately(message)
        assert (sent.state, sent.attempts, sent.status, sent.answer) == ("sent", 1, 200, "ok")
        assert got.headers["webhook-id"] == sent.name
        assert send_messages() == 0

    def test_slack_gets_one_line_and_no_signature(self, there: Receiver, operator: Account) -> None:
        endpoint, secret = added(operator, there.address, "slack")
        send_test(endpoint=endpoint, by=operator)
        send_messages()
        (got,) = there.got
        link = f"https://draftproof.house.example/endpoints/{endpoint.pk}/"
        assert json.loads(got.body) == {"text": f"{TEST} <{link}|Open>"}
        assert (secret, [name for name in got.headers if name.startswith("webhook")]) == ("", [])

    def test_for_a_day_both_secrets_sign(
        self, there: Receiver, operator: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        endpoint, first = added(operator, there.address)
        second = rotate_endpoint(endpoint=endpoint, by=operator).secret
        send_test(endpoint=endpoint, by=operator)
        send_messages()
        assert [is_signed(there.got[-1], one) for one in (first, second)] == [True, True]
        monkeypatch.setattr(sending, "BOTH_SECRETS", timedelta(0))
        send_test(endpoint=endpoint, by=operator)
        send_messages()
        assert [is_signed(there.got[-1], one) for one in (first, second)] == [False, True]

    def test_what_fails_is_tried_again_under_the_same_name_and_waits_longer(
        self, there: Receiver, operator: Account, later: Callable[[timedelta], None]
    ) -> None:
        endpoint, secret = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        there.replies = [Reply(500, b"no\x00thing \x1b[31mworks"), Reply(503)]
        assert send_messages() == 1
        tried = lately(message)
        assert (tried.state, tried.attempts, tried.status) == ("waiting", 1, 500)
        assert tried.answer == "no\ufffdthing \ufffd[31mworks"
        assert send_messages() == 0
        later(timedelta(seconds=16))
        assert send_messages() == 1
        later(timedelta(seconds=90))
        assert send_messages() == 1
        assert lately(message).state == "sent"
        assert {one.headers["webhook-id"] for one in there.got} == {message.name}
        assert all(is_signed(one, secret) for one in there.got)

    def test_it_is_given_up_after_a_number_of_attempts_and_sent_again_by_hand(
        self, there: Receiver, operator: Account, later: Callable[[timedelta], None]
    ) -> None:
        endpoint, _ = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        there.replies = [Reply(500, b"broken")] * MOST_ATTEMPTS
        for day in range(MOST_ATTEMPTS):
            later(timedelta(days=day + 1))
            assert send_messages() == 1
        later(timedelta(days=30))
        assert send_messages() == 0
        given_up = lately(message)
        assert (given_up.state, given_up.attempts, given_up.answer) == ("given-up", MOST_ATTEMPTS, "broken")
        send_again(message=given_up, by=operator)
        assert send_messages() == 1
        assert lately(message).state == "sent"
        assert {one.headers["webhook-id"] for one in there.got} == {message.name}
        assert Event.objects.get(kind="message-sent-again").details["message"] == message.name

    def test_where_nothing_arrives_any_more_the_endpoint_is_disabled(
        self,
        there: Receiver,
        operator: Account,
        later: Callable[[timedelta], None],
        monkeypatch: pytest.MonkeyPatch,
        settings: Any,
    ) -> None:
        settings.EMAIL_URL = "smtp://mail.house.example"
        monkeypatch.setattr(sending, "MOST_ATTEMPTS", 1)
        endpoint, _ = added(operator, there.address)
        there.replies = [Reply(500, b"broken")] * (MOST_GIVEN_UP + 1)
        for _ in range(MOST_GIVEN_UP):
            send_test(endpoint=endpoint, by=operator)
        waiting = send_test(endpoint=endpoint, by=operator)
        for _ in range(MOST_GIVEN_UP):
            send_messages()
        endpoint.refresh_from_db()
        assert endpoint.disabled_note == "5 messages in a row given up, the last for the answer 500"
        assert Event.objects.get(kind="endpoint-given-up").actor == "draftproof"
        told = Message.objects.get(kind="endpoint-given-up")
        assert (told.person, told.endpoint) == (operator, None)
        send_messages()
        assert (lately(waiting).state, lately(waiting).answer) == ("given-up", "Webhook “pipeline” is disabled")
        assert len(there.got) == MOST_GIVEN_UP
        enable_endpoint(endpoint=endpoint, by=operator)
        endpoint.refresh_from_db()
        assert (endpoint.disabled_at, endpoint.given_up) == (None, 0)

    def test_one_that_says_it_is_gone_is_disabled_at_once(self, there: Receiver, operator: Account) -> None:
        endpoint, _ = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        there.replies = [Reply(410)]
        send_messages()
        endpoint.refresh_from_db()
        assert (lately(message).state, endpoint.disabled_at is not None) == ("given-up", True)

    def test_one_that_arrives_counts_from_nothing_again(self, there: Receiver, operator: Account) -> None:
        endpoint, _ = added(operator, there.address)
        Endpoint.objects.update(given_up=MOST_GIVEN_UP - 1)
        send_test(endpoint=endpoint, by=operator)
        send_messages()
        endpoint.refresh_from_db()
        assert endpoint.given_up == 0

    def test_a_silent_receiver_keeps_no_other_waiting(self, there: Receiver, operator: Account) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            silent, _ = added(operator, f"http://127.0.0.1:{nobody.getsockname()[1]}/")
            well, _ = added(operator, there.address)
            for one in (silent, silent, well):
                send_test(endpoint=one, by=operator)
            assert send_messages() == 2
        assert len(there.got) == 1
        assert [(one.state, one.attempts) for one in silent.messages.order_by("pk")] == [("waiting", 1), ("waiting", 0)]
        assert "Connection refused" in silent.messages.earliest("pk").answer

    def test_a_host_that_is_allowed_no_longer_gets_nothing(
        self, there: Receiver, operator: Account, settings: Any
    ) -> None:
        endpoint, _ = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        settings.NOTIFY_HOSTS = []
        send_messages()
        assert there.got == []
        assert "127.0.0.1 is not among the hosts that DRAFTPROOF_NOTIFY_HOSTS allows: none" in lately(message).answer

    def test_under_another_secret_key_it_is_said_what_to_do(
        self, there: Receiver, operator: Account, settings: Any
    ) -> None:
        endpoint, secret = added(operator, there.address)
        old = settings.SECRET_KEY
        settings.SECRET_KEY = "another"
        message = send_test(endpoint=endpoint, by=operator)
        send_messages()
        assert lately(message).state == "given-up"
        assert "encrypted under another DRAFTPROOF_SECRET_KEY" in lately(message).answer
        settings.SECRET_KEY_FALLBACKS = [old]
        send_test(endpoint=endpoint, by=operator)
        send_messages()
        assert is_signed(there.got[-1], secret)

    def test_neither_address_nor_secret_stands_anywhere_as_it_is(self, there: Receiver, operator: Account) -> None:
        endpoint, secret = added(operator, there.address)
        kept = json.dumps(list(Endpoint.objects.values()), default=str)
        told = b"".join(bytes(one.content) for one in Event.objects.all()).decode()
        for word in (secret, "for=draftproof"):
            assert word not in kept + told
        assert endpoint.shown == f"http://127.0.0.1:{there.port}/…"


class TestOnePost:
    def send(self, address: str, whole_s: float = 5.0, hosts: list[str] = HERE) -> Posted:
        return post(address, b"{}", {}, hosts=hosts, plain_loopback=True, whole_s=whole_s)

    def test_nothing_is_followed(self, there: Receiver) -> None:
        there.replies = [Reply(307, headers={"Location": there.address})]
        assert self.send(there.address).status == 307
        assert not self.send(there.address, hosts=[]).arrived
        assert len(there.got) == 1

    @pytest.mark.parametrize("reply", [Reply(hang=True), Reply(headers={"X": "y" * 70_000})])
    def test_no_answer(self, there: Receiver, reply: Reply) -> None:
        there.replies = [reply]
        found = self.send(there.address, whole_s=0.3)
        assert found.status is None
        assert found.words in ("no whole answer within 0.3 s", "no HTTP answer came (LineTooLong)")

    def test_an_answer_a_byte_at_a_time_ends(self, there: Receiver) -> None:
        there.replies = [Reply(200, b"well", drip=True)]
        found = self.send(there.address, whole_s=0.4)
        assert found.status in (None, 200)
        assert len(found.words) < 40

    def test_a_long_answer_is_read_no_further(self, there: Receiver) -> None:
        there.replies = [Reply(200, b"x" * 5_000_000)]
        assert len(self.send(there.address).words) <= posting.MOST_READ

    def test_a_name_that_leads_into_the_house_is_refused(
        self, there: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def found(*_: object, **__: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 443)) for one in ("93.184.216.34", "10.0.0.7")]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        assert (
            "leads to 10.0.0.7, a private address"
            in self.send("https://hooks.house.example/", hosts=["hooks.house.example"]).words
        )

    def test_a_certificate_counts(self, there: Receiver) -> None:
        said = self.send(there.address.replace("http://", "https://")).words
        assert "SSL" in said

    def test_a_host_that_is_not_there(self) -> None:
        said = self.send("https://nobody.house.example/", hosts=["nobody.house.example"]).words
        assert said.startswith("its host can't be found")


@pytest.mark.usefixtures("hosts")
@pytest.mark.django_db
class TestMail:
    @pytest.fixture
    def told(self, operator: Account, settings: Any) -> Message:
        settings.EMAIL_URL = "smtp://mail.house.example"
        with journal.act():
            journal.record("checkpoint-failed", subject="history", actor="draftproof", what="mailed")
        return Message.objects.get(person=operator)

    def test_a_mail_is_a_sentence_and_a_link(self, told: Message) -> None:
        send_messages()
        (found,) = mail.outbox
        assert (found.subject, found.to) == (
            "[Draftproof] A checkpoint of the history could not be mailed.",
            ["operator@house.example"],
        )
        assert "https://draftproof.house.example/history/" in found.body
        assert "https://draftproof.house.example/account/notifications/" in found.body
        assert found.extra_headers["Message-ID"] == f"<{told.name}@draftproof.house.example>"
        assert lately(told).state == "sent"

    def test_an_account_that_has_been_deactivated_gets_none(self, told: Message) -> None:
        Account.objects.update(is_active=False)
        send_messages()
        assert (lately(told).state, mail.outbox) == ("given-up", [])

    def test_one_address_that_is_refused_keeps_no_other_waiting(
        self, told: Message, settings: Any, account: Callable[..., Account]
    ) -> None:
        other = account("other", "operator", email="other@house.example")
        with journal.act():
            journal.record("checkpoint-failed", subject="history", actor="draftproof", what="signed")
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        with mailbox() as box:
            settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.port
            box.refused = {"operator@house.example"}
            send_messages()
            assert box.recipients == ["other@house.example"]
        assert (lately(told).state, Message.objects.get(person=other).state) == ("waiting", "sent")

    def test_a_mail_server_that_is_away_is_asked_again(
        self, told: Message, settings: Any, later: Callable[[timedelta], None]
    ) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            settings.EMAIL_HOST, settings.EMAIL_PORT = nobody.getsockname()
            send_messages()
        assert lately(told).state == "waiting"
        assert "Connection refused" in lately(told).answer
        with mailbox() as box:
            settings.EMAIL_PORT = box.port
            box.refused = {"operator@house.example"}
            later(timedelta(minutes=1))
            send_messages()
            assert "nobody of this name" in lately(told).answer
            box.refused = set()
            later(timedelta(minutes=10))
            send_messages()
        assert (lately(told).state, box.recipients) == ("sent", ["operator@house.example"])
        (found,) = box.mails
        assert f"Message-ID: <{told.name}@draftproof.house.example>".encode() in found
        assert b"Auto-Submitted: auto-generated" in found


SENDER = """
import sys
from django.conf import settings
name, hosts = sys.argv[1], [sys.argv[2]]
settings.DATABASES["default"]["NAME"] = name
settings.NOTIFY_HOSTS, settings.EMBEDDED = hosts, True
import django
django.setup()
from decisions.services.send_messages import send_messages
send_messages()
"""


@pytest.mark.usefixtures("hosts")
@pytest.mark.django_db(transaction=True)
class TestSeveralSenders:
    def test_each_message_is_sent_once(self, there: Receiver, operator: Account) -> None:
        endpoint, _ = added(operator, there.address)
        for _ in range(12):
            send_test(endpoint=endpoint, by=operator)
        together, tried = threading.Barrier(4), list[int]()

        def send() -> None:
            try:
                together.wait()
                tried.append(send_messages())
            finally:
                connection.close()

        senders = [threading.Thread(target=send) for _ in range(4)]
        for one in senders:
            one.start()
        for one in senders:
            one.join()
        assert sum(tried) == len(there.got) == 12
        assert len({one.headers["webhook-id"] for one in there.got}) == 12
        assert set(Message.objects.values_list("state", "attempts")) == {("sent", 1)}

    def test_a_killed_sender_loses_nothing(
        self, there: Receiver, operator: Account, later: Callable[[timedelta], None]
    ) -> None:
        endpoint, secret = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        there.replies = [Reply(hang=True)]
        name = str(connection.settings_dict["NAME"])
        environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
        with subprocess.Popen([sys.executable, "-c", SENDER, name, *HERE], env=environment) as sender:
            assert there.heard.wait(30)
            sender.send_signal(signal.SIGKILL)
        assert lately(message).state == "sending"
        assert send_messages() == 0
        later(2 * CLAIM_HOLDS)
        assert send_messages() == 1
        assert [(one.headers["webhook-id"], is_signed(one, secret)) for one in there.got] == [(message.name, True)] * 2
        assert (lately(message).state, lately(message).attempts) == ("sent", 2)

    def test_a_sender_that_was_thought_gone_changes_nothing(
        self, there: Receiver, operator: Account, later: Callable[[timedelta], None]
    ) -> None:
        endpoint, _ = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        slow = sending.claim(set())
        later(CLAIM_HOLDS + timedelta(seconds=1))
        send_messages()
        assert slow is not None
        sending.record(slow, sending.Outcome(False, "it took too long", for_good=True))
        assert (lately(message).state, lately(message).attempts) == ("sent", 2)

    def test_one_that_is_killed_at_each_attempt_is_given_up(
        self, there: Receiver, operator: Account, later: Callable[[timedelta], None]
    ) -> None:
        endpoint, _ = added(operator, there.address)
        message = send_test(endpoint=endpoint, by=operator)
        for turn in range(MOST_ATTEMPTS):
            later((turn + 1) * 2 * CLAIM_HOLDS)
            sending.take_back_claims()
            assert sending.claim(set()) is not None
        later((MOST_ATTEMPTS + 1) * 2 * CLAIM_HOLDS)
        assert send_messages() == 0
        assert (lately(message).state, there.got) == ("given-up", [])

    def test_a_turn_is_asked_for_after_the_act_and_whenever_something_waits(
        self, there: Receiver, operator: Account, monkeypatch: pytest.MonkeyPatch, later: Callable[[timedelta], None]
    ) -> None:
        asked = list[tuple[str, str]]()
        monkeypatch.setattr(outbox, "send", lambda task, *, queue, what: asked.append((task, queue)))
        endpoint, _ = added(operator, there.address)
        request_due()
        assert asked == []
        send_test(endpoint=endpoint, by=operator)
        assert asked == [("decisions.send_messages", "messages")]
        request_due()
        assert len(asked) == 2
        assert sending.claim(set()) is not None
        request_due()
        assert len(asked) == 2
        later(CLAIM_HOLDS + timedelta(seconds=1))
        request_due()
        assert len(asked) == 3


@pytest.mark.usefixtures("hosts")
@pytest.mark.django_db
def test_what_ended_long_ago_is_forgotten(
    there: Receiver, operator: Account, later: Callable[[timedelta], None]
) -> None:
    endpoint, _ = added(operator, there.address)
    send_test(endpoint=endpoint, by=operator)
    send_messages()
    waiting = send_test(endpoint=endpoint, by=operator)
    later(timedelta(days=89))
    tidy()
    assert Message.objects.count() == 2
    later(timedelta(days=91))
    tidy()
    assert Message.objects.get() == waiting
