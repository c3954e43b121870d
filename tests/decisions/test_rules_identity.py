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
    SIGN_IN_ANEW,
    TOTP,
    WRONG_PASSWORD,
    WRONG_SECOND_FACTOR,
    Given,
    Means,
    is_fresh,
    method,
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


def test_a_sign_in_from_before_it_was_asked_for_is_not_fresh() -> None:
    assert is_fresh(NOW - timedelta(seconds=60), NOW)
    assert not is_fresh(NOW - timedelta(seconds=61), NOW)


@pytest.mark.parametrize("role", ROLES)
def test_operators_alone_make_accounts_and_nobody_their_own(role: str) -> None:
    who, other = Person("who", frozenset({role})), Person("other", frozenset({"owner"}))
    assert (may_make_account(who) is None) is (role == "operator")
    assert (may_change_account(who, other) is None) is (role == "operator")
    assert may_change_account(who, who) is not None
    assert may_change_account(who, Person("root", frozenset(), is_superuser=True)) is not None
    assert may_make_account(Person("root", frozenset({role}), is_superuser=True)) is not None
    assert may_make_account(Person("gone", frozenset({role}), is_active=False)) is not None
