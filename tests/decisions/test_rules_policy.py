from dataclasses import replace

import pytest

from decisions.rules.policy import DEFAULT, Policy, in_words, policy_problems, read_policy

STRICT = Policy(quorum=2, cooling_off_hours=24, request_days=7, release_days=30, break_glass_hours=12)


def test_a_policy_is_read_as_it_was_stored_and_later_settings_have_their_defaults() -> None:
    assert read_policy(STRICT.document) == STRICT
    assert read_policy({"quorum": 3, "of_another_time": 1}) == replace(DEFAULT, quorum=3)


def test_the_first_policy_is_the_one_that_the_documents_name() -> None:
    assert DEFAULT.document == {
        "quorum": 1,
        "may_not_sign": ["author", "editor", "run-starter"],
        "second_against_verdict": True,
        "request_days": 14,
        "release_days": 90,
        "cooling_off_hours": 0,
        "break_glass": True,
        "break_glass_hours": 72,
    }
    assert policy_problems(DEFAULT) == policy_problems(STRICT) == {}


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        (replace(DEFAULT, quorum=0), "quorum", "from 1 to 5"),
        (replace(DEFAULT, quorum=6), "quorum", "from 1 to 5"),
        (replace(DEFAULT, request_days=91), "request_days", "from 1 to 90"),
        (replace(DEFAULT, release_days=0), "release_days", "from 1 to 730"),
        (replace(DEFAULT, break_glass_hours=73), "break_glass_hours", "from 1 to 72"),
        (replace(DEFAULT, cooling_off_hours=48, request_days=2), "cooling_off_hours", "shorter than the time until"),
        (replace(DEFAULT, may_not_sign=("author", "boss")), "may_not_sign", "there is no boss"),
    ],
)
def test_a_policy_by_which_nobody_could_decide_is_refused(changed: Policy, field: str, said: str) -> None:
    problems = policy_problems(changed)
    assert list(problems) == [field]
    assert said in problems[field]


def test_its_words_say_every_setting() -> None:
    assert in_words(DEFAULT) == [
        "A release needs that one owner signs.",
        "Never signs: who wrote the revision; who edited it, or whose words it took over; who started its runs; "
        "a superuser.",
        "Rejecting a PASS takes a second owner.",
        "A request for signatures expires after 14 days, a release after 90 days at the latest.",
        "One owner can approve at once: there is no glass to break.",
    ]
    assert in_words(replace(STRICT, may_not_sign=(), second_against_verdict=False)) == [
        "A release needs that 2 owners sign.",
        "Never signs: a superuser.",
        "One owner may reject a PASS alone.",
        "Nobody approves in the first 24 hours.",
        "A request for signatures expires after 7 days, a release after 30 days at the latest.",
        "One owner may break the glass: a release for 12 hours on one signature, which the owners then have to decide "
        "on.",
    ]
    assert in_words(replace(STRICT, break_glass=False))[-1].startswith("The glass can’t be broken")
