"""The words with which a brief names a traffic set."""

from __future__ import annotations

import json
from collections.abc import Mapping

import yaml

from decisions.pages.problems import composed
from loadtests.models import TrafficSet

Named = Mapping[str, str]


def named(traffic_set: TrafficSet) -> dict[str, str]:
    """The fields of a brief's traffic; a part that the set lacks is left to be filled in."""
    parts = {part.kind: part.digest for part in traffic_set.parts.all()}
    return {
        "name": traffic_set.name,
        "set": traffic_set.digest,
        "tuning": parts.get("tuning", "fill in"),
        "held_out": parts.get("held-out", "fill in"),
    }


def lines_of(fields: Named) -> list[str]:
    said = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=float("inf"))
    return str(said).splitlines()


def block(fields: Named) -> str:
    return "\n".join(["traffic:", *(f"  {line}" for line in lines_of(fields))])


def with_traffic(source: str, fields: Named) -> str | None:
    """The brief's words with another traffic in them and nothing else changed; None where that can't be done."""
    root = composed(source)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    found = next((value for key, value in pairs if key.value == "traffic"), None)
    if not isinstance(found, yaml.MappingNode) or not found.value:
        return None
    start, end = found.start_mark, found.end_mark
    new = json.dumps(fields, ensure_ascii=False)
    if not found.flow_style:
        # A block ends where the next one begins: what is written between the two isn't its own.
        end = found.value[-1][1].end_mark
        new = ("\n" + " " * start.column).join(lines_of(fields))
    changed = source[: start.index] + new + source[end.index :]
    return changed if names(changed, fields) else None


def names(source: str, fields: Named) -> bool:
    try:
        read = yaml.safe_load(source)
    except yaml.YAMLError:
        return False
    return isinstance(read, dict) and read.get("traffic") == fields
