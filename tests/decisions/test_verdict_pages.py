"""The pages of each verdict there is, of a brief with a ladder and two looks, and of an old verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from decisions.models import BriefRevision
from decisions.rules.request_counts import NO_TRAFFIC
from decisions.selectors.drafts import judged_before, traffic_told
from decisions.selectors.health import read_basis, read_floor
from decisions.selectors.pictures import drawn_from_evidence
from tests.conftest import PASSWORD
from tests.support.verdicts import Judged, judged_briefs

RESULTS = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")


def forget() -> None:
    for cached in (drawn_from_evidence, read_basis, read_floor):
        cached.cache_clear()
    cache.clear()


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[Judged, Path]:
    return judged_briefs(PASSWORD), module_evidence


@pytest.fixture
def judged(built: tuple[Judged, Path], db: None, settings: Any) -> Iterator[Judged]:
    settings.EVIDENCE_DIR = built[1]
    forget()
    yield built[0]
    forget()


@pytest.fixture
def page(judged: Judged) -> Callable[[str, str], str]:
    client = Client()
    client.force_login(judged.people["owner"])
    return lambda name, tab: opened(client, judged.briefs[name], tab)


def opened(client: Client, revision: BriefRevision, tab: str) -> str:
    response = client.get(reverse(f"brief-{tab}", args=[revision.brief_id, revision.number]))
    assert response.status_code == 200
    return response.content.decode().replace("\u202f", " ").replace("\u00a0", " ")


@pytest.mark.parametrize("result", RESULTS)
def test_the_card_has_the_sentence_the_rules_and_the_digest(
    judged: Judged, page: Callable[[str, str], str], result: str
) -> None:
    verdict = judged.briefs[result].verdicts.get()
    found = page(result, "sign-off")
    plain = re.sub(r"<[^>]+>", "", found).replace("&#x27;", "'")
    assert verdict.result == result
    assert verdict.document["sentence"] in plain
    assert f"rules {verdict.document['code']} · verdict sha256:{verdict.digest[:4]}" in plain
    assert "One look, after all 4 pairs" in plain


@pytest.mark.parametrize(
    ("result", "heading"),
    [
        ("PASS", "Every pair: completion p50, quiet"),
        ("FAIL", "Every pair: first token p90, peak"),
        ("INCONCLUSIVE", "Every pair: completion p50, quiet"),
    ],
)
def test_the_sentence_comes_first_then_its_picture_then_the_table(
    page: Callable[[str, str], str], result: str, heading: str
) -> None:
    found = page(result, "sign-off")
    places = [found.index(one) for one in ('class="say"', f"<h2>{heading}</h2>", "<h2>Outcome and guardrails</h2>")]
    assert places == sorted(places)


def test_an_invalid_verdict_has_no_picture_that_would_prove_it(page: Callable[[str, str], str]) -> None:
    assert "<h2>Every pair:" not in page("INVALID", "sign-off")


def test_an_open_verdict_says_how_many_requests_boots_and_pairs_are_missing(
    judged: Judged, page: Callable[[str, str], str]
) -> None:
    found = page("INCONCLUSIVE", "sign-off")
    row = judged.briefs["INCONCLUSIVE"].verdicts.get().document["guardrails"][0]
    table = found[found.index("Still missing for each limit that is open") :].split("</table>")[0]
    assert f"<td>{row['requests_needed']:,}</td>" in table
    assert "Failed (timed-out not counted), peak" in table
    assert re.search(r"4 pairs can show [\d.]+ %; the brief asks for 5 %: \d+ pairs", found)
    assert "Still missing" not in page("PASS", "sign-off")


@pytest.mark.parametrize("result", RESULTS)
def test_health_has_every_check_with_its_own_numbers(
    judged: Judged, page: Callable[[str, str], str], result: str
) -> None:
    found = page(result, "health")
    checks = judged.briefs[result].verdicts.get().document["validity"]
    assert all(f'id="check-{check["id"]}"' in found for check in checks)
    assert len(re.findall(r'class="check (?:yes|no|open)"', found)) == len(checks)
    boots = {boot["boot"] for pair in judged.briefs[result].verdicts.get().document["pairs"] for boot in pair["boots"]}
    assert all(f"/runs/boots/{boot}/#trial-" in found for boot in boots)
    assert "What these pairs can show" in found


def test_a_failed_check_comes_first_with_the_trial_that_its_sentence_names(
    judged: Judged, page: Callable[[str, str], str]
) -> None:
    found = page("INVALID", "health")
    assert "12 passed, 1 failed of 13 checks." in found
    first = found[found.index("check-neighbours") : found.index("check-issued")]
    assert re.search(r'in held-out <a href="/runs/boots/\d+/#trial-\d+">trial \d+</a>', first)
    assert "Found <b>33.0 %</b> · should be at most 10.0 %" in first


def test_health_without_its_evidence_says_so_and_keeps_the_checks(
    judged: Judged, page: Callable[[str, str], str], settings: Any, tmp_path: Path
) -> None:
    settings.EVIDENCE_DIR = tmp_path / "elsewhere"
    found = page("PASS", "health")
    assert "Where the numbers come from can’t be shown: no evidence" in found
    assert "13 passed of 13 checks." in found


def test_held_out_has_the_pairs_of_each_level_and_each_trial_by_itself(page: Callable[[str, str], str]) -> None:
    found = page("PASS", "held-out")
    for level in ("quiet", "ordinary", "peak"):
        assert f"<h2>Every pair at {level}</h2>" in found
        assert f"By class at {level}, completion p50" in found
    assert "minimum improvement 0.95×" in found
    assert "margin 1.15×" in found
    assert "For display, never judged: intervals within one trial, by moving blocks" in found


def test_a_ladder_and_its_looks_are_told_before_and_after(page: Callable[[str, str], str], judged: Judged) -> None:
    revision = judged.briefs["ladder"]
    found = page("ladder", "sign-off")
    assert "replicas at peak" in found
    assert "the ladder’s top: censored" in found
    assert "Look 2 of 2, after 6 pairs" in found
    assert "goes on: INCONCLUSIVE" in found
    # The last look has 4 % of alpha left: its intervals are wider than the brief's confidence alone would make them.
    assert "difference,<br>92 % interval" in found
    client = Client()
    client.force_login(judged.people["owner"])
    brief = client.get(reverse("brief", args=[revision.brief_id, revision.number])).content.decode()
    assert "<h2>Capacity ladder</h2>" in brief
    assert "after 4 at α" in brief


@pytest.mark.parametrize("tab", ["sign-off", "held-out", "health", "tuning"])
def test_a_verdict_of_the_first_rules_is_still_shown(page: Callable[[str, str], str], tab: str) -> None:
    found = page("first", tab)
    assert "Each trial by itself" not in found
    assert "<h2>Capacity</h2>" not in found
    if tab == "sign-off":
        assert "draftproof.verdict/1" in found
        assert "One look, after all 4 pairs" in found


def test_health_warns_of_a_load_that_cannot_tell_the_arms_apart(
    page: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "note-wait" not in page("FAIL", "health")
    monkeypatch.setattr("decisions.pages.health.saturated_cells", lambda _: ["At peak neither arm carries the load."])
    assert "At peak neither arm carries the load." in page("FAIL", "health")


def test_a_draft_knows_what_its_earlier_revision_found_and_what_its_traffic_tells(judged: Judged) -> None:
    first = judged.briefs["PASS"]
    draft = BriefRevision.objects.create(brief=first.brief, number=2, source=first.source, author=first.author)
    found = judged_before(draft)
    assert found is not None
    assert (found[0].digest, found[1]["verdict"]) == (first.digest, "PASS")
    assert judged_before(first) is None
    told = traffic_told(first.traffic_set)
    assert sum(told.shares.values()) == pytest.approx(1)
    assert told.rate is not None
    assert 0.01 < told.rate < 1
    assert traffic_told(None) == NO_TRAFFIC
