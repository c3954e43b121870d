"""Whether a set may carry a decision: what rules it out, and what a decision has to be read with."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from decisions.charts.classes import classes_of_both_sides
from decisions.pages.traffic_block import with_traffic
from decisions.pages.traffic_words import burstiness
from decisions.rules.may_carry import Standing, standing

TEXT = {"rows": 1000, "acceptance": {"usable": True, "why": None}, "skipped": {}}
LENGTHS = TEXT | {"acceptance": {"usable": False, "why": "lengths"}}
TIMED = {"count": 1000, "timed": True, "duration_s": 1000.0}


def judged(**known: Any) -> Standing:
    every: dict[str, Any] = {"imported": TEXT, "split": {}, "statistics": TIMED, "text_deleted": False}
    return standing(**(every | known))


def test_recorded_text_with_times_may() -> None:
    assert judged().sentence == "May carry a decision: yes."


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"imported": LENGTHS}, "no, because it holds lengths without text."),
        ({"text_deleted": True}, "no, because its text was deleted."),
        (
            {"imported": TEXT | {"join": {"rows": 1000, "texts": 21, "most_uses_of_one": 90}}},
            "yes, but its 1,000 requests carry 21 different texts.",
        ),
        (
            {"imported": TEXT | {"skipped": {"longer than the context": 9000}}},
            "yes, but 9,000 of 10,000 requests (90 %) were left out.",
        ),
        (
            {"split": {"foreign_share": 0.41}},
            "yes, but 41 % of its requests arrive in another part’s time.",
        ),
        (
            {
                "statistics": TIMED
                | {"comparison": {"resembles": False, "measures": [{"name": "class", "differs": True}]}}
            },
            "yes, but held-out doesn’t resemble tuning in class.",
        ),
        (
            {"statistics": TIMED | {"comparison": {"resembles": None, "dealt": "time blocks", "measures": []}}},
            "yes, but its parts have too few time blocks to tell whether held-out resembles tuning.",
        ),
        (
            {"split": {"shares": {"tuning": 0.35}, "achieved": {"tuning": 0.5}}},
            "yes, but tuning has 50 % of the requests, not 35 %.",
        ),
        (
            {"statistics": TIMED | {"timed": False}},
            "yes, but its times of arrival were never recorded.",
        ),
        (
            {"imported": TEXT | {"output_limit": {"default": 1024, "rows": 1000}}},
            "yes, but every output limit is the default of 1,024 tokens.",
        ),
        (
            {"read_for": ["search/chat", "search/chat"]},
            "yes, but its held-out part was already read for search/chat.",
        ),
    ],
)
def test_one_sentence_says_why(known: dict[str, Any], said: str) -> None:
    assert judged(**known).sentence == f"May carry a decision: {said}"


def test_several_cautions_are_counted_and_stand_below() -> None:
    found = judged(split={"foreign_share": 0.41}, statistics=TIMED | {"timed": False}, read_for=["search/chat"])
    assert found.sentence == "May carry a decision: yes, with 3 cautions."
    assert [one.clause for one in found.reasons] == [
        "41 % of its requests arrive in another part’s time",
        "its times of arrival were never recorded",
        "its held-out part was already read for search/chat",
    ]


def test_what_rules_a_set_out_is_said_alone() -> None:
    found = judged(imported=LENGTHS, split={"foreign_share": 0.9})
    assert [one.clause for one in found.reasons] == ["it holds lengths without text"]


def test_a_caution_of_the_import_is_never_lost() -> None:
    cautious = TEXT | {"acceptance": {"usable": True, "caution": "Half of it is odd."}}
    assert [one.cost for one in judged(imported=cautious).reasons] == ["Half of it is odd."]


def test_a_set_imported_before_there_was_so_much_to_say_is_judged_by_what_is_known() -> None:
    assert standing(imported={}, split={}, statistics={}, text_deleted=False).word == "yes"


@pytest.mark.parametrize(
    ("statistics", "said"),
    [
        ({"dispersion_10s": 0.95, "dispersion_1s": 1.1}, "as even as chance makes it"),
        ({"dispersion_10s": 0.95, "dispersion_1s": 3.1}, "bursty (index of dispersion 3.1 in 1 s)"),
        ({"dispersion_10s": 0.95, "together": 0.52}, "in batches: 52 % arrive together with the one before"),
        ({"dispersion_10s": 0.2, "dispersion_1s": 0.9}, "steadier than chance"),
        ({"dispersion_10s": 0.95, "count": 29}, "too few to tell"),
        ({"dispersion_10s": 0.95, "duration_s": 290.0}, "too few to tell"),
    ],
)
def test_a_set_is_called_even_only_where_every_window_says_so(statistics: dict[str, Any], said: str) -> None:
    assert burstiness(TIMED | statistics, {}).startswith(said)


def test_batches_of_a_set_from_before_they_were_counted_show_in_its_repeated_times() -> None:
    said = burstiness(TIMED | {"dispersion_10s": 0.95}, {"times": {"repeated": 500}})
    assert said == "in batches: 50 % arrive together with the one before"


FIELDS = {"name": "Night: two", "set": "a" * 64, "tuning": "b" * 64, "held_out": "c" * 64}


@pytest.mark.parametrize(
    "source",
    [
        "title: x\ntraffic:\n    name: old\n    set: 1\n    tuning: 2\n    held_out: 3\n\n# Kept\nlevels: []\n",
        '{"title": "x", "traffic": {"name": "old", "set": "1"}, "levels": []}',
        "title: x\ntraffic: { name: old }   # in one line\nlevels: []\n",
    ],
)
def test_a_brief_gets_another_traffic_and_keeps_its_other_words(source: str) -> None:
    changed = with_traffic(source, FIELDS)
    assert changed is not None
    assert yaml.safe_load(changed) == {"title": "x", "traffic": FIELDS, "levels": []}
    assert changed.count("#") == source.count("#")


@pytest.mark.parametrize("source", ["", "[", "traffic: 1", "- traffic", "? [a]\n: b", "title: x"])
def test_words_that_name_no_traffic_are_not_guessed_at(source: str) -> None:
    assert with_traffic(source, FIELDS) is None


def test_a_chart_of_many_classes_takes_one_pass() -> None:
    class Counted(dict[str, int]):
        passes = 0

        def values(self) -> Any:
            Counted.passes += 1
            return super().values()

    many = Counted({f"user {place}": 1 for place in range(20_000)})
    assert len(classes_of_both_sides(tuning=many, held_out=many).table.rows) == 12
    assert Counted.passes <= 4


@pytest.mark.parametrize(
    ("timed", "note"),
    [(True, "A replay plays the other 10 % of the load."), (False, "Levels draw from the other 10 %.")],
)
def test_what_is_left_is_only_replayed_where_it_has_times(timed: bool, note: str) -> None:
    kept = TEXT | {"skipped": {"longer than the context": 9000}}
    assert note in [one.cost for one in judged(imported=kept, statistics=TIMED | {"timed": timed}).cautions]
