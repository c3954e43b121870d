"""Importing traffic in the browser: who may, what is sent, what is said about it, and that no text comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions.models import Account, Event, Service
from decisions.pages import uploads as incoming
from loadtests import queue, uploads
from loadtests.models import TrafficImport, TrafficSet
from loadtests.services.run_import import run_import

State = TrafficImport.State
FORM = reverse("traffic-import")
LOOK = reverse("traffic-import-look")
SECRET = "Dear hunter2, my diagnosis is as follows"
# What the form says when nobody changed anything.
UNTOUCHED = {
    "format": "auto",
    "on_bad_row": "skip",
    "max_tokens": "1024",
    "tuning": "50",
    "held_out": "50",
    "evaluation": "0",
    "seed": "0",
    "block_s": "10",
    "similarity": "0.8",
}
VIDUR = b"arrived_at,num_prefill_tokens,num_decode_tokens\n" + b"".join(
    b"%d,%d,9\n" % (n * 9, n + 1) for n in range(40)
)
SCRIPT = {"X-Requested-With": "XMLHttpRequest"}


def lines(rows: int = 40, text: str = SECRET) -> bytes:
    """Rows that are no near-duplicates of each other."""
    own = (" ".join(str(n * 7_919 % power) for power in range(9_000, 9_040)) for n in range(1, rows + 1))
    records = ({"arrival_s": n * 5, "prompt": f"{text} {words}"} for n, words in enumerate(own))
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def file(content: bytes | None = None, name: str = "day.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, lines() if content is None else content)


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(queue, "send_import", lambda: names.append("workers.run_import"))
    return names


@pytest.fixture
def as_engineer(engineer: Account) -> Client:
    client = Client()
    client.force_login(engineer)
    return client


@pytest.fixture
def upload(as_engineer: Client) -> Callable[..., TrafficImport]:
    """What the form sends, and the import that it makes."""

    def send(one: SimpleUploadedFile | None = None, **said: Any) -> TrafficImport:
        response = as_engineer.post(FORM, {"file": one or file(), **UNTOUCHED, **said})
        assert response.status_code == 302, response.content.decode()
        return TrafficImport.objects.latest("pk")

    return send


def run(wanted: TrafficImport) -> TrafficImport:
    run_import(wanted=wanted, worker="worker-1")
    wanted.refresh_from_db()
    return wanted


def kept() -> list[str]:
    return sorted(one.name for one in uploads.directory().iterdir())


def job(wanted: TrafficImport, page: str = "traffic-import-job") -> str:
    return reverse(page, args=[wanted.pk])


# Who may.


def test_someone_unknown_is_sent_to_sign_in_and_nothing_of_their_file_is_stored(client: Client, db: None) -> None:
    for page in (FORM, LOOK):
        response = client.post(page, {"file": file(), **UNTOUCHED})
        assert response["Location"].startswith("/sign-in/")
    assert (kept(), TrafficImport.objects.count()) == ([], 0)


@pytest.mark.parametrize("who", ["owner", "auditor", "stranger", "superuser"])
def test_the_wrong_person_is_told_who_may_and_nothing_of_their_file_is_stored(
    request: pytest.FixtureRequest, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.force_login(request.getfixturevalue(who))
    monkeypatch.setattr(incoming, "TemporaryUploadedFile", lambda *_: pytest.fail("it was stored"))
    for page in (FORM, LOOK):
        response = client.post(page, {"file": file(), **UNTOUCHED})
        assert response.status_code == 403
        assert "group engineer or operator can import traffic" in response.content.decode()


@pytest.mark.parametrize("group", ["engineer", "operator"])
def test_the_right_person_gets_the_form_with_defaults_that_work(account: Callable[..., Account], group: str) -> None:
    client = Client()
    client.force_login(account("someone", group))
    assert client.get(FORM).status_code == 200
    said = {**UNTOUCHED, "tuning": "35", "evaluation": "15"}
    assert client.post(FORM, {"file": file(lines(400)), **said}).status_code == 302
    assert TrafficImport.objects.get().requested_by == "someone"


def test_everybody_with_a_role_may_watch_and_only_the_right_people_may_act(
    upload: Callable[..., TrafficImport], auditor: Account, stranger: Account
) -> None:
    wanted = upload()
    client = Client()
    client.force_login(stranger)
    assert client.get(job(wanted)).status_code == 403
    client.force_login(auditor)
    assert "Cancel the import" not in client.get(job(wanted)).content.decode()
    for page in ("traffic-import-cancel", "traffic-import-again"):
        assert client.post(job(wanted, page)).status_code == 403
    wanted.refresh_from_db()
    assert wanted.state == State.QUEUED


def test_another_page_takes_no_file(as_engineer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "TemporaryUploadedFile", lambda *_: pytest.fail("it was stored"))
    as_engineer.post(reverse("brief-new"), {"source": file()})


# From a file to a set.


@pytest.mark.django_db(transaction=True)
def test_a_file_becomes_a_set_and_the_page_leads_there(
    as_engineer: Client, upload: Callable[..., TrafficImport], service: Service, sent: list[str]
) -> None:
    Service.objects.filter(pk=service.pk).update(redactions=[{"pattern": "hunter2", "replacement": "[name]"}])
    wanted = upload(name="One day", service=service.slug)
    assert sent == ["workers.run_import"]
    assert wanted.options["redactions"] == [{"pattern": "hunter2", "replacement": "[name]"}]
    page = as_engineer.get(job(wanted)).content.decode()
    assert "Waits for a worker" in page
    assert job(wanted, "traffic-import-live") in page
    assert run(wanted).state == State.DONE
    created = TrafficSet.objects.get()
    live = as_engineer.get(job(wanted, "traffic-import-live"))
    assert live["HX-Redirect"] == reverse("traffic-set", args=[created.pk])
    assert (created.name, created.service, created.created_by) == ("One day", service.slug, "engineer")
    given = created.parts.get(kind="tuning").rows
    assert f"One day, {given} requests</option>" in as_engineer.get(FORM).content.decode()
    assert "Imported in" in as_engineer.get(job(wanted)).content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_name_of_the_file_is_the_name_of_the_set_where_none_is_given(upload: Callable[..., TrafficImport]) -> None:
    assert upload(file(name="monday.jsonl")).name == "monday"


def test_how_far_it_is_stands_on_its_page_with_units(as_engineer: Client, upload: Callable[..., TrafficImport]) -> None:
    wanted = upload()
    progress = {"stage": "reading", "done": 1_500_000, "of": 45_000_000}
    TrafficImport.objects.filter(pk=wanted.pk).update(state=State.RUNNING, beat_at=timezone.now(), progress=progress)
    page = as_engineer.get(job(wanted, "traffic-import-live")).content.decode()
    assert "Reading the file" in page
    assert "1.50 of 45 MB" in page
    assert '<progress max="45.0" value="1.5"' in page
    assert "1.50 of 45 MB" in as_engineer.get(reverse("traffic-imports")).content.decode()


def test_an_import_behind_another_says_which_and_how_far_that_is(
    as_engineer: Client, upload: Callable[..., TrafficImport]
) -> None:
    first, second, third = upload(file(name="large.jsonl")), upload(), upload()
    progress = {"stage": "reading", "done": 1, "of": 4}
    TrafficImport.objects.filter(pk=first.pk).update(state=State.RUNNING, beat_at=timezone.now(), progress=progress)
    for waiting in (second, third):
        page = as_engineer.get(job(waiting)).content.decode()
        assert f'<a href="{job(first)}">import {first.pk}</a> of large.jsonl (Reading the file, 25\u202f%)' in page


def test_what_is_swapped_each_second_titles_the_page_and_leaves_the_button_alone(
    as_engineer: Client, upload: Callable[..., TrafficImport]
) -> None:
    wanted = upload()
    progress = {"stage": "reading", "done": 1, "of": 4}
    TrafficImport.objects.filter(pk=wanted.pk).update(state=State.RUNNING, beat_at=timezone.now(), progress=progress)
    live = as_engineer.get(job(wanted, "traffic-import-live")).content.decode()
    assert "<title>Reading the file 25\u202f% · Import of day.jsonl · Draftproof</title>" in live
    assert "Cancel the import" not in live
    page = as_engineer.get(job(wanted)).content.decode()
    assert page.count("<title>Reading the file 25\u202f% · Import of day.jsonl") == page.count("<title>") == 1
    assert "Cancel the import" in page


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.0,12,20\n", True), (VIDUR, True), (None, False)],
)
def test_a_look_at_lengths_alone_says_that_they_decide_nothing(
    as_engineer: Client, content: bytes | None, said: bool
) -> None:
    looked = as_engineer.post(LOOK, {"file": file(content)}, headers=SCRIPT).content.decode()
    assert ("can’t carry an acceptance decision" in looked) is said
    page = as_engineer.post(LOOK, {"file": file(content)}).content.decode()
    assert ("<details data-donors open>" in page) is said


def test_the_form_makes_no_evaluation_part_unless_someone_asks(as_engineer: Client) -> None:
    page = as_engineer.get(FORM).content.decode()
    values = [re.search(f'name="{name}"[^>]* value="([^"]*)"', page) for name in ("tuning", "held_out", "evaluation")]
    assert [found and found[1] for found in values] == ["40", "60", "0"]


@pytest.mark.django_db(transaction=True)
def test_a_confirmed_look_is_what_the_columns_mean(upload: Callable[..., TrafficImport]) -> None:
    said = {
        "looked_column": ["arrived_at", "num_prefill_tokens", "num_decode_tokens"],
        "looked_field": ["arrival_s", "prompt_tokens", "max_tokens"],
        "looked_shape": "csv",
        "looked_header": "yes",
    }
    wanted = upload(file(VIDUR, "vidur.csv"), **said, confirmed="on")
    assert (run(wanted).state, wanted.options["format"]) == (State.DONE, "csv")


def test_a_look_that_nobody_confirmed_is_not_applied(as_engineer: Client) -> None:
    said = {"looked_column": ["num_prefill_tokens"], "looked_field": ["prompt_tokens"], "looked_shape": "csv"}
    response = as_engineer.post(FORM, {"file": file(VIDUR), **UNTOUCHED, **said})
    assert response.status_code == 422
    assert "Say that the columns mean that" in response.content.decode()
    assert (kept(), TrafficImport.objects.count()) == ([], 0)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"tuning": "60"}, "The shares must add up to 100 %, not 110 %."),
        ({"mapping": "text"}, "write COLUMN=FIELD"),
        ({"mapping": "a=prompt\nb=arrival_s\nc=arrival_ms"}, "two columns are mapped to the arrival time"),
        ({"mapping": "a=prompt", "format": "azure"}, "which has its own"),
        ({"format": "csv"}, "Say which column is what"),
        ({"no_header": "on"}, "Say which column is what"),
        ({"donor": "set"}, "Choose the set that gives its text."),
        ({"donor": "file"}, "Choose the file that gives its text."),
        ({"donor": "set", "donor_set": "404"}, "Select a valid choice"),
        ({"service": "nobody"}, "Select a valid choice"),
        ({"max_tokens": "0"}, "greater than or equal to 1"),
        ({"block_s": "nan"}, "Enter a number"),
        ({"seed": "9" * 30}, "less than or equal to"),
        ({"name": "n" * 121}, "at most 120 characters"),
        ({"similarity": ""}, "required"),
    ],
)
def test_a_slip_in_the_form_is_named_and_nothing_is_kept(
    as_engineer: Client, said: dict[str, str], problem: str
) -> None:
    response = as_engineer.post(FORM, {"file": file(), **UNTOUCHED, **said})
    assert response.status_code == 422
    assert problem in response.content.decode().replace("&#x27;", "'")
    assert (kept(), TrafficImport.objects.count()) == ([], 0)


@pytest.mark.parametrize(("one", "problem"), [(None, "Choose the file"), (file(b""), "The file is empty")])
def test_no_file_is_no_import(as_engineer: Client, one: SimpleUploadedFile | None, problem: str) -> None:
    response = as_engineer.post(FORM, {**UNTOUCHED, **({"file": one} if one else {})})
    assert response.status_code == 422
    assert problem in response.content.decode()


def test_the_script_may_ask_first_and_gets_parts_instead_of_pages(as_engineer: Client) -> None:
    asked = as_engineer.post(FORM, {**UNTOUCHED, "check": "yes"}, headers=SCRIPT)
    assert (asked.status_code, TrafficImport.objects.count()) == (204, 0)
    slip = as_engineer.post(FORM, {**UNTOUCHED, "check": "yes", "seed": "x"}, headers=SCRIPT)
    assert slip.status_code == 422
    assert "<html" not in slip.content.decode()
    sent = as_engineer.post(FORM, {"file": file(), **UNTOUCHED}, headers=SCRIPT)
    assert (sent.status_code, sent.json()) == (201, {"to": job(TrafficImport.objects.get())})


# What is too much, and what is hostile.


def test_a_file_over_the_limit_is_refused_with_what_to_do_and_nothing_is_kept(
    as_engineer: Client, settings: Any
) -> None:
    settings.UPLOAD_LIMIT_BYTES = 1_000
    response = as_engineer.post(FORM, {"file": file(), **UNTOUCHED})
    page = response.content.decode()
    assert response.status_code == 413
    assert "Compress it with gzip or zstd" in page
    assert SECRET not in page
    assert (kept(), TrafficImport.objects.count()) == ([], 0)


def test_the_limit_holds_for_file_and_donor_together(as_engineer: Client, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = len(lines()) + 10
    both = {"file": file(), "donor_file": file(), "donor": "file"}
    assert as_engineer.post(FORM, {**both, **UNTOUCHED}).status_code == 413
    assert kept() == []


def test_a_full_disk_is_said_before_anything_is_written(as_engineer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "lacks_room", lambda size: True)
    response = as_engineer.post(FORM, {"file": file(), **UNTOUCHED})
    assert response.status_code == 507
    assert "not enough room on the disk" in response.content.decode()
    assert kept() == []


def test_an_upload_that_breaks_off_leaves_nothing(as_engineer: Client) -> None:
    head = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{"prompt": "cut'
    response = as_engineer.post(FORM, head.encode(), content_type="multipart/form-data; boundary=x")
    assert response.status_code in (400, 422)
    assert (kept(), TrafficImport.objects.count()) == ([], 0)


@pytest.mark.parametrize(
    "name", ["../../../etc/cron.d/x", "n" * 300, f"x.{'y' * 300}", "a\tb\u202e.jsonl", "<img src=x>"]
)
def test_a_hostile_name_stays_a_name(as_engineer: Client, upload: Callable[..., TrafficImport], name: str) -> None:
    wanted = upload(file(name=name))
    assert len(kept()) == 1
    assert "/" not in wanted.file_name
    assert "\u202e" not in wanted.file_name
    page = as_engineer.get(job(wanted)).content.decode()
    assert "<img" not in page


def test_a_nul_in_a_file_name_is_no_way_round(as_engineer: Client) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a\0.jsonl"\r\n\r\n{}\r\n--x--\r\n'
    response = as_engineer.post(FORM, body, content_type="multipart/form-data; boundary=x")
    assert response.status_code in (400, 422)
    assert kept() == []


# A look before the import.


def test_a_look_names_the_format_or_proposes_the_columns(as_engineer: Client) -> None:
    known = as_engineer.post(LOOK, {"file": file()}, headers=SCRIPT).content.decode()
    proposed = as_engineer.post(LOOK, {"file": file(VIDUR, "vidur.csv")}, headers=SCRIPT).content.decode()
    assert "Recognised: <b>own: our own JSONL</b>" in known
    assert "<option selected>arrival_s</option>" in proposed
    assert 'name="confirmed" required' in proposed
    assert kept() == []


@pytest.mark.parametrize(
    "content",
    [
        lines(),
        f"{SECRET}\n".encode() * 3,
        f'"{SECRET}",1\n'.encode() * 3,
        json.dumps({SECRET: 1, "question": SECRET}).encode(),
        b"\xff\xfe" + SECRET.encode(),
        json.dumps([SECRET]).encode(),
    ],
)
def test_no_text_comes_back_from_a_look_nor_from_a_refusal(
    as_engineer: Client, upload: Callable[..., TrafficImport], content: bytes
) -> None:
    for headers in (SCRIPT, {}):
        looked = as_engineer.post(LOOK, {"file": file(content)}, headers=headers)
        assert looked.status_code == 200
        assert "hunter2" not in looked.content.decode()
    slip = as_engineer.post(FORM, {"file": file(content), **UNTOUCHED, "seed": "x"})
    assert "hunter2" not in slip.content.decode()


@pytest.mark.django_db(transaction=True)
def test_no_text_comes_back_from_a_refused_import(as_engineer: Client, upload: Callable[..., TrafficImport]) -> None:
    bad = json.dumps({"arrival_s": SECRET, "prompt": SECRET}).encode()
    for content, said in ((f"{SECRET}\n".encode(), {}), (lines() + bad, {"on_bad_row": "refuse"}), (bad, {})):
        wanted = run(upload(file(content), **said))
        assert wanted.state == State.REFUSED
        for page in (job(wanted), reverse("traffic")):
            assert "hunter2" not in as_engineer.get(page).content.decode()
    assert not any("hunter2" in json.dumps(event.details) for event in Event.objects.all())


# Cancelled, refused, failed.


def test_cancelling_one_that_waits_ends_it(as_engineer: Client, upload: Callable[..., TrafficImport]) -> None:
    wanted = upload()
    response = as_engineer.post(job(wanted, "traffic-import-cancel"), follow=True)
    page = response.content.decode()
    assert "Cancelled by engineer." in page
    assert (TrafficImport.objects.get().state, kept()) == (State.CANCELLED, [])
    again = as_engineer.post(job(wanted, "traffic-import-cancel"), follow=True).content.decode()
    assert "This import has ended already" in again


def test_a_running_one_says_that_it_is_stopping(as_engineer: Client, upload: Callable[..., TrafficImport]) -> None:
    wanted = upload()
    TrafficImport.objects.filter(pk=wanted.pk).update(state=State.RUNNING, beat_at=timezone.now())
    page = as_engineer.post(job(wanted, "traffic-import-cancel"), follow=True).content.decode()
    assert "Stopping" in page
    assert "Cancel the import" not in page


@pytest.mark.django_db(transaction=True)
def test_a_refused_one_says_why_and_is_tried_again_without_sending_the_file(
    as_engineer: Client, upload: Callable[..., TrafficImport]
) -> None:
    refused = run(upload(block_s="9000", name="One day"))
    assert as_engineer.get(job(refused, "traffic-import-live"))["HX-Refresh"] == "true"
    page = as_engineer.get(job(refused)).content.decode()
    assert "choose shorter blocks" in page
    assert 'value="9000"' in page
    assert 'type="file" id="file"' not in page
    slip = as_engineer.post(job(refused, "traffic-import-again"), {**UNTOUCHED, "tuning": "60"})
    assert (slip.status_code, len(kept())) == (422, 1)
    response = as_engineer.post(job(refused, "traffic-import-again"), UNTOUCHED)
    again = TrafficImport.objects.latest("pk")
    assert response["Location"] == job(again)
    assert (again.name, again.file_name) == ("One day", "day.jsonl")
    assert (run(again).state, kept()) == (State.DONE, [])
    assert "started again since" in as_engineer.get(job(refused)).content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_refusal_speaks_of_the_form_and_not_of_the_shell(upload: Callable[..., TrafficImport]) -> None:
    strict = run(upload(file(lines() + b"{}\n"), on_bad_row="refuse"))
    unknown = run(upload(file(b"a,b\n1,2\n")))
    assert strict.reason.endswith("(choose that a row that can’t be used is left out and reported)")
    assert "say under “Columns under other names”" in unknown.reason
    assert "--" not in strict.reason + unknown.reason


@pytest.mark.django_db(transaction=True)
def test_a_donor_file_needs_not_be_sent_again_either(as_engineer: Client, upload: Callable[..., TrafficImport]) -> None:
    columns = "arrived_at=arrival_s\nnum_prefill_tokens=prompt_tokens\nnum_decode_tokens=max_tokens"
    said = {"mapping": columns, "format": "csv", "donor": "file", "block_s": "9000"}
    texts = file(lines(20, "one two"), "real.jsonl")
    first = run(upload(file(VIDUR, "vidur.csv"), donor_file=texts, **said))
    assert (first.state, len(kept())) == (State.REFUSED, 2)
    assert "real.jsonl is still here" in as_engineer.get(job(first)).content.decode()
    as_engineer.post(job(first, "traffic-import-again"), {**UNTOUCHED, **said, "block_s": "10"})
    again = run(TrafficImport.objects.latest("pk"))
    assert again.created_set is not None
    assert (again.created_set.imported["label"], kept()) == ("text joined from real.jsonl", [])
    split = as_engineer.get(f"{FORM}?like={again.created_set.pk}")
    assert split.context["said"]["donor"] == "file"
    assert "choose vidur.csv once more, and real.jsonl as the file that gives its text." in split.content.decode()


def test_a_failed_one_can_be_started_again_as_it_was_or_its_file_removed(
    as_engineer: Client, upload: Callable[..., TrafficImport]
) -> None:
    wanted = upload()
    TrafficImport.objects.filter(pk=wanted.pk).update(
        state=State.FAILED, reason="its worker fell silent; start it again", ended_at=timezone.now()
    )
    page = as_engineer.get(job(wanted)).content.decode()
    assert "Its worker fell silent; start it again." in page
    as_engineer.post(job(wanted, "traffic-import-cancel"))
    assert kept() == []
    gone = as_engineer.post(job(wanted, "traffic-import-again"), UNTOUCHED, follow=True).content.decode()
    assert "The uploaded file is no longer here." in gone


def test_the_list_of_sets_shows_what_goes_on_and_what_failed_today(
    as_engineer: Client, upload: Callable[..., TrafficImport]
) -> None:
    old, failed, waiting = upload(name="Older"), upload(name="Failed"), upload(name="Waiting")
    now = timezone.now()
    TrafficImport.objects.filter(pk=old.pk).update(state=State.FAILED, ended_at=now - timedelta(days=2))
    TrafficImport.objects.filter(pk=failed.pk).update(state=State.FAILED, ended_at=now, reason="the disk is full")
    page = as_engineer.get(reverse("traffic")).content.decode()
    assert job(waiting) in page
    assert job(failed) in page
    assert "The disk is full." in page
    assert job(old) not in page
    TrafficImport.objects.filter(pk=waiting.pk).update(state=State.DONE)
    assert as_engineer.get(reverse("traffic-imports"))["HX-Refresh"] == "true"


def test_no_page_of_an_import_holds_an_inline_style_or_script(
    as_engineer: Client, upload: Callable[..., TrafficImport]
) -> None:
    wanted = upload()
    for page in (FORM, job(wanted), job(wanted, "traffic-import-live")):
        found = as_engineer.get(page).content.decode()
        assert " style=" not in found
        assert " onclick=" not in found
        assert all("src=" in tag for tag in found.split("<script")[1:])


# To split a file again.


def test_a_set_leads_to_a_form_that_knows_how_it_was_read_and_split(
    as_engineer: Client, upload: Callable[..., TrafficImport], service: Service
) -> None:
    mapped = b"when,what,long\n" + b"".join(b"%d,%s number %d,9\n" % (n * 5, b"words " * n, n) for n in range(40))
    said = {"mapping": "when=arrival_s\nwhat=prompt\nlong=max_tokens", "service": service.slug, "similarity": "1"}
    made = run(upload(file(mapped, "log.csv"), **said, max_context="9000", block_s="20", tuning="40", held_out="60"))
    assert made.created_set, made.reason
    address = f"{FORM}?like={made.created_set_id}"
    assert address in as_engineer.get(reverse("traffic-set", args=[made.created_set_id])).content.decode()
    page = as_engineer.get(address)
    filled = page.context["said"]
    assert filled == {
        "name": f"{made.name}, split again",
        "service": service.slug,
        "format": "auto",
        "on_bad_row": "skip",
        "mapping": said["mapping"],
        "no_header": False,
        "max_tokens": 1024,
        "max_context": 9000,
        "donor": "",
        "donor_set": "",
        "tuning": "40",
        "held_out": "60",
        "evaluation": "0",
        "seed": 1,
        "block_s": "20",
        "similarity": 1,
    }
    assert "choose log.csv once more" in page.content.decode()
    again = {name: value for name, value in filled.items() if name != "no_header"}
    second = run(upload(file(mapped, "log.csv"), **again))
    assert second.created_set
    assert second.created_set.digest != made.created_set.digest


def test_a_form_like_a_set_that_is_not_there_is_no_page(as_engineer: Client) -> None:
    for key in ("0", "x", "²"):
        assert as_engineer.get(FORM, {"like": key}).status_code == 404
