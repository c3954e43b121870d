from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from loadtests import journal
from loadtests.canonical import digest
from loadtests.evidence.store import EvidenceStore
from loadtests.journal import act
from loadtests.models import TrafficPart, TrafficSet
from loadtests.traffic.rows import part_content, read_rows
from loadtests.traffic.split import part_statistics, split

SHARES = {"tuning": 0.35, "held-out": 0.5, "evaluation": 0.15}


def import_traffic(
    *,
    path: Path,
    name: str,
    by: str,
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
    block_s: float = 120.0,
) -> TrafficSet:
    """Reads, splits and stores a traffic file; raises BadRow or ValueError and then leaves nothing behind.

    The same file split in the same way is the same set: it is returned, not imported twice.
    """
    rows = list(read_rows(path))
    if not rows:
        raise ValueError(f"{path.name} holds no request")
    sides = split(rows, shares=shares, seed=seed, block_s=block_s)
    contents = {kind: part_content(part) for kind, part in sides.items()}
    parts = {kind: digest(content) for kind, content in contents.items()}
    set_digest = digest("".join(f"{kind}:{parts[kind]}\n" for kind in sorted(parts)).encode())
    known = TrafficSet.objects.filter(digest=set_digest).first()
    if known:
        return known
    store = EvidenceStore(settings.EVIDENCE_DIR)
    for content in contents.values():
        store.put(content)
    with act():
        created = TrafficSet.objects.create(
            name=name,
            digest=set_digest,
            rows=len(rows),
            source=path.name,
            split={"shares": dict(shares), "seed": seed, "block_s": block_s},
            statistics=part_statistics(rows),
            created_by=by,
        )
        for kind, part in sides.items():
            TrafficPart.objects.create(
                set=created, kind=kind, digest=parts[kind], rows=len(part), statistics=part_statistics(part)
            )
        journal.record(
            "traffic-imported", subject=f"traffic set {created.pk}", actor=by, digest=set_digest, rows=len(rows)
        )
    return created
