"""The states of a brief's revision, and which act leads from which to which."""

from typing import Any

from decisions.rules.imported import ALWAYS_LACKING, ONLY_MEASURED
from decisions.rules.may_carry import listed

DRAFT = "draft"
FROZEN = "frozen"
MEASURING = "measuring"
IN_REVIEW = "in-review"
APPROVED = "approved"
REJECTED = "rejected"
CHANGES_REQUESTED = "changes-requested"
WITHDRAWN = "withdrawn"
SUPERSEDED = "superseded"
CANCELLED = "cancelled"
STATES = (
    *(DRAFT, FROZEN, MEASURING, IN_REVIEW, APPROVED, REJECTED),
    *(CHANGES_REQUESTED, WITHDRAWN, SUPERSEDED, CANCELLED),
)

# {act: {state it is done in: state it leads to}}. A verdict of any kind leads to review: INCONCLUSIVE and INVALID too
# are for the owner to see and to answer.
MOVES: dict[str, dict[str, str]] = {
    "edit": {DRAFT: DRAFT},
    "freeze": {DRAFT: FROZEN},
    "start": {FROZEN: MEASURING},
    "judge": {MEASURING: IN_REVIEW},
    "cancel": {MEASURING: CANCELLED},
    "approve": {IN_REVIEW: APPROVED},
    "reject": {IN_REVIEW: REJECTED},
    # One of several signatures that the policy asks for; and a release on one alone, which leaves the decision to make.
    "approve-in-part": {IN_REVIEW: IN_REVIEW},
    "reject-in-part": {IN_REVIEW: IN_REVIEW},
    "break-glass": {IN_REVIEW: IN_REVIEW},
    "request-changes": {IN_REVIEW: CHANGES_REQUESTED},
    "withdraw": dict.fromkeys((DRAFT, FROZEN, IN_REVIEW), WITHDRAWN),
    # A new revision takes the place of one that is at rest; what is measured or in review is ended first, and
    # an approved one stays approved until its release is replaced.
    "supersede": dict.fromkeys((FROZEN, APPROVED, REJECTED, CHANGES_REQUESTED, WITHDRAWN, CANCELLED), SUPERSEDED),
}
ACTS = tuple(MOVES)
ACTS_SAID = {
    "edit": "edited",
    "freeze": "frozen",
    "start": "started",
    "judge": "judged",
    "cancel": "cancelled",
    "approve": "approved",
    "reject": "rejected",
    "approve-in-part": "approved in part",
    "reject-in-part": "rejected in part",
    "break-glass": "released by a broken glass",
    "request-changes": "sent back for changes",
    "withdraw": "withdrawn",
    "supersede": "superseded",
}


class NotAllowed(ValueError):
    """An act that this state doesn't allow; the text says which states do."""


def may_move(state: str, act: str) -> str:
    """The state that ``act`` leads to; raises NotAllowed with a sentence."""
    if act not in MOVES:
        raise NotAllowed(f"There is no act {act!r}; there are: {', '.join(ACTS)}.")
    if state not in STATES:
        raise NotAllowed(f"There is no state {state!r}.")
    if state not in MOVES[act]:
        allowed = " or ".join(MOVES[act])
        raise NotAllowed(f"A revision that is {state} can't be {ACTS_SAID[act]}; it would have to be {allowed}.")
    return MOVES[act][state]


def acts_from(state: str) -> tuple[str, ...]:
    return tuple(act for act, moves in MOVES.items() if state in moves)


def approval_refusal(document: dict[str, Any]) -> str | None:
    """Why this verdict can't be approved, whoever signs; None where it can."""
    if document["evidence_class"] != "measured":
        lacks = f" It lacks {listed(ALWAYS_LACKING)}." if document["evidence_class"] == "imported" else ""
        return f"The evidence is {document['evidence_class']}: {ONLY_MEASURED}.{lacks}"
    if document["verdict"] != "PASS":
        return f"The verdict is {document['verdict']}: only a PASS can be approved."
    return None
