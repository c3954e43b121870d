"""What is told, to whom: the table, and the rules around it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Any

import pytest

from decisions.rules.notices import (
    FACTS,
    HAPPENINGS,
    NOTICES,
    About,
    expires_soon_from,
    notice_of,
    sentence_of,
    told,
    wants_mail,
)

ABOUT = About(
    actor="owner",
    brief="“Prompt lookup for chat”, revision 2",
    route="chat of Support assistant",
    stage="held-out",
    endpoint="Webhook “pipeline”",
    owners=frozenset({"owner", "second_owner"}),
    hands=frozenset({"engineer"}),
    operators=frozenset({"operator"}),
    auditors=frozenset({"auditor"}),
)
DETAILS: dict[str, Any] = {
    "verdict": "PASS",
    "signature": 1,
    "of": 2,
    "what": "mailed",
    "expires": "2026-03-01T14:05:00+00:00",
    "reason": "a reason that stays behind the link",
    "text": "a comment",
}


@pytest.mark.parametrize(
    ("kind", "glass", "people", "said"),
    [
        (
            "brief-judge",
            False,
            {"second_owner", "engineer"},
            "“Prompt lookup for chat”, revision 2 waits for its owners’ signatures: PASS.",
        ),
        (
            "brief-commented",
            False,
            {"second_owner", "engineer"},
            "owner commented on “Prompt lookup for chat”, revision 2.",
        ),
        (
            "brief-approve-in-part",
            False,
            {"second_owner", "engineer"},
            "owner approved “Prompt lookup for chat”, revision 2, as signature 1 of 2: another owner has to sign.",
        ),
        (
            "release-in-force",
            False,
            {"operator"},
            "A release is in force on chat of Support assistant until 2026-03-01 14:05 UTC.",
        ),
        (
            "release-revoked",
            False,
            {"second_owner", "engineer", "operator"},
            "owner revoked the release on chat of Support assistant: the baseline answers.",
        ),
        (
            "release-expires-soon",
            True,
            {"second_owner", "engineer", "operator"},
            "The release by a broken glass on chat of Support assistant ends at 2026-03-01 14:05 UTC: the owners have "
            "to decide.",
        ),
        (
            "brief-halted",
            False,
            {"engineer", "operator"},
            "The stages of “Prompt lookup for chat”, revision 2 stopped: somebody has to look.",
        ),
        (
            "campaign-done",
            False,
            {"engineer"},
            "A held-out campaign of “Prompt lookup for chat”, revision 2 has finished.",
        ),
        (
            "checkpoint-failed",
            False,
            {"operator", "auditor"},
            "A checkpoint of the history could not be mailed.",
        ),
        (
            "password-reset",
            False,
            {"operator", "auditor"},
            "owner set somebody else’s password anew: they can’t sign for a day.",
        ),
        (
            "endpoint-given-up",
            False,
            {"second_owner", "operator"},
            "Webhook “pipeline” was disabled: messages to it failed again and again.",
        ),
    ],
)
def test_what_is_told_to_whom(kind: str, glass: bool, people: set[str], said: str) -> None:
    details = DETAILS | {"glass_broken": glass}
    notice = notice_of(kind, details)
    assert notice is not None
    assert set(told(notice, ABOUT)) == people
    assert sentence_of(notice, ABOUT, details) == said


@pytest.mark.parametrize("kind", NOTICES)
def test_every_notice_is_one_whole_sentence_of_a_kind_that_people_switch(kind: str) -> None:
    notice = NOTICES[kind]
    said = sentence_of(notice, ABOUT, DETAILS)
    assert said.endswith(".")
    assert "  " not in said
    assert "reason that stays" not in said
    assert notice.happening in HAPPENINGS
    assert notice.tells
    fields = {name for _, name, _, _ in Formatter().parse(notice.sentence) if name}
    assert fields <= {"actor", "brief", "route", "stage", "endpoint", "expires", *FACTS}


def test_everything_that_people_switch_happens() -> None:
    assert {one.happening for one in NOTICES.values()} == set(HAPPENINGS)


@pytest.mark.parametrize("kind", ["brief-edited", "brief-look", "token-made", "sign-refused", ""])
def test_other_events_are_told_nobody(kind: str) -> None:
    assert notice_of(kind, {}) is None


def test_that_a_broken_glass_released_is_told_once() -> None:
    assert notice_of("release-in-force", {"glass_broken": True}) is None
    assert notice_of("brief-break-glass", {}) is not None


def test_owners_hear_of_no_draft() -> None:
    draft = About(actor="engineer", owners=ABOUT.owners, hands=frozenset({"engineer", "editor"}), judged=False)
    assert told(NOTICES["brief-withdraw"], draft) == {"editor"}


def test_a_title_breaks_no_line_of_a_mail() -> None:
    about = About(actor="owner", brief="“Chat\r\nBcc: everybody@house.example”, revision 1")
    assert sentence_of(NOTICES["brief-approve"], about, {}) == (
        "owner approved “Chat Bcc: everybody@house.example”, revision 1."
    )


def test_a_switch_counts_and_else_what_is_at_first() -> None:
    assert [wants_mail("asked", None), wants_mail("stage", None)] == [True, False]
    assert [wants_mail("asked", False), wants_mail("stage", True)] == [False, True]


@pytest.mark.parametrize(
    ("lasts", "before"), [(timedelta(days=90), timedelta(days=14)), (timedelta(hours=72), timedelta(hours=24))]
)
def test_soon_is_two_weeks_or_the_last_third(lasts: timedelta, before: timedelta) -> None:
    released = datetime(2026, 3, 1, tzinfo=UTC)
    assert expires_soon_from(released, released + lasts) == released + lasts - before
