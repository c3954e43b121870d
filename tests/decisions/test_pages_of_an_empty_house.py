"""Pages before anything has happened, signing in and out, writing a brief, and what goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction
from django.test import Client
from django.urls import reverse

from decisions import ledger
from decisions.models import Account, Brief, BriefRevision, Event, Route, Service
from decisions.services.freeze_brief import freeze_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.services.import_traffic import import_traffic
from tests.conftest import PASSWORD, without_triggers

pytestmark = pytest.mark.django_db

EMPTY = {
    "inbox": "Nothing is being measured",
    "services": "No service yet",
    "demonstrations": "Nobody vouches for anything yet",
    "briefs": "No brief yet",
    "traffic": "No traffic yet",
    "runs": "No boot is running",
    "ledger": "The history is empty",
    "brief-new": "No route to write for",
}


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """The chain's status is kept for a minute, and a test's ledger for less."""
    cache.clear()


def document(route: Route) -> dict[str, Any]:
    from config.demo import brief_document
    from tests.support.play import TARGET

    slug = route.service.slug
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="Two hours", by="engineer", service=slug, seed=7)
    return brief_document(TARGET, traffic) | {"route": route.slug}


@pytest.fixture
def draft(route: Route, engineer: Account) -> BriefRevision:
    from decisions.services.create_brief import create_brief

    return create_brief(route=route, source=json.dumps(document(route)), by=engineer)


@pytest.mark.parametrize(("page", "teaches"), EMPTY.items())
def test_an_empty_page_teaches_the_next_step(engineer: Account, client: Client, page: str, teaches: str) -> None:
    client.force_login(engineer)
    response = client.get(reverse(page))
    assert response.status_code == 200
    assert teaches in response.content.decode()


def test_the_inbox_of_a_fresh_installation_names_the_first_steps_in_order(engineer: Account, client: Client) -> None:
    client.force_login(engineer)
    page = client.get(reverse("inbox")).content.decode()
    places = [page.index(step) for step in ("Add a service and its route", "Import traffic:", "Write a brief:")]
    assert places == sorted(places)
    assert "add_service" in page


def test_the_demo_leaves_a_route_of_another_service_alone(service: Service, owner: Account) -> None:
    from config.demo import create_service

    other = Service.objects.create(slug="search", name="Search", purpose="x", target="x", pool="cpu")
    chat = Route.objects.create(service=other, slug="chat", name="chat")
    routes = create_service()
    assert {name: one.slug for name, one in routes.items()} == {"chat": "support-assistant-chat", "batch": "batch"}
    assert {one.service.slug for one in routes.values()} == {"support-assistant"}
    chat.refresh_from_db()
    assert chat.service == other
    assert create_service() == routes


def test_a_page_that_is_not_there_says_so(engineer: Account, client: Client) -> None:
    client.force_login(engineer)
    for address in ("/briefs/7/", "/briefs/7/1/", "/briefs/7/1/sign-off/", "/runs/boots/7/", "/services/none/", "/no"):
        response = client.get(address)
        assert response.status_code == 404
        assert "There is no such page" in response.content.decode()


def test_signing_in_leads_to_where_one_wanted_to_go(engineer: Account, client: Client) -> None:
    response = client.get("/history/")
    form = {"login": "engineer", "password": PASSWORD, "next": "/history/"}
    assert client.post(response["Location"], form)["Location"] == "/history/"


def test_a_wrong_password_is_no_way_in(engineer: Account, client: Client) -> None:
    response = client.post("/sign-in/", {"login": "engineer", "password": "guess"})
    assert "go together" in response.content.decode()
    assert "_auth_user_id" not in client.session


def test_signing_out_is_a_post(engineer: Account, client: Client) -> None:
    client.force_login(engineer)
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/")["Location"] == "/sign-in/"
    assert client.get("/").status_code == 302


def test_someone_signed_in_is_not_sent_elsewhere_by_next(engineer: Account, client: Client) -> None:
    form = {"login": "engineer", "password": PASSWORD, "next": "https://elsewhere.example/"}
    assert client.post("/sign-in/", form)["Location"] == "/"


class TestWhoReadsTheHistory:
    def test_anonymous_signs_in_first(self, client: Client) -> None:
        assert client.get("/history/").status_code == 302

    def test_a_stranger_is_told_who_can(self, stranger: Account, client: Client) -> None:
        client.force_login(stranger)
        response = client.get("/history/")
        assert response.status_code == 403
        assert "engineer, owner or auditor" in response.content.decode()

    @pytest.mark.parametrize("who", ["engineer", "owner", "auditor"])
    def test_the_right_person_reads_it(self, request: pytest.FixtureRequest, client: Client, who: str) -> None:
        client.force_login(request.getfixturevalue(who))
        assert client.get("/history/").status_code == 200


def test_a_broken_chain_is_named(auditor: Account, client: Client) -> None:
    with transaction.atomic():
        for _ in range(4):
            ledger.append("tested", subject="subject", actor="engineer", details={})
    with without_triggers():
        Event.objects.filter(sequence=4).update(content=b"{}")
    client.force_login(auditor)
    assert "broken at event 4: its bytes do not give its hash" in client.get("/history/").content.decode()


class TestWritingABrief:
    def test_only_an_engineer_may(self, route: Route, owner: Account, client: Client) -> None:
        client.force_login(owner)
        response = client.get("/briefs/new/")
        assert response.status_code == 403
        assert "Only someone in the group engineer can write a brief." in response.content.decode()

    def test_the_example_begins_with_what_is_known(self, route: Route, engineer: Account, client: Client) -> None:
        known = document(route)["traffic"]
        client.force_login(engineer)
        page = client.get("/briefs/new/?route=chat").content.decode()
        assert f"set: {known['set']}" in page
        assert f"held_out: {known['held_out']}" in page
        assert "decision_owner: owner" in page

    def test_the_example_is_a_brief_once_its_digests_are_filled_in(
        self, route: Route, engineer: Account, client: Client
    ) -> None:
        document(route)
        client.force_login(engineer)
        example = client.get("/briefs/new/").context["source"].replace("fill in", "a" * 64)
        response = client.post("/briefs/new/", {"route": "chat", "source": example})
        assert response.status_code == 302, response.context["problems"]
        freeze_brief(revision=BriefRevision.objects.get(), by=engineer)

    def test_a_draft_is_kept_and_opened(self, route: Route, engineer: Account, client: Client) -> None:
        client.force_login(engineer)
        response = client.post("/briefs/new/", {"route": "chat", "source": json.dumps(document(route))})
        brief = Brief.objects.get()
        assert response["Location"] == f"/briefs/{brief.pk}/1/"

    def test_every_problem_is_named_with_its_line_and_no_word_is_lost(
        self, route: Route, engineer: Account, client: Client
    ) -> None:
        import yaml

        broken = document(route)
        broken["rule"]["pairs"] = 5
        broken["outcome"]["minimum_improvement"] = 3
        source = yaml.safe_dump(broken, sort_keys=False)
        client.force_login(engineer)
        response = client.post("/briefs/new/", {"route": "chat", "source": source})
        assert response.status_code == 422
        assert response.context["source"] == source
        lines = source.splitlines()
        found = {problem.field: problem.line for problem in response.context["problems"]}
        assert lines[found["outcome.minimum_improvement"] - 1].strip().startswith("minimum_improvement")
        assert lines[found["rule"] - 1].startswith("  ") or lines[found["rule"] - 1].startswith("rule:")
        assert not Brief.objects.exists()

    def test_what_is_no_yaml_is_said_and_kept(self, route: Route, engineer: Account, client: Client) -> None:
        client.force_login(engineer)
        response = client.post("/briefs/new/", {"route": "chat", "source": "a: [1, <b>"})
        page = response.content.decode()
        assert response.status_code == 422
        assert "not YAML" in page
        assert "a: [1, &lt;b&gt;" in page

    def test_a_draft_is_edited_in_place(self, draft: BriefRevision, engineer: Account, client: Client) -> None:
        client.force_login(engineer)
        address = reverse("brief-edit", args=[draft.brief_id, 1])
        changed = json.dumps(json.loads(draft.source) | {"title": "Another title"})
        assert client.post(address, {"source": changed}).status_code == 302
        draft.brief.refresh_from_db()
        assert draft.brief.title == "Another title"
        assert Event.objects.filter(kind="brief-edited").count() == 1

    def test_a_frozen_brief_is_not_edited(self, draft: BriefRevision, engineer: Account, client: Client) -> None:
        freeze_brief(revision=draft, by=engineer)
        client.force_login(engineer)
        address = reverse("brief-edit", args=[draft.brief_id, 1])
        response = client.post(address, {"source": draft.source})
        assert response.status_code == 422
        assert "a change makes a new revision" in response.content.decode()

    def test_a_second_revision_shows_what_changed(
        self, draft: BriefRevision, engineer: Account, client: Client
    ) -> None:
        from decisions.services.revise_brief import revise_brief

        freeze_brief(revision=draft, by=engineer)
        second = revise_brief(revision=draft, by=engineer)
        changed = second.source.replace("Prompt lookup for chat", "Prompt lookup, again")
        BriefRevision.objects.filter(pk=second.pk).update(source=changed)
        client.force_login(engineer)
        page = client.get(reverse("brief", args=[draft.brief_id, 2])).content.decode()
        assert "Changed since revision 1" in page
        assert "revision 1" in page

    def test_a_draft_that_no_longer_reads_still_opens(
        self, draft: BriefRevision, engineer: Account, client: Client
    ) -> None:
        BriefRevision.objects.filter(pk=draft.pk).update(source="title: only")
        client.force_login(engineer)
        for name in ("brief", "brief-tuning", "brief-held-out", "brief-sign-off", "brief-history"):
            assert client.get(reverse(name, args=[draft.brief_id, 1])).status_code == 200
        assert "can’t be frozen yet" in client.get(reverse("brief", args=[draft.brief_id, 1])).content.decode()
