"""A second route of a service: who may add one, and that it is decided on by itself."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from decisions import ledger
from decisions.models import Account, Event, Route, Service
from decisions.services.add_route import add_route
from decisions.services.refused import Refused

pytestmark = pytest.mark.django_db


def test_an_owner_adds_a_route_and_the_ledger_says_so(service: Service, owner: Account) -> None:
    route = add_route(service=service, slug="batch", name="Batch", purpose="Nobody waits", by=owner)
    assert list(service.routes.all()) == [route]
    event = Event.objects.get(kind="route-added")
    assert (event.actor, event.subject) == ("owner", "service support-assistant")
    assert event.details == {"route": "batch", "name": "Batch", "purpose": "Nobody waits", "environment": "production"}
    assert ledger.verify().broken is None


def test_nobody_else_may(service: Service, engineer: Account, auditor: Account, stranger: Account) -> None:
    for person in (engineer, auditor, stranger):
        with pytest.raises(Refused, match="Only an owner of this service or someone in the group operator can add a"):
            add_route(service=service, slug="batch", name="", purpose="", by=person)
    assert not service.routes.exists()
    assert Event.objects.filter(kind="route-add-refused").count() == 3


def test_an_environment_that_the_service_has_not_is_begun_by_an_operator(
    service: Service, route: Route, owner: Account, account: Callable[..., Account]
) -> None:
    """It begins under the first policy, which may ask for less than the service's own."""
    new: dict[str, Any] = {"service": service, "slug": "trial", "name": "", "purpose": "", "environment": "staging"}
    with pytest.raises(Refused, match="has no route in staging yet, and only someone in the group operator"):
        add_route(**new, by=owner)
    assert Event.objects.filter(kind="route-add-refused").count() == 1
    assert add_route(**new, by=account("operator", "operator")).environment == "staging"
    assert add_route(**new | {"slug": "second"}, by=owner).environment == "staging"


def test_a_name_that_is_taken_or_is_none_is_refused(service: Service, route: Route, owner: Account) -> None:
    with pytest.raises(Refused, match="Support assistant has a route chat already: choose another name"):
        add_route(service=service, slug=route.slug, name="", purpose="", by=owner)
    with pytest.raises(Refused, match="its name in briefs: Enter a valid"):
        add_route(service=service, slug="no slug", name="", purpose="", by=owner)
    with pytest.raises(Refused, match="its name in briefs: This field cannot be blank"):
        add_route(service=service, slug="", name="", purpose="", by=owner)
    assert list(service.routes.all()) == [route]


def test_the_page_of_a_service_adds_a_route(service: Service, route: Route, owner: Account, client: Client) -> None:
    client.force_login(owner)
    page = client.get(reverse("service", args=[service.slug])).content.decode()
    assert "Add a route" in page
    typed = {"slug": "batch", "name": "Batch", "purpose": "Nobody waits"}
    answer = client.post(reverse("route-new", args=[service.slug]), typed)
    assert answer["Location"] == reverse("route", args=[service.slug, "batch"])
    assert [one.slug for one in service.routes.all()] == ["batch", "chat"]
    again = client.post(reverse("route-new", args=[service.slug]), typed)
    assert again.status_code == 422
    assert "Nothing was added" in again.content.decode()
    assert 'value="batch"' in again.content.decode()


def test_the_page_offers_it_to_nobody_who_may_not(service: Service, engineer: Account, client: Client) -> None:
    client.force_login(engineer)
    assert "Add a route" not in client.get(reverse("service", args=[service.slug])).content.decode()
    refused = client.post(reverse("route-new", args=[service.slug]), {"slug": "batch"})
    assert (refused.status_code, service.routes.count()) == (422, 0)
    assert client.get(reverse("route-new", args=[service.slug]))["Location"] == reverse("service", args=[service.slug])


def test_the_command_adds_a_route(service: Service, owner: Account, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("add_route", "support-assistant", "batch", by="owner", purpose="Nobody waits")
    assert capsys.readouterr().out == "route support-assistant/batch\n"
    assert Route.objects.get().name == "batch"
    for arguments, said in (
        (("nowhere", "night"), "no service nowhere"),
        (("support-assistant", "batch"), "has a route batch already"),
    ):
        with pytest.raises(CommandError, match=said):
            call_command("add_route", *arguments, by="owner")
    with pytest.raises(CommandError, match="no account nobody"):
        call_command("add_route", "support-assistant", "night", by="nobody")
