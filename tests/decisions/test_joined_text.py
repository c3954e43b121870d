"""Text that lies in several sets, and traffic of no service: what is deleted when, by whom, and what may use it."""

import json
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Event, Route, Service
from decisions.rules.brief import BadBrief
from decisions.selectors.kept_text import others_with_its_text, retention_of
from decisions.services.create_brief import create_brief
from decisions.services.delete_expired_text import delete_expired_text
from decisions.services.delete_text import delete_text
from decisions.services.freeze_brief import freeze_brief
from decisions.services.give_service import give_service
from decisions.services.refused import Refused
from decisions.services.set_privacy import set_privacy
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficImport, TrafficSet
from loadtests.redacting import redaction_of_service
from loadtests.services.import_traffic import import_traffic
from loadtests.services.put_back_import import put_back_import
from loadtests.traffic.importers import Rules, Wanted
from tests.conftest import PASSWORD
from tests.support.play import TARGET, started_brief

pytestmark = pytest.mark.django_db

REASON = "Asked for by a customer."
HALVES = {"tuning": 0.5, "held-out": 0.5}
MAIL = {"pattern": r"[\w.]+@[\w.]+", "replacement": "[mail]"}


@pytest.fixture
def operator(account: Callable[..., Account]) -> Account:
    return account("operator", "operator")


@pytest.fixture
def other_service(second_owner: Account) -> Service:
    found = Service.objects.create(slug="search", name="Search", purpose="Finds", target="m", pool="cpu")
    found.owners.set([second_owner])
    return found


def words(first: int, count: int) -> str:
    """Prompts of some 500 tokens that no two share."""
    prompts = [f"Mail to ann@example.org {' '.join(f'w{at}x{word}' for word in range(220))}" for at in range(count)]
    return "".join(json.dumps({"prompt": f"{first} {one}", "max_tokens": 9}) + "\n" for one in prompts)


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text(words(0, 300))
    return path


@pytest.fixture
def donor(service: Service, text_file: Path) -> TrafficSet:
    return import_traffic(path=text_file, name="Prompts", by="engineer", service=service.slug, shares=HALVES)


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., TrafficSet]:
    """A trace of lengths that takes its text from a file, or from the tuning part of a set."""

    def join(giver: TrafficSet | Path, name: str = "Joined", *, service: str = "support-assistant") -> TrafficSet:
        path = tmp_path / f"{name}.csv"
        # Another trace for each name: the same one would be the same set.
        output = 40 + crc32(name.encode()) % 50
        lines = [f"2023-11-16 18:{at // 60:02d}:{at % 60:02d},500,{output}" for at in range(0, 3000, 10)]
        path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
        file = giver if isinstance(giver, Path) else tuning_file(giver)
        reading = Wanted(path, donor=file)
        return import_traffic(
            path=path, name=name, by="engineer", service=service, reading=reading, shares=HALVES, similarity=1.0
        )

    return join


Join = Callable[..., TrafficSet]


def tuning_file(traffic_set: TrafficSet) -> Path:
    from django.conf import settings

    return EvidenceStore(settings.EVIDENCE_DIR).path(traffic_set.parts.get(kind="tuning").digest)


def aged(traffic_set: TrafficSet, days: float) -> TrafficSet:
    TrafficSet.objects.filter(pk=traffic_set.pk).update(created_at=timezone.now() - timedelta(days=days))
    traffic_set.refresh_from_db()
    return traffic_set


def has_text(*sets: TrafficSet) -> list[bool]:
    return [TrafficSet.objects.get(pk=one.pk).text_deleted_at is None for one in sets]


# Where the same text lies


def test_a_set_knows_the_sets_that_were_joined_from_it(
    donor: TrafficSet, trace: Join, text_file: Path, tmp_path: Path
) -> None:
    joined = trace(donor)
    again = trace(joined, "Joined again")
    from_file = trace(text_file, "Joined from the file")
    unlike = tmp_path / "unlike.jsonl"
    unlike.write_text(words(1, 300))
    stranger = import_traffic(path=unlike, name="Stranger", by="engineer")
    assert others_with_its_text(donor) == [joined, again, from_file]
    assert others_with_its_text(again) == [donor, joined, from_file]
    assert others_with_its_text(stranger) == []


def test_the_same_file_split_again_holds_the_same_text(donor: TrafficSet, text_file: Path) -> None:
    again = import_traffic(path=text_file, name="Split again", by="engineer", seed=5)
    assert others_with_its_text(donor) == [again]


def test_lengths_alone_hold_no_text_of_anyone(donor: TrafficSet, trace: Join, tmp_path: Path) -> None:
    joined = trace(donor)
    path = tmp_path / "Joined.csv"
    lengths = [import_traffic(path=path, name="Lengths", by="engineer", seed=seed) for seed in (1, 2)]
    assert [one.text_digest for one in lengths] == ["", ""]
    assert others_with_its_text(joined) == [donor]
    assert others_with_its_text(lengths[0]) == []


def test_sets_of_an_earlier_version_learn_where_their_text_is_from(
    donor: TrafficSet, trace: Join, tmp_path: Path
) -> None:
    joined = trace(donor)
    lengths = import_traffic(path=tmp_path / "Joined.csv", name="Lengths", by="engineer")
    bare = TrafficSet.objects.create(name="before imports said so", digest="e" * 64, rows=1, source="")
    TrafficSet.objects.update(text_digest="")
    import_module("loadtests.migrations.0003_joined_sets").say_where_text_is_from(apps, None)
    found = [TrafficSet.objects.get(pk=one.pk).text_digest for one in (donor, joined, lengths, bare)]
    assert found == [donor.text_digest, donor.parts.get(kind="tuning").digest, "", ""]


# Deleting


def test_deleting_names_the_sets_that_still_hold_the_text(donor: TrafficSet, trace: Join, owner: Account) -> None:
    joined = trace(donor)
    delete_text(traffic_set=donor, by=owner, reason=REASON)
    assert has_text(donor, joined) == [False, True]
    assert Event.objects.get(kind="traffic-text-deleted").details["still_in"] == [joined.pk]
    assert others_with_its_text(donor) == [joined]


def test_the_others_go_with_it_where_that_is_asked_for(donor: TrafficSet, trace: Join, owner: Account) -> None:
    joined, kept = trace(donor), trace(donor, "Kept")
    delete_text(traffic_set=donor, by=owner, reason=REASON, also=[joined])
    assert has_text(donor, joined, kept) == [False, False, True]
    last = Event.objects.filter(kind="traffic-text-deleted").latest("sequence")
    assert (last.subject, last.details["still_in"]) == (f"traffic set {donor.pk}", [kept.pk])


def test_all_of_them_go_or_none(
    donor: TrafficSet, trace: Join, owner: Account, operator: Account, other_service: Service, tmp_path: Path
) -> None:
    theirs = trace(donor, "Theirs", service=other_service.slug)
    with pytest.raises(Refused, match="Only an owner of this service"):
        delete_text(traffic_set=donor, by=owner, reason=REASON, also=[theirs])
    delete_text(traffic_set=theirs, by=operator, reason=REASON)
    with pytest.raises(Refused, match="Theirs holds none of this set's text"):
        delete_text(traffic_set=donor, by=operator, reason=REASON, also=[theirs])
    assert has_text(donor) == [True]


def test_all_of_them_stay_where_one_is_damaged(donor: TrafficSet, trace: Join, owner: Account, settings: Any) -> None:
    joined = trace(donor)
    path = EvidenceStore(settings.EVIDENCE_DIR).path(donor.parts.get(kind="held-out").digest)
    path.chmod(0o600)
    path.write_bytes(b"{}\n")
    with pytest.raises(Refused, match=r"can't be outlined: evidence .* is damaged"):
        delete_text(traffic_set=donor, by=owner, reason=REASON, also=[joined])
    assert has_text(donor, joined) == [True, True]


def test_one_that_is_measured_on_holds_all_of_them(
    donor: TrafficSet, owner: Account, route: Route, engineer: Account
) -> None:
    measured = started_brief(route, engineer).traffic_set
    assert measured
    TrafficSet.objects.filter(pk=measured.pk).update(text_digest=donor.text_digest)
    with pytest.raises(Refused, match="is measuring on this traffic: cancel it"):
        delete_text(traffic_set=donor, by=owner, reason=REASON, also=[measured])
    assert has_text(donor, measured) == [True, True]


def test_the_page_names_them_and_deletes_those_that_are_ticked(
    client: Client, donor: TrafficSet, trace: Join, owner: Account, other_service: Service
) -> None:
    joined, theirs = trace(donor), trace(donor, "Theirs", service=other_service.slug)
    client.login(username="owner", password=PASSWORD)
    page = client.get(reverse("traffic-set", args=[donor.pk])).content.decode()
    assert "The same text, or some of it, is in 2 other sets:" in page
    assert f'name="also" value="{joined.pk}">' in page
    assert f'name="also" value="{theirs.pk}" disabled>' in page
    said = {"reason": REASON, "sure": "yes", "also": [joined.pk]}
    answer = client.post(reverse("traffic-delete-text", args=[donor.pk]), said, follow=True).content.decode()
    assert "The same text, or some of it, is still in Theirs." in answer
    assert has_text(donor, joined, theirs) == [False, False, True]


def test_the_page_keeps_the_ticks_of_a_refused_form(
    client: Client, donor: TrafficSet, trace: Join, owner: Account
) -> None:
    joined = trace(donor)
    client.login(username="owner", password=PASSWORD)
    said = {"reason": "no", "sure": "yes", "also": [joined.pk]}
    answer = client.post(reverse("traffic-delete-text", args=[donor.pk]), said)
    assert answer.status_code == 422
    assert f'name="also" value="{joined.pk}" checked>' in answer.content.decode()


def test_the_shell_names_them_too(
    donor: TrafficSet, trace: Join, operator: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    joined, again = trace(donor), trace(donor, "Again")
    call_command("delete_text", donor.pk, by="operator", reason=REASON, also=[joined.pk])
    assert capsys.readouterr().out.splitlines() == [
        f"the text of traffic set {donor.pk} is deleted",
        f"the text of traffic set {joined.pk} is deleted",
        f"traffic set {again.pk}, Again, still holds the same text or some of it",
    ]
    with pytest.raises(CommandError, match="there is no traffic set 4711"):
        call_command("delete_text", again.pk, by="operator", reason=REASON, also=[4711])


# Retention


def test_joined_text_lives_no_longer_than_its_donor(
    donor: TrafficSet, trace: Join, service: Service, other_service: Service, owner: Account, second_owner: Account
) -> None:
    joined = trace(donor, service=other_service.slug)
    again = trace(joined, "Again", service=other_service.slug)
    set_privacy(service=other_service, retention_days=90, redactions=[], by=second_owner)
    own = retention_of(again)
    assert own
    assert (own.days, own.of, own.service) == (90, joined, other_service)
    set_privacy(service=service, retention_days=30, redactions=[], by=owner)
    aged(donor, 31)
    for one in (joined, again):
        given = retention_of(one)
        assert given
        assert (given.days, given.of, given.service) == (30, donor, service)
    delete_expired_text()
    assert has_text(donor, joined, again) == [False, False, False]
    reasons = [event.details["reason"] for event in Event.objects.filter(kind="traffic-text-deleted").order_by("pk")]
    assert reasons == ["retention of 30 days", *["retention of 30 days, of the donor Prompts"] * 2]


def test_its_own_service_governs_where_that_is_shorter(
    donor: TrafficSet, trace: Join, service: Service, other_service: Service, owner: Account, second_owner: Account
) -> None:
    joined = trace(donor, service=other_service.slug)
    set_privacy(service=service, retention_days=90, redactions=[], by=owner)
    set_privacy(service=other_service, retention_days=7, redactions=[], by=second_owner)
    for one in (donor, joined):
        aged(one, 8)
    delete_expired_text()
    assert has_text(donor, joined) == [True, False]


def test_a_sibling_from_the_same_file_gave_nothing(text_file: Path, trace: Join, other_service: Service) -> None:
    Service.objects.filter(pk=other_service.pk).update(retention_days=1)
    service = Service.objects.create(slug="support-assistant", name="S", purpose="", target="m", pool="cpu")
    one, sibling = trace(text_file), trace(text_file, "Sibling", service=other_service.slug)
    assert others_with_its_text(one) == [sibling]
    assert (service.retention_days, retention_of(one)) == (None, None)


def test_text_of_no_service_is_kept_as_the_installation_says(
    text_file: Path, settings: Any, service: Service, client: Client, engineer: Account
) -> None:
    traffic_set = aged(import_traffic(path=text_file, name="Nobody's", by="engineer", shares=HALVES), 29)
    lost = import_traffic(path=text_file, name="Of a lost service", by="engineer", service="gone", seed=3)
    client.login(username="engineer", password=PASSWORD)
    page = client.get(reverse("traffic-set", args=[traffic_set.pk])).content.decode()
    assert "Text of no service is kept for 30 days from the import" in page
    assert "deleted 30 days after the import" in client.get(reverse("traffic-import")).content.decode()
    delete_expired_text()
    assert has_text(traffic_set) == [True]
    for one in (traffic_set, lost):
        aged(one, 31)
    settings.RETENTION_DAYS = 0
    delete_expired_text()
    assert has_text(traffic_set, lost) == [True, True]
    settings.RETENTION_DAYS = 30
    delete_expired_text()
    assert has_text(traffic_set, lost) == [False, False]
    event = Event.objects.filter(kind="traffic-text-deleted").first()
    assert event
    assert event.details["reason"] == "retention of 30 days for traffic of no service"


# A set of no service, and of another


def draft_on(traffic_set: TrafficSet, route: Route, engineer: Account) -> BriefRevision:
    document = brief_document(TARGET, traffic_set) | {"route": route.slug}
    return create_brief(route=route, source=json.dumps(document), by=engineer)


def demo(**options: Any) -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, **{"name": "demo", "by": "engineer", "seed": 7, **options})


def test_a_brief_freezes_on_traffic_of_its_own_service_alone(
    route: Route, engineer: Account, other_service: Service
) -> None:
    draft = draft_on(demo(service=other_service.slug), route, engineer)
    with pytest.raises(BadBrief) as refusal:
        freeze_brief(revision=draft, by=engineer)
    assert refusal.value.problems == [
        "traffic.set: demo is of the service search, and this brief is for support-assistant: choose a set of "
        "support-assistant, or import its traffic"
    ]
    draft.refresh_from_db()
    assert draft.state == "draft"


def test_a_set_of_no_service_is_given_to_one_first(route: Route, engineer: Account) -> None:
    traffic_set = demo()
    draft = draft_on(traffic_set, route, engineer)
    with pytest.raises(BadBrief, match="demo is of no service: give it to support-assistant on its page"):
        freeze_brief(revision=draft, by=engineer)
    give_service(traffic_set=traffic_set, service=route.service, by=engineer)
    freeze_brief(revision=draft, by=engineer)
    assert draft.traffic_set == traffic_set
    with pytest.raises(Refused, match="has a service already"):
        give_service(traffic_set=traffic_set, service=route.service, by=engineer)
    assert Event.objects.filter(kind="traffic-service-given").count() == 1


def test_a_set_that_a_service_would_have_redacted_is_not_given_to_it(
    service: Service, engineer: Account, owner: Account, text_file: Path
) -> None:
    set_privacy(service=service, retention_days=None, redactions=[MAIL], by=owner)
    plain = import_traffic(path=text_file, name="Plain", by="engineer", shares=HALVES)
    with pytest.raises(Refused, match="import the file again for Support assistant, which redacts it"):
        give_service(traffic_set=plain, service=service, by=engineer)
    plain.refresh_from_db()
    assert plain.service == ""
    reading = Wanted(text_file, rules=Rules(redaction=redaction_of_service([MAIL], None)))
    clean = import_traffic(path=text_file, name="Clean", by="engineer", reading=reading, shares=HALVES)
    give_service(traffic_set=clean, service=service, by=engineer)
    assert clean.service == service.slug


def test_who_may_not_import_may_not_give(service: Service, owner: Account) -> None:
    with pytest.raises(Refused, match="Only someone in the group engineer or operator can import traffic"):
        give_service(traffic_set=demo(), service=service, by=owner)
    assert Event.objects.get(kind="traffic-service-give-refused").actor == "owner"


def test_it_is_given_on_its_page(client: Client, service: Service, engineer: Account, other_service: Service) -> None:
    traffic_set = demo()
    Service.objects.filter(pk=other_service.pk).update(redactions=[MAIL])
    client.login(username="engineer", password=PASSWORD)
    page, give = (reverse(name, args=[traffic_set.pk]) for name in ("traffic-set", "traffic-service"))
    assert "for no service: no brief can be frozen on it" in client.get(page).content.decode()
    refused = client.post(give, {"service": "search"})
    assert refused.status_code == 422
    assert "import the file again for Search" in refused.content.decode()
    assert client.post(give, {"service": "nowhere"}).status_code == 422
    answer = client.post(give, {"service": "support-assistant"}, follow=True).content.decode()
    assert "This traffic belongs to Support assistant now." in answer
    assert "Give it to a service" not in answer


@pytest.mark.parametrize("who", ["owner", "auditor"])
def test_others_are_not_offered_it(client: Client, request: pytest.FixtureRequest, service: Service, who: str) -> None:
    request.getfixturevalue(who)
    traffic_set = demo()
    client.login(username=who, password=PASSWORD)
    page, give = (reverse(name, args=[traffic_set.pk]) for name in ("traffic-set", "traffic-service"))
    assert "Give it to a service" not in client.get(page).content.decode()
    assert client.post(give, {"service": service.slug}).status_code == 403


def test_it_is_given_in_the_shell(service: Service, operator: Account, capsys: pytest.CaptureFixture[str]) -> None:
    traffic_set = demo()
    call_command("give_service", traffic_set.pk, service.slug, by="operator")
    assert capsys.readouterr().out == f"traffic set {traffic_set.pk} belongs to support-assistant now\n"
    for arguments, by, said in (
        (("4711", service.slug), "operator", "there is no traffic set 4711"),
        ((traffic_set.pk, "nowhere"), "operator", "there is no service nowhere"),
        ((traffic_set.pk, service.slug), "nobody", "there is no account nobody"),
        ((traffic_set.pk, service.slug), "operator", "has a service already"),
    ):
        with pytest.raises(CommandError, match=said):
            call_command("give_service", *arguments, by=by)


def test_new_expressions_hold_for_what_waits(service: Service, owner: Account) -> None:
    for state in ("queued", "running", "done"):
        TrafficImport.objects.create(
            name="n",
            service=service.slug,
            file_name="f",
            file_bytes=1,
            options={"redactions": []},
            state=state,
            worker="worker-1",
        )
    set_privacy(service=service, retention_days=None, redactions=[MAIL], by=owner)
    put_back_import(wanted=TrafficImport.objects.get(state="running"), worker="worker-1")
    found = TrafficImport.objects.order_by("pk").values_list("state", "options__redactions")
    assert list(found) == [("queued", [MAIL]), ("queued", [MAIL]), ("done", [])]
