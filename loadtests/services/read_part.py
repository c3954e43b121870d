from django.conf import settings

from loadtests import journal
from loadtests.evidence.store import EvidenceStore
from loadtests.journal import act
from loadtests.models import Campaign, TrafficPart
from loadtests.services.refused import Refused
from loadtests.traffic.rows import Row, rows_of

# Held-out rows are for held-out campaigns, and everything else stays away from them.
PART_OF = {
    Campaign.Purpose.NOISE_FLOOR: TrafficPart.Kind.TUNING,
    Campaign.Purpose.TUNING: TrafficPart.Kind.TUNING,
    Campaign.Purpose.FALLBACK: TrafficPart.Kind.TUNING,
    Campaign.Purpose.HELD_OUT: TrafficPart.Kind.HELD_OUT,
}


def read_part(*, part: TrafficPart, purpose: str, brief_digest: str, reader: str, actor: str) -> list[Row]:
    """The rows of a part, for a campaign of this purpose. Reading the held-out part is an event, as is a refusal."""
    allowed = PART_OF[Campaign.Purpose(purpose)] == part.kind
    if part.kind == TrafficPart.Kind.HELD_OUT:
        with act():
            journal.record(
                "held-out-read" if allowed else "held-out-refused",
                subject=f"traffic set {part.set_id}",
                actor=actor,
                reader=reader,
                purpose=purpose,
                brief=brief_digest,
                part=part.digest,
            )
    if not allowed:
        raise Refused(f"a {purpose} campaign may not read the {part.kind} part of {part.set}")
    return rows_of(EvidenceStore(settings.EVIDENCE_DIR).get(part.digest), name=str(part))
