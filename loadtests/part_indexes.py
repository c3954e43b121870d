"""The indexes of parts, from the evidence store."""

from functools import lru_cache

from loadtests.evidence.ahead import source
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficPart
from loadtests.traffic.part_index import PartIndex, read_index

MOST_HELD = 16


def index_of(part: TrafficPart) -> PartIndex | None:
    """None for a part that was stored before there were indexes. Raises EvidenceMissing or EvidenceDamaged."""
    if not part.index_digest:
        return None
    known = source()
    return (
        held(known, part.index_digest) if isinstance(known, EvidenceStore) else read_index(known.get(part.index_digest))
    )


# By its digest: what an index says never changes.
@lru_cache(maxsize=MOST_HELD)
def held(store: EvidenceStore, digest: str) -> PartIndex:
    return read_index(store.get(digest))
