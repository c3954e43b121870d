"""Numbers that somebody else measured, on a brief: brought, shown beside each other, and never approved on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings as configured
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Event, ImportedTrial, Route
from decisions.pages import uploads as incoming
from decisions.rules.imported import lacking, refusal
from decisions.selectors.evidence import evidence_of
from decisions.selectors.imported import attainment_of, comparisons, row_of, times_of
from decisions.services import import_evidence as service
from decisions.services.create_brief import create_brief
from decisions.services.edit_brief import edit_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.import_evidence import import_evidence
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.set_imported_aside import set_imported_aside
from decisions.services.sign_decision import refuse_unjudged, sign_decision
from decisions.services.start_brief import start_brief
from decisions.services.withdraw_brief import withdraw_brief
from loadtests import uploads
from loadtests.canonical import digest
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.foreign import EvidenceRefused
from loadtests.evidence.foreign import import_evidence as read_here
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.models import Removal
from loadtests.services.import_traffic import import_traffic
from loadtests.services.remove_unwanted import ask_removal
from loadtests.services.sweep_evidence import sweep_evidence
from tests.conftest import PASSWORD
from tests.loadtests.test_foreign_evidence import guidellm
from tests.support.bench import bench, without_details, written
from tests.support.play import TARGET, play

pytestmark = pytest.mark.django_db

REASON = "It was measured on another machine."
ROOT = Path(__file__).resolve().parent.parent.parent
# The demo's deadlines for every other class are 5 s to the first token and 20 s to completion.
SLOW: dict[str, Any] = {"first_s": 6.0}
SCRIPT = {"X-Requested-With": "XMLHttpRequest"}
AIPERF = "results/aiperf_run1_profile_export_records1-40.jsonl"
GUIDELLM = "results/guidellm_report_v2_fixture.json"
Bring = Callable[..., ImportedTrial]


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    attainment_of.cache_clear()
    times_of.cache_clear()


@pytest.fixture
def draft(route: Route, engineer: Account) -> BriefRevision:
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=route.service.slug, seed=7
    )
    return create_brief(route=route, source=json.dumps(brief_document(TARGET, traffic)), by=engineer)


@pytest.fixture
def bring(draft: BriefRevision, engineer: Account, tmp_path: Path) -> Bring:
    def take(*documents: dict[str, Any], arm: str = "baseline", level: str = "quiet", **more: Any) -> ImportedTrial:
        path = written(tmp_path / "result.json", *(documents or (bench(),)))
        given: dict[str, Any] = {"revision": draft, "by": engineer, "path": path, "file_name": path.name} | more
        return import_evidence(arm=arm, level=level, **given)

    return take


@pytest.fixture
def as_engineer(engineer: Account) -> Client:
    client = Client()
    client.force_login(engineer)
    return client


def tab(revision: BriefRevision, name: str = "brief-imported") -> str:
    return reverse(name, args=[revision.brief_id, revision.number])


def text(response: Any) -> str:
    words = re.sub(r"<[^>]+>", " ", response.content.decode())
    return re.sub(r"[\s\u202f\u00a0]+", " ", words)


def kept() -> list[str]:
    return sorted(one.name for one in store().base.rglob("*"))


def store() -> EvidenceStore:
    return EvidenceStore(configured.EVIDENCE_DIR)


def test_head_answers_where_a_file_is_brought(as_engineer: Client, draft: BriefRevision) -> None:
    response = as_engineer.head(tab(draft, "brief-imported-new"))
    assert (response.status_code, response.content) == (200, b"")


# What a result file becomes


def test_a_result_becomes_a_trial_with_its_evidence_its_event_and_its_label(
    bring: Bring, draft: BriefRevision, tmp_path: Path
) -> None:
    trial = bring(arm="ngram-k4", level="ordinary", note="the vendor, on one H100")
    file = (tmp_path / "result.json").read_bytes()
    assert (trial.tool, trial.file_name, trial.run) == ("vllm bench serve", "result.json", 1)
    assert trial.file_digest == digest(file)
    manifest = json.loads(store().get(trial.manifest_digest))
    assert manifest["source"]["sha256"] == trial.file_digest
    assert manifest["digests"]["records"] == trial.records_digest
    assert store().has(trial.records_digest)
    assert not store().has(trial.file_digest)
    event = Event.objects.latest("sequence")
    assert (event.kind, event.actor, event.subject) == (
        "evidence-imported",
        "engineer",
        f"brief {draft.brief_id} revision 1",
    )
    assert event.details == {
        "trial": trial.pk,
        "arm": "ngram-k4",
        "level": "ordinary",
        "tool": "vllm bench serve",
        "file": "result.json",
        "file_sha256": trial.file_digest,
        "run": 1,
        "note": "the vendor, on one H100",
        "manifest": trial.manifest_digest,
        "records": trial.records_digest,
    }
    assert row_of(trial, draft.document).label == "imported: vllm bench serve"
    assert list(uploads.directory().iterdir()) == []


def test_its_numbers_are_those_of_the_records(bring: Bring, draft: BriefRevision) -> None:
    trial = bring(bench(requests=40, failed=2, first_s=0.1, between_s=0.01))
    summary = trial.summary
    assert summary["evidence_class"] == "imported"
    assert (summary["planned"], summary["recorded"], summary["statuses"]["completed"]) == (40, 40, 38)
    assert summary["first_token_ms"] == {"p50": 100.0, "p90": 100.0, "p99": 100.0, "max": 100.0}
    assert summary["completion_ms"]["p99"] == 200.0
    assert "type 7 of Hyndman and Fan" in summary["percentiles"]
    assert (summary["output_tokens"], summary["output_tokens_per_s"]) == (38 * 11, 38 * 11 / 40)
    # Send times stand in for the planned ones: how late the tool was is missing, not 0.
    assert (summary["planned_times"], summary["lag_ms"]) == ("sent", None)
    row = row_of(trial, draft.document)
    assert (row.attainment, row.why_not, row.since) == (38 / 40, "", "send")


def test_what_a_database_cannot_hold_is_taken_out_of_its_words(bring: Bring) -> None:
    trial = bring(bench(model_id="a\0b\ud800"), file_name="day\0\ud800.json")
    trial.refresh_from_db()
    assert "\0" not in f"{trial.summary['model']}{trial.file_name}"


def test_attainment_follows_the_deadlines_of_the_revision(bring: Bring, draft: BriefRevision) -> None:
    assert row_of(bring(bench(**SLOW)), draft.document).attainment == 0.0


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (without_details(), "the file tells of no single request"),
        (guidellm(successful=7, total=9), "the file holds a part of the requests"),
    ],
)
def test_what_the_file_lacks_is_missing_and_said(
    bring: Bring, draft: BriefRevision, document: dict[str, Any], why: str
) -> None:
    row = row_of(bring(document), draft.document)
    assert (row.attainment, row.why_not, row.summary["output_tokens_per_s"]) == (None, why, None)


def test_a_level_that_the_draft_no_longer_has_has_no_deadline(
    bring: Bring, draft: BriefRevision, engineer: Account
) -> None:
    trial = bring(arm="ngram-k4", level="ordinary")
    source = draft.source.replace('"ordinary"', '"usual"')
    edit_brief(revision=draft, source=source, by=engineer)
    draft.refresh_from_db()
    row = row_of(trial, draft.document)
    assert (row.attainment, row.why_not) == (None, "the brief has no deadline for it")
    assert comparisons([row], draft.document) == []


@pytest.mark.parametrize(("name", "tool", "since"), [(AIPERF, "AIPerf", "send"), (GUIDELLM, "GuideLLM", "")])
def test_files_of_the_other_tools(
    draft: BriefRevision, engineer: Account, shared_data: Path, name: str, tool: str, since: str
) -> None:
    path = shared_data / name
    given: dict[str, Any] = {"revision": draft, "by": engineer, "path": path, "file_name": path.name}
    trial = import_evidence(arm="baseline", level="quiet", run=1, **given)
    row = row_of(trial, draft.document)
    assert (row.label, row.since) == (f"imported: {tool}", since)
    assert row.summary["lacks"]


# What is refused


def test_a_file_with_several_runs_is_told_apart(bring: Bring) -> None:
    runs = (bench(requests=20), bench(requests=30, request_rate=2.0))
    with pytest.raises(Refused) as refused:
        bring(*runs)
    assert str(refused.value) == (
        "run: the file holds 2 runs, and say which one of them is this level’s. "
        "run 1: 20 requests, request_rate 1; run 2: 30 requests, request_rate 2"
    )
    with pytest.raises(Refused, match="run: the file holds 2 runs, and there is no run 3"):
        bring(*runs, run=3)
    assert not ImportedTrial.objects.exists()
    trial = bring(*runs, run=2)
    assert (trial.run, trial.summary["planned"]) == (2, 30)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arm": "eagle"}, "arm: this brief has no 'eagle'; it has baseline, ngram-k"),
        ({"level": "night"}, "level: this brief has no 'night'; it has quiet, ordinary"),
        ({"wanted": "aiperf"}, "result.json: this is a file of vllm-bench, not of aiperf"),
    ],
)
def test_what_the_brief_or_the_file_does_not_have(bring: Bring, given: dict[str, str], said: str) -> None:
    with pytest.raises(Refused) as refused:
        bring(**given)
    assert str(refused.value).startswith(said)


def test_a_bad_field_refuses_the_file_and_keeps_nothing(bring: Bring) -> None:
    before = kept()
    with pytest.raises(Refused, match=r"result\.json: .*ttfts"):
        bring(bench(ttfts=["soon"] * 40))
    assert not ImportedTrial.objects.exists()
    assert kept() == before
    assert list(uploads.directory().iterdir()) == []


def files() -> set[Path]:
    return {one for one in store().base.rglob("*") if one.is_file()}


def test_a_refusal_that_comes_late_leaves_no_file(
    bring: Bring, draft: BriefRevision, engineer: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where somebody withdraws the brief while the file is read."""
    before = files()
    withdraw_brief(revision=draft, by=engineer, reason="It is not needed any more.")
    monkeypatch.setattr(service, "check_place", lambda *_: None)
    with pytest.raises(Refused, match="the revision is withdrawn"):
        bring()
    assert files() == before
    assert not Removal.objects.exists()
    assert list(uploads.directory().iterdir()) == []


def test_a_store_that_fails_half_way_is_left_with_none_of_it(bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    before, put_file, put = files(), EvidenceStore.put_file, list[str]()

    def failing(self: EvidenceStore, source: Path) -> str:
        if put:
            raise EvidenceUnreachable("the bucket is away")
        put.append(put_file(self, source))
        return put[0]

    monkeypatch.setattr(EvidenceStore, "put_file", failing)
    with pytest.raises(EvidenceUnreachable, match="the bucket is away"):
        bring()
    assert put
    assert files() == before


def test_a_refused_run_takes_no_file_from_the_trial_that_has_it(bring: Bring) -> None:
    first = bring()
    with pytest.raises(Refused, match="stands here already"):
        bring(arm="ngram-k4")
    assert store().has(first.manifest_digest)
    assert store().has(first.records_digest)


def test_files_that_were_to_be_removed_stay_once_a_trial_names_them(
    bring: Bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = service.record

    def asked_for_meanwhile(trial: ImportedTrial, by: Account, files: list[str], lock: Any) -> None:
        ask_removal(files)
        record(trial, by, files, lock)

    monkeypatch.setattr(service, "record", asked_for_meanwhile)
    trial = bring()
    sweep_evidence()
    assert store().has(trial.manifest_digest)
    assert store().has(trial.records_digest)


def test_a_note_loses_a_password_before_it_is_cut(bring: Bring) -> None:
    long = bring(note=f"measured at https://me:{'s3cret' * 700}@serving")
    assert "s3cret" not in long.note


def test_the_same_run_stands_for_one_arm_alone(bring: Bring, engineer: Account) -> None:
    first = bring()
    with pytest.raises(Refused) as refused:
        bring(arm="ngram-k4")
    assert str(refused.value) == (
        f"run 1 of this file stands here already as the baseline at quiet (imported trial {first.pk}): set that one "
        "aside first"
    )
    set_imported_aside(trial=first, by=engineer, reason=REASON)
    again = bring(arm="ngram-k4")
    with pytest.raises(IntegrityError), transaction.atomic():
        ImportedTrial.objects.filter(pk=first.pk).update(set_aside_at=None)
    assert again.manifest_digest == first.manifest_digest


@pytest.mark.parametrize("who", ["owner", "auditor", "stranger"])
def test_only_an_engineer_brings_evidence_or_sets_it_aside(
    bring: Bring, account: Callable[..., Account], who: str, request: pytest.FixtureRequest
) -> None:
    person: Account = request.getfixturevalue(who)
    with pytest.raises(Refused, match="Only someone in the group engineer can bring evidence"):
        bring(by=person)
    assert Event.objects.latest("sequence").kind == "evidence-import-refused"
    trial = bring()
    with pytest.raises(Refused, match="Only someone in the group engineer"):
        set_imported_aside(trial=trial, by=person, reason=REASON)
    assert Event.objects.latest("sequence").kind == "evidence-set-aside-refused"


def test_setting_aside_needs_a_reason_and_happens_once(bring: Bring, engineer: Account, draft: BriefRevision) -> None:
    trial = bring()
    with pytest.raises(Refused, match="at least 10 characters"):
        set_imported_aside(trial=trial, by=engineer, reason="no")
    set_imported_aside(trial=trial, by=engineer, reason=f" {REASON} ")
    assert (trial.set_aside_by, trial.set_aside_reason) == ("engineer", REASON)
    event = Event.objects.latest("sequence")
    assert (event.kind, event.details["trial"], event.details["reason"]) == ("evidence-set-aside", trial.pk, REASON)
    with pytest.raises(Refused, match="set aside already"):
        set_imported_aside(trial=trial, by=engineer, reason=REASON)
    assert store().has(trial.manifest_digest)


def test_a_revision_that_has_ended_takes_none(bring: Bring, draft: BriefRevision, engineer: Account) -> None:
    trial = bring()
    withdraw_brief(revision=draft, by=engineer, reason="It is not needed any more.")
    with pytest.raises(Refused, match="the revision is withdrawn: imported trials come and go before its verdict"):
        bring(bench(requests=20))
    with pytest.raises(Refused, match="the revision is withdrawn"):
        set_imported_aside(trial=trial, by=engineer, reason=REASON)


# No approval


def test_a_brief_with_imported_trials_alone_is_refused_with_what_they_lack(
    bring: Bring, draft: BriefRevision, owner: Account, engineer: Account, client: Client
) -> None:
    bring()
    bring(without_details(), arm="ngram-k4")
    said = (
        "All 2 trials of this brief are imported: only measured evidence can carry an approval. They lack the "
        "fingerprint of the configuration that answered, a plan’s digest, digests of the prompts, a known warm-up, a "
        "fresh engine for each boot, planned times and records of single requests. Freeze the brief and start it: what "
        "is measured then can be approved."
    )
    freeze_brief(revision=draft, by=engineer)
    with pytest.raises(Refused) as refused:
        refuse_unjudged(revision=draft, by=owner)
    assert str(refused.value) == said
    event = Event.objects.latest("sequence")
    assert (event.kind, event.actor, event.details) == ("sign-refused", "owner", {"reason": said})
    client.force_login(owner)
    page = text(client.get(tab(draft, "brief-sign-off")))
    assert "Can’t be approved: the evidence is imported" in page
    assert said in page
    assert "No verdict yet" not in page
    given = {"meaning": "approve", "reason": REASON, "password": PASSWORD}
    response = client.post(tab(draft, "brief-sign"), given)
    assert response.status_code == 422
    assert said in text(response)
    draft.refresh_from_db()
    assert (draft.state, draft.signatures.count()) == ("frozen", 0)


def test_without_any_trial_the_reason_is_that_there_is_no_verdict(
    draft: BriefRevision, owner: Account, bring: Bring, engineer: Account
) -> None:
    with pytest.raises(Refused, match="there is no verdict to sign yet"):
        refuse_unjudged(revision=draft, by=owner)
    set_imported_aside(trial=bring(), by=engineer, reason=REASON)
    with pytest.raises(Refused, match="there is no verdict to sign yet"):
        refuse_unjudged(revision=draft, by=owner)
    with pytest.raises(Refused, match="Only someone in the group owner can sign"):
        refuse_unjudged(revision=draft, by=engineer)


def test_a_verdict_is_computed_without_them_and_can_be_signed(
    bring: Bring, draft: BriefRevision, owner: Account, engineer: Account, client: Client
) -> None:
    freeze_brief(revision=draft, by=engineer)
    # So slow that a verdict over it could be no PASS.
    slow = bring(bench(**SLOW), arm="ngram-k4")
    start_brief(revision=draft, by=engineer)
    bring()
    play(draft)
    draft.refresh_from_db()
    verdict = draft.verdicts.get()
    assert verdict.result == "PASS"
    assert {one.evidence_class for one in evidence_of(draft)} == {"measured"}
    assert slow.manifest_digest not in verdict.document["evidence"]
    with pytest.raises(Refused, match="the revision is in-review"):
        bring(bench(requests=20))
    client.force_login(owner)
    assert "The 2 imported trials : only measured evidence is judged." in text(client.get(tab(draft, "brief-sign-off")))
    sign_decision(
        verdict=verdict,
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="approve",
        reason="The evidence settles it.",
    )
    draft.refresh_from_db()
    assert draft.state == "approved"


def test_whoever_brings_evidence_has_a_hand_in_the_decision(
    draft: BriefRevision, bring: Bring, account: Callable[..., Account]
) -> None:
    both = account("both", "engineer", "owner")
    draft.brief.route.service.owners.add(both)
    bring(by=both)
    with pytest.raises(Refused, match="Someone who started its runs can't sign a brief"):
        refuse_unjudged(revision=draft, by=both)


def test_what_is_lacking_depends_on_what_the_files_tell() -> None:
    scheduled = {"planned_times": "scheduled", "recorded": 5}
    assert "planned times" not in lacking([scheduled])
    assert "records of single requests" not in lacking([scheduled])
    assert {"planned times", "records of single requests"} <= {
        *lacking([scheduled, {"planned_times": None, "recorded": 0}])
    }
    assert refusal([scheduled]).startswith("The only trial of this brief is imported: only measured evidence")


# Pages


def test_both_arms_stand_beside_each_other_with_a_picture(
    bring: Bring, draft: BriefRevision, as_engineer: Client
) -> None:
    bring(bench(requests=20))
    latest = bring()
    bring(bench(first_s=0.05), arm="ngram-k4")
    response = as_engineer.get(tab(draft))
    page = text(response)
    assert "3 imported trials: to look at, not to approve on." in page
    assert "Quiet: ngram-k4 beside the baseline" in page
    assert f"Grey: trial {latest.pk}, imported: vllm bench serve." in page
    assert "Nobody can show that both arms got the same requests." in page
    assert "38 of 40 baseline requests and 38 of 40 candidate requests completed within 20 s of their send." in page
    assert b"data-chart" in response.content
    assert "95.0 %" in page
    assert "the fingerprint of the configuration that answered" in page


def test_what_makes_two_trials_differ_is_said(bring: Bring, draft: BriefRevision) -> None:
    rows = [
        row_of(bring(), draft.document),
        row_of(bring(bench(requests=20, model_id="another"), arm="ngram-k4"), draft.document),
    ]
    (found,) = comparisons(rows, draft.document)
    assert "The models have different names: target and another." in found.caution
    assert "They planned different numbers of requests: 40 and 20." in found.caution
    assert found.chart is not None


def test_without_single_requests_there_is_no_picture(bring: Bring, draft: BriefRevision, as_engineer: Client) -> None:
    bring()
    trial = bring(without_details(), arm="ngram-k4")
    response = as_engineer.get(tab(draft))
    assert "result.json tells of no single request: there is no distribution to draw." in text(response)
    assert b"data-chart" not in response.content
    page = text(as_engineer.get(reverse("brief-imported-trial", args=[trial.pk])))
    assert "missing: the file tells of no single request" in page
    assert "p99_ttft_ms" in page


def test_a_trial_has_a_page_with_all_that_its_file_tells(bring: Bring, as_engineer: Client, engineer: Account) -> None:
    trial = bring(note="the vendor <b>")
    address = reverse("brief-imported-trial", args=[trial.pk])
    response = as_engineer.get(address)
    page = text(response)
    for words in (
        f"Imported trial {trial.pk}: baseline at quiet",
        "imported: vllm bench serve",
        trial.file_digest,
        "Fingerprints are absent",
        "95.0 % within this revision’s deadlines",
        "418 tokens",
        "request_rate",
        "lag of the tool missing",
    ):
        assert words in page, words
    assert b"the vendor &lt;b&gt;" in response.content
    refused = as_engineer.post(reverse("brief-imported-set-aside", args=[trial.pk]), {"reason": "no"})
    assert (refused.status_code, "Say why in at least 10 characters." in text(refused)) == (422, True)
    done = as_engineer.post(reverse("brief-imported-set-aside", args=[trial.pk]), {"reason": REASON}, follow=True)
    assert f"Trial {trial.pk}, by engineer" in text(done)
    assert REASON in text(as_engineer.get(address))


def test_lost_evidence_is_said(bring: Bring, draft: BriefRevision, as_engineer: Client) -> None:
    trial = bring()
    bring(bench(first_s=0.2), arm="ngram-k4")
    for lost in (trial.records_digest, trial.manifest_digest):
        store().forget(lost)
    assert f"no evidence {trial.records_digest}" in text(as_engineer.get(tab(draft)))
    assert f"No evidence {trial.manifest_digest}" in text(
        as_engineer.get(reverse("brief-imported-trial", args=[trial.pk]))
    )


# The form


def sent(client: Client, revision: BriefRevision, content: bytes | None = None, **more: Any) -> Any:
    file = SimpleUploadedFile("day.json", json.dumps(bench()).encode() if content is None else content)
    headers = more.pop("headers", {})
    said = {"file": file, "arm": "baseline", "level": "quiet", "format": "auto"} | more
    return client.post(tab(revision, "brief-imported-new"), said, headers=headers)


def test_a_file_is_uploaded_read_apart_and_leads_to_the_tab(draft: BriefRevision, as_engineer: Client) -> None:
    assert "Bring a result file" in text(as_engineer.get(tab(draft, "brief-imported-new")))
    response = sent(as_engineer, draft)
    assert (response.status_code, response["Location"]) == (302, tab(draft))
    trial = ImportedTrial.objects.get()
    assert (trial.file_name, trial.imported_by, trial.summary["planned"]) == ("day.json", "engineer", 40)
    refused = sent(as_engineer, draft, b'{"one": 1}', headers=SCRIPT)
    assert refused.status_code == 422
    assert "day.json: no result file that is known: its fields are &#x27;one&#x27;" in refused.content.decode()
    assert list(uploads.directory().iterdir()) == []


def test_our_script_asks_first_and_is_told_where_to_go(
    draft: BriefRevision, as_engineer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decisions.pages.imported.read_apart", read_here)
    asked = {"arm": "baseline", "level": "quiet", "format": "auto", "check": "yes"}
    form = tab(draft, "brief-imported-new")
    assert as_engineer.post(form, asked, headers=SCRIPT).status_code == 204
    wrong = as_engineer.post(form, asked | {"arm": "eagle"}, headers=SCRIPT)
    assert (wrong.status_code, "Arm:" in text(wrong)) == (422, True)
    response = sent(as_engineer, draft, headers=SCRIPT)
    assert (response.status_code, response.json()) == (201, {"to": tab(draft)})


@pytest.mark.parametrize(("content", "said"), [(b"", "The file is empty."), (None, "Choose the result file to bring.")])
def test_a_file_must_come_and_hold_something(
    draft: BriefRevision, as_engineer: Client, content: bytes | None, said: str
) -> None:
    more = {"file": ""} if content is None else {}
    response = sent(as_engineer, draft, content, **more)
    assert (response.status_code, said in text(response)) == (422, True)


def test_a_file_over_the_limit_is_not_kept(draft: BriefRevision, as_engineer: Client, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 1_000
    response = sent(as_engineer, draft)
    assert response.status_code == 413
    assert "Compress it with gzip or zstd" in text(response)
    assert not ImportedTrial.objects.exists()
    settings.UPLOAD_LIMIT_BYTES = 10**12
    assert incoming.WELCOME["brief-imported-new"].most_bytes == incoming.RESULT_LIMIT


@pytest.mark.parametrize("who", ["owner", "auditor", "stranger"])
def test_nobody_but_an_engineer_has_the_form(
    draft: BriefRevision, client: Client, who: str, request: pytest.FixtureRequest
) -> None:
    client.force_login(request.getfixturevalue(who))
    assert client.get(tab(draft, "brief-imported-new")).status_code == 403
    assert sent(client, draft).status_code == 403
    assert not ImportedTrial.objects.exists()
    assert "Bring a result file" not in text(client.get(tab(draft)))


def test_a_revision_that_takes_none_says_so(draft: BriefRevision, as_engineer: Client, engineer: Account) -> None:
    withdraw_brief(revision=draft, by=engineer, reason="It is not needed any more.")
    response = as_engineer.get(tab(draft, "brief-imported-new"), follow=True)
    assert "this revision takes none any more" in text(response)


def test_a_draft_that_cannot_be_read_says_so(draft: BriefRevision, as_engineer: Client) -> None:
    BriefRevision.objects.filter(pk=draft.pk).update(source="title: x")
    assert "This draft can’t be read yet" in text(as_engineer.get(tab(draft, "brief-imported-new"), follow=True))


def test_what_people_say_of_it_keeps_no_password(bring: Bring) -> None:
    trial = bring(note="from https://me:s3cret@files/x?token=s3cret")
    assert trial.note == "from https://files/x?token=[hidden]"


def test_the_tab_says_that_the_store_is_away(
    draft: BriefRevision, bring: Bring, as_engineer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = bring()
    times_of.cache_clear()

    def away(*_: object) -> None:
        raise EvidenceUnreachable("s3://house could not be read: SlowDown")

    monkeypatch.setattr(EvidenceStore, "get", away)
    page = as_engineer.get(tab(draft))
    assert page.status_code == 200
    assert "Not everything that was imported can be read now" in text(page)
    assert "s3://house could not be read: SlowDown." in text(page)
    one = as_engineer.get(reverse("brief-imported-trial", args=[trial.pk]))
    assert (one.status_code, "s3://house could not be read: SlowDown." in text(one)) == (200, True)


# Reading apart


def test_a_file_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PAGE_LIMIT_S", 0.01)
    with pytest.raises(EvidenceRefused, match=r"was ended: let whoever runs this installation import it"):
        service.read_apart(written(tmp_path / "result.json", bench()), tmp_path / "out", "auto")


def test_a_process_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EvidenceRefused, match="the process that read it died"):
        service.read_apart(written(tmp_path / "result.json", bench()), tmp_path / "out", "auto")


AT_START = "import config.cli, psutil; print(psutil.Process().memory_info().vms)"


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded on Linux")
def test_a_file_that_takes_too_much_memory_is_refused_with_the_limit(tmp_path: Path, settings: Any) -> None:
    at_start = subprocess.run([sys.executable, "-c", AT_START], cwd=ROOT, capture_output=True, check=True)
    settings.RESULT_MEMORY_BYTES = int(at_start.stdout) + (100 << 20)
    path = written(tmp_path / "result.json", bench() | {"label": "x" * 50_000_000, "commit": ["y"] * 5_000_000})
    with pytest.raises(
        EvidenceRefused, match=r"reading it took more than \d\.\d+ GB of memory: .*DRAFTPROOF_RESULT_MEMORY_GB"
    ):
        service.read_apart(path, tmp_path / "out", "auto")
    assert not (tmp_path / "out").exists()


READ_APART = """
import django, pathlib, sys
django.setup()
from decisions.services.import_evidence import read_apart
read_apart(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), "auto")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends it")
def test_reading_ends_with_the_process_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTPROOF_VAR", str(tmp_path / "var"))
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "config.settings")
    os.mkfifo(endless := tmp_path / "result.json")
    command = [sys.executable, "-c", READ_APART, str(endless), str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=ROOT) as web:
        # The reader opens it after it was bound, and then waits for more.
        writing = open_where_it_is_read(endless)
        try:
            (reader,) = psutil.Process(web.pid).children()
            assert "import-evidence" in reader.cmdline()
            web.kill()
            reader.wait(30)
        finally:
            web.kill()
            os.close(writing)
    assert not psutil.pid_exists(reader.pid)


def open_where_it_is_read(pipe: Path) -> int:
    until = time.monotonic() + 60
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < until, "nobody reads it"
            time.sleep(0.05)


# The command


def test_the_command_brings_a_file(
    draft: BriefRevision, engineer: Account, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "result.json", bench()))
    given: dict[str, Any] = {"brief": draft.brief_id, "arm": "baseline", "level": "quiet", "by": "engineer"}
    call_command("import_evidence", path, **given)
    trial = ImportedTrial.objects.get()
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [
        f"imported trial {trial.pk}, imported: vllm bench serve: baseline at quiet",
        f"manifest: {trial.manifest_digest}",
    ]
    assert "lacks: The engine was neither started nor probed by us." in told
    for wrong, said in (
        ({"by": "nobody"}, "there is no account nobody"),
        ({"brief": 10**6}, "there is no brief 1000000"),
        ({"revision": 9}, "with a revision 9"),
        ({"level": "night"}, "level: this brief has no 'night'"),
    ):
        with pytest.raises(CommandError, match=said):
            call_command("import_evidence", path, **given | wrong)
    with pytest.raises(CommandError, match=r"missing\.json"):
        call_command("import_evidence", str(tmp_path / "missing.json"), **given)
