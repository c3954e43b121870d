"""Who may sign, by a table: role × relation × state × age of the proof × superuser, and × kind of identity; and what a
decision takes."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from decisions.rules.identity import PASSKEY, RECOVERY_CODE, RESETS, TOTP, Given, Means, Reset, why_not_proven
from decisions.rules.policy import DEFAULT, Policy
from decisions.rules.signing import (
    REAUTHENTICATION_S,
    Asked,
    bound_digest,
    decides,
    has_lapsed,
    signatures_needed,
    why_not_sign,
)
from decisions.rules.states import STATES
from decisions.rules.who_may import Person, Relation

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
OPENED = NOW - timedelta(days=2)
ASKED = Asked(state="in-review", result="PASS", policy=DEFAULT, opened_at=OPENED, expires_at=NOW + timedelta(days=12))
ROLES = ("engineer", "owner", "auditor", "operator", "none")
RELATIONS = {
    "owner": Relation(author="other", service_owners=frozenset({"who"})),
    "none": Relation(author="other", service_owners=frozenset({"other"})),
    "author": Relation(author="who", service_owners=frozenset({"who"})),
    "editor": Relation(author="other", editors=frozenset({"who"}), service_owners=frozenset({"who"})),
    "run-starter": Relation(author="other", run_starters=frozenset({"who"}), service_owners=frozenset({"who"})),
}
# seconds since the person proved who they are, and whether that is near enough
AGES = {None: False, -1.0: False, 0.0: True, 20.0: True, float(REAUTHENTICATION_S): True, 301.0: False, 86_400.0: False}


def refusal(
    role: str,
    relation: str,
    state: str,
    age: float | None,
    superuser: bool,
    asked: Asked = ASKED,
    meaning: str = "reject",
) -> str | None:
    person = Person("who", frozenset({role}), is_superuser=superuser)
    return why_not_sign(
        person, RELATIONS[relation], replace(asked, state=state), meaning=meaning, reauthenticated_s=age, now=NOW
    )


@pytest.mark.parametrize("meaning", ["approve", "reject", "request-changes"])
def test_one_combination_in_the_whole_table_may_sign(meaning: str) -> None:
    """An owner of the service, with the role, no hand in it and no superuser, on what is in review, freshly proved."""
    table = list(itertools.product(ROLES, RELATIONS, STATES, AGES, (False, True)))
    assert len(table) == 5 * 5 * 10 * 7 * 2
    allowed = {row for row in table if refusal(*row, meaning=meaning) is None}
    fresh = [age for age, near in AGES.items() if near]
    assert allowed == {("owner", "owner", "in-review", age, False) for age in fresh}


# what the account has, and what was right of what its person gave → whether that is proof
KINDS = {
    "password": (Means(password=True), Given(password=True), True),
    "wrong password": (Means(password=True), Given(), False),
    "password without the app": (Means(password=True, totp=True), Given(password=True), False),
    "password with a wrong code": (Means(password=True, totp=True), Given(True, ""), False),
    "password and app": (Means(password=True, totp=True), Given(True, TOTP), True),
    "password and recovery code": (Means(password=True, totp=True), Given(True, RECOVERY_CODE), True),
    "password and passkey": (Means(password=True, passkey=True), Given(True, PASSKEY), True),
    "app without the password": (Means(password=True, totp=True), Given(second=TOTP), False),
    "single sign-on alone": (Means(single_sign_on=True), Given(), False),
    "single sign-on anew": (Means(single_sign_on=True), Given(signed_in_at=NOW), True),
    "single sign-on with an app": (Means(totp=True, single_sign_on=True), Given(second=TOTP), True),
    "single sign-on with a passkey": (Means(passkey=True, single_sign_on=True), Given(second=PASSKEY), True),
    "single sign-on, factor not given": (Means(passkey=True, single_sign_on=True), Given(), False),
    "nothing": (Means(), Given(), False),
}


def test_the_same_table_for_every_kind_of_identity() -> None:
    allowed = set()
    for role, related, state, superuser, kind in itertools.product(ROLES, RELATIONS, STATES, (False, True), KINDS):
        means, given, _ = KINDS[kind]
        unproven = why_not_proven(means, given) or ""
        found = why_not_sign(
            Person("who", frozenset({role}), is_superuser=superuser),
            RELATIONS[related],
            replace(ASKED, state=state),
            meaning="approve",
            reauthenticated_s=None if unproven else 0.0,
            now=NOW,
            unproven=unproven,
        )
        if found is None:
            allowed.add((role, related, state, superuser, kind))
        elif (role, related, superuser) == ("owner", "owner", False) and unproven:
            assert found == unproven
    proven = [kind for kind, (_, _, holds) in KINDS.items() if holds]
    assert allowed == {("owner", "owner", "in-review", False, kind) for kind in proven}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("owner", "owner", "in-review", None, False), "the password is wrong"),
        (("owner", "owner", "in-review", 301.0, False), "more than 5 minutes before the signature"),
        (("owner", "owner", "in-review", 0.0, True), "A superuser can't sign a decision."),
        (("owner", "none", "in-review", 0.0, False), "Only an owner of this service can sign a decision."),
        (("engineer", "owner", "in-review", 0.0, False), "Only someone in the group owner can sign a decision."),
        (("owner", "author", "in-review", 0.0, False), "The author of a brief can't sign it."),
        (("owner", "editor", "in-review", 0.0, False), "Someone who edited a brief can't sign it."),
        (("owner", "run-starter", "in-review", 0.0, False), "Someone who started its runs can't sign a brief."),
        (("owner", "owner", "approved", 0.0, False), "this revision is approved: nobody is asked"),
        # Whoever may never sign is told that, and not what would be wrong besides.
        (("owner", "author", "approved", None, True), "A superuser can't sign a decision."),
    ],
)
def test_a_refusal_says_what_is_wrong(row: tuple[str, str, str, float | None, bool], said: str) -> None:
    found = refusal(*row)
    assert found is not None
    assert said in found


def test_an_account_that_is_not_active_signs_nothing() -> None:
    gone = Person("who", frozenset({"owner"}), is_active=False)
    found = why_not_sign(gone, RELATIONS["owner"], ASKED, meaning="approve", reauthenticated_s=0.0, now=NOW)
    assert found == "This account is not active."


@pytest.mark.parametrize("kind", RESETS)
@pytest.mark.parametrize("meaning", ["approve", "reject", "request-changes", "break-glass"])
@pytest.mark.parametrize(("hours", "settled"), [(0, False), (23, False), (24, True)])
def test_nobody_signs_anything_for_a_day_after_somebody_elses_reset(
    kind: str, meaning: str, hours: int, settled: bool
) -> None:
    who = Person("who", frozenset({"owner"}))
    asked = replace(ASKED, policy=replace(DEFAULT, quorum=2))
    reset = Reset(kind, "opal", NOW - timedelta(hours=hours))
    found = why_not_sign(who, RELATIONS["owner"], asked, meaning=meaning, reauthenticated_s=0.0, now=NOW, reset=reset)
    assert (found is None) is settled
    assert settled or "opal" in str(found)


@pytest.mark.parametrize("hand", ["author", "editor", "run-starter"])
def test_the_policy_says_whose_hand_bars_them(hand: str) -> None:
    lax = replace(ASKED, policy=replace(DEFAULT, may_not_sign=tuple({"author", "editor", "run-starter"} - {hand})))
    assert refusal("owner", hand, "in-review", 0.0, False, lax) is None
    assert refusal("owner", hand, "in-review", 0.0, True, lax) == "A superuser can't sign a decision."
    other = "author" if hand != "author" else "editor"
    assert refusal("owner", other, "in-review", 0.0, False, lax) is not None


@pytest.mark.parametrize(
    ("expires", "glass", "closed", "lapsed"),
    [
        (NOW + timedelta(microseconds=1), False, False, False),
        (NOW, False, False, True),
        (NOW - timedelta(days=1), False, False, True),
        # Whoever broke the glass is owed an answer, however late.
        (NOW - timedelta(days=1), True, False, False),
        (NOW - timedelta(days=1), False, True, False),
    ],
)
def test_a_request_expires_by_the_clock(expires: datetime, glass: bool, closed: bool, lapsed: bool) -> None:
    asked = replace(ASKED, expires_at=expires, glass_broken=glass, closed=closed)
    assert has_lapsed(asked, NOW) is lapsed
    found = refusal("owner", "owner", "in-review", 0.0, False, asked)
    assert (found is None) is (not lapsed and not closed)
    if lapsed:
        assert found == f"the request for signatures expired at {expires:%Y-%m-%d %H:%M} UTC: an engineer can ask again"


def signed(**meanings: str) -> dict[str, frozenset[str]]:
    return {meaning.replace("_", "-"): frozenset({who}) for meaning, who in meanings.items()}


TWO = Policy(quorum=2)


@pytest.mark.parametrize(
    ("meaning", "result", "policy", "needed"),
    [
        ("approve", "PASS", DEFAULT, 1),
        ("approve", "PASS", TWO, 2),
        ("reject", "PASS", DEFAULT, 2),
        ("reject", "PASS", replace(DEFAULT, second_against_verdict=False), 1),
        ("reject", "FAIL", TWO, 1),
        ("reject", "INVALID", TWO, 1),
        ("request-changes", "PASS", TWO, 1),
    ],
)
def test_how_many_signatures_a_decision_takes(meaning: str, result: str, policy: Policy, needed: int) -> None:
    asked = replace(ASKED, result=result, policy=policy)
    assert signatures_needed(policy, meaning, result) == needed
    assert decides(asked, meaning) is (needed == 1)
    one = replace(asked, signed={meaning: frozenset({"first"})})
    assert decides(one, meaning)


def test_a_broken_glass_decides_nothing() -> None:
    assert not decides(replace(ASKED, signed=signed(break_glass="first", approve="second")), "break-glass")


@pytest.mark.parametrize(
    ("meaning", "asked", "said"),
    [
        ("approve", replace(ASKED, policy=TWO, signed=signed(approve="who")), "another owner’s signature"),
        ("reject", replace(ASKED, signed=signed(reject="who")), "another owner’s signature"),
        ("approve", replace(ASKED, policy=Policy(cooling_off_hours=49)), "before 2026-12-01 13:00 UTC"),
        ("break-glass", ASKED, "your approval alone is enough"),
        ("break-glass", replace(ASKED, policy=Policy(quorum=2, break_glass=False)), "doesn’t let anyone"),
        ("break-glass", replace(ASKED, policy=TWO, glass_broken=True), "was broken already"),
        ("break-glass", replace(ASKED, policy=TWO, signed=signed(approve="other")), "your approval alone is enough"),
    ],
)
def test_what_can_not_be_meant_now(meaning: str, asked: Asked, said: str) -> None:
    found = refusal("owner", "owner", "in-review", 0.0, False, asked, meaning)
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    ("meaning", "asked"),
    [
        ("approve", replace(ASKED, policy=TWO, signed=signed(approve="other"))),
        ("approve", replace(ASKED, policy=Policy(cooling_off_hours=48))),
        ("reject", replace(ASKED, policy=Policy(cooling_off_hours=49))),
        # Who approved and thinks again may reject.
        ("reject", replace(ASKED, policy=TWO, signed=signed(approve="who"))),
        ("break-glass", replace(ASKED, policy=TWO)),
        ("break-glass", replace(ASKED, policy=TWO, signed=signed(approve="who"))),
        ("break-glass", replace(ASKED, policy=Policy(cooling_off_hours=49))),
        ("approve", replace(ASKED, policy=TWO, glass_broken=True, signed=signed(break_glass="who"))),
    ],
)
def test_what_can_be_meant_now(meaning: str, asked: Asked) -> None:
    assert refusal("owner", "owner", "in-review", 0.0, False, asked, meaning) is None


def test_another_brief_evidence_or_verdict_binds_to_another_digest() -> None:
    same = bound_digest(brief="a", evidence="b", verdict="c")
    assert same == bound_digest(brief="a", evidence="b", verdict="c")
    others = {
        bound_digest(brief="x", evidence="b", verdict="c"),
        bound_digest(brief="a", evidence="x", verdict="c"),
        bound_digest(brief="a", evidence="b", verdict="x"),
        bound_digest(brief="b", evidence="a", verdict="c"),
    }
    assert len(others | {same}) == 5
