"""Who may do what. Each rule answers None, or the sentence with which to refuse."""

from collections.abc import Collection
from dataclasses import dataclass

from decisions.rules.policy import AUTHOR, EDITOR, HANDS, RUN_STARTER

ENGINEER = "engineer"
OWNER = "owner"
AUDITOR = "auditor"
OPERATOR = "operator"
ROLES = (ENGINEER, OWNER, AUDITOR, OPERATOR)


@dataclass(frozen=True)
class Person:
    username: str
    groups: frozenset[str]
    is_superuser: bool = False
    is_active: bool = True


@dataclass(frozen=True)
class Relation:
    """Who stands how to one revision and its service, as user names."""

    author: str = ""
    editors: frozenset[str] = frozenset()
    run_starters: frozenset[str] = frozenset()
    service_owners: frozenset[str] = frozenset()


def inactive(person: Person) -> str | None:
    return None if person.is_active else "This account is not active."


def without_group(person: Person, group: str, act: str) -> str | None:
    return None if group in person.groups else f"Only someone in the group {group} can {act}."


def may_write_brief(person: Person) -> str | None:
    return inactive(person) or without_group(person, ENGINEER, "write a brief")


def may_import_traffic(person: Person) -> str | None:
    """Whoever runs the hosts has the gateway's logs."""
    if person.groups.isdisjoint((ENGINEER, OPERATOR)):
        return inactive(person) or "Only someone in the group engineer or operator can import traffic."
    return inactive(person)


def may_import_evidence(person: Person) -> str | None:
    return inactive(person) or without_group(person, ENGINEER, "bring evidence to a brief or set it aside")


def may_start(person: Person) -> str | None:
    return inactive(person) or without_group(person, ENGINEER, "start runs")


def may_declare_fault(person: Person) -> str | None:
    """Whoever runs the hosts knows their faults as well as whoever started the runs."""
    if person.groups.isdisjoint((ENGINEER, OPERATOR)):
        return inactive(person) or "Only someone in the group engineer or operator can declare a fault."
    return inactive(person)


def may_sign(person: Person, relation: Relation, may_not_sign: Collection[str] = HANDS) -> str | None:
    """The service's decision owner, who had none of these hands in what is decided. A superuser never: who can change
    every record must not also answer for them."""
    return (
        inactive(person)
        or not_superuser(person, "sign a decision")
        or without_group(person, OWNER, "sign a decision")
        or service_owner(person, relation, "sign a decision")
        or had_a_hand(person, relation, may_not_sign)
    )


def may_revoke(person: Person, relation: Relation) -> str | None:
    """Falling back is always safe, so the service's owner may even where they had a hand in the brief."""
    return (
        inactive(person)
        or not_superuser(person, "revoke a release")
        or without_group(person, OWNER, "revoke a release")
        or service_owner(person, relation, "revoke a release")
    )


def may_set_policy(person: Person, relation: Relation) -> str | None:
    """Whoever signs by a policy doesn't set it."""
    refusal = inactive(person) or without_group(person, OPERATOR, "set the policy of a service")
    if refusal is None and (person.username in relation.service_owners or person.is_superuser):
        who = "A superuser" if person.is_superuser else "An owner of a service"
        return f"{who} can't set its policy: an operator who doesn't sign by it does."
    return refusal


def may_comment(person: Person) -> str | None:
    commenting = (ENGINEER, OWNER, AUDITOR)
    if person.groups.isdisjoint(commenting):
        return inactive(person) or "Only someone in the group engineer, owner or auditor can comment."
    return inactive(person)


def may_manage_privacy(person: Person, relation: Relation) -> str | None:
    return inactive(person) or service_owner_or_operator(person, relation, "set how its traffic's text is kept")


def may_add_route(person: Person, relation: Relation) -> str | None:
    return inactive(person) or service_owner_or_operator(person, relation, "add a route to it")


def may_manage_endpoints(person: Person, relation: Relation) -> str | None:
    """Messages say who decided what: whoever answers for the service says who outside of the house hears it."""
    return inactive(person) or service_owner_or_operator(person, relation, "say where its messages are posted")


def may_manage_house_endpoints(person: Person) -> str | None:
    """Of the whole installation."""
    return inactive(person) or without_group(person, OPERATOR, "say where the messages of all services are posted")


def may_keep_cases(person: Person, relation: Relation) -> str | None:
    """Engineers know what broke once, owners what must not."""
    return inactive(person) or engineer_or_service_owner(person, relation, "keep cases of its own")


def may_read_cases(person: Person, relation: Relation) -> str | None:
    """Cases hold prompts and answers, which are personal data."""
    return inactive(person) or engineer_or_service_owner(person, relation, "read its cases")


def may_vouch(person: Person) -> str | None:
    """Someone who knows the engine and answers for it. A superuser never, as with a signature."""
    refusal = inactive(person) or not_superuser(person, "vouch for a demonstration or withdraw it")
    if refusal is None and person.groups.isdisjoint((ENGINEER, OWNER)):
        return "Only someone in the group engineer or owner can vouch for a demonstration or withdraw it."
    return refusal


def may_delete_text(person: Person, relation: Relation) -> str | None:
    """Traffic of no service is for operators alone."""
    return inactive(person) or service_owner_or_operator(person, relation, "delete the text of its traffic")


def may_revoke_token(person: Person, of: str) -> str | None:
    """``of``: whose token it is. Operators end what has leaked, whosever it is."""
    if person.username == of or OPERATOR in person.groups:
        return inactive(person)
    return inactive(person) or "Only its own person or someone in the group operator can revoke a token."


def may_make_account(person: Person) -> str | None:
    """Whoever can change every record needs no page for it."""
    refusal = inactive(person) or not_superuser(person, "make or change accounts here")
    return refusal or without_group(person, OPERATOR, "make or change accounts")


def may_change_account(person: Person, of: Person) -> str | None:
    """Nobody gives themselves a role or takes a second factor off themselves; and nobody becomes a superuser by setting
    the password of one."""
    if of.is_superuser:
        return may_make_account(person) or "A superuser's account is changed by manage.py alone."
    if of.username == person.username:
        return may_make_account(person) or "Nobody changes their own roles or account here: another operator does."
    return may_make_account(person)


def may_read_ledger(person: Person) -> str | None:
    readers = (ENGINEER, OWNER, AUDITOR)
    if person.groups.isdisjoint(readers):
        return (
            inactive(person) or f"Only someone in the group {', '.join(readers[:-1])} or {readers[-1]} can read this."
        )
    return inactive(person)


def not_superuser(person: Person, act: str) -> str | None:
    return f"A superuser can't {act}." if person.is_superuser else None


def service_owner(person: Person, relation: Relation, act: str) -> str | None:
    return None if person.username in relation.service_owners else f"Only an owner of this service can {act}."


def service_owner_or_operator(person: Person, relation: Relation, act: str) -> str | None:
    if OPERATOR in person.groups or (OWNER in person.groups and person.username in relation.service_owners):
        return None
    return f"Only an owner of this service or someone in the group operator can {act}."


def engineer_or_service_owner(person: Person, relation: Relation, act: str) -> str | None:
    if ENGINEER in person.groups or (OWNER in person.groups and person.username in relation.service_owners):
        return None
    return f"Only an owner of this service or someone in the group engineer can {act}."


def had_a_hand(person: Person, relation: Relation, may_not_sign: Collection[str]) -> str | None:
    if AUTHOR in may_not_sign and person.username == relation.author:
        return "The author of a brief can't sign it."
    if EDITOR in may_not_sign and person.username in relation.editors:
        return "Someone who edited a brief can't sign it."
    if RUN_STARTER in may_not_sign and person.username in relation.run_starters:
        return "Someone who started its runs can't sign a brief."
    return None
