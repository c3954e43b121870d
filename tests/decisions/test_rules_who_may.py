from dataclasses import replace

import pytest

from decisions.rules.who_may import (
    Person,
    Relation,
    may_declare_fault,
    may_delete_text,
    may_import_evidence,
    may_manage_privacy,
    may_read_ledger,
    may_revoke,
    may_sign,
    may_start,
    may_write_brief,
)

CAST = {
    "engineer": Person("engineer", frozenset({"engineer"})),
    "owner": Person("owner", frozenset({"owner"})),
    "second_owner": Person("second_owner", frozenset({"owner"})),
    "auditor": Person("auditor", frozenset({"auditor"})),
    "operator": Person("operator", frozenset({"operator"})),
    "superuser": Person("superuser", frozenset({"engineer", "owner"}), is_superuser=True),
    "stranger": Person("stranger", frozenset()),
}
RELATION = Relation(
    author="engineer",
    editors=frozenset({"engineer"}),
    run_starters=frozenset({"engineer"}),
    service_owners=frozenset({"owner", "superuser"}),
)
# who: write, bring evidence, start, declare a fault, sign, revoke, read the ledger, manage privacy, delete text
TABLE = {
    "engineer": (True, True, True, True, False, False, True, False, False),
    "owner": (False, False, False, False, True, True, True, True, True),
    "second_owner": (False, False, False, False, False, False, True, False, False),
    "auditor": (False, False, False, False, False, False, True, False, False),
    "operator": (False, False, False, True, False, False, False, True, True),
    "superuser": (True, True, True, True, False, False, True, True, True),
    "stranger": (False, False, False, False, False, False, False, False, False),
}


@pytest.mark.parametrize("who", CAST)
def test_who_may_do_what(who: str) -> None:
    person = CAST[who]
    refusals = (
        may_write_brief(person),
        may_import_evidence(person),
        may_start(person),
        may_declare_fault(person),
        may_sign(person, RELATION),
        may_revoke(person, RELATION),
        may_read_ledger(person),
        may_manage_privacy(person, RELATION),
        may_delete_text(person, RELATION),
    )
    assert tuple(one is None for one in refusals) == TABLE[who]
    assert all(one is None or one.endswith(".") for one in refusals)


@pytest.mark.parametrize("who", CAST)
def test_nobody_may_do_anything_with_an_account_that_is_not_active(who: str) -> None:
    person = replace(CAST[who], is_active=False)
    for refusal in (
        may_write_brief(person),
        may_import_evidence(person),
        may_start(person),
        may_declare_fault(person),
        may_sign(person, RELATION),
        may_revoke(person, RELATION),
        may_manage_privacy(person, RELATION),
        may_delete_text(person, RELATION),
    ):
        assert refusal == "This account is not active."
    assert may_read_ledger(person) is not None


OWNER_AND_ENGINEER = Person("owner", frozenset({"owner", "engineer"}))


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        (replace(RELATION, author="owner"), "The author of a brief can't sign it."),
        (replace(RELATION, editors=frozenset({"owner"})), "Someone who edited a brief can't sign it."),
        (replace(RELATION, run_starters=frozenset({"owner"})), "Someone who started its runs can't sign a brief."),
        (replace(RELATION, service_owners=frozenset()), "Only an owner of this service can sign a decision."),
    ],
)
def test_an_owner_with_a_hand_in_it_cannot_sign(relation: Relation, said: str) -> None:
    assert may_sign(OWNER_AND_ENGINEER, relation) == said
    if relation.service_owners:
        assert may_revoke(OWNER_AND_ENGINEER, relation) is None


def test_a_superuser_is_told_why() -> None:
    assert may_sign(CAST["superuser"], RELATION) == "A superuser can't sign a decision."
    assert may_revoke(CAST["superuser"], RELATION) == "A superuser can't revoke a release."
