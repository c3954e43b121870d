"""What an address answers to another method than the one that its form or link uses."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from decisions.models import Account, Route
from decisions.pages.urls import urlpatterns

pytestmark = pytest.mark.django_db

POST_ALONE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "brief-act": ("brief", {"brief": 1, "number": 2, "act": "freeze"}, {"brief": 1, "number": 2}),
    "brief-sign": ("brief-sign-off", {"brief": 1, "number": 2}, {"brief": 1, "number": 2}),
    "brief-imported-set-aside": ("brief-imported-trial", {"pk": 6}, {"pk": 6}),
    "demonstration-withdraw": ("demonstration", {"pk": 7}, {"pk": 7}),
    "declare-fault": ("boot", {"pk": 3}, {"pk": 3}),
    "revoke": ("route", {"slug": "a", "route": "b"}, {"slug": "a", "route": "b"}),
    "token-revoke": ("tokens", {}, {}),
    "traffic-delete-text": ("traffic-set", {"pk": 4}, {"pk": 4}),
    "traffic-import-again": ("traffic-import-job", {"pk": 5}, {"pk": 5}),
    "traffic-import-cancel": ("traffic-import-job", {"pk": 5}, {"pk": 5}),
    "traffic-import-look": ("traffic-import", {}, {}),
}
WITHOUT_KEYS = [one.name for one in urlpatterns if isinstance(one, URLPattern) and not one.pattern.converters]


@pytest.mark.parametrize("name", POST_ALONE)
def test_a_form_address_that_is_reloaded_leads_back_to_its_page(client: Client, engineer: Account, name: str) -> None:
    client.force_login(engineer)
    page, given, kept = POST_ALONE[name]
    for method in (client.get, client.head):
        response = method(reverse(name, kwargs=given))
        assert (response.status_code, response["Location"]) == (302, reverse(page, kwargs=kept))


@pytest.mark.parametrize("name", WITHOUT_KEYS)
def test_head_answers_wherever_get_does(client: Client, engineer: Account, name: str) -> None:
    client.force_login(engineer)
    got, head = (method(reverse(name)) for method in (client.get, client.head))
    assert (head.status_code, head.content) == (got.status_code, b"")


def test_the_api_answers_head_with_the_validator_alone(client: Client, route: Route) -> None:
    address = f"/api/v1/routes/{route.slug}/configuration"
    got, head = client.get(address), client.head(address)
    assert (head.status_code, head["ETag"], head.content) == (200, got["ETag"], b"")
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert set(paths["/api/v1/routes/{slug}/configuration"]) == {"get", "head"}


def test_what_no_form_sends_is_not_allowed(client: Client, engineer: Account) -> None:
    client.force_login(engineer)
    for name in ("inbox", "briefs", "brief-new", "traffic-import-look"):
        assert client.put(reverse(name)).status_code == 405
