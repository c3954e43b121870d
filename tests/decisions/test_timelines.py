"""What a boot's page shows of the engine over time, and to whom: of a held-out trial nothing before its verdict."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.conf import settings as configured
from django.test import Client
from django.urls import reverse

from decisions.charts.timeline import MOST_POINTS, MOST_ROWS, Second, engine_over_time
from decisions.models import Account, BriefRevision, Route, SignatureRequest
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.timeline import Sample, timeline_content, timeline_table
from loadtests.models import Trial
from tests.conftest import PASSWORD
from tests.support.play import play, started_brief

SECOND = 1_000_000_000
QUIET = Second(running=0, waiting=0, kv_cache_use=0.0, in_flight=0, generated=0)


def test_a_timeline_in_words_and_numbers() -> None:
    busy = Second(running=16, waiting=3, kv_cache_use=0.625, in_flight=19, generated=120)
    chart = engine_over_time([QUIET, busy, Second(None, None, None, 2, None), replace(QUIET, generated=400)])
    assert chart.caption == (
        "At most 16 requests ran at once and at most 3 waited (in 1 of 4 seconds anybody did); "
        "the KV cache was at most 62.5 % full. In 1 seconds the engine did not tell."
    )
    assert chart.table.headers == (
        "at",
        "running, at most",
        "waiting, at most",
        "open at the client",
        "KV cache",
        "output tokens/s",
    )
    assert chart.table.rows == (
        ("0 s", "0", "0", "0", "0.0 %", "120"),
        ("1 s", "16", "3", "19", "62.5 %", "–"),
        ("2 s", "–", "–", "2", "–", "–"),
        ("3 s", "0", "0", "0", "0.0 %", "–"),
    )
    running, waiting, in_flight, cache = chart.figure["data"]
    assert (running["y"], waiting["y"]) == ([0, 16, None, 0], [0, 3, None, 0])
    assert (in_flight["y"], cache["y"], cache["yaxis"]) == ([0, 19, 2, 0], [0, 0.625, None, 0], "y2")


def test_an_engine_that_told_nothing_is_said_to() -> None:
    silent = [Second(None, None, None, 1, None)] * 3
    assert engine_over_time(silent).caption == "The engine told nothing of its state while this trial ran."
    assert engine_over_time([]).table.rows == ()


def test_a_long_trial_keeps_its_peaks_in_a_small_picture() -> None:
    seconds = [replace(QUIET, running=float(number == 7_777), generated=number * 5.0) for number in range(10_000)]
    chart = engine_over_time(seconds)
    assert len(chart.figure["data"][0]["x"]) <= MOST_POINTS
    assert max(chart.figure["data"][0]["y"]) == 1
    assert len(chart.table.rows) <= MOST_ROWS
    assert {row[5] for row in chart.table.rows[:-1]} == {"5"}


@pytest.fixture
def judged(route: Route, engineer: Account) -> BriefRevision:
    revision = started_brief(route, engineer)
    play(revision)
    return revision


def with_timeline(trial: Trial) -> Trial:
    samples = [Sample(0, 1_000, {"running": 7.0, "waiting": 2.0}), Sample(SECOND, SECOND, {"running": 0.0})]
    content = timeline_content(timeline_table(samples, [], end_ns=SECOND))
    trial.summary["timeline"] = EvidenceStore(configured.EVIDENCE_DIR).put(content)
    trial.save(update_fields=["summary"])
    return trial


def a_trial(purpose: str) -> Trial:
    return with_timeline(Trial.objects.filter(boot__campaign__purpose=purpose).earliest("pk"))


Pages = Callable[[Trial], tuple[str, int, bytes]]


@pytest.fixture
def pages(client: Client, auditor: Account) -> Pages:
    """The boot's page of a trial, and what its timeline's address gives."""
    client.login(username="auditor", password=PASSWORD)

    def read(trial: Trial) -> tuple[str, int, bytes]:
        page = client.get(reverse("boot", args=[trial.boot_id]))
        found = client.get(reverse("timeline", args=[trial.pk]))
        return page.content.decode(), found.status_code, found.content

    return read


@pytest.mark.django_db
def test_a_trial_shows_the_engine_over_time_and_gives_the_file(judged: BriefRevision, pages: Pages) -> None:
    trial = a_trial("tuning")
    page, status, content = pages(trial)
    assert "Engine over time" in page
    assert "At most 7 requests ran at once and at most 2 waited" in page
    assert (status, content) == (200, EvidenceStore(configured.EVIDENCE_DIR).get(trial.summary["timeline"]))


@pytest.mark.django_db
def test_a_held_out_trial_shows_it_after_the_verdict_alone(judged: BriefRevision, pages: Pages) -> None:
    trial = a_trial("held-out")
    assert "At most 7 requests" in pages(trial)[0]
    SignatureRequest.objects.all().delete()
    judged.verdicts.all().delete()
    page, status, content = pages(trial)
    assert ("Engine over time" in page, "At most 7" in page, status) == (False, False, 404)
    assert b"PAR1" not in content


@pytest.mark.django_db
def test_a_timeline_that_is_lost_is_said_to_be(judged: BriefRevision, pages: Pages) -> None:
    trial = a_trial("tuning")
    EvidenceStore(configured.EVIDENCE_DIR).forget(trial.summary["timeline"])
    page, status, _ = pages(trial)
    assert f"can’t be shown: no evidence {trial.summary['timeline']}" in page
    assert status == 404
