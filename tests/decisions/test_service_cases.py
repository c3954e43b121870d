"""A service's own cases: kept version by version, read by those who may, and named by briefs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from django.db import IntegrityError, transaction
from django.template.loader import render_to_string
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given
from hypothesis import settings as configured
from hypothesis import strategies as st

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Event, Route, Service, ServiceCases
from decisions.pages.cases import placed
from decisions.pages.problems import Problem
from decisions.rules.brief import BadBrief, parse_brief
from decisions.rules.cautions import unnamed_cases
from decisions.rules.difference import line_difference
from decisions.rules.who_may import Person, Relation, may_keep_cases, may_read_cases
from decisions.selectors import service_cases as selectors
from decisions.services import keep_cases as keeping
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.keep_cases import LONGEST_SOURCE, keep_cases
from decisions.services.refused import Refused
from loadtests.behaviour.own_cases import BadCases, read_own_cases
from loadtests.behaviour.registry import CASES, suite_plan
from loadtests.canonical import digest
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import TrafficSet
from loadtests.services.import_traffic import import_traffic
from tests.decisions.test_hostile_input import DOCUMENT
from tests.support.play import TARGET

pytestmark = pytest.mark.django_db

PROMPT = "Tell Elisabeth Vandermeulen when her refund arrives."
GOLDEN = "Dear Elisabeth Vandermeulen, it arrives on Monday."


def document(*ids: str, **expected: Any) -> str:
    """Cases of these ids, each with a prompt and a golden answer that are somebody's."""
    cases = [
        {
            "id": one,
            "title": "A letter",
            "request": {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 40},
            "expect": expected or {"golden": GOLDEN},
        }
        for one in ids
    ]
    return yaml.safe_dump({"schema": "draftproof.behaviour-cases/1", "cases": cases}, sort_keys=False)


FIRST, SECOND = document("letter"), document("letter", "refund")


def page(response: Any) -> str:
    words = html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode()))
    return re.sub(r"[\s\u202f\u00a0]+", " ", words)


def address(service: Service, name: str = "service-cases", *more: object) -> str:
    return reverse(name, args=[service.slug, *more])


@pytest.fixture
def other_service(second_owner: Account) -> Service:
    made = Service.objects.create(slug="search", name="Search", purpose="Finds", target="m", pool="cpu")
    made.owners.set([second_owner])
    return made


# Who may

OWN = Relation(service_owners=frozenset({"one"}))
FOREIGN = Relation(service_owners=frozenset({"another"}))


@pytest.mark.parametrize(
    ("groups", "relation", "may"),
    [
        (("engineer",), FOREIGN, True),
        (("engineer", "auditor"), FOREIGN, True),
        (("owner",), OWN, True),
        (("owner",), FOREIGN, False),
        # Named among its owners, but not in the group any more.
        ((), OWN, False),
        (("auditor",), OWN, False),
        (("auditor",), FOREIGN, False),
        (("operator",), OWN, False),
        (("operator",), FOREIGN, False),
        ((), FOREIGN, False),
    ],
)
@pytest.mark.parametrize("rule", [may_keep_cases, may_read_cases])
def test_engineers_and_the_service_s_owners_keep_and_read_its_cases(
    rule: Callable[[Person, Relation], str | None], groups: tuple[str, ...], relation: Relation, may: bool
) -> None:
    refusal = rule(Person("one", frozenset(groups)), relation)
    assert (refusal is None) == may
    assert refusal is None or refusal.startswith("Only an owner of this service or someone in the group engineer can ")
    assert rule(Person("one", frozenset(groups), is_active=False), relation) == "This account is not active."


# Keeping


def test_what_is_kept_is_a_version_with_its_digest_and_one_event(service: Service, engineer: Account) -> None:
    kept = keep_cases(service=service, source=FIRST, by=engineer)
    read = read_own_cases(FIRST.encode(), "it")
    kept.refresh_from_db()
    assert (kept.version, kept.count, kept.source, kept.created_by) == (1, 1, FIRST, "engineer")
    assert kept.digest == read.digest == digest(bytes(kept.content))
    event = Event.objects.latest("sequence")
    assert (event.kind, event.subject, event.actor) == ("service-cases-kept", "service support-assistant", "engineer")
    assert event.details == {"version": 1, "digest": kept.digest, "cases": 1}


def test_a_stored_version_is_read_again_as_the_same_cases(service: Service, engineer: Account) -> None:
    kept = keep_cases(service=service, source=SECOND, by=engineer)
    again = read_own_cases(bytes(kept.content), "it")
    assert (again.digest, [one.id for one in again.cases]) == (kept.digest, ["letter", "refund"])


def test_a_change_is_the_next_version_and_the_first_stays_as_it_was(service: Service, owner: Account) -> None:
    first = keep_cases(service=service, source=FIRST, by=owner)
    second = keep_cases(service=service, source=SECOND, by=owner)
    back = keep_cases(service=service, source=FIRST, by=owner)
    assert [one.version for one in (first, second, back)] == [1, 2, 3]
    assert [one.version for one in selectors.versions_of(service)] == [3, 2, 1]
    # Of two versions with one content the later one is meant: they are the same cases.
    assert selectors.cases_named(service, first.digest) == back
    first.refresh_from_db()
    assert (first.source, first.digest) == (FIRST, back.digest)


@pytest.mark.parametrize("again", [FIRST, f"# said otherwise\n{FIRST}", json.dumps(yaml.safe_load(FIRST))])
def test_the_same_content_makes_no_new_version(service: Service, engineer: Account, again: str) -> None:
    first = keep_cases(service=service, source=FIRST, by=engineer)
    events = Event.objects.count()
    assert keep_cases(service=service, source=again, by=engineer) == first
    assert (ServiceCases.objects.count(), Event.objects.count()) == (1, events)


def test_services_count_by_themselves(service: Service, other_service: Service, engineer: Account) -> None:
    one = keep_cases(service=service, source=FIRST, by=engineer)
    other = keep_cases(service=other_service, source=FIRST, by=engineer)
    assert (one.version, other.version, one.digest) == (1, 1, other.digest)
    assert selectors.cases_named(other_service, one.digest) == other
    with pytest.raises(IntegrityError), transaction.atomic():
        ServiceCases.objects.create(
            service=service, version=1, source="", content=b"", digest="", count=0, created_by="engineer"
        )


def test_nobody_overwrites_what_they_have_not_seen(service: Service, engineer: Account, owner: Account) -> None:
    keep_cases(service=service, source=FIRST, by=owner, begun_on=0)
    with pytest.raises(Refused, match="version 1 was kept by owner since you began") as refused:
        keep_cases(service=service, source=SECOND, by=engineer, begun_on=0)
    assert "to keep them as version 2" in str(refused.value)
    assert keep_cases(service=service, source=SECOND, by=engineer, begun_on=1).version == 2


@pytest.mark.parametrize("who", ["auditor", "stranger", "operator"])
def test_others_keep_nothing(service: Service, account: Callable[..., Account], who: str) -> None:
    person = account(who, *({who} & {"auditor", "operator"}))
    with pytest.raises(Refused, match="can keep cases of its own"):
        keep_cases(service=service, source=FIRST, by=person)
    event = Event.objects.latest("sequence")
    assert (event.kind, event.actor) == ("service-cases-keep-refused", who)
    assert not ServiceCases.objects.exists()


def test_an_owner_of_another_service_keeps_nothing(
    service: Service, other_service: Service, second_owner: Account
) -> None:
    service.owners.remove(second_owner)
    with pytest.raises(Refused):
        keep_cases(service=service, source=FIRST, by=second_owner)
    assert keep_cases(service=other_service, source=FIRST, by=second_owner).version == 1


# What can't be used

HEAD = "schema: draftproof.behaviour-cases/1\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "the document is empty"),
        ("cases: [", "the document, line 1: it can't be read as YAML or JSON"),
        (f"{HEAD}cases:\n  - id: [\n", "line 4"),
        ("nothing but words", "the document, line 1"),
        (f"{HEAD}cases: []\n", "the document, line 2, cases: "),
        (f"{HEAD}cases:\n  - id: Letter\n    title: t\n", "the document, line 3, cases.0.id: "),
        (document("letter").replace("golden", "goldne"), "cases.0.expect.goldne: Extra inputs"),
        (document("letter", "refund", "letter"), "cases.2.id: letter is there twice"),
        (document(CASES[0].id), f"cases.0.id: {CASES[0].id} is one of the suite's own cases: choose another id"),
        (document("letter", regex="("), "cases.0.expect.regex: it is no regular expression"),
        (document("letter", json_schema={"type": "number or so"}), "cases.0.expect.json_schema: it is no JSON schema"),
        (document("letter", tool_call={}), "cases.0.expect.tool_call.name: Field required"),
        (f"{HEAD}cases: &c []\nmore: *c\n", "uses a YAML alias"),
        (
            f"{HEAD}cases:\n  - {{id: a, id: b}}\n",
            "the document, line 3: it can't be read as YAML or JSON: the key 'id' stands twice",
        ),
        (f"{HEAD}cases: \0", "the document"),
        (f"{HEAD}cases: !!python/object:os.system []\n", "the document, line 2"),
        (f"{HEAD}cases: {'[' * 5_000}", "the document"),
        (f"{HEAD}cases: {{id: {'9' * 5_000}}}\n", "the document"),
        (f"{HEAD}cases: !!bool maybe\n", "the document"),
        (f"{HEAD}cases: !!int ''\n", "the document"),
        (f"{HEAD}cases: !!timestamp x\n", "the document, line 2"),
        (f"{HEAD}cases: {{? [a] : b}}\n", "the document"),
        ("note: \ud800", "the document, byte 6: it is not in UTF-8"),
        ("x" * (LONGEST_SOURCE + 1), "the document is longer than 200 kB"),
    ],
)
def test_what_cannot_be_used_is_named_and_nothing_is_kept(
    service: Service, engineer: Account, source: str, said: str
) -> None:
    with pytest.raises(BadCases) as refused:
        keep_cases(service=service, source=source, by=engineer)
    assert said in str(refused.value)
    assert not ServiceCases.objects.exists()
    assert not Event.objects.filter(kind__startswith="service-cases").exists()


def test_what_is_too_long_is_not_read(service: Service, engineer: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "read_own_cases", lambda *_: pytest.fail("it was read"))
    with pytest.raises(BadCases):
        keep_cases(service=service, source="ü" * (LONGEST_SOURCE // 2 + 1), by=engineer)


@configured(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=300), st.text(max_size=60).map(lambda wild: FIRST.replace("letter", wild, 1))))
def test_whatever_is_written_is_kept_or_refused_with_a_sentence(
    service: Service, engineer: Account, source: str
) -> None:
    said = refusal_of(source, service, engineer)
    assert said == "" or said.startswith("the document")


def refusal_of(source: str, service: Service, by: Account) -> str:
    try:
        keep_cases(service=service, source=source, by=by)
    except BadCases as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("the document, line 3, cases.0.id: no", Problem("cases.0.id", "no", 3)),
        ("the document, line 3, more: Extra inputs are not permitted", Problem("more", "unknown field", 3)),
        ("the document, line 12: neither\nnor", Problem("", "neither\nnor", 12)),
        ("the document, cases.4.id: taken: choose", Problem("cases.4.id", "taken: choose", None)),
        ("the document is empty: give", Problem("", "the document is empty: give", None)),
        ("version 2 was kept: send", Problem("", "version 2 was kept: send", None)),
    ],
)
def test_a_problem_is_taken_apart_for_the_page(said: str, problem: Problem) -> None:
    assert placed(said) == problem


# The page


def test_the_example_of_the_empty_page_can_be_kept(service: Service, engineer: Account) -> None:
    example = render_to_string("services/cases_example.yaml")
    kept = keep_cases(service=service, source=example, by=engineer)
    own = [one.case for one in read_own_cases(example.encode(), "it").cases]
    assert kept.count == 2
    # The suite can ask them beside its own.
    assert {case.id for case in own} <= {case.id for case in suite_plan(own=own).cases}


def test_a_page_without_cases_says_what_they_are(client: Client, service: Service, engineer: Account) -> None:
    client.force_login(engineer)
    said = page(client.get(address(service)))
    assert "No cases yet" in said
    assert "schema: draftproof.behaviour-cases/1" in said
    assert "Versions" not in said
    assert "Its own cases" in page(client.get(reverse("service", args=[service.slug])))


def test_cases_are_written_on_the_page(client: Client, service: Service, owner: Account) -> None:
    client.force_login(owner)
    # As a browser sends it.
    sent = {"source": FIRST.replace("\n", "\r\n"), "begun_on": "0"}
    said = page(client.post(address(service), sent, follow=True))
    kept = ServiceCases.objects.get()
    assert (kept.source, kept.created_by) == (FIRST, "owner")
    assert "Kept as version 1" in said
    assert kept.digest in said
    assert GOLDEN in said
    client.post(address(service), {"source": SECOND, "begun_on": "1"})
    said = page(client.get(address(service)))
    assert "Changed since version 1" in said
    assert "+- id: refund" in said.replace("+ -", "+-")
    assert "2 cases, version 2" in page(client.get(reverse("service", args=[service.slug])))


def test_the_same_again_is_said_to_be_no_new_version(client: Client, service: Service, engineer: Account) -> None:
    keep_cases(service=service, source=FIRST, by=engineer)
    client.force_login(engineer)
    said = page(client.post(address(service), {"source": f"# why\n{FIRST}", "begun_on": "1"}, follow=True))
    assert "These are the cases of version 1 already" in said
    assert ServiceCases.objects.count() == 1


def test_a_refused_document_is_shown_again_with_line_and_field(
    client: Client, service: Service, engineer: Account
) -> None:
    client.force_login(engineer)
    response = client.post(address(service), {"source": f"{HEAD}cases:\n  - id: LETTER\n    title: mine\n"})
    said = page(response)
    assert response.status_code == 422
    assert re.search(r"Nothing was kept\. .* line 3, cases\.0\.id : ", said)
    assert "title: mine" in said


def test_what_someone_else_kept_meanwhile_is_shown_and_then_can_be_replaced(
    client: Client, service: Service, engineer: Account, owner: Account
) -> None:
    keep_cases(service=service, source=FIRST, by=owner)
    client.force_login(engineer)
    response = client.post(address(service), {"source": SECOND, "begun_on": "0"})
    said = response.content.decode()
    assert response.status_code == 422
    assert "version 1 was kept by owner since you began" in said
    assert 'name="begun_on" value="1"' in said
    assert "id: refund" in said
    client.post(address(service), {"source": SECOND, "begun_on": "1"})
    assert ServiceCases.objects.latest("version").source == SECOND


def test_a_version_has_a_page_and_a_file(client: Client, service: Service, engineer: Account) -> None:
    keep_cases(service=service, source=FIRST, by=engineer)
    keep_cases(service=service, source=SECOND, by=engineer)
    client.force_login(engineer)
    first, second = (page(client.get(address(service, "service-cases-version", one))) for one in (1, 2))
    assert "A later version stands" in first
    assert "Changed since" not in first
    assert "Changed since version 1" in second
    file = client.get(address(service, "service-cases-source", 1))
    assert file.content.decode() == FIRST
    assert file["Content-Disposition"] == 'attachment; filename="support-assistant-cases-1.yaml"'
    for missing in (0, 3, 10**12):
        assert client.get(address(service, "service-cases-version", missing)).status_code == 404
        assert client.get(address(service, "service-cases-source", missing)).status_code == 404
    assert client.get(reverse("service-cases", args=["nowhere"])).status_code == 404


def test_long_versions_are_not_compared(
    service: Service, engineer: Account, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "MOST_LINES_COMPARED", 3)
    for source in (FIRST, SECOND):
        keep_cases(service=service, source=source, by=engineer)
    client.force_login(engineer)
    assert "too long to be compared here" in page(client.get(address(service, "service-cases-version", 2)))


@pytest.mark.parametrize("sent", [{}, {"source": ""}, {"source": FIRST, "begun_on": "²"}, {"begun_on": "9" * 40}])
def test_no_form_makes_the_page_fail(client: Client, service: Service, engineer: Account, sent: dict[str, str]) -> None:
    client.force_login(engineer)
    assert client.post(address(service), sent).status_code in (302, 422)


def test_a_nul_is_refused_before_the_page(client: Client, service: Service, engineer: Account) -> None:
    client.force_login(engineer)
    assert client.post(address(service), {"source": "\0"}).status_code == 400


# Who may not read them

HIDDEN = ("Vandermeulen", "A letter", "max_tokens", "refund")


@pytest.mark.parametrize("who", ["auditor", "operator", "other_owner"])
def test_others_see_who_kept_how_many_and_when_and_no_word_of_them(
    client: Client, service: Service, engineer: Account, account: Callable[..., Account], who: str
) -> None:
    person = account(who, {"other_owner": "owner"}.get(who, who))
    kept = [keep_cases(service=service, source=source, by=engineer) for source in (FIRST, SECOND)]
    client.force_login(person)
    pages = [client.get(address(service)), *(client.get(address(service, "service-cases-version", n)) for n in (1, 2))]
    pages += [client.get(reverse(name)) for name in ("ledger",) if who != "operator"]
    pages.append(client.get(reverse("service", args=[service.slug])))
    for response in pages:
        assert response.status_code == 200
        assert not [one for one in HIDDEN if one in response.content.decode()]
    assert "Cases hold prompts and answers, which are personal data." in page(pages[0])
    assert kept[1].digest in pages[0].content.decode()
    assert "textarea" not in pages[0].content.decode()
    refused = client.get(address(service, "service-cases-source", 1))
    assert (refused.status_code, "Vandermeulen" in refused.content.decode()) == (403, False)
    posted = client.post(address(service), {"source": document("own"), "begun_on": "2"})
    assert (posted.status_code, ServiceCases.objects.count()) == (422, 2)
    assert "Vandermeulen" not in posted.content.decode()


def test_strangers_and_the_unknown_see_nothing(client: Client, service: Service, stranger: Account) -> None:
    addresses = [address(service), *(address(service, f"service-cases-{one}", 1) for one in ("version", "source"))]
    assert [client.get(one).status_code for one in addresses] == [302, 302, 302]
    client.force_login(stranger)
    assert [client.get(one).status_code for one in addresses] == [403, 403, 403]


# Briefs that name them


@pytest.fixture
def traffic(service: Service) -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service=service.slug, seed=7)


def draft(route: Route, traffic: TrafficSet, engineer: Account, cases: str | None) -> BriefRevision:
    written = brief_document(TARGET, traffic) | {"route": route.slug}
    written["guardrails"] = [
        *written["guardrails"],
        {"id": "same", "metric": "behaviour", "kind": "absolute", "limit": 0, "cell": {"level": written["peak"]}},
    ]
    written["behaviour"] = {} if cases is None else {"cases": cases}
    return create_brief(route=route, source=json.dumps(written), by=engineer)


@pytest.mark.parametrize("names", ["nothing", "first", "latest"])
def test_a_brief_freezes_on_any_version_of_its_service(
    route: Route, service: Service, traffic: TrafficSet, engineer: Account, names: str
) -> None:
    versions = [keep_cases(service=service, source=source, by=engineer) for source in (FIRST, SECOND)]
    named = {"nothing": None, "first": versions[0].digest, "latest": versions[1].digest}[names]
    revision = draft(route, traffic, engineer, named)
    freeze_brief(revision=revision, by=engineer)
    assert revision.document.behaviour is not None
    assert revision.document.behaviour.cases == named


def test_a_digest_of_no_version_is_refused_with_those_that_there_are(
    route: Route, service: Service, other_service: Service, traffic: TrafficSet, engineer: Account
) -> None:
    foreign = keep_cases(service=other_service, source=FIRST, by=engineer)
    revision = draft(route, traffic, engineer, foreign.digest)
    with pytest.raises(BadBrief) as refused:
        freeze_brief(revision=revision, by=engineer)
    assert refused.value.problems == [
        "behaviour.cases: Support assistant has no cases of its own: keep them on its page first, or leave cases out"
    ]
    versions = [keep_cases(service=service, source=document(f"case-{n}"), by=engineer) for n in range(7)]
    with pytest.raises(BadBrief) as refused:
        freeze_brief(revision=revision, by=engineer)
    (problem,) = refused.value.problems
    listed = ", ".join(f"{one.version} ({one.digest[:12]}…)" for one in versions[:1:-1])
    assert problem == (
        f"behaviour.cases: no version of Support assistant's cases has this digest; there are {listed}, and earlier "
        f"ones. Of the latest, version 7, it is {versions[-1].digest}"
    )
    revision.refresh_from_db()
    assert revision.state == "draft"


def test_whoever_writes_a_brief_finds_the_digest_beside_it(
    client: Client, route: Route, service: Service, traffic: TrafficSet, engineer: Account
) -> None:
    client.force_login(engineer)
    assert "own cases" not in page(client.get(reverse("brief-new")))
    kept = keep_cases(service=service, source=FIRST, by=engineer)
    revision = draft(route, traffic, engineer, None)
    for one in (reverse("brief-new"), reverse("brief-edit", args=[revision.brief_id, revision.number])):
        said = page(client.get(one))
        assert "Version 1 , 1 case" in said
        assert f"cases: {kept.digest}" in said


def test_a_draft_that_names_no_cases_or_old_ones_says_so(
    client: Client, route: Route, service: Service, traffic: TrafficSet, engineer: Account
) -> None:
    client.force_login(engineer)
    first = keep_cases(service=service, source=FIRST, by=engineer)
    revisions = {name: draft(route, traffic, engineer, name) for name in (None, first.digest)}

    def said(name: str | None) -> str:
        revision = revisions[name]
        return page(client.get(reverse("brief", args=[revision.brief_id, revision.number])))

    assert "has cases of its own, and the suite asks those alone that the brief names" in said(None)
    assert first.digest in said(None)
    assert "own cases" not in said(first.digest)
    second = keep_cases(service=service, source=SECOND, by=engineer)
    assert "The suite asks version 1 of Support assistant's own cases, and version 2 stands" in said(first.digest)
    assert second.digest in said(first.digest)


@pytest.mark.parametrize(
    ("suite", "versions", "said"),
    [
        (None, {1: "a" * 64}, ""),
        ({}, {}, ""),
        ({}, {1: "a" * 64}, "Take the latest with behaviour.cases: " + "a" * 64),
        ({"cases": "a" * 64}, {1: "a" * 64}, ""),
        ({"cases": "a" * 64}, {1: "a" * 64, 2: "b" * 64}, "asks version 1 of Search's own cases, and version 2 stands"),
        # Version 3 took back what version 2 had changed.
        ({"cases": "a" * 64}, {1: "a" * 64, 2: "b" * 64, 3: "a" * 64}, ""),
        ({"cases": "c" * 64}, {1: "a" * 64}, ""),
    ],
)
def test_which_cases_a_brief_leaves_out(suite: dict[str, str] | None, versions: dict[int, str], said: str) -> None:
    rails = [DOCUMENT["guardrails"][0]]
    if suite is not None:
        rails.append({"id": "same", "metric": "behaviour", "kind": "absolute", "limit": 0, "cell": {"level": "peak"}})
    brief = parse_brief(DOCUMENT | {"guardrails": rails, "behaviour": suite})
    found = unnamed_cases(brief, versions, "Search")
    assert bool(found) == bool(said)
    assert said in "".join(found)


# Differences


def test_a_difference_is_the_lines_that_changed_with_two_around() -> None:
    before = "\n".join("abcdefghij")
    assert line_difference(before, before) == []
    assert line_difference(before, before.replace("f", "F")) == [
        ("at", "@@ -4,5 +4,5 @@"),
        ("", " d"),
        ("", " e"),
        ("minus", "-f"),
        ("plus", "+F"),
        ("", " g"),
        ("", " h"),
    ]
