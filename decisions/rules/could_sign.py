"""Who could have signed on a revision at a moment, by what the history says up to then.

What the history doesn't say is taken from the nearest later event that tells how it was before, or else from how it is
now; and that is said beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from decisions.rules.policy import DEFAULT, Policy, read_policy
from decisions.rules.states import IN_REVIEW
from decisions.rules.who_may import Person, Relation, may_sign

MADE, ROLES_SET = "account-made", "roles-set"
ACTIVE = {MADE: True, "account-reactivated": True, "account-deactivated": False}
BEGINNINGS = ("brief-created", "brief-revised")
EDITS = ("brief-edited", "brief-freeze")
STARTS = ("brief-start", "brief-resumed", "evidence-imported", "evidence-set-aside", "fault-declared")
ASKED = ("brief-judge", "signatures-asked-again")
# Signatures after which others are asked still.
IN_PART = ("brief-approve-in-part", "brief-reject-in-part", "brief-break-glass")


@dataclass(frozen=True)
class Fact:
    """An event, as far as this asks."""

    sequence: int
    at: datetime
    kind: str
    actor: str
    subject: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Now:
    """How an account is now."""

    username: str
    groups: frozenset[str]
    services: frozenset[str]
    is_active: bool
    is_superuser: bool


@dataclass(frozen=True)
class Known:
    """``by``: the event that said so; ``not_before``: the event that tells how it was just before itself; both None: it
    is so now, and the history says nothing."""

    by: int | None = None
    not_before: int | None = None


@dataclass(frozen=True)
class Then:
    """How an account was at the moment, and how that is known."""

    person: Person
    services: frozenset[str]
    roles_known: Known
    active_known: Known

    @property
    def roles(self) -> list[str]:
        return sorted(self.person.groups)


@dataclass(frozen=True)
class Signer:
    """``refusal`` None: they could have signed. ``signed``: the events by which they had on that request already; each
    meaning takes another owner then."""

    then: Then
    refusal: str | None
    signed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """``why_nobody``: nobody was asked at that moment, so whoever could by the policy could not yet, or no more."""

    policy: Policy
    policy_by: int | None
    relation: Relation
    why_nobody: str | None
    signers: tuple[Signer, ...]

    @property
    def editors(self) -> list[str]:
        return sorted(self.relation.editors)

    @property
    def run_starters(self) -> list[str]:
        return sorted(self.relation.run_starters)


@dataclass
class Hands:
    author: str = ""
    editors: set[str] = field(default_factory=set)
    run_starters: set[str] = field(default_factory=set)


def account_then(now: Now, facts: Sequence[Fact], moment: int) -> Then:
    """``facts``: the events about this account, the oldest first; ``moment``: the last event that counts."""
    roles, roles_known = roles_then(now, facts, moment)
    active, active_known = active_then(now, facts, moment)
    groups, services = roles
    person = Person(now.username, groups, is_superuser=now.is_superuser, is_active=active)
    return Then(person, services, roles_known, active_known)


Roles = tuple[frozenset[str], frozenset[str]]


def roles_then(now: Now, facts: Sequence[Fact], moment: int) -> tuple[Roles, Known]:
    telling = [one for one in facts if one.kind in (MADE, ROLES_SET)]
    before, later = split(telling, moment)
    if before:
        said = before[-1].details
        return roles_in(said["after"] if before[-1].kind == ROLES_SET else said), Known(by=before[-1].sequence)
    if later:
        first = later[0]
        # Before it was made there was no such account.
        found = roles_in(first.details["before"]) if first.kind == ROLES_SET else roles_in({})
        return found, Known(not_before=first.sequence)
    return (now.groups, now.services), Known()


def active_then(now: Now, facts: Sequence[Fact], moment: int) -> tuple[bool, Known]:
    before, later = split([one for one in facts if one.kind in ACTIVE], moment)
    if before:
        return ACTIVE[before[-1].kind], Known(by=before[-1].sequence)
    if later:
        return not ACTIVE[later[0].kind], Known(not_before=later[0].sequence)
    return now.is_active, Known()


def split(facts: Sequence[Fact], moment: int) -> tuple[list[Fact], list[Fact]]:
    return [one for one in facts if one.sequence <= moment], [one for one in facts if one.sequence > moment]


def roles_in(said: Mapping[str, Any]) -> Roles:
    return frozenset(said.get("roles", ())), frozenset(said.get("services", ()))


def hands_in(facts: Iterable[Fact], subject: str) -> Hands:
    """Whose hands were in the revision of this subject. ``facts``: the events up to the moment about it, the revisions
    before it, and the boots of its campaigns, the oldest first."""
    hands: dict[str, Hands] = {}
    for fact in facts:
        own = hands.setdefault(fact.subject if fact.subject.startswith("brief ") else subject, Hands())
        if fact.kind in BEGINNINGS:
            own.author = fact.actor
            own.editors.add(fact.actor)
        if fact.kind == "brief-revised":
            # Its words are still those of the people who wrote them.
            taken = hands.get(f"{fact.subject.rsplit(' ', 1)[0]} {fact.details.get('from')}", Hands())
            own.editors |= {taken.author, *taken.editors} - {""}
        if fact.kind in EDITS:
            own.editors.add(fact.actor)
        if fact.kind in STARTS:
            own.run_starters.add(fact.actor)
    return hands.get(subject, Hands())


def policy_in(facts: Iterable[Fact], subject: str, service: str, environment: str) -> tuple[Policy, int | None]:
    """The policy that the last request on the revision was opened under, or else the one in force; and the event that
    says so, None: nobody had set one."""
    asked, in_force = None, None
    for fact in facts:
        if fact.subject == subject and fact.kind in ASKED:
            asked = fact
        if fact.subject == service and fact.kind == "policy-set" and fact.details.get("environment") == environment:
            in_force = fact
    if asked is not None:
        return read_policy(request_in(asked)["policy"]), asked.sequence
    if in_force is not None:
        return read_policy(in_force.details["after"]), in_force.sequence
    return DEFAULT, None


def request_in(fact: Fact) -> Mapping[str, Any]:
    """What an event says of the request that it opened."""
    found: Mapping[str, Any] = fact.details["request"] if fact.kind == "brief-judge" else fact.details
    return found


def why_nobody(facts: Iterable[Fact], subject: str, at: datetime) -> str | None:
    """Why no signature on the revision was asked for at that moment; None where one was."""
    state, opened, glass = "draft", None, False
    for fact in (one for one in facts if one.subject == subject):
        state = str(fact.details.get("state", state))
        if fact.kind in ASKED:
            opened, glass = request_in(fact), False
        glass = glass or fact.kind == "brief-break-glass"
    if state != IN_REVIEW or opened is None:
        return f"The revision was {state} then: nobody was asked for a signature on it."
    if not glass and datetime.fromisoformat(str(opened["expires"])) <= at:
        return f"The request for signatures had expired by then, at {opened['expires']}."
    return None


def signed_in(facts: Iterable[Fact], subject: str) -> Mapping[str, tuple[int, ...]]:
    """By user name, the signatures on the last request that stood at the moment."""
    found: dict[str, tuple[int, ...]] = {}
    for fact in (one for one in facts if one.subject == subject):
        if fact.kind in ASKED or fact.kind == "signatures-fell-away":
            found = {}
        elif fact.kind in IN_PART:
            found[fact.actor] = (*found.get(fact.actor, ()), fact.sequence)
    return found


def who_could_sign(
    people: Iterable[Then],
    facts: Sequence[Fact],
    *,
    subject: str,
    service: str,
    environment: str,
    at: datetime,
) -> Answer:
    """``facts``: the events up to the moment, the oldest first; ``service``: its slug. Only its owners of then are in
    the answer: nobody else could ever sign."""
    policy, policy_by = policy_in(facts, subject, f"service {service}", environment)
    hands = hands_in(facts, subject)
    owners = [one for one in people if service in one.services]
    relation = Relation(
        author=hands.author,
        editors=frozenset(hands.editors),
        run_starters=frozenset(hands.run_starters),
        service_owners=frozenset(one.person.username for one in owners),
    )
    signed = signed_in(facts, subject)
    signers = [
        Signer(one, may_sign(one.person, relation, policy.may_not_sign), signed.get(one.person.username, ()))
        for one in owners
    ]
    return Answer(
        policy=policy,
        policy_by=policy_by,
        relation=relation,
        why_nobody=why_nobody(facts, subject, at),
        signers=tuple(sorted(signers, key=lambda one: (one.refusal is not None, one.then.person.username))),
    )
