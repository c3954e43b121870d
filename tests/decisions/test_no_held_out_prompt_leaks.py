"""No prompt of a held-out part is reachable through any page, address, log line, file, record or tuning trial.

The house's traffic comes from a file in which every row stands once more in a broken form, so that what an import says
of rows it can't use is looked through as well.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.core.cache import cache
from django.db import transaction
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.urls.exceptions import NoReverseMatch

from decisions import models
from decisions.models import (
    Account,
    Brief,
    BriefRevision,
    Demonstration,
    Event,
    ImportedTrial,
    Route,
    Service,
    ServiceCases,
)
from decisions.selectors.pictures import drawn_from_evidence
from decisions.services.reauthenticate import Credentials
from decisions.services.sign_decision import sign_decision
from loadtests import import_pulse
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.records import records_content
from loadtests.evidence.store import EvidenceStore
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.trial import prepared
from loadtests.generator.unserved import unserved
from loadtests.models import Boot, Campaign, TrafficImport, TrafficPart, TrafficSet, Trial
from loadtests.planning import Purpose
from loadtests.services.claim_boot import claim_boot
from loadtests.services.request_import import request_import
from loadtests.services.run_import import run_import
from loadtests.traffic.levels import Arrival, Level
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import Row, rows_of
from tests.conftest import PASSWORD
from tests.support import house as houses
from tests.support.campaigns import campaign_of
from tests.support.house import House, build_house, person
from tests.support.leaks import Secrets
from tests.support.tokens import secret_of
from workers import boots
from workers.engines.base import EngineFailed
from workers.trial_evidence import level_of

EXPLORING: tuple[Purpose, ...] = ("noise-floor", "tuning", "fallback")
ENDPOINT = Endpoint("http://any", "model")
# Pages of one kind that one person opens; the engineer opens all.
MOST_OF_A_KIND = 4
LINK = re.compile(r'(?:href|src|action|hx-get|data-[a-z-]+)="(/[^"#]*)')
ACCOUNT_ACTS = ("roles", "email", "password", "second-factor", "deactivate", "reactivate")
ACTS = ("freeze", "start", "revise", "withdraw", "cancel", "resume")


@dataclass(frozen=True)
class Sealed:
    house: House
    var: Path
    secrets: Secrets
    held_out: TrafficPart


def broken(line: str) -> Iterator[str]:
    """The row with its prompt where it has no place, one way after the other."""
    row = json.loads(line)
    prompt = row["messages"][-1]["content"]
    for spoilt in (
        {"max_tokens": prompt},
        {"arrival_s": prompt},
        {prompt: 1},
        {"class": prompt * 20},
        {"turn": prompt},
    ):
        yield json.dumps(row | {"id": f"{row['id']}-{len(spoilt)}"} | spoilt)
    row["messages"][-1]["role"] = prompt
    yield json.dumps(row | {"id": f"{row['id']}-role"})
    yield line[: len(line) // 2]


def traffic_file(path: Path) -> Path:
    lines = SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()
    spoilt = [next(one for turn, one in enumerate(broken(line)) if turn == at % 7) for at, line in enumerate(lines)]
    path.write_text("\n".join([*lines, *spoilt]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def built(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[House, Path]]:
    var = tmp_path_factory.mktemp("sealed")
    with (
        django_db_blocker.unblock(),
        transaction.atomic(),
        override_settings(**directories(var)),
        pytest.MonkeyPatch.context() as patched,
    ):
        path = traffic_file(tmp_path_factory.mktemp("original") / "gateway.jsonl")
        patched.setattr(houses, "SUPPORT_ASSISTANT", path)
        house = build_house(PASSWORD)
        house.people["operator"] = person("operator", PASSWORD, ("operator",))
        yield house, var
        transaction.set_rollback(True)


def directories(var: Path) -> dict[str, Path]:
    uploads = var / "uploads"
    return {
        "EVIDENCE_DIR": var / "evidence",
        "RUNS_DIR": var / "runs",
        "UPLOADS_DIR": uploads,
        "FILE_UPLOAD_TEMP_DIR": uploads,
    }


@pytest.fixture
def sealed(built: tuple[House, Path], db: None, settings: Any) -> Iterator[Sealed]:
    house, var = built
    for name, path in directories(var).items():
        setattr(settings, name, path)
    cache.clear()
    drawn_from_evidence.cache_clear()
    traffic = house.in_review.traffic_set
    assert traffic
    rows = {part.kind: rows_of(EvidenceStore(var / "evidence").get(part.digest)) for part in traffic.parts.all()}
    secrets = Secrets(texts_of(rows["held-out"]), texts_of([*rows["tuning"], *rows["evaluation"]]))
    assert len(secrets.pieces) > 200
    yield Sealed(house, var, secrets, traffic.parts.get(kind="held-out"))
    drawn_from_evidence.cache_clear()


def texts_of(rows: Iterable[Row]) -> list[str]:
    return [message.content for row in rows for message in row.messages]


# What is reachable


def client_of(house: House, who: str) -> Client:
    client = Client(raise_request_exception=False)
    if who != "nobody":
        client.force_login(house.people[who])
    return client


def named_addresses() -> Iterator[str]:
    """Every address that has a name, for everything there is that it can be about."""
    for pattern in patterns(get_resolver().url_patterns):
        for arguments in arguments_of(pattern):
            try:
                yield reverse(str(pattern.name), kwargs=arguments)
            except NoReverseMatch:
                raise AssertionError(f"{pattern.name}: no arguments of this kind are known to the test") from None


def patterns(found: Iterable[URLPattern | URLResolver]) -> Iterator[URLPattern]:
    for one in found:
        if isinstance(one, URLResolver):
            if one.namespace is None:
                yield from patterns(one.url_patterns)
        elif one.name and one.name != "sign-out":
            yield one


def arguments_of(pattern: URLPattern) -> list[dict[str, Any]]:
    names = set(pattern.pattern.converters)
    revisions = BriefRevision.objects.all()
    if "case" in names:
        asked = {"case": "greedy-parity", "manner": "serial"}
        return [{"brief": one.brief_id, "number": one.number} | asked for one in revisions]
    if {"brief", "number"} <= names:
        acts = [{"act": act} for act in ACTS] if "act" in names else [{}]
        return [{"brief": one.brief_id, "number": one.number} | act for one in revisions for act in acts]
    if "brief" in names:
        return [{"brief": one.brief_id} for one in revisions]
    if {"slug", "route"} <= names:
        return [{"slug": one.service.slug, "route": one.slug} for one in Route.objects.select_related("service")]
    if "version" in names:
        kept = ServiceCases.objects.values_list("service__slug", "version")
        return [{"slug": slug, "version": version} for slug, version in kept]
    if {"slug", "environment"} <= names:
        every = Route.objects.values_list("service__slug", "environment").distinct()
        return [{"slug": slug, "environment": environment} for slug, environment in every]
    if "slug" in names:
        return [{"slug": one.slug} for one in Service.objects.all()]
    if "form" in names:
        return [{"form": form} for form in ("csv", "jsonl")]
    if names == {"number"}:
        return [{"number": number} for number in Event.objects.order_by("-sequence").values_list("pk", flat=True)[:40]]
    if "secret" in names:
        return [{"secret": "nobody has it"}]
    if "provider_id" in names:
        return [{"provider_id": "sso"}]
    if "username" in names:
        acts = [{"act": act} for act in ACCOUNT_ACTS] if "act" in names else [{}]
        people = Account.objects.values_list("username", flat=True)
        return [{"username": username} | act for username in people for act in acts]
    if "pk" in names:
        return [{"pk": pk} for pk in rows_behind(str(pattern.pattern)).objects.values_list("pk", flat=True)]
    return [{}]


def rows_behind(route: str) -> Any:
    kinds = (
        ("account/second-factor/", Authenticator),
        ("endpoints/", models.Endpoint),
        ("briefs/imported/", ImportedTrial),
        ("demonstrations/", Demonstration),
        ("traffic/imports/", TrafficImport),
        ("traffic/", TrafficSet),
        ("runs/boots/", Boot),
        ("runs/trials/", Trial),
    )
    return next(model for start, model in kinds if route.startswith(start))


def walked(client: Client, *, most: int | None) -> Iterator[tuple[str, str]]:
    """(address, headers and body) of everything that can be got, from the inbox on and by name."""
    waiting, seen, kinds = ["/", *named_addresses()], set[str](), dict[str, int]()
    while waiting:
        address = waiting.pop(0)
        kind = re.sub(r"\d+", "0", address.split("?")[0])
        if address in seen or address.startswith(("/static/", "/sign-out/")):
            continue
        seen.add(address)
        kinds[kind] = kinds.get(kind, 0) + 1
        if most is not None and kinds[kind] > most:
            continue
        response: Any = client.get(address)
        assert response.status_code < 500, address
        body = b"".join(response.streaming_content) if response.streaming else response.content
        yield address, f"{dict(response.headers)}\n{body.decode('utf-8', 'replace')}"
        waiting += [link.replace("&amp;", "&") for link in LINK.findall(body.decode("utf-8", "replace"))]


def answers_of_the_api(house: House, who: str) -> dict[str, tuple[int, str]]:
    """By address status and content of everything that it lets the person read, in the largest pages that it has."""
    client = Client(raise_request_exception=False)
    headers = {"Authorization": f"Bearer {secret_of(house.people[who])}"} if who != "nobody" else {}
    document = client.get("/api/v1/openapi.json", headers=headers).json()
    paths = [path for path, methods in document["paths"].items() if "get" in methods]
    found = {}
    for address in {filled for path in paths for filled in filled_in(path)}:
        # So many without a token would be throttled.
        cache.clear()
        answer = client.get(f"{address}?limit=200", headers=headers)
        assert answer.status_code < 500, address
        found[address] = (answer.status_code, f"{dict(answer.headers)}\n{answer.content.decode()}")
    return found


def filled_in(path: str) -> Iterator[str]:
    """An address of the API for everything there is that it can be about."""
    if "/revisions/" in path:
        for one in BriefRevision.objects.all():
            yield path.format(brief=one.brief_id, number=one.number)
    elif "{brief}" in path:
        yield from (path.format(brief=one) for one in Brief.objects.values_list("pk", flat=True))
    elif "{number}" in path:
        rows: Any = {"traffic": TrafficSet, "trials": Trial, "ledger": Event}[path.split("/")[-2]]
        yield from (path.format(number=one) for one in rows.objects.order_by("-pk").values_list("pk", flat=True)[:200])
    else:
        of: Any = Service if "/services/" in path else Route
        yield from (path.format(slug=one, pool="cpu") for one in of.objects.values_list("slug", flat=True))


def leaks_in(secrets: Secrets, texts: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What was found where; a page that was seen before is not looked through again."""
    found, known = {}, set[int]()
    for where, text in texts:
        if hash(text) not in known and (pieces := secrets.in_text(text)):
            found[where] = pieces
        known.add(hash(text))
    return found


def rows_of_every_table() -> Iterator[tuple[str, str]]:
    for model in apps.get_models():
        for row in model._default_manager.values_list():
            yield f"{model._meta.label} {row[0]}", "\n".join(written(value) for value in row)


def written(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return json.dumps(value, default=str, ensure_ascii=False)


def files_under(var: Path, secrets: Secrets) -> dict[str, list[str]]:
    files = (path for path in var.rglob("*") if path.is_file())
    return {str(path.relative_to(var)): found for path in files if (found := secrets.in_bytes(path.read_bytes()))}


def records_behind(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.name, f"{record.getMessage()} {record.exc_text or ''}") for record in caplog.records]


@pytest.mark.parametrize(
    "who", ["engineer", "owner", "second_owner", "auditor", "operator", "superuser", "stranger", "nobody"]
)
def test_no_page_address_or_log_line_shows_a_held_out_prompt(
    sealed: Sealed, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    caplog.set_level(logging.DEBUG)
    client = client_of(sealed.house, who)
    most = None if who == "engineer" else MOST_OF_A_KIND
    pages = dict(walked(client, most=most))
    told = answers_of_the_api(sealed.house, who)
    assert told["/api/v1/briefs"][0] == {"nobody": 401, "stranger": 403}.get(who, 200)
    pages |= {one: content for one, (_, content) in told.items()}
    assert len(pages) > 60
    assert leaks_in(sealed.secrets, pages.items()) == {}
    assert leaks_in(sealed.secrets, records_behind(caplog)) == {}


def test_no_downloaded_record_of_a_decided_brief_holds_one(sealed: Sealed) -> None:
    revision, owner = sealed.house.in_review, sealed.house.people["owner"]
    verdict = revision.verdicts.get()
    sign_decision(
        verdict=verdict,
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="request-changes",
        reason="A test of the downloads.",
    )
    client = client_of(sealed.house, "auditor")
    trials = Trial.objects.filter(boot__campaign__brief_campaign__revision=revision).exclude(records_digest="")
    files = {str(trial): client.get(reverse("records", args=[trial.pk])) for trial in trials}
    assert {answer.status_code for answer in files.values()} == {200}
    assert {name: found for name, answer in files.items() if (found := sealed.secrets.in_bytes(answer.content))} == {}


def test_no_row_of_the_database_holds_one(sealed: Sealed) -> None:
    assert leaks_in(sealed.secrets, rows_of_every_table()) == {}


def test_no_file_but_the_sealed_part_holds_one(sealed: Sealed) -> None:
    part = EvidenceStore(sealed.var / "evidence").path(sealed.held_out.digest)
    assert list(files_under(sealed.var, sealed.secrets)) == [str(part.relative_to(sealed.var))]
    problems = sealed.house.in_review.traffic_set
    assert problems
    kept = EvidenceStore(sealed.var / "evidence").get(problems.problems_digest)
    assert kept.count(b"\n") == problems.rows


def test_an_upload_leaves_nothing_but_the_set(
    sealed: Sealed,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    # It beats from another connection, which can't see what this test's transaction holds.
    monkeypatch.setattr(import_pulse, "beat_import", lambda **_: "")
    caplog.set_level(logging.DEBUG)
    traffic = sealed.house.in_review.traffic_set
    assert traffic
    wanted = request_import(
        name=traffic.name,
        service="support-assistant",
        file_name="gateway.jsonl",
        upload=traffic_file(tmp_path / "gateway.jsonl"),
        options=options(seed=7),
        by="engineer",
    )
    with django_capture_on_commit_callbacks(execute=True):
        run_import(wanted=wanted, worker="worker")
    wanted.refresh_from_db()
    assert (wanted.state, wanted.reason, wanted.created_set) == ("done", "", traffic)
    part = EvidenceStore(sealed.var / "evidence").path(sealed.held_out.digest)
    assert list(files_under(sealed.var, sealed.secrets)) == [str(part.relative_to(sealed.var))]
    assert leaks_in(sealed.secrets, rows_of_every_table()) == {}
    assert leaks_in(sealed.secrets, records_behind(caplog)) == {}


def options(seed: int) -> dict[str, Any]:
    return {
        "format": "auto",
        "mapping": [],
        "header": True,
        "on_bad_row": "skip",
        "class": "",
        "max_tokens": 1024,
        "max_context": None,
        "donor": None,
        "seed": seed,
        "shares": {"tuning": 0.35, "held-out": 0.5, "evaluation": 0.15},
        "block_s": 120.0,
        "similarity": 0.8,
        "redactions": [],
    }


# What is sent


def bodies(campaigns: Iterable[Campaign]) -> Iterator[tuple[str, str]]:
    """Every request that the trials of these campaigns send."""
    for campaign in campaigns:
        for boot in campaign.boots.prefetch_related("trials"):
            rows = boots.part_rows(boot)
            for trial in boot.trials.all():
                planned = boots.plan_of(trial, rows, level_of(boot, trial.level))
                yield (
                    f"{campaign.purpose}, {trial}",
                    "\n".join(prepared(one.traffic_row, ENDPOINT)[0].decode() for one in planned),
                )


def test_no_trial_but_a_held_out_one_sends_one(sealed: Sealed) -> None:
    exploring = Campaign.objects.filter(purpose__in=EXPLORING)
    assert set(exploring.values_list("purpose", flat=True)) == set(EXPLORING)
    assert leaks_in(sealed.secrets, bodies(exploring)) == {}


def test_a_tuning_boot_logs_and_keeps_none(
    sealed: Sealed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_engine(*_: object, **__: object) -> None:
        raise EngineFailed("exit status 1", "the log's end")

    monkeypatch.setattr(boots, "start", no_engine)
    caplog.set_level(logging.DEBUG)
    boot = tuning_boot(sealed)
    failure = boots.measure_boot(boot, sealed.var / "runs", cast(Any, Uncut()))
    boots.end_boot(boot, sealed.var / "runs", failure)
    assert boot.trials.get().state == Trial.State.FINISHED
    assert leaks_in(sealed.secrets, records_behind(caplog)) == {}
    assert len(files_under(sealed.var, sealed.secrets)) == 1


class Uncut:
    """The pulse of a boot that nobody ends."""

    reason = ""
    trial: int | None = None
    progress: Mapping[str, Any] | None = None

    def is_cut(self) -> bool:
        return False


def tuning_boot(sealed: Sealed) -> Boot:
    """On a pool of its own, since the house's is measuring."""
    document = sealed.house.in_review.document
    hardware = document.baseline.hardware.model_copy(update={"pool": "elsewhere"})
    assert sealed.house.in_review.traffic_set
    campaign_of(
        document.baseline.model_copy(update={"hardware": hardware}),
        [Level(name="peak", arrival=Arrival(process="constant", rate=2), duration_s=5)],
        sealed.house.in_review.traffic_set,
        purpose="tuning",
    )
    boot = claim_boot(pool="elsewhere", worker="worker", host="host")
    assert boot is not None
    return boot


# A search that finds nothing anywhere proves nothing


def test_what_is_planted_is_found(sealed: Sealed, caplog: pytest.LogCaptureFixture) -> None:
    """A prompt with a quote and a line break in it, so that every place writes it down in its own way."""
    rows = rows_of(EvidenceStore(sealed.var / "evidence").get(sealed.held_out.digest))
    prompt = next(one for one in texts_of(rows) if "'" in one and "\n" in one and sealed.secrets.in_text(one))
    draft = sealed.house.draft
    noted = draft.source.replace("note: ", f"note: {json.dumps(prompt)} # ", 1)
    BriefRevision.objects.filter(pk=draft.pk).update(source=noted)
    pages = walked(client_of(sealed.house, "auditor"), most=MOST_OF_A_KIND)
    assert reverse("brief", args=[draft.brief_id, draft.number]) in leaks_in(sealed.secrets, pages)
    assert list(leaks_in(sealed.secrets, rows_of_every_table())) == [f"decisions.BriefRevision {draft.pk}"]

    logging.getLogger("loadtests").warning("could not send %r", prompt)
    assert list(leaks_in(sealed.secrets, records_behind(caplog))) == ["loadtests"]

    row = PlannedRequest("peak-0", 0, rows[0], 0)
    records = unserved([row], model="model", level="peak", reason=f"the server said: {prompt}")
    assert sealed.secrets.in_bytes(records_content(records))
    held_out = Campaign.objects.filter(purpose="held-out", brief_campaign__revision=sealed.house.measuring)
    assert leaks_in(sealed.secrets, bodies(held_out))
    assert list(files_under(sealed.var, sealed.secrets)) == [
        str(EvidenceStore(sealed.var / "evidence").path(sealed.held_out.digest).relative_to(sealed.var))
    ]


# While held-out traffic is measured


def test_the_log_of_a_dead_held_out_boot_is_hidden_until_the_verdict_and_its_reason_is_not(sealed: Sealed) -> None:
    throughput = "Avg generation throughput: 41.3 tokens/s"
    died = {"died": True, "state": "finished", "reason": "the engine died (exit -9)", "log_tail": throughput}
    client = client_of(sealed.house, "owner")
    shown = []
    for revision in (sealed.house.measuring, sealed.house.in_review):
        boot = Boot.objects.filter(
            campaign__purpose="held-out", campaign__brief_campaign__revision=revision, state="finished"
        ).earliest("pk")
        Boot.objects.filter(pk=boot.pk).update(**died)
        page = client.get(reverse("boot", args=[boot.pk])).content.decode()
        assert "The engine died (exit -9)" in page
        shown.append((throughput in page, "Shown once the verdict exists" in page))
    assert shown == [(False, True), (True, False)]
