"""Where a person says which mails they get, and where owners and operators say where messages are posted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from decisions import ledger
from decisions.at_rest import decrypted
from decisions.models import Account, Endpoint, Event, MailSwitch, Message, Route
from decisions.rules.notices import HAPPENINGS
from decisions.services.add_endpoint import add_endpoint
from decisions.services.manage_endpoint import MOST_OF_ONE_SERVICE
from decisions.services.send_again import send_test
from decisions.services.send_messages import send_messages
from tests.support.receiver import Receiver, Reply, is_signed, receiver

pytestmark = pytest.mark.django_db

ADDRESS = "https://hooks.house.example/services/T0/key"
TYPED = {"kind": "webhook", "name": "pipeline", "address": ADDRESS}


@pytest.fixture(autouse=True)
def hosts(settings: Any) -> None:
    settings.NOTIFY_HOSTS, settings.EMBEDDED = ["hooks.house.example", "127.0.0.1"], True


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture
def operator(account: Callable[..., Account]) -> Account:
    return account("operator", "operator")


@pytest.fixture
def endpoint(operator: Account, route: Route) -> Endpoint:
    return add_endpoint(service=route.service, by=operator, **TYPED).endpoint


def of_service(route: Route) -> str:
    return reverse("service-endpoints", args=[route.service.slug])


def acted(client: Client, endpoint: Endpoint, act: str) -> str:
    return client.post(reverse("endpoint-act", args=[endpoint.pk, act]), follow=True).content.decode()


class TestSwitches:
    def test_who_may(self, client: Client, stranger: Account, auditor: Account) -> None:
        page = reverse("notifications")
        assert client.get(page)["Location"].startswith(reverse("sign-in"))
        assert client.post(page)["Location"].startswith(reverse("sign-in"))
        client.force_login(stranger)
        assert [client.get(page).status_code, client.post(page).status_code] == [403, 403]
        client.force_login(auditor)
        assert client.get(page).status_code == 200

    def test_what_is_chosen_is_kept_and_recorded(self, client: Client, engineer: Account) -> None:
        client.force_login(engineer)
        at_first = {name for name, one in HAPPENINGS.items() if one.by_mail}
        assert checked(client) == at_first
        wanted = (at_first - {"said"}) | {"stage"}
        said = client.post(reverse("notifications"), {"mail": sorted(wanted)}, follow=True).content.decode()
        assert "This is so from now on." in said
        assert checked(client) == wanted
        event = Event.objects.get(kind="mail-switched")
        assert (event.actor, event.subject, event.details) == (
            "engineer",
            "account engineer",
            {"said": False, "stage": True},
        )
        again = client.post(reverse("notifications"), {"mail": sorted(wanted)}, follow=True).content.decode()
        assert "Nothing has changed" in again
        assert Event.objects.filter(kind="mail-switched").count() == 1
        assert ledger.verify().broken is None

    def test_what_does_not_happen_is_refused(self, client: Client, engineer: Account) -> None:
        client.force_login(engineer)
        answer = client.post(reverse("notifications"), {"mail": ["weather"]})
        assert (answer.status_code, MailSwitch.objects.exists()) == (422, False)
        assert "Nothing of the kind weather happens here" in answer.content.decode()

    def test_why_no_mail_comes_is_said(self, client: Client, engineer: Account, settings: Any) -> None:
        client.force_login(engineer)
        assert "names no mail server" in client.get(reverse("notifications")).content.decode()
        settings.EMAIL_URL = "smtp://mail.house.example"
        assert "has no mail address" in client.get(reverse("notifications")).content.decode()
        Account.objects.update(email="engineer@house.example")
        assert "engineer@house.example" in client.get(reverse("notifications")).content.decode()


def checked(client: Client) -> set[str]:
    page = client.get(reverse("notifications")).content.decode()
    return set(re.findall(r'name="mail" value="([\w-]+)" checked', page))


class TestWhoMay:
    @pytest.mark.parametrize("method", ["get", "post"])
    def test_see_and_add_those_of_a_service(
        self, client: Client, method: str, route: Route, engineer: Account, owner: Account, operator: Account
    ) -> None:
        page = of_service(route)
        call: Any = getattr(client, method)
        assert call(page)["Location"].startswith(reverse("sign-in"))
        client.force_login(engineer)
        assert call(page, TYPED).status_code == 403
        for one in (owner, operator):
            client.force_login(one)
            assert call(page, TYPED).status_code == 200
        assert Endpoint.objects.count() == (2 if method == "post" else 0)

    @pytest.mark.parametrize("method", ["get", "post"])
    def test_see_and_add_those_of_all(
        self, client: Client, method: str, route: Route, owner: Account, operator: Account
    ) -> None:
        call: Any = getattr(client, method)
        assert call(reverse("endpoints"))["Location"].startswith(reverse("sign-in"))
        client.force_login(owner)
        assert call(reverse("endpoints"), TYPED).status_code == 403
        client.force_login(operator)
        assert call(reverse("endpoints"), TYPED).status_code == 200

    def test_act_on_one(
        self,
        client: Client,
        endpoint: Endpoint,
        engineer: Account,
        second_owner: Account,
        account: Callable[..., Account],
    ) -> None:
        message = send_test(endpoint=endpoint, by=second_owner)
        seen = [reverse(name, args=[endpoint.pk]) for name in ("endpoint", "endpoint-live")]
        acts = [reverse("endpoint-act", args=[endpoint.pk, one]) for one in ("test", "rotate", "disable", "enable")]
        again = reverse("endpoint-send-again", args=[endpoint.pk])
        for page in (*seen, *acts, again):
            assert client.get(page)["Location"].startswith((reverse("sign-in"), seen[0]))
        for page in (*acts, again):
            assert client.post(page)["Location"].startswith(reverse("sign-in"))
        for nobody in (engineer, account("other_owner", "owner")):
            client.force_login(nobody)
            assert {client.get(page).status_code for page in seen} == {403}
            assert {client.post(page, {"message": message.name}).status_code for page in (*acts, again)} == {403}
        endpoint.refresh_from_db()
        assert (endpoint.disabled_at, endpoint.old_secret) == (None, "")
        client.force_login(second_owner)
        assert {client.get(page).status_code for page in seen} == {200}

    def test_the_service_page_leads_there(
        self, client: Client, route: Route, owner: Account, engineer: Account
    ) -> None:
        page = reverse("service", args=[route.service.slug])
        client.force_login(engineer)
        assert of_service(route) not in client.get(page).content.decode()
        client.force_login(owner)
        assert of_service(route) in client.get(page).content.decode()


class TestEndpoints:
    def test_a_secret_is_shown_once(self, client: Client, route: Route, owner: Account) -> None:
        client.force_login(owner)
        assert "Nowhere yet" in client.get(of_service(route)).content.decode()
        answer = client.post(of_service(route), TYPED)
        (secret,) = re.findall(r"whsec_[\w+/=]{44}", answer.content.decode())
        endpoint = Endpoint.objects.get()
        assert (decrypted(endpoint.secret), decrypted(endpoint.address)) == (secret, ADDRESS)
        for page in (of_service(route), reverse("endpoint", args=[endpoint.pk])):
            shown = client.get(page)
            assert secret not in shown.content.decode()
            assert "T0/key" not in shown.content.decode()
            assert "https://hooks.house.example/…" in shown.content.decode()
            assert "no-store" in shown["Cache-Control"]
        event = Event.objects.get(kind="endpoint-added")
        assert (event.actor, event.subject, event.details) == (
            "owner",
            f"endpoint {endpoint.pk}",
            {
                "name": "pipeline",
                "kind": "webhook",
                "host": "https://hooks.house.example/…",
                "service": "support-assistant",
            },
        )

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"address": "https://elsewhere.example/"}, "elsewhere.example is not among the hosts"),
            ({"address": "http://hooks.house.example/"}, "The address has to begin with https://"),
            ({"address": "nonsense"}, "This is no address"),
            ({"name": " "}, "Say who reads there"),
            ({"name": "x" * 81}, "in at most 80 characters"),
            ({"kind": "pager"}, "There is no kind"),
        ],
    )
    def test_what_can_not_be_added_is_said(
        self, client: Client, route: Route, owner: Account, changes: dict[str, str], said: str
    ) -> None:
        client.force_login(owner)
        answer = client.post(of_service(route), TYPED | changes)
        assert (answer.status_code, Endpoint.objects.exists()) == (422, False)
        assert said in answer.content.decode()

    def test_there_are_not_too_many(self, client: Client, route: Route, owner: Account) -> None:
        client.force_login(owner)
        for _ in range(MOST_OF_ONE_SERVICE):
            client.post(of_service(route), TYPED)
        answer = client.post(of_service(route), TYPED)
        assert (answer.status_code, Endpoint.objects.count()) == (422, MOST_OF_ONE_SERVICE)
        first = Endpoint.objects.earliest("pk")
        acted(client, first, "disable")
        client.post(of_service(route), TYPED)
        assert "There are 20 already" in acted(client, first, "enable")
        first.refresh_from_db()
        assert first.disabled_at is not None

    def test_from_a_test_message_to_its_answer(
        self, client: Client, route: Route, owner: Account, there: Receiver
    ) -> None:
        client.force_login(owner)
        shown = client.post(of_service(route), TYPED | {"address": there.address}).content.decode()
        (secret,) = re.findall(r"whsec_[\w+/=]{44}", shown)
        endpoint = Endpoint.objects.get()
        assert "A test message is on its way." in acted(client, endpoint, "test")
        live = client.get(reverse("endpoint-live", args=[endpoint.pk])).content.decode()
        assert "hx-get" in live
        there.replies = [Reply(200, b"<b>thanks</b>")]
        send_messages()
        assert is_signed(there.got[0], secret)
        live = client.get(reverse("endpoint-live", args=[endpoint.pk])).content.decode()
        assert "hx-get" not in live
        assert "Answer 200: &lt;b&gt;thanks&lt;/b&gt;" in live
        name = Message.objects.get().name
        page = client.post(reverse("endpoint-send-again", args=[endpoint.pk]), {"message": name}, follow=True)
        assert "on its way again" in page.content.decode()
        waiting = client.post(reverse("endpoint-send-again", args=[endpoint.pk]), {"message": name}, follow=True)
        assert "It is on its way already." in waiting.content.decode()
        assert client.post(reverse("endpoint-send-again", args=[endpoint.pk]), {"message": "x"}).status_code == 404

    def test_a_secret_is_rotated(self, client: Client, endpoint: Endpoint, owner: Account) -> None:
        client.force_login(owner)
        before = decrypted(endpoint.secret)
        page = client.post(reverse("endpoint-act", args=[endpoint.pk, "rotate"])).content.decode()
        (secret,) = re.findall(r"whsec_[\w+/=]{44}", page)
        endpoint.refresh_from_db()
        assert [decrypted(one) for one in (endpoint.secret, endpoint.old_secret)] == [secret, before]
        assert Event.objects.get(kind="endpoint-rotated").actor == "owner"
        Endpoint.objects.update(kind="slack")
        assert "Slack has no secret" in acted(client, endpoint, "rotate")

    def test_one_is_disabled_and_enabled(self, client: Client, endpoint: Endpoint, owner: Account) -> None:
        client.force_login(owner)
        assert "Nothing more is posted there." in acted(client, endpoint, "disable")
        assert "It is disabled already." in acted(client, endpoint, "disable")
        assert "is disabled: enable it first." in acted(client, endpoint, "test")
        assert "by owner" in client.get(of_service(Route.objects.get())).content.decode()
        assert "Messages are posted there again" in acted(client, endpoint, "enable")
        assert "It is enabled already." in acted(client, endpoint, "enable")
        kinds = Event.objects.filter(subject=f"endpoint {endpoint.pk}").values_list("kind", flat=True)
        assert list(kinds) == ["endpoint-added", "endpoint-disabled", "endpoint-enabled"]
        assert client.post(reverse("endpoint-act", args=[endpoint.pk, "explode"])).status_code == 404
        assert client.post(reverse("endpoint-act", args=[endpoint.pk + 1, "test"])).status_code == 404

    def test_a_reloaded_act_leads_back(self, client: Client, endpoint: Endpoint, owner: Account) -> None:
        client.force_login(owner)
        again = client.get(reverse("endpoint-act", args=[endpoint.pk, "rotate"]))
        assert again["Location"] == reverse("endpoint", args=[endpoint.pk])
