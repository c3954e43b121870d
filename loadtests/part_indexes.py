"""The indexes of parts, from the evidence store."""

from functools import lru_cache

from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.stores import evidence_store
from loadtests.models import TrafficPart
from loadtests.traffic.part_index import PartIndex, read_index

MOST_HELD = 16


def index_of(part: TrafficPart) -> PartIndex | None:
    """None for a part that was stored before there were indexes. Raises EvidenceMissing or EvidenceDamaged."""
    return held(evidence_store(), part.index_digest) if part.index_digest else None


# By its digest: what an index says never changes.
@lru_cache(maxsize=MOST_HELD)
def held(store: EvidenceStore, digest: str) -> PartIndex:
    return read_index(store.get(digest))
