"""The tuning tab: what a race looks like while it runs and when it is over, and what is missing is said to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from decisions.models import Account, BriefRevision, Route, Service
from decisions.rules.brief import Cell
from decisions.rules.measures import Measure
from decisions.rules.race import Aim
from decisions.rules.speed_up import NONE, Reading, SpeedUp, over_its_limit, speed_ups
from decisions.selectors import tuning, tuning_trials
from decisions.selectors.pictures import heat_map
from decisions.selectors.progress import campaigns_of
from decisions.selectors.tuning_race import shrinkage
from decisions.selectors.tuning_rounds import NOT_TOLD, over_trials, rounds_row
from decisions.services.create_brief import create_brief
from loadtests.models import Boot
from loadtests.services.claim_boot import claim_boot
from loadtests.services.record_engine import record_engine_group
from loadtests.tuning.economics import Curve, RoundEconomics
from tests.conftest import PASSWORD
from tests.support.house import CAST, person
from tests.support.play import play, started_brief
from tests.support.raced import LEVELS, Clock, play_until, racing_brief, run_simulated

TIME, SHARE = Measure("completion_quantile", 0.5), Measure("attainment")


@dataclass(frozen=True)
class Raced:
    people: dict[str, Account]
    over: BriefRevision
    running: BriefRevision
    silent: BriefRevision
    judged: BriefRevision


def nominated(revision: BriefRevision) -> bool:
    return revision.nomination is not None


def build(password: str) -> Raced:
    """A race that is over, one in its first round, a remote engine that tells nothing at one level, and a brief with
    its verdict."""
    people = {name: person(name, password, groups) for name, groups in CAST.items()}
    engineer = people["engineer"]
    service = Service.objects.create(slug="support-assistant", name="Support assistant", target="t", pool="cpu")
    service.owners.add(people["owner"])
    route = Route.objects.create(service=service, slug="chat", name="Chat")
    judged = started_brief(route, engineer)
    play(judged, spread=0.002)
    over = racing_brief(route, engineer, "A race that is over")
    play_until(over, nominated)
    silent = racing_brief(route, engineer, "A remote engine", **ONE_LEVEL, **NO_RACE)
    play_until(silent, nominated, tells=False)
    running = racing_brief(route, engineer, "A race that runs", **ONE_LEVEL)
    play_until(running, lambda one: finished(one) >= 2)
    start_a_boot()
    return Raced(people, over, running, silent, judged)


ONE_LEVEL: dict[str, Any] = {"levels": [LEVELS[0]], "peak": "quiet", "guardrails": []}
NO_RACE: dict[str, Any] = {
    "search": [],
    "tuning": None,
    "candidates": [{"name": "ngram-4", "speculative": {"method": "ngram", "num_speculative_tokens": 4}}],
}


def finished(revision: BriefRevision) -> int:
    boots = Boot.objects.filter(campaign__brief_campaign__revision=revision, campaign__purpose="tuning")
    return boots.filter(state=Boot.State.FINISHED).count()


def start_a_boot() -> Boot:
    boot = claim_boot(pool="cpu", worker="player", host="host")
    assert boot is not None
    record_engine_group(boot=boot, group=0, leader_started=0, server=f"server-{boot.pk}")
    return boot


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> Iterator[tuple[Raced, Path]]:
    yield build(PASSWORD), module_evidence
    tuning_trials.kept.clear()


@pytest.fixture
def raced(built: tuple[Raced, Path], db: None, settings: Any) -> Raced:
    settings.EVIDENCE_DIR = built[1]
    return built[0]


@pytest.fixture
def engineer_client(raced: Raced) -> Client:
    client = Client()
    client.force_login(raced.people["engineer"])
    return client


@pytest.fixture
def page(engineer_client: Client) -> Callable[[BriefRevision], str]:
    return lambda revision: plain(engineer_client.get(address(revision)))


def address(revision: BriefRevision, name: str = "brief-tuning") -> str:
    return reverse(name, args=[revision.brief_id, revision.number])


def plain(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return str(response.content.decode()).replace("\u202f", " ").replace("\u00a0", " ")


def section(page: str, heading: str) -> str:
    found = [one for one in page.split("<section") if f"<h2>{heading}" in one]
    assert len(found) == 1, heading
    return found[0]


def table_rows(part: str) -> list[list[str]]:
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", part, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<[^>]*>|\s+", " ", one).strip() for one in row] for row in cells]


class TestARaceThatIsOver:
    def test_says_who_was_nominated_why_others_fell_and_how_it_ended(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        race = section(page(raced.over), "The race")
        nomination = raced.over.nomination or {}
        assert nomination["race"]["reason"] in race.replace("&#x27;", "'")
        assert "of 60 engine minutes spent" in race
        standings = table_rows(race.split("in the race?")[1])
        names = {row[0].split(" ")[0]: row[1] for row in standings if len(row) == 7}
        assert set(names) == {one.name for one in raced.over.document.all_candidates}
        assert names[raced.over.nominee] == "nominated"
        assert "out" in names.values()
        assert "no evidence for a release" in race

    def test_the_heat_map_has_draft_lengths_a_schedule_and_the_reference(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        part = section(page(raced.over), "Draft length × load")
        rows = [row for row in table_rows(part) if len(row) == 4]
        names = [row[0] for row in rows]
        assert names[:2] == ["configuration", "no speculation"]
        # The schedule stands behind every draft length, and what nobody measured is said.
        assert names[-1] == "ngram-s1x8-3x2-6x0 (ngram K=8 from 1, 2 from 3, 0 from 6)"
        assert all(re.match(r"1\.00× \(\d+ boots, ", cell) for cell in rows[1][1:])
        assert {"not measured"} >= {cell for row in rows[2:] for cell in row[1:] if "boot" not in cell}

    def test_curves_name_the_crossover_or_say_that_there_is_none(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        part = section(page(raced.over), "SLO goodput against the rate")
        assert re.search(r"carries more|no crossover in the tested range|only one rate", part)

    def test_rounds_tell_time_acceptance_waste_and_memory(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        rows = [row for row in table_rows(section(page(raced.over), "What rounds cost and bring")) if len(row) == 11]
        by_name = {(row[0], row[1]): row for row in rows}
        reference = by_name["no speculation", "quiet"]
        assert reference[3] == "1.00"
        assert reference[5:10] == ["none", "none", "none", "none", "reference"]
        lost = {row[0].split("-")[0]: row[9] for row in rows[1:] if row[9] != "reference"}
        assert lost == {"ngram": "0 tokens", "block": "2,000 tokens"}
        assert all(row[4].endswith(" ms") for row in rows[1:])

    def test_the_running_batch_stands_beside_what_clients_have_open(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        assert "A schedule goes by the running batch" in section(page(raced.over), "The running batch")

    def test_the_model_comes_by_itself_and_is_held_against_other_boots(
        self, raced: Raced, page: Callable[[BriefRevision], str], engineer_client: Client
    ) -> None:
        assert 'hx-get="?model=1" hx-trigger="load"' in section(page(raced.over), "The cost model")
        asked = plain(engineer_client.get(address(raced.over), {"model": "1"}))
        part = section(asked, "The cost model")
        assert re.search(r"from other boots alone is off by [\d.]+ % in the median of \d+ trials", part)
        assert "hx-get" not in part

    def test_each_candidate_is_the_baseline_with_another_speculative_setting(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        part = section(page(raced.over), "What each candidate changes")
        assert "speculative.method = ngram" in part
        assert "speculative.num_speculative_tokens_per_batch_size" in part
        assert {key.split(".")[0] for key in re.findall(r'<li class="plus">([\w.]+) =', part)} == {"speculative"}

    def test_no_figure_of_held_out_traffic_is_there(self, raced: Raced, page: Callable[[BriefRevision], str]) -> None:
        assert "From tuning to held-out" not in page(raced.over)

    def test_it_does_not_ask_again(
        self, raced: Raced, page: Callable[[BriefRevision], str], engineer_client: Client
    ) -> None:
        assert "tuning/race/" not in page(raced.over)
        assert engineer_client.get(address(raced.over, "brief-tuning-race"))["HX-Refresh"] == "true"


class TestARaceThatRuns:
    def test_brings_itself_up_to_date_and_says_that_it_runs(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(raced.running)
        assert 'hx-trigger="every 5s"' in section(found, "The race")
        assert "The race is on." in found
        assert "Nobody is nominated before the race has ended" in found

    def test_sends_nothing_where_nothing_has_changed(self, raced: Raced, engineer_client: Client) -> None:
        live = address(raced.running, "brief-tuning-race")
        shown = re.findall(r"shown=(\w+)", plain(engineer_client.get(live)))[0]
        same = engineer_client.get(live, {"shown": shown, "finished": "2"})
        assert (same.status_code, same.content) == (204, b"")
        assert engineer_client.get(live, {"shown": "another"}).status_code == 200

    def test_says_when_its_figures_have_news(self, raced: Raced, engineer_client: Client) -> None:
        live = address(raced.running, "brief-tuning-race")
        assert "more boot" not in plain(engineer_client.get(live, {"finished": "2"}))
        running = Boot.objects.get(campaign__brief_campaign__revision=raced.running, state=Boot.State.RUNNING)
        run_simulated(running, Clock(hours_ago=1))
        assert "1 more boot has finished: show the figures with it" in plain(
            engineer_client.get(live, {"finished": "2"})
        )

    def test_draws_what_is_there_so_far(self, raced: Raced, page: Callable[[BriefRevision], str]) -> None:
        part = section(page(raced.running), "Draft length × load")
        assert "Hatched cells are not measured." in part


def test_before_the_first_boot_without_speculation_there_is_nothing_to_compare_with(
    raced: Raced, monkeypatch: Any
) -> None:
    read = tuning_trials.tuning_trials
    monkeypatch.setattr(tuning, "tuning_trials", lambda *args: [one for one in read(*args) if one.runner != NONE])
    campaigns = [one for one in campaigns_of(raced.over) if one.purpose == "tuning"]
    found = tuning.tuning_pictures(raced.over.document, campaigns, model=True)
    assert found.notes[0].startswith("No boot without speculation has finished yet")
    assert found.heat_maps[0].chart.caption == "Nothing has been measured beside no speculation yet."
    assert (found.curves, found.prediction) == (None, None)
    assert found.rounds


class TestAnEngineThatTellsNothing:
    def test_rounds_are_missing_and_never_zero(self, raced: Raced, page: Callable[[BriefRevision], str]) -> None:
        found = page(raced.silent)
        rows = table_rows(section(found, "What rounds cost and bring"))
        candidate = next(row for row in rows if row[0] == "ngram-4")
        # Once for all figures of its rounds, and once for the memory.
        assert candidate[2:4] == [NOT_TOLD, NOT_TOLD]
        assert re.fullmatch(r"0 of \d+", candidate[4])
        assert "tells nothing of the candidates’ rounds" in found
        assert "The cost model" not in found
        assert "Acceptance by position" not in found

    def test_one_level_shows_no_crossover_and_says_why(
        self, raced: Raced, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(raced.silent)
        assert "only one rate was measured beside no speculation" in found
        assert "The brief has one load level" in found
        # Without a race there are no rounds and no standings.
        assert "What ran when" in found
        assert "in the race?" not in found
        assert "Every candidate in every cell that counts" in found


class TestTheVerdict:
    def test_brings_what_was_left_of_the_score(self, raced: Raced, page: Callable[[BriefRevision], str]) -> None:
        part = section(page(raced.judged), "From tuning to held-out")
        assert re.search(r"Quiet: −\d+\.\d % in tuning, −\d+\.\d % on held-out traffic, \d+ % of it is left\.", part)
        assert "biased by it" in part

    def test_before_it_nothing_of_held_out_traffic_is_computed(self, raced: Raced) -> None:
        assert shrinkage(raced.judged, None) is None


def test_a_draft_has_nothing_to_show(raced: Raced, engineer_client: Client) -> None:
    brief, engineer = raced.over.brief, raced.people["engineer"]
    draft = create_brief(route=brief.route, source=raced.over.source, by=engineer)
    found = plain(engineer_client.get(address(draft)))
    assert "Nothing has been measured" in found
    assert "data-chart" not in found


def test_evidence_that_is_gone_is_said_and_the_race_stays(
    raced: Raced, page: Callable[[BriefRevision], str], settings: Any, tmp_path: Path
) -> None:
    settings.EVIDENCE_DIR = tmp_path / "elsewhere"
    tuning_trials.kept.clear()
    found = page(raced.over)
    assert "The pictures can’t be drawn: no evidence" in found
    assert "of 60 engine minutes spent" in found
    assert "Draft length × load" not in found


def test_the_tab_keeps_its_query_budget_the_first_time_and_later(
    raced: Raced, engineer_client: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(2):
        with django_assert_max_num_queries(32):
            engineer_client.get(address(raced.over))


def test_the_race_is_for_people_with_a_role(raced: Raced, client: Client) -> None:
    live = address(raced.running, "brief-tuning-race")
    assert client.get(live)["Location"].startswith("/sign-in/")
    client.force_login(raced.people["stranger"])
    assert client.get(live).status_code == 403


@pytest.mark.parametrize("which", ["over", "running", "silent", "judged"])
def test_every_table_of_figures_can_be_reached_by_the_keyboard(
    raced: Raced, page: Callable[[BriefRevision], str], which: str
) -> None:
    found = page(getattr(raced, which))
    assert re.findall(r'<div class="scroll[^"]*"(?! tabindex)', found) == []
    assert not re.search(r"\sstyle=|<style", found)


def approximately(value: float) -> Any:
    return pytest.approx(value)


class TestSpeedUps:
    def test_a_boot_is_compared_with_the_baseline_boots_of_its_own_round(self) -> None:
        readings = [
            Reading(1, NONE, 2.0),
            Reading(1, "a", 1.0),
            Reading(2, NONE, 4.0),
            Reading(2, NONE, 9.0),
            Reading(2, "a", 6.0),
        ]
        found = speed_ups(TIME, readings)
        # Twice as fast in the first round, as fast as the middle of the second, 6 s: √2 over both.
        assert found["a"] == SpeedUp(approximately(2**0.5), 2, approximately(1.0), approximately(2.0))
        assert found[NONE] == SpeedUp(approximately(1.0), 3, approximately(2 / 3), approximately(1.5))

    def test_a_share_is_a_ratio_of_shares(self) -> None:
        found = speed_ups(SHARE, [Reading(1, NONE, 0.5), Reading(1, "a", 0.75), Reading(1, "b", 0.0)])
        assert (found["a"].mean, found["b"].mean) == (approximately(1.5), 0.0)

    def test_what_never_got_there_and_what_has_no_baseline(self) -> None:
        endless = float("inf")
        found = speed_ups(TIME, [Reading(1, NONE, 2.0), Reading(1, "a", endless), Reading(2, "b", 1.0)])
        assert found["a"].mean == 0.0
        assert found["b"] == SpeedUp(None, 1, None, None)
        assert speed_ups(TIME, [Reading(1, NONE, endless), Reading(1, "a", 1.0)])["a"].mean == endless
        assert speed_ups(TIME, [Reading(1, NONE, endless), Reading(1, "a", endless)])["a"].mean is None

    def test_a_limit_is_broken_on_the_mean_of_a_runners_boots(self) -> None:
        relative = Aim("late", TIME, Cell(level="peak"), "hold", limit=-0.1)
        readings = [Reading(1, NONE, 1.0), Reading(1, "a", 1.05), Reading(1, "b", 1.3)]
        assert [over_its_limit(relative, readings, one) for one in ("a", "b", "c")] == [False, True, False]
        absolute = Aim("slow", TIME, Cell(level="peak"), "hold", absolute=1.2)
        assert [over_its_limit(absolute, readings[1:], one) for one in ("a", "b")] == [False, True]


def economics(**changes: Any) -> RoundEconomics:
    fields: dict[str, Any] = dict.fromkeys(RoundEconomics.__dataclass_fields__) | {
        "requests": 4,
        "told": 0,
        "by_class": {},
        "mix": {},
    }
    return RoundEconomics(**(fields | changes))


class TestRounds:
    def test_means_are_weighted_by_what_they_are_over(self) -> None:
        one = economics(told=4, rounds=100, round_s=0.02, tokens_per_round=2.0, draft_tokens=400, accepted_tokens=100)
        other = economics(told=3, rounds=300, round_s=0.04, tokens_per_round=1.0, draft_tokens=100, accepted_tokens=100)
        found = over_trials([one, other, economics()])
        assert found is not None
        assert (found.rounds, found.told, found.requests) == (400, 7, 12)
        assert (found.round_s, found.tokens_per_round) == (approximately(0.035), approximately(1.25))
        assert found.rejected_share == approximately(0.6)

    def test_curves_are_weighted_by_drafting_rounds(self) -> None:
        trials = [economics(acceptance=Curve(100, (0.5, 0.25))), economics(acceptance=Curve(300, (0.9,)))]
        found = over_trials(trials)
        assert found is not None
        assert found.acceptance == Curve(400, (approximately(0.8), approximately(0.0625)))

    def test_what_no_trial_tells_is_not_told(self) -> None:
        found = over_trials([economics()])
        assert found is not None
        row = rounds_row("ngram K=2", "peak", found, reference=False)
        figures = {row.rounds, row.tokens_per_round, row.round_time, row.accepted, row.rejected, row.kv_lost}
        assert figures | {row.checked, row.drafted} == {NOT_TOLD}
        assert row.untold
        assert row.told == "0 of 4"
        assert over_trials([]) is None


def test_the_rows_of_a_nomination_make_a_heat_map_without_evidence() -> None:
    def row(name: str, label: str, level: str, improvement: float | None) -> dict[str, Any]:
        return {
            "candidate": name,
            "label": label,
            "draft_length": 4,
            "level": level,
            "class": "all",
            "measure": "Completion p50",
            "unit": "s",
            "scale": "ratio",
            "boots": 0 if improvement is None else 1,
            "improvement": improvement,
        }

    rows = [row("ngram-s1x4-5x0", "ngram K=4", "quiet", None), row("ngram-k4", "ngram K=4", "quiet", 0.6931472)]
    chart = heat_map(rows, ["quiet", "peak"])
    assert chart is not None
    # The draft length comes first, and only levels that count are shown.
    assert chart.table == (
        ("configuration", "quiet"),
        (("ngram-k4", "2.00× (1 boot)"), ("ngram-s1x4-5x0", "not measured")),
    )
    assert heat_map([], ["quiet"]) is None
