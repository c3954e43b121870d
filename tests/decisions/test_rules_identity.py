"""Who has proven who they are, by a table: what the account has × what was right of what was given."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from decisions.rules.identity import (
    NO_PROOF,
    NO_SECOND_FACTOR_GIVEN,
    NOTHING_TO_PROVE_WITH,
    PASSKEY,
    RECOVERY_CODE,
    RESETS,
    SIGN_IN_ANEW,
    TOTP,
    WRONG_PASSWORD,
    WRONG_SECOND_FACTOR,
    Given,
    Means,
    Reset,
    method,
    why_not_after_reset,
    why_not_fresh,
    why_not_linked,
    why_not_proven,
)
from decisions.rules.who_may import ROLES, Person, may_change_account, may_make_account

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ALONE = Means(single_sign_on=True)
WITH_PASSWORD = Means(password=True)
RIGHT = Given(password=True)


def test_a_session_alone_never_proves_it() -> None:
    for has in itertools.product((False, True), repeat=4):
        assert why_not_proven(Means(*has), Given()) is not None


def test_the_whole_table() -> None:
    """With a password: it, and a second factor where there is one. Without: a second factor or a fresh sign-in."""
    for has in itertools.product((False, True), repeat=4):
        means = Means(*has)
        for password, second, at in itertools.product(
            (False, True), (None, "", TOTP, RECOVERY_CODE, PASSKEY), (None, NOW)
        ):
            given = Given(password, second, at)
            if means.password:
                proven = password and (bool(second) or not means.second_factor)
            else:
                proven = second in (TOTP, PASSKEY) or at is not None
            assert (why_not_proven(means, given) is None) is proven, (means, given)


@pytest.mark.parametrize(
    ("means", "given", "said"),
    [
        (WITH_PASSWORD, Given(), WRONG_PASSWORD),
        (WITH_PASSWORD, RIGHT, None),
        (Means(password=True, totp=True), RIGHT, NO_SECOND_FACTOR_GIVEN),
        (Means(password=True, totp=True), Given(True, ""), WRONG_SECOND_FACTOR),
        # What is wrong with a second factor is nobody's business who doesn't know the password.
        (Means(password=True, passkey=True), Given(False, ""), WRONG_PASSWORD),
        (ALONE, Given(), NO_PROOF),
        (Means(single_sign_on=True, totp=True), Given(), SIGN_IN_ANEW),
        (Means(single_sign_on=True, totp=True), Given(second=""), WRONG_SECOND_FACTOR),
        (Means(single_sign_on=True, totp=True), Given(second=RECOVERY_CODE), WRONG_SECOND_FACTOR),
        (Means(), Given(), NOTHING_TO_PROVE_WITH),
    ],
)
def test_a_refusal_says_what_to_do(means: Means, given: Given, said: str | None) -> None:
    assert why_not_proven(means, given) == said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (RIGHT, "password"),
        (Given(True, TOTP), "password + TOTP"),
        (Given(True, RECOVERY_CODE), "password + recovery code"),
        (Given(True, PASSKEY), "password + passkey"),
        (Given(second=PASSKEY), "passkey"),
        (Given(signed_in_at=NOW), "single sign-on"),
    ],
)
def test_what_proved_it_is_said(given: Given, words: str) -> None:
    assert method(given) == words
    assert len(words) <= 40


@pytest.mark.parametrize(
    ("email", "verified", "accounts", "linked"),
    [
        ("a@b.example", True, 1, True),
        ("a@b.example", True, 0, False),
        ("a@b.example", True, 2, False),
        ("a@b.example", False, 1, False),
        ("", True, 1, False),
    ],
)
def test_whom_a_single_sign_on_is_linked_to(email: str, verified: bool, accounts: int, linked: bool) -> None:
    assert (why_not_linked(email=email, verified=verified, accounts=accounts) is None) is linked


def test_an_account_that_is_linked_is_nobody_elses() -> None:
    refusal = why_not_linked(email="a@b.example", verified=True, accounts=1, linked=True)
    assert refusal is not None
    assert "belongs to another sign-in there" in refusal


@pytest.mark.parametrize(
    ("auth_time_s", "fresh"),
    [(-61, False), (-60, True), (0, True), (10, True), (70, True), (71, False), (86_400, False)],
)
def test_a_sign_in_from_before_it_was_asked_for_or_from_the_future_is_not_fresh(auth_time_s: int, fresh: bool) -> None:
    """Asked for at NOW, come back ten seconds later; clocks may differ by a minute."""
    refusal = why_not_fresh(NOW + timedelta(seconds=auth_time_s), NOW, NOW + timedelta(seconds=10))
    assert (refusal is None) is fresh


@pytest.mark.parametrize("kind", RESETS)
@pytest.mark.parametrize(("hours", "settled"), [(0, False), (23.9, False), (24, True), (100, True)])
def test_nobody_signs_for_a_day_after_somebody_else_changed_their_keys(kind: str, hours: float, settled: bool) -> None:
    refusal = why_not_after_reset(Reset(kind, "opal", NOW), NOW + timedelta(hours=hours))
    assert (refusal is None) is settled
    assert why_not_after_reset(None, NOW) is None


def test_who_may_not_sign_after_a_reset_hears_who_did_it_and_until_when() -> None:
    assert why_not_after_reset(Reset("password-reset", "opal", NOW), NOW) == (
        "nobody can sign as you before 2026-12-02 12:00 UTC: opal set your password anew at 2026-12-01 12:00 UTC. "
        "If you didn’t ask for it, tell an auditor"
    )


@pytest.mark.parametrize("role", ROLES)
def test_operators_alone_make_accounts_and_nobody_their_own(role: str) -> None:
    who, other = Person("who", frozenset({role})), Person("other", frozenset({"owner"}))
    assert (may_make_account(who) is None) is (role == "operator")
    assert (may_change_account(who, other) is None) is (role == "operator")
    assert may_change_account(who, who) is not None
    assert may_change_account(who, Person("root", frozenset(), is_superuser=True)) is not None
    assert may_make_account(Person("root", frozenset({role}), is_superuser=True)) is not None
    assert may_make_account(Person("gone", frozenset({role}), is_active=False)) is not None
