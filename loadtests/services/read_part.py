from loadtests import journal, seal
from loadtests.evidence.ahead import source
from loadtests.journal import act
from loadtests.models import Campaign, TrafficPart
from loadtests.services.refused import Refused
from loadtests.traffic.rows import Row, rows_of

# Held-out rows are for held-out campaigns, and everything else stays away from them.
PART_OF: dict[str, TrafficPart.Kind] = {
    Campaign.Purpose.NOISE_FLOOR: TrafficPart.Kind.TUNING,
    Campaign.Purpose.TUNING: TrafficPart.Kind.TUNING,
    Campaign.Purpose.BEHAVIOUR: TrafficPart.Kind.TUNING,
    Campaign.Purpose.FALLBACK: TrafficPart.Kind.TUNING,
    Campaign.Purpose.HELD_OUT: TrafficPart.Kind.HELD_OUT,
}


def read_part(*, part: TrafficPart, purpose: str, brief_digest: str, reader: str, actor: str) -> list[Row]:
    """The rows of a part, for a campaign of this purpose. Reading the held-out part is an event, as is every refusal.

    Raises Refused where the rule of the part, the seal or the deletion of its text stands against it.
    """
    refusal = why_not(part, purpose, brief_digest)
    details = {"reader": reader, "purpose": purpose, "brief": brief_digest, "part": part.digest}
    if refusal:
        with act():
            journal.record(f"{part.kind}-refused", subject=subject(part), actor=actor, reason=refusal, **details)
        raise Refused(refusal)
    if part.kind == TrafficPart.Kind.HELD_OUT:
        with act():
            journal.record("held-out-read", subject=subject(part), actor=actor, **details)
    return rows_of(source().get(part.digest), name=str(part))


def subject(part: TrafficPart) -> str:
    return f"traffic set {part.set_id}"


def why_not(part: TrafficPart, purpose: str, brief_digest: str) -> str | None:
    if part.kind == TrafficPart.Kind.EVALUATION:
        return f"the evaluation part of {part.set} is for training drafters alone, and no drafter is trained here yet"
    if PART_OF.get(purpose) != part.kind:
        return f"a {purpose} campaign may not read the {part.kind} part of {part.set}"
    if part.kind == TrafficPart.Kind.HELD_OUT:
        sealed = seal.why_sealed(brief_digest=brief_digest, part_digest=part.digest, set_pk=part.set_id)
        if sealed:
            return sealed
    return why_no_text(part)


def why_no_text(part: TrafficPart) -> str | None:
    deleted_at = part.set.text_deleted_at
    if deleted_at is None:
        return None
    return (
        f"the text of {part.set} was deleted on {deleted_at:%d %B %Y at %H:%M} UTC by {part.set.text_deleted_by}: "
        "import fresh traffic"
    )
