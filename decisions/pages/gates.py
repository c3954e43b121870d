"""What stands between a verdict and a release, and what to do where measurements can't be judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from decisions.models import BriefRevision
from decisions.rules.states import IN_REVIEW
from decisions.rules.wording import counted, share
from decisions.selectors.demonstrations import Demonstrated
from decisions.selectors.review import Review
from decisions.selectors.seal import Use, used_before

# Below this a fallback still works, but the owner should see how well before relying on it.
CARRIES = 0.9
BRIEF, HELD_OUT, BEHAVIOUR, HEALTH = "brief", "brief-held-out", "brief-behaviour", "brief-health"
SIGN_OFF, REVIEW = "brief-sign-off", "#review"
MOST_NAMED = 3


@dataclass(frozen=True)
class Gate:
    # yes, no or open
    state: str
    words: str
    # Name of the tab that shows it in full, and the place in it.
    tab: str = ""
    place: str = ""
    # Address of the page that does, where it is no tab.
    page: str = ""


def gates(
    revision: BriefRevision,
    shown: Mapping[str, Any],
    review: Review,
    demonstrated: Sequence[Demonstrated],
) -> list[Gate]:
    """Each with the place of the evidence that it rests on."""
    used = used_before(revision)
    return [
        Gate("yes" if revision.frozen_at else "no", "Brief frozen before tuning", BRIEF),
        Gate("open" if used else "yes", used_words(used), BRIEF, "#used-before" if used else ""),
        validity_gate(shown["validity"]),
        Gate(three(shown["noise_floor"]["ok"]), "Noise floor below the improvement asked for", HEALTH),
        *behaviour_gates(shown["guardrails"]),
        *map(demonstration_gate, demonstrated),
        fallback_gate([row for row in shown["fallback"] if row["class"] == "all"]),
        Gate(
            "yes" if shown["evidence_class"] == "measured" else "no",
            f"Evidence is {shown['evidence_class'] or 'missing'}",
            HELD_OUT,
            "#pairs",
        ),
        *signature_gates(revision, review),
    ]


def used_words(used: Sequence[Use]) -> str:
    if not used:
        return "Held-out traffic unseen before"
    known = sum(not use.unknown for use in used)
    if not known:
        return f"Held-out rows may have been read before: {used[0].unknown}"
    return f"Held-out rows were read before, for {known} other brief{'' if known == 1 else 's'}"


def validity_gate(checks: Sequence[Mapping[str, Any]]) -> Gate:
    broken = sum(check["ok"] is False for check in checks)
    passed = sum(check["ok"] is True for check in checks)
    if broken:
        return Gate("no", f"{broken} of {len(checks)} validity checks broken", HEALTH, "#checks")
    return Gate(
        "yes" if passed == len(checks) else "open", f"{passed} of {len(checks)} validity checks hold", HEALTH, "#checks"
    )


def behaviour_gates(guardrails: Sequence[Mapping[str, Any]]) -> list[Gate]:
    """One where a guardrail rests on the preserved-behaviour suite."""
    return [behaviour_gate(row) for row in guardrails if row.get("metric") == "behaviour"]


def behaviour_gate(row: Mapping[str, Any]) -> Gate:
    if "over" not in row:
        return Gate("open", "Preserved behaviour: no result", BEHAVIOUR)
    if row["shown"] == "broken":
        return Gate("no", broken_words(row), BEHAVIOUR)
    if row["shown"] != "shown":
        return Gate("open", "Preserved behaviour not shown", BEHAVIOUR)
    return Gate("yes", f"Behaviour preserved in {counted(row['requests'], 'case')}", BEHAVIOUR)


def broken_words(row: Mapping[str, Any]) -> str:
    names = row.get("cases", [])
    if not names:
        return "Behaviour broken: the server itself"
    named = f"{', '.join(names[:MOST_NAMED])}{' …' if len(names) > MOST_NAMED else ''}"
    return f"Behaviour broken in {row['over']} of {counted(row['requests'], 'case')}: {named}"


def demonstration_gate(one: Demonstrated) -> Gate:
    """Open where there is none: it warns, and closes nothing."""
    about = one.about.label
    if one.needed.mode is None:
        said = f"Nobody can tell which demonstration of {about} is needed: the sampling isn’t known"
        return Gate("open", said, page=reverse("demonstrations"))
    if one.demonstration is None:
        said = f"No demonstration of preserved behaviour for {about}, {one.needed.mode} output"
        return Gate("open", said, page=reverse("demonstrations"))
    said = f"{one.demonstration.vouched_by} vouches for preserved behaviour of {about}, {one.needed.mode} output"
    return Gate("yes", said, page=reverse("demonstration", args=[one.demonstration.pk]))


def fallback_gate(rows: Sequence[Mapping[str, Any]]) -> Gate:
    if not rows:
        return Gate("no", "Fallback not tested at peak", HELD_OUT, "#fallback")
    if any(row["died"] for row in rows):
        return Gate("open", "Fallback at peak: the engine died", HELD_OUT, "#fallback")
    attained = [row["attainment"] for row in rows if row["attainment"] is not None]
    if not attained:
        return Gate("open", "Fallback at peak: no figure", HELD_OUT, "#fallback")
    if min(attained) < CARRIES:
        return Gate("open", f"Fallback at peak: {share(min(attained))} within deadline", HELD_OUT, "#fallback")
    return Gate("yes", "Fallback tested at peak", HELD_OUT, "#fallback")


SIGNED = {
    "approve": "approved",
    "reject": "rejected",
    "request-changes": "changes requested",
    "break-glass": "the glass was broken",
}


def signature_gates(revision: BriefRevision, review: Review) -> Iterator[Gate]:
    """Approvals beside rejections where each takes several; and what became of them."""
    if any(one.fallen for one in review.signatures):
        said = "Signatures fell away: what they were bound to has changed"
        yield Gate("no", said, SIGN_OFF, REVIEW)
    if revision.state != IN_REVIEW:
        yield decided_gate(review)
        return
    needed, rejecting = review.approvals_needed, review.rejections_needed
    state = "no" if review.lapsed else "open"
    yield Gate(state, f"Approvals {review.approvals} of {needed}", SIGN_OFF, REVIEW)
    if review.rejections:
        yield Gate("open", f"Rejections {review.rejections} of {rejecting}", SIGN_OFF, REVIEW)
    if review.lapsed:
        yield Gate("no", "The request for signatures expired", SIGN_OFF, REVIEW)
    if review.asked and review.asked.glass_broken:
        yield Gate("no", "The glass was broken: the owners have to decide", SIGN_OFF, REVIEW)


def decided_gate(review: Review) -> Gate:
    if not review.signatures:
        return Gate("open", "No signature", SIGN_OFF, REVIEW)
    last = review.signatures[-1].signature
    return Gate("yes", f"Signed: {SIGNED[last.meaning]}", SIGN_OFF, REVIEW)


def three(ok: bool | None) -> str:
    return "open" if ok is None else "yes" if ok else "no"


NOTHING_TO_SIGN = {
    "measuring": "This revision is being measured again: there is nothing to sign yet.",
    "approved": "This revision was approved: there is nothing left to sign.",
    "rejected": "This revision was rejected: there is nothing left to sign.",
    "changes-requested": "Changes were requested for this revision: there is nothing left to sign.",
    "withdrawn": "This revision was withdrawn: there is nothing to sign.",
    "cancelled": "This revision was cancelled: there is nothing to sign.",
    "superseded": "This revision was replaced by a newer one: there is nothing to sign.",
}

# check → what removes the cause, before a new revision is measured
REMEDIES = {
    "neighbours": "Free the machine of everything else while boots run.",
    "client-lag": "Free the machine of everything else, or send the requests from another one: the client fell behind.",
    "control": "Look for what differs between two boots of the same baseline: other load, heat, a shared disk.",
    "warm-up": "Let the engine answer its warm-up: its log says what stopped it.",
    "output-length": "Look at the answers: a candidate that writes another length doesn't do the same work.",
}


def broken_checks(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What broke, and what removes its cause."""
    broken = [check for check in checks if check["ok"] is False]
    return [" ".join(filter(None, (check["sentence"], REMEDIES.get(check["id"])))) for check in broken]
