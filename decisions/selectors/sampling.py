"""How the requests of a traffic set are sampled, as far as it keeps that."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.compute as pc
from django.core.cache import cache
from pyarrow import json as arrow_json

from decisions.rules.demonstrations import Temperatures
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.models import TrafficPart, TrafficSet
from loadtests.traffic.columns import whole_lines

FIELDS = pyarrow.schema([("sampling", pyarrow.struct([("temperature", pyarrow.float64())]))])


def temperatures_of(traffic_set: TrafficSet | None) -> Temperatures | str:
    """Of the tuning part: the held-out part stays sealed. A sentence where they can't be known."""
    if traffic_set is None:
        return "nobody knows its traffic set"
    if not traffic_set.imported.get("acceptance", {}).get("usable", True):
        return f"{traffic_set} holds lengths and no requests"
    part = next((one for one in traffic_set.parts.all() if one.kind == TrafficPart.Kind.TUNING), None)
    if part is None:
        return f"{traffic_set} has no tuning part"
    # What is left of rows whose text was deleted has their temperatures too.
    digest = (traffic_set.text_deleted_at and part.outline_digest) or part.digest
    known: Temperatures | None = cache.get(key := f"temperatures-{digest}")
    if known is not None:
        return known
    try:
        found = temperatures_in(evidence_store().file(digest))
    except (EvidenceMissing, EvidenceDamaged) as error:
        return f"the tuning part can't be read: {error}"
    # A digest stands for the same bytes for ever.
    cache.set(key, found, timeout=None)
    return found


def temperatures_in(rows: Path) -> Temperatures:
    """Of a file of rows, or of their outlines: one JSON object a line."""
    requests = sampled = 0
    for block in whole_lines(rows):
        table = arrow_json.read_json(
            pyarrow.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=FIELDS, unexpected_field_behavior="ignore"),
        )
        requests += len(table)
        sampled += pc.sum(pc.greater(pc.struct_field(table["sampling"], "temperature"), 0.0)).as_py() or 0
    return Temperatures(requests, sampled)
