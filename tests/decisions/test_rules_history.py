"""What of the history is asked for, what its lines are as a file, and who could have signed by it."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions.rules.could_sign import Fact, Known, Now, account_then, who_could_sign
from decisions.rules.exports import FORMULA, cells_in, csv_line, safe_cell
from decisions.rules.history import STATE_KINDS, Filter, filter_problems, read_filter
from decisions.rules.policy import DEFAULT
from decisions.rules.states import STATES

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
REVISION, SERVICE = "brief 4 revision 2", "support-assistant"


def test_a_filter_is_its_address_and_back() -> None:
    asked = read_filter({"actor": " owner ", "until": "2026-11-30", "page": "3", "kind": ""})
    assert asked == Filter(actor="owner", until="2026-11-30")
    assert asked.asked == {"actor": "owner", "until": "2026-11-30"}
    assert read_filter(asked.asked) == asked


def test_a_day_is_a_whole_one_of_utc() -> None:
    asked = Filter(since="2026-11-29", until="2026-11-30")
    assert asked.first_moment == datetime(2026, 11, 29, tzinfo=UTC)
    assert asked.end_moment == datetime(2026, 12, 1, tzinfo=UTC)
    assert filter_problems(asked) == {}


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        (Filter(since="yesterday"), "since", "yesterday is no day: write it as 2026-11-30"),
        (Filter(until="9999-12-31"), "until", "is no day"),
        (Filter(until="20261130"), "until", "20261130 is no day"),
        (Filter(since="2026-W48-1"), "since", "2026-W48-1 is no day"),
        (Filter(subject="x" * 60_000), "subject", "200 characters at most"),
        (Filter(until="0001-01-01"), "until", "is no day"),
        (Filter(since="2026-11-30", until="2026-11-29"), "until", "2026-11-29 is before 2026-11-30"),
        (Filter(state="aproved"), "state", "there is no state aproved"),
    ],
)
def test_what_isn_t_understood_is_said(asked: Filter, field: str, said: str) -> None:
    assert said in filter_problems(asked)[field]


def test_a_state_stands_for_the_acts_that_lead_to_it() -> None:
    assert set(STATES) <= set(STATE_KINDS)
    assert Filter(state="approved").kinds == ("brief-approve",)
    assert Filter(state="in-force").kinds == ("release-in-force",)
    assert Filter(state="in-review", kind="brief-judge").kinds == ("brief-judge",)
    assert Filter(state="approved", kind="brief-judge").kinds == ()
    assert Filter(kind="boot-lost").kinds == ("boot-lost",)
    assert Filter().kinds is None


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(st.lists(CELL | st.builds("{}{}".format, st.sampled_from([*FORMULA, "'"]), CELL), min_size=2, max_size=6))
def test_no_cell_is_a_formula_and_each_comes_back(cells: list[str]) -> None:
    (row,) = csv.reader(io.StringIO(csv_line(cells), newline=""))
    assert not any(cell.startswith(FORMULA) for cell in row)
    assert cells_in(row) == cells


def test_an_apostrophe_tells_text_from_formulas() -> None:
    assert safe_cell("=HYPERLINK(A1)") == "'=HYPERLINK(A1)"
    assert safe_cell("'quoted") == "''quoted"
    assert safe_cell("brief 1 revision 1") == "brief 1 revision 1"
    assert safe_cell('{"actor":"=1"}') == '{"actor":"=1"}'


def fact(sequence: int, kind: str, actor: str = "", subject: str = REVISION, /, **details: Any) -> Fact:
    return Fact(sequence, NOON + timedelta(minutes=sequence), kind, actor, subject, details)


def now(*groups: str, services: tuple[str, ...] = (SERVICE,), active: bool = True, superuser: bool = False) -> Now:
    return Now("ada", frozenset(groups), frozenset(services), active, superuser)


OWNING = {"roles": ["owner"], "services": [SERVICE]}
OF_THE_FIRST: dict[str, Any] = {"from": 1}
NOTHING: dict[str, list[str]] = {"roles": [], "services": []}


@pytest.mark.parametrize(
    ("facts", "groups", "services", "known"),
    [
        # The last event that says so counts.
        (
            [fact(3, "account-made", roles=["engineer"]), fact(8, "roles-set", before=NOTHING, after=OWNING)],
            {"owner"},
            {SERVICE},
            Known(by=8),
        ),
        # What comes later tells how it was until then.
        ([fact(20, "roles-set", before=NOTHING, after=OWNING)], set(), set(), Known(not_before=20)),
        ([fact(20, "roles-set", before=OWNING, after=NOTHING)], {"owner"}, {SERVICE}, Known(not_before=20)),
        # Before it was made nobody had any role.
        ([fact(20, "account-made", roles=["owner"])], set(), set(), Known(not_before=20)),
        # The history is silent.
        ([], {"owner"}, {SERVICE}, Known()),
        ([fact(5, "account-reactivated")], {"owner"}, {SERVICE}, Known()),
    ],
)
def test_the_roles_of_then(facts: list[Fact], groups: set[str], services: set[str], known: Known) -> None:
    then = account_then(now("owner"), facts, 10)
    assert (set(then.person.groups), set(then.services), then.roles_known) == (groups, services, known)


@pytest.mark.parametrize(
    ("facts", "active", "known"),
    [
        ([fact(3, "account-deactivated")], False, Known(by=3)),
        ([fact(3, "account-deactivated"), fact(9, "account-reactivated")], True, Known(by=9)),
        ([fact(12, "account-deactivated")], True, Known(not_before=12)),
        ([fact(12, "account-reactivated")], False, Known(not_before=12)),
        ([fact(12, "account-made")], False, Known(not_before=12)),
        ([], True, Known()),
    ],
)
def test_whether_the_account_was_active_then(facts: list[Fact], active: bool, known: Known) -> None:
    then = account_then(now("owner"), facts, 10)
    assert (then.person.is_active, then.active_known) == (active, known)


def asked(sequence: int, kind: str = "brief-judge", hours: float = 48, **policy: Any) -> Fact:
    request: dict[str, Any] = {
        "policy": DEFAULT.document | policy,
        "expires": (NOON + timedelta(hours=hours)).isoformat(),
    }
    if kind == "brief-judge":
        return fact(sequence, kind, "draftproof", request=request, state="in-review")
    return fact(sequence, kind, "draftproof", **request)


def answered(*facts: Fact, person: Now | None = None) -> Any:
    people = [account_then(person or now("owner"), [], 99)]
    at = NOON + timedelta(hours=1)
    return who_could_sign(people, facts, subject=REVISION, service=SERVICE, environment="production", at=at)


def test_an_owner_without_a_hand_in_it_could_sign_what_was_asked() -> None:
    answer = answered(fact(1, "brief-created", "engineer"), asked(2))
    assert (answer.why_nobody, answer.policy_by, [one.refusal for one in answer.signers]) == (None, 2, [None])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ([fact(1, "brief-created", "ada")], "The author of a brief can't sign it."),
        ([fact(1, "brief-created", "engineer"), fact(2, "brief-edited", "ada")], "edited"),
        ([fact(1, "brief-created", "engineer"), fact(2, "brief-start", "ada", state="measuring")], "started its runs"),
        ([fact(1, "brief-created", "engineer"), fact(2, "fault-declared", "ada", "boot 7")], "started its runs"),
        # Her words of the revision before were taken over.
        (
            [
                fact(1, "brief-created", "engineer", "brief 4 revision 1"),
                fact(2, "brief-edited", "ada", "brief 4 revision 1"),
                fact(3, "brief-revised", "engineer", **OF_THE_FIRST),
            ],
            "edited",
        ),
    ],
)
def test_whose_hands_were_in_it_could_not(facts: list[Fact], said: str) -> None:
    (signer,) = answered(*facts, asked(9)).signers
    assert said in signer.refusal


def test_the_policy_of_the_request_counts_and_not_a_later_one() -> None:
    created = fact(1, "brief-created", "ada")
    later = fact(9, "policy-set", "operator", f"service {SERVICE}", environment="production", after=DEFAULT.document)
    answer = answered(created, asked(2, may_not_sign=[]), later)
    assert (answer.policy_by, [one.refusal for one in answer.signers]) == (2, [None])
    assert answered(created, later).policy_by == 9
    assert answered(created).policy_by is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ([], "was draft then"),
        ([asked(2), fact(3, "brief-approve", "owner", state="approved")], "was approved then"),
        ([asked(2, hours=0.5)], "had expired by then"),
        ([asked(2, hours=0.5), fact(3, "brief-break-glass", "owner", state="in-review")], None),
        ([asked(2, hours=0.5), asked(4, "signatures-asked-again")], None),
    ],
)
def test_whether_anybody_was_asked(facts: list[Fact], said: str | None) -> None:
    why = answered(*facts).why_nobody
    assert (why is None) if said is None else (said in why)


def test_only_owners_of_then_are_named() -> None:
    assert answered(asked(1), person=now("owner", services=())).signers == ()
    (superuser,) = answered(asked(1), person=now("owner", superuser=True)).signers
    assert "superuser" in superuser.refusal
    (gone,) = answered(asked(1), person=now("owner", active=False)).signers
    assert "not active" in gone.refusal


def test_whoever_has_signed_already_is_said() -> None:
    in_part = fact(3, "brief-approve-in-part", "ada", state="in-review")
    (signer,) = answered(asked(2, quorum=2), in_part).signers
    assert (signer.refusal, signer.signed) == (None, (3,))
    fallen = fact(4, "signatures-fell-away", "draftproof")
    for later in (fallen, asked(5, "signatures-asked-again", quorum=2)):
        assert answered(asked(2, quorum=2), in_part, later).signers[0].signed == ()
