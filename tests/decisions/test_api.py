"""The API: who is let in where, and what is answered. The house is built once; every test's changes are rolled back."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions.api import api, auth
from decisions.models import (
    AnsweredPost,
    ApiToken,
    Brief,
    BriefRevision,
    Event,
    Release,
    Signature,
    SigningPolicy,
    Verdict,
)
from decisions.rules.tokens import SCOPES
from decisions.services.freeze_brief import freeze_brief
from decisions.services.tidy import tidy
from decisions.services.withdraw_brief import withdraw_brief
from loadtests.canonical import digest, digest_of
from loadtests.models import Boot, Campaign, TrafficSet, Trial
from tests.conftest import PASSWORD
from tests.support.bundles import sign
from tests.support.house import House, build_house
from tests.support.tokens import Caller, caller, secret_of

REASON = "Another try is needed."


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[House, Path]:
    return build_house(PASSWORD), module_evidence


@pytest.fixture
def house(built: tuple[House, Path], db: None, settings: Any) -> House:
    settings.EVIDENCE_DIR = built[1]
    cache.clear()
    for revision in (built[0].in_review, built[0].measuring, built[0].draft):
        revision.refresh_from_db()
    return built[0]


@pytest.fixture
def engineer(house: House) -> Caller:
    return caller(house.people["engineer"])


def at(revision: BriefRevision, act: str = "") -> str:
    return f"/briefs/{revision.brief_id}/revisions/{revision.number}{act and '/' + act}"


def because(house: House) -> dict[str, Any]:
    return {"reason": REASON}


def nothing(house: House) -> dict[str, Any]:
    return {}


def source(house: House) -> dict[str, Any]:
    return {"source": house.draft.source}


def not_yet(house: House) -> None:
    pass


def frozen(house: House) -> None:
    freeze_brief(revision=house.draft, by=house.people["engineer"])


def withdrawn(house: House) -> None:
    withdraw_brief(revision=house.draft, by=house.people["engineer"], reason=REASON)


def halted(house: House) -> None:
    """Before its held-out part was read."""
    Campaign.objects.filter(brief_campaign__revision=house.measuring, purpose="held-out").update(state="done")
    BriefRevision.objects.filter(pk=house.measuring.pk).update(halted="somebody has to look")


def signed(house: House) -> None:
    sign(house.in_review, house.people["owner"], PASSWORD)


def finished_boot(house: House) -> int:
    boots = Boot.objects.filter(campaign__brief_campaign__revision=house.measuring, campaign__purpose="held-out")
    return boots.filter(state="finished").latest("pk").pk


@dataclass(frozen=True)
class Row:
    """One endpoint: which scope and role it takes, and with what it answers 2xx. ``scope`` None: any of them; ``wrong``
    None: whoever holds a role may."""

    path: Callable[[House], str]
    scope: str | None = "read"
    right: str = "auditor"
    wrong: str = "stranger"
    body: Callable[[House], dict[str, Any]] = nothing
    before: Callable[[House], None] = not_yet
    status: int = 200


@dataclass(frozen=True)
class Open:
    """An endpoint that asks for no token."""

    path: Callable[[House], str]
    status: int = field(default=200)


def writes(path: Callable[[House], str], **more: Any) -> Row:
    return Row(path, scope="submit", right="engineer", wrong="owner", **more)


REVISION = "/briefs/{brief}/revisions/{number}"
TABLE: dict[tuple[str, str], Row | Open] = {
    ("GET", "/token"): Row(lambda house: "/token", scope=None),
    ("GET", "/services"): Row(lambda house: "/services"),
    ("GET", "/services/{slug}"): Row(lambda house: "/services/support-assistant"),
    ("GET", "/routes/{slug}"): Row(lambda house: "/routes/chat"),
    ("GET", "/routes/{slug}/configuration"): Open(lambda house: "/routes/chat/configuration"),
    ("HEAD", "/routes/{slug}/configuration"): Open(lambda house: "/routes/chat/configuration"),
    ("GET", "/traffic"): Row(lambda house: "/traffic"),
    ("GET", "/traffic/{number}"): Row(lambda house: f"/traffic/{TrafficSet.objects.latest('pk').pk}"),
    ("GET", "/briefs"): Row(lambda house: "/briefs"),
    ("POST", "/briefs"): writes(lambda house: "/briefs", body=source, status=201),
    ("GET", "/briefs/{brief}"): Row(lambda house: f"/briefs/{house.draft.brief_id}"),
    ("GET", REVISION): Row(lambda house: at(house.draft)),
    ("PUT", REVISION): writes(lambda house: at(house.draft), body=source),
    ("GET", REVISION + "/progress"): Row(lambda house: at(house.measuring, "progress")),
    ("GET", REVISION + "/verdict"): Row(lambda house: at(house.in_review, "verdict")),
    ("POST", REVISION + "/freeze"): writes(lambda house: at(house.draft, "freeze")),
    ("POST", REVISION + "/start"): writes(lambda house: at(house.draft, "start"), before=frozen),
    ("POST", REVISION + "/resume"): writes(lambda house: at(house.measuring, "resume"), before=halted),
    ("POST", REVISION + "/revise"): writes(lambda house: at(house.draft, "revise"), before=withdrawn),
    ("POST", REVISION + "/cancel"): writes(lambda house: at(house.measuring, "cancel"), body=because),
    ("POST", REVISION + "/withdraw"): writes(lambda house: at(house.in_review, "withdraw"), body=because),
    ("POST", REVISION + "/bundle"): Row(lambda house: at(house.in_review, "bundle"), wrong="operator", before=signed),
    ("GET", "/ledger"): Row(lambda house: "/ledger", wrong="operator"),
    ("GET", "/ledger/{number}"): Row(lambda house: "/ledger/1", wrong="operator"),
    ("GET", "/trials"): Row(lambda house: "/trials"),
    ("GET", "/trials/{number}"): Row(lambda house: f"/trials/{Trial.objects.latest('pk').pk}"),
    ("GET", "/pools/{pool}/boots"): Row(lambda house: "/pools/cpu/boots", scope="worker", right="operator"),
    ("POST", "/boots/{number}/fault"): Row(
        lambda house: f"/boots/{finished_boot(house)}/fault",
        scope="worker",
        right="operator",
        wrong="owner",
        body=because,
    ),
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path.removeprefix("/api/v1"), operation


@pytest.fixture
def people(house: House, account: Callable[..., Any]) -> dict[str, Any]:
    return {**house.people, "operator": account("operator", "operator")}


def test_every_endpoint_has_a_row() -> None:
    assert {(method, path) for method, path, _ in operations()} == set(TABLE)


@pytest.mark.parametrize("endpoint", [one for one, row in TABLE.items() if isinstance(row, Row)])
def test_three_steps(house: House, people: dict[str, Any], endpoint: tuple[str, str]) -> None:
    row, method = TABLE[endpoint], endpoint[0]
    assert isinstance(row, Row)
    row.before(house)
    path, body = row.path(house), row.body(house)
    signed_in = Client()
    signed_in.force_login(people[row.right])
    others = [one for one in SCOPES if one != row.scope]
    refused = [
        (401, Caller()),
        # A session is no credential here.
        (401, Caller(client=signed_in)),
        (401, Caller("dp_" + "x" * 43)),
        *([(403, caller(people[row.right], *others))] if row.scope else []),
        (403, caller(people[row.wrong])),
    ]
    before = everything()
    for status, call in refused:
        answer = call(method, path, body)
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json"), answer.content
        assert answer.json()["detail"]
        assert ("WWW-Authenticate" in answer) == (status == 401)
    assert everything() == before
    answer = caller(people[row.right], *([row.scope] if row.scope else []))(method, path, body)
    assert answer.status_code == row.status, answer.content


@pytest.mark.parametrize("endpoint", [one for one, row in TABLE.items() if isinstance(row, Open)])
def test_what_is_open_is_open(house: House, endpoint: tuple[str, str]) -> None:
    row = TABLE[endpoint]
    assert Client().generic(endpoint[0], f"/api/v1{row.path(house)}").status_code == row.status


def test_the_document_says_which_scope_each_endpoint_takes() -> None:
    wanted = {one: (row.scope or "any") if isinstance(row, Row) else "none" for one, row in TABLE.items()}
    assert {(method, path): operation["x-scope"] for method, path, operation in operations()} == wanted


def everything() -> dict[str, Any]:
    """What no refused request may change. Events of refusals are there for that."""
    return {
        "briefs": list(BriefRevision.objects.order_by("pk").values_list("pk", "state", "source", "halted")),
        "rows": [one.objects.count() for one in (Brief, Signature, Release, SigningPolicy, Verdict, AnsweredPost)],
        "boots": list(Boot.objects.order_by("pk").values_list("pk", "state")),
        "events": Event.objects.exclude(kind__in=["api-refused", "token-made"]).count(),
    }


def test_no_endpoint_decides() -> None:
    """Whatever its name is: the services that sign, revoke and set policies are known to no module of the API."""
    deciding = ("sign_decision", "revoke_release", "set_policy", "create_release", "reauthenticate")
    package = Path(str(__import__("decisions.api").api.__file__)).parent
    for path in package.glob("*.py"):
        assert not [name for name in deciding if name in path.read_text(encoding="utf-8")], path.name


def test_an_act_that_is_refused_is_an_event(house: House) -> None:
    call = caller(house.people["owner"])
    answer = call("POST", at(house.draft, "freeze"))
    assert answer.json()["detail"] == "Only someone in the group engineer can write a brief."
    event = Event.objects.filter(kind="api-refused").latest("sequence")
    assert (event.actor, event.subject) == ("owner", "account owner")
    assert event.details["asked"] == f"POST /api/v1{at(house.draft, 'freeze')}"
    assert "secret" not in event.details
    count = Event.objects.count()
    assert caller(house.people["stranger"])("GET", "/briefs").status_code == 403
    # The token's own event alone: looking is no act.
    assert Event.objects.count() == count + 1


class TestTokens:
    def test_who_has_none_is_answered_so_often(self, house: House) -> None:
        nobody, valid = Caller(), caller(house.people["engineer"])
        statuses = {nobody("GET", "/token").status_code for _ in range(auth.MOST_FAILURES)}
        assert statuses == {401}
        for call in (nobody, Caller("dp_" + "x" * 43)):
            answer = call("GET", "/token")
            assert (answer.status_code, answer["Content-Type"]) == (429, "application/problem+json")
            assert int(answer["Retry-After"]) == auth.FAILURES_WITHIN_S
            assert "too many requests without a valid token from this address" in answer.json()["detail"]
        assert valid("GET", "/token").status_code == 200
        elsewhere = Client(REMOTE_ADDR="192.0.2.7")
        assert Caller(client=elsewhere)("GET", "/token").status_code == 401

    @pytest.mark.parametrize(
        "sent",
        [
            {"REMOTE_ADDR": "192.0.2.8"},
            {"REMOTE_ADDR": "192.0.2.8", "HTTP_X_FORWARDED_FOR": "203.0.113.9"},
            {"REMOTE_ADDR": "192.0.2.8", "HTTP_X_FORWARDED_FOR": " , "},
            {"REMOTE_ADDR": "192.0.2.8", "HTTP_X_FORWARDED_FOR": "unknown, nonsense"},
            {"REMOTE_ADDR": ""},
        ],
    )
    def test_whatever_proxies_leave_out_it_is_answered(self, house: House, settings: Any, sent: dict[str, Any]) -> None:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 2
        client = Client(**sent)
        assert Caller(client=client)("GET", "/token").status_code == 401
        wrong = {"login": "engineer", "password": "wrong"}
        assert client.post(reverse("sign-in"), wrong).status_code == 200

    def test_addresses_of_ipv4_within_ipv6_are_counted_apart(self, house: House) -> None:
        for _ in range(auth.MOST_FAILURES + 1):
            answer = Caller(client=Client(REMOTE_ADDR="::ffff:192.0.2.10"))("GET", "/token")
        assert answer.status_code == 429
        assert Caller(client=Client(REMOTE_ADDR="::ffff:192.0.2.11"))("GET", "/token").status_code == 401

    def test_one_that_is_over_lets_nobody_in(self, house: House) -> None:
        for change in ({"expires_at": timezone.now()}, {"revoked_at": timezone.now()}):
            call = caller(house.people["engineer"])
            ApiToken.objects.filter(pk=ApiToken.objects.latest("pk").pk).update(**change)
            assert call("GET", "/token").status_code == 401

    def test_it_dies_with_the_account_and_loses_what_its_person_loses(self, house: House) -> None:
        person = house.people["second_owner"]
        call = caller(person)
        assert call("GET", "/token").status_code == 200
        person.groups.clear()
        assert call("GET", "/token").status_code == 403
        type(person).objects.filter(pk=person.pk).update(is_active=False)
        assert call("GET", "/token").status_code == 401

    def test_when_it_was_last_used_is_noted_once_a_minute(self, house: House, engineer: Caller) -> None:
        def used(*, before: Any = None) -> Any:
            if before is not None:
                ApiToken.objects.filter(pk=ApiToken.objects.latest("pk").pk).update(last_used_at=before)
            engineer("GET", "/token")
            return ApiToken.objects.latest("pk").last_used_at

        assert ApiToken.objects.latest("pk").last_used_at is None
        first = used()
        assert used() == first
        assert used(before=first - timedelta(minutes=2)) >= first

    def test_it_says_whose_it_is_and_never_itself(self, house: House) -> None:
        secret = secret_of(house.people["engineer"], ["submit", "read"])
        answer = Caller(secret)("GET", "/token")
        told = answer.json()
        assert (told["username"], told["roles"], told["scopes"]) == ("engineer", ["engineer"], ["read", "submit"])
        assert secret not in answer.content.decode()
        assert not ApiToken.objects.filter(digest=secret).exists()

    def test_too_many_requests_wait(self, house: House, engineer: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        (throttle,) = next(
            one.throttle_objects
            for _, router in api._routers
            for path, view in router.path_operations.items()
            for one in view.operations
            if path == "" and one.view_func.__name__ == "read_own_token"
        )
        monkeypatch.setattr(throttle, "num_requests", 2)
        assert [engineer("GET", "/token").status_code for _ in range(3)] == [200, 200, 429]
        answer = engineer("GET", "/token")
        assert int(answer["Retry-After"]) >= 1
        assert answer.json()["title"] == "Too Many Requests"
        assert caller(house.people["engineer"])("GET", "/token").status_code == 200


class TestProblems:
    def test_a_brief_s_problems_come_with_their_lines(self, house: House, engineer: Caller) -> None:
        words = house.draft.source.replace("question:", "qestion:")
        answer = engineer("POST", "/briefs", {"source": words})
        assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
        told = answer.json()
        line = words.splitlines().index(next(one for one in words.splitlines() if one.startswith("qestion"))) + 1
        assert {"field": "qestion", "detail": "unknown field; did you mean question?", "line": line, "rule": None} in (
            told["errors"]
        )

    def test_a_route_that_there_is_not(self, house: House, engineer: Caller) -> None:
        answer = engineer("POST", "/briefs", {"source": house.draft.source.replace("route: chat", "route: chut")})
        assert [one["detail"] for one in answer.json()["errors"]] == ["there is no route chut"]

    def test_a_state_that_does_not_allow_it(self, house: House, engineer: Caller) -> None:
        answer = engineer("POST", at(house.in_review, "start"))
        assert (answer.status_code, answer.json()["status"]) == (409, 409)
        assert answer.json()["detail"].startswith("A revision that is in-review can't be started")

    @pytest.mark.parametrize(
        ("path", "field"),
        [
            ("/briefs?limit=0", "query.limit"),
            ("/briefs?limit=201", "query.limit"),
            ("/briefs?cursor=nonsense", "query.cursor"),
            ("/ledger?cursor=YWZ0ZXI6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk", "query.cursor"),
            ("/briefs/0", "path.brief"),
            ("/traffic/99999999999999999999", "path.number"),
            ("/trials?brief=x", "query.brief"),
        ],
    )
    def test_fields_that_can_t_be_used(self, house: House, engineer: Caller, path: str, field: str) -> None:
        answer = engineer("GET", path)
        assert (answer.status_code, [one["field"] for one in answer.json()["errors"]]) == (422, [field])

    @pytest.mark.parametrize(
        "path", ["/briefs/999999", "/trials/999999", "/services/none", "/routes/none", "/traffic/9999"]
    )
    def test_what_there_is_not(self, house: House, engineer: Caller, path: str) -> None:
        answer = engineer("GET", path)
        assert (answer.status_code, answer.json()["title"]) == (404, "Not Found")

    def test_what_no_text_can_hold(self, house: House, engineer: Caller) -> None:
        for text in ("a\0b", "\ud800 half"):
            answer = engineer("POST", at(house.measuring, "cancel"), json.dumps({"reason": text + REASON}))
            assert answer.status_code == 422, answer.content
        assert engineer("POST", "/briefs", "{").status_code == 400


class TestIdempotency:
    KEY = {"Idempotency-Key": "one-of-my-own"}

    def test_the_same_request_is_done_once(self, house: House, engineer: Caller) -> None:
        before = Brief.objects.count()
        first, second = (engineer("POST", "/briefs", source(house), **self.KEY) for _ in range(2))
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json() == second.json()
        assert ("Idempotency-Replayed" in first, second["Idempotency-Replayed"]) == (False, "true")
        assert Brief.objects.count() == before + 1

    def test_another_request_with_it_is_refused(self, house: House, engineer: Caller) -> None:
        engineer("POST", "/briefs", source(house), **self.KEY)
        for path, body in (("/briefs", {"source": house.draft.source + "\n"}), (at(house.draft, "freeze"), {})):
            answer = engineer("POST", path, body, **self.KEY)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["field"] == "Idempotency-Key"

    def test_one_that_is_still_being_answered(self, house: House, engineer: Caller) -> None:
        engineer("POST", "/briefs", source(house), **self.KEY)
        AnsweredPost.objects.update(status=None)
        answer = engineer("POST", "/briefs", source(house), **self.KEY)
        assert (answer.status_code, "still being answered" in answer.json()["detail"]) == (409, True)

    def test_what_was_refused_may_be_tried_again_with_it(self, house: House, engineer: Caller) -> None:
        assert engineer("POST", at(house.draft, "start"), **self.KEY).status_code == 409
        frozen(house)
        assert engineer("POST", at(house.draft, "start"), **self.KEY).status_code == 200

    def test_keys_are_a_person_s_own_and_end(self, house: House, engineer: Caller) -> None:
        engineer("POST", "/briefs", source(house), **self.KEY)
        row = AnsweredPost.objects.get()
        assert row.person == house.people["engineer"]
        AnsweredPost.objects.update(created_at=timezone.now() - timedelta(days=8))
        tidy()
        assert "Idempotency-Replayed" not in engineer("POST", "/briefs", source(house), **self.KEY)


class TestReading:
    def test_pages_hold_every_row_once_also_where_rows_are_added(self, house: House, engineer: Caller) -> None:
        seen: list[int] = []
        last = Event.objects.latest("sequence").sequence
        cursor: str | None = ""
        while cursor is not None:
            told = engineer("GET", f"/ledger?limit=200&cursor={cursor}").json()
            seen += [one["sequence"] for one in told["items"]]
            cursor = told["next"]
            secret_of(house.people["auditor"])
        assert seen == list(range(last, 0, -1))

    def test_the_ledger_can_be_verified_from_what_is_read(self, house: House, engineer: Caller) -> None:
        first, second = (engineer("GET", f"/ledger/{number}").json() for number in (1, 2))
        assert digest(first["content"].encode()) == first["hash"] == second["previous"]
        assert json.loads(second["content"])["details"] == second["details"]

    def test_filters(self, house: House, engineer: Caller) -> None:
        kinds = {one["kind"] for one in engineer("GET", "/ledger?kind=brief-created").json()["items"]}
        assert kinds == {"brief-created"}
        found = engineer("GET", "/briefs?state=draft&route=chat").json()["items"]
        assert [one["id"] for one in found] == [house.draft.brief_id]
        own = engineer("GET", f"/trials?brief={house.measuring.brief_id}&purpose=held-out&limit=200").json()["items"]
        assert {(one["boot"]["brief"], one["boot"]["purpose"]) for one in own} == {
            (house.measuring.brief_id, "held-out")
        }

    def test_a_verdict_gives_its_digest(self, house: House, engineer: Caller) -> None:
        told = engineer("GET", at(house.in_review, "verdict")).json()
        assert digest_of(told["document"]) == told["digest"]
        assert engineer("GET", at(house.measuring, "verdict")).status_code == 404

    def test_nothing_tells_how_fast_held_out_trials_were_while_the_brief_measures(
        self, house: House, engineer: Caller
    ) -> None:
        """What a page doesn't show the API doesn't tell: counts and failures, no latency, no goodput, no log."""
        told = engineer("GET", f"/trials?brief={house.measuring.brief_id}&purpose=held-out").json()["items"]
        assert told
        facts = {name for one in told for name in one}
        assert facts == {
            *("id", "boot", "level", "state", "evidence_class", "planned", "sent", "ended"),
            *("plan_digest", "records_digest", "manifest_digest", "started_at", "ended_at"),
        }
        progress = engineer("GET", at(house.measuring, "progress")).json()
        assert progress["state"] == "measuring"
        assert progress["verdict"] is None
        assert {name for one in progress["stages"] for name in one} == {
            *("name", "state", "done", "total", "repeated", "seconds_left"),
        }

    def test_the_queue_of_a_pool(self, house: House, engineer: Caller) -> None:
        told = engineer("GET", "/pools/cpu/boots").json()["items"]
        assert {one["state"] for one in told} == {"running", "waiting"}
        assert engineer("GET", "/pools/gpu/boots").json() == {"items": [], "next": None}

    def test_a_bundle_is_the_page_s_own(self, house: House, engineer: Caller) -> None:
        assert engineer("POST", at(house.in_review, "bundle")).status_code == 409
        signed(house)
        answer = engineer("POST", at(house.in_review, "bundle"))
        archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
        assert "verify.py" in archive.namelist()


class TestARoute:
    def told(self, house: House, engineer: Caller) -> tuple[str, str]:
        found = engineer("GET", "/routes/chat").json()
        assert (found["service"], found["route"], found["environment"]) == ("support-assistant", "chat", "production")
        return found["standing"], found["sentence"]

    def test_nothing_was_released(self, house: House, engineer: Caller) -> None:
        assert self.told(house, engineer)[0] == "none"

    def test_in_force_then_expired_by_the_clock_alone(self, house: House, engineer: Caller) -> None:
        signed(house)
        assert self.told(house, engineer)[0] == "in-force"
        Release.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        standing, sentence = self.told(house, engineer)
        assert (standing, "expired on" in sentence) == ("stale", True)

    def test_what_it_rests_on_has_changed(self, house: House, engineer: Caller) -> None:
        signed(house)
        trial = Trial.objects.filter(boot__campaign__brief_campaign__revision=house.in_review).latest("pk")
        Trial.objects.filter(pk=trial.pk).update(manifest_digest="0" * 64)
        standing, sentence = self.told(house, engineer)
        assert (standing, "has changed since it was signed" in sentence) == ("stale", True)

    def test_revoked(self, house: House, engineer: Caller) -> None:
        signed(house)
        Release.objects.update(revoked_at=timezone.now())
        assert self.told(house, engineer) == (
            "none",
            "The last release on support-assistant/chat was revoked.",
        )


def test_the_page_about_the_api_lists_every_endpoint_with_its_scope() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z, ]+) \| `(/[^`]*)` \| `?(\w+)`? \| ", page, re.MULTILINE)
    listed = {(method, path): scope for methods, path, scope in rows for method in methods.split(", ")}
    assert listed == {(method, path): operation["x-scope"] for method, path, operation in operations()}
