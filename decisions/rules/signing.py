"""Whether somebody may sign now, and what a decision takes. Expiry and cooling-off count by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from decisions.rules.identity import WRONG_PASSWORD, Reset, at, why_not_after_reset
from decisions.rules.policy import Policy, hours
from decisions.rules.states import IN_REVIEW
from decisions.rules.who_may import Person, Relation, may_sign
from loadtests.canonical import digest_of

APPROVE, REJECT, REQUEST_CHANGES, BREAK_GLASS = "approve", "reject", "request-changes", "break-glass"
# Meanings that put a configuration on a route.
RELEASING = (APPROVE, BREAK_GLASS)
# meaning → the act of ``rules.states`` when the decision is made by it, and when it takes another signature still.
ACTS = {APPROVE: "approve", REJECT: "reject", REQUEST_CHANGES: "request-changes", BREAK_GLASS: "break-glass"}
ACTS_IN_PART = {APPROVE: "approve-in-part", REJECT: "reject-in-part"}

# Between a person's proof of who they are and their signature: time to read the evidence, none to walk away.
REAUTHENTICATION_S = 300


@dataclass(frozen=True)
class Asked:
    """A request for signatures as it is now. ``signed``: meaning → the user names whose signature still stands."""

    state: str
    result: str
    policy: Policy
    opened_at: datetime
    expires_at: datetime
    closed: bool = False
    glass_broken: bool = False
    signed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def signers(self, meaning: str) -> frozenset[str]:
        return self.signed.get(meaning, frozenset())

    @property
    def approvable_from(self) -> datetime:
        return self.opened_at + timedelta(hours=self.policy.cooling_off_hours)


def bound_digest(*, brief: str, evidence: str, verdict: str) -> str:
    """What a signature is bound to: another brief, another piece of evidence or another verdict has another."""
    return digest_of({"brief": brief, "evidence": evidence, "verdict": verdict})


def is_against(meaning: str, result: str) -> bool:
    """Nothing but a PASS can be approved, so the one way to decide against a verdict is to reject a PASS."""
    return meaning == REJECT and result == "PASS"


def signatures_needed(policy: Policy, meaning: str, result: str) -> int:
    if meaning == APPROVE:
        return policy.quorum
    return 2 if policy.second_against_verdict and is_against(meaning, result) else 1


def decides(asked: Asked, meaning: str) -> bool:
    """Whether one signature more makes the decision. A broken glass never does: the owners have to decide still."""
    if meaning == BREAK_GLASS:
        return False
    return len(asked.signers(meaning)) + 1 >= signatures_needed(asked.policy, meaning, asked.result)


def has_lapsed(asked: Asked, now: datetime) -> bool:
    """A broken glass has to be answered for: its request doesn't lapse."""
    return not asked.closed and not asked.glass_broken and asked.expires_at <= now


def why_not_sign(
    person: Person,
    relation: Relation,
    asked: Asked,
    *,
    meaning: str,
    reauthenticated_s: float | None,
    now: datetime,
    unproven: str = WRONG_PASSWORD,
    reset: Reset | None = None,
) -> str | None:
    """None, or why this person can't give this signature now. ``reauthenticated_s``: seconds since they proved who they
    are; None where they didn't, and ``unproven`` says why. ``reset``: the last time that somebody else changed what
    they prove it with."""
    return (
        may_sign(person, relation, asked.policy.may_not_sign)
        or why_not_after_reset(reset, now)
        or not_reauthenticated(reauthenticated_s, unproven)
        or why_not_open(asked, now)
        or why_not_mean(person, asked, meaning, now)
    )


def not_reauthenticated(seconds: float | None, unproven: str) -> str | None:
    if seconds is None:
        return unproven
    if not 0 <= seconds <= REAUTHENTICATION_S:
        return f"you proved who you are more than {REAUTHENTICATION_S // 60} minutes before the signature: do it again"
    return None


def why_not_open(asked: Asked, now: datetime) -> str | None:
    if asked.state != IN_REVIEW or asked.closed:
        return f"this revision is {asked.state}: nobody is asked for a signature on it"
    if has_lapsed(asked, now):
        return f"the request for signatures expired at {at(asked.expires_at)}: an engineer can ask again"
    return None


def why_not_mean(person: Person, asked: Asked, meaning: str, now: datetime) -> str | None:
    if meaning == BREAK_GLASS:
        return why_no_glass(person, asked, now)
    if person.username in asked.signers(meaning):
        return "you have signed this already: it takes another owner’s signature"
    if meaning == APPROVE and now < asked.approvable_from:
        return f"the policy lets nobody approve before {at(asked.approvable_from)}: read it with care until then"
    return None


def why_no_glass(person: Person, asked: Asked, now: datetime) -> str | None:
    if not asked.policy.break_glass:
        return "the policy of this service doesn’t let anyone break the glass"
    if asked.glass_broken:
        return "the glass was broken already: now the owners have to decide"
    if now >= asked.approvable_from and decides(asked, APPROVE) and person.username not in asked.signers(APPROVE):
        return "there is no glass to break: your approval alone is enough"
    return None


def glass_lasts(policy: Policy) -> str:
    return f"{hours(policy.break_glass_hours)} from the signature on"
