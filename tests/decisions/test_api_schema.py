"""The OpenAPI document as a machine reads it: requests that are drawn from it, with all scopes of an engineer's token.
No answer is a crash, nothing is signed, and nothing changes beyond what the scope is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import requests
import schemathesis
from django.core.cache import caches
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings

from decisions.api import api
from decisions.models import (
    Account,
    ApiToken,
    BriefRevision,
    Demonstration,
    Event,
    Release,
    Route,
    Service,
    ServiceCases,
    Signature,
    SignatureRequest,
    SigningPolicy,
    Verdict,
)
from loadtests.models import Boot, Campaign, TrafficPart, TrafficSet, Trial
from tests.conftest import PASSWORD
from tests.support.bundles import sign
from tests.support.house import House, build_house
from tests.support.tokens import secret_of

Operation = tuple[str, str]
OPERATIONS: list[Operation] = [
    (method.upper(), path) for path, methods in api.get_openapi_schema()["paths"].items() for method in methods
]
EXAMPLES = 12
# What an engineer moves by the API. Everything else stays as it is, whatever is sent.
MOVED = (BriefRevision, Boot, Campaign, Trial)
KEPT = (
    *(Service, Route, ServiceCases, SigningPolicy, Demonstration),
    *(Verdict, Signature, Release, TrafficSet, TrafficPart),
)


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[House, Path, str]:
    house = build_house(PASSWORD)
    return house, module_evidence, secret_of(house.people["engineer"])


@pytest.fixture
def house(built: tuple[House, Path, str], db: None, settings: Any) -> House:
    settings.EVIDENCE_DIR = built[1]
    return built[0]


def document_about(house: House) -> dict[str, Any]:
    """The document with what there is in place of what there might be, or hardly a request would find anything."""
    document = cast(dict[str, Any], api.get_openapi_schema())
    there = {
        "brief": [house.in_review.brief_id, house.measuring.brief_id, house.draft.brief_id],
        "number": [1, 2],
        "slug": ["chat", "support-assistant"],
        "pool": ["cpu"],
    }
    rows: dict[str, Any] = {"traffic": TrafficSet, "trials": Trial, "ledger": Event, "boots": Boot}
    for path, methods in document["paths"].items():
        table = rows.get(path.split("/")[3])
        keys = list(table.objects.order_by("-pk").values_list("pk", flat=True)[:8]) if table else there["number"]
        for operation in methods.values():
            for one in operation["parameters"]:
                if one["name"] in there:
                    one["schema"] = {"enum": keys if one["name"] == "number" else there[one["name"]]}
    schemas = document["components"]["schemas"]
    schemas["NewBrief"]["properties"]["source"] = {"enum": [house.draft.source, house.draft.source + "\n"]}
    schemas["Because"] = {"type": "object", "properties": {"reason": {"enum": ["Another try is needed."]}}}
    return document


def fingerprint() -> dict[str, Any]:
    """What no token changes: who may what, what was decided and signed, what was measured on, what was judged."""
    kept = (
        Service,
        Route,
        ServiceCases,
        SigningPolicy,
        Demonstration,
        Verdict,
        Signature,
        Release,
        TrafficSet,
        TrafficPart,
    )
    found: dict[str, Any] = {
        model.__name__: list(cast(Any, model).objects.order_by("pk").values_list()) for model in kept
    }
    found["people"] = list(Account.objects.order_by("pk").values_list("username", "password", "is_active", "groups"))
    found["owners"] = list(Service.objects.values_list("pk", "owners"))
    found["tokens"] = list(ApiToken.objects.order_by("pk").values_list("pk", "scopes", "expires_at", "revoked_at"))
    # Only its owners decide; an engineer may take the brief back.
    decided = SignatureRequest.objects.exclude(outcome__in=["", "withdrawn"])
    found["decided"] = list(decided.order_by("pk").values_list("pk", "outcome"))
    found["states"] = BriefRevision.objects.filter(state__in=["approved", "rejected", "changes-requested"]).count()
    return found


def moved() -> list[Any]:
    rows = [list(cast(Any, model).objects.order_by("pk").values_list("pk", "state")) for model in MOVED]
    return [*rows, Event.objects.count(), list(BriefRevision.objects.order_by("pk").values_list("source"))]


@pytest.mark.parametrize("there", [True, False], ids=["what there is", "anything"])
@pytest.mark.parametrize("asked", OPERATIONS, ids=" ".join)
def test_whatever_is_sent(house: House, built: tuple[House, Path, str], asked: Operation, there: bool) -> None:
    method, path = asked
    document = document_about(house) if there else cast(dict[str, Any], api.get_openapi_schema())
    operation = schemathesis.openapi.from_dict(document)[path][method]
    before, statuses = fingerprint(), set[int]()

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def sent(case: schemathesis.Case[Any]) -> None:
        caches["process"].clear()
        with transaction.atomic():
            at_first = moved()
            answer = send(case, built[2])
            statuses.add(answer.status_code)
            assert answer.status_code < 500
            if answer.status_code >= 400 and answer.status_code != 405:
                assert answer["Content-Type"] in ("application/problem+json", "text/plain; charset=utf-8")
            assert fingerprint() == before
            if method == "GET":
                assert moved() == at_first
            transaction.set_rollback(True)

    sent()
    if there:
        assert statuses & {200, 201, 409}, "no request found anything"


def send(case: schemathesis.Case[Any], secret: str) -> Any:
    """Through the whole site, without a socket."""
    wanted = case.as_transport_kwargs(base_url="http://testserver")
    wanted = {name: wanted[name] for name in ("method", "url", "params", "json", "data", "headers") if name in wanted}
    prepared = requests.Request(**wanted).prepare()
    body: Any = prepared.body or b""
    sent: dict[str, Any] = dict(prepared.headers)
    headers = {name: value for name, value in sent.items() if name.lower() != "content-length"}
    headers["Authorization"] = f"Bearer {secret}"
    return Client(headers=headers).generic(
        prepared.method or "",
        prepared.path_url,
        data=body,
        content_type=str(headers.get("Content-Type", "")),
    )


def test_a_signature_and_a_changed_service_would_be_noticed(house: House) -> None:
    """Or the test above would say nothing."""
    before = fingerprint()
    sign(house.in_review, house.people["owner"], PASSWORD)
    changed = fingerprint()
    names = {name for name in before if before[name] != changed[name]}
    assert names == {"Signature", "Release", "decided", "states"}
    Service.objects.update(name="Another")
    assert fingerprint()["Service"] != before["Service"]
