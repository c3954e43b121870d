"""The split of a traffic set into parts, by conversation and time block, and what a part looks like."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loadtests.canonical import digest_of
from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.rows import NANOSECONDS, Row

DISPERSION_WINDOW_S = 10
MOST_BUCKETS = 180


def split(rows: Sequence[Row], *, shares: Mapping[str, float], seed: int, block_s: float) -> dict[str, list[Row]]:
    """The rows of each part, in order of arrival: whole conversations, by time block.

    A conversation belongs to the block (of ``block_s`` seconds) of its first request. Conversations that share a
    prompt stay together, where the earliest of them belongs: a prompt seen in tuning is no test in the held-out part.
    Blocks are handed out in a drawn order, each to the part furthest below its share of requests.
    """
    check_shares(shares)
    ordered = sorted(rows, key=lambda row: row.arrival_ns)
    group_of = prompt_groups(ordered)
    block_of = first_blocks(ordered, group_of, block_s=block_s)
    weights = Counter(block_of[group_of[row.conversation]] for row in ordered)
    part_of = assigned(weights, shares, seed=seed)
    parts: dict[str, list[Row]] = {name: [] for name in shares}
    for row in ordered:
        parts[part_of[block_of[group_of[row.conversation]]]].append(row)
    check_parts(parts, blocks=len(weights), block_s=block_s)
    return parts


def check_shares(shares: Mapping[str, float]) -> None:
    if any(share <= 0 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-9:
        named = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ValueError(f"shares must be above 0 and add up to 1, not {named}")


def check_parts(parts: Mapping[str, Sequence[Row]], *, blocks: int, block_s: float) -> None:
    empty = ", ".join(name for name, rows in parts.items() if not rows)
    if empty:
        raise ValueError(
            f"nothing is left for {empty}: the traffic has {blocks} time blocks of {block_s:g} s "
            f"for {len(parts)} parts; choose shorter blocks or import more traffic"
        )


def prompt_digest(row: Row) -> str:
    return digest_of([message.model_dump() for message in row.messages])


def prompt_groups(ordered: Iterable[Row]) -> dict[str, str]:
    """Each conversation's group, named by its earliest conversation (union-find over shared prompts)."""
    parent: dict[str, str] = {}
    rank: dict[str, int] = {}
    first_with: dict[str, str] = {}

    def root(conversation: str) -> str:
        while parent[conversation] != conversation:
            parent[conversation] = parent[parent[conversation]]
            conversation = parent[conversation]
        return conversation

    for row in ordered:
        parent.setdefault(row.conversation, row.conversation)
        rank.setdefault(row.conversation, len(rank))
        one = root(row.conversation)
        other = root(first_with.setdefault(prompt_digest(row), row.conversation))
        earlier, later = sorted((one, other), key=rank.__getitem__)
        parent[later] = earlier
    return {conversation: root(conversation) for conversation in parent}


def first_blocks(ordered: Iterable[Row], group_of: Mapping[str, str], *, block_s: float) -> dict[str, int]:
    """The block of each group's first request; ``ordered`` by arrival."""
    if block_s <= 0:
        raise ValueError(f"a time block must last longer than 0 s, not {block_s:g} s")
    width = max(1, round(block_s * NANOSECONDS))
    blocks: dict[str, int] = {}
    for row in ordered:
        blocks.setdefault(group_of[row.conversation], row.arrival_ns // width)
    return blocks


def assigned(weights: Mapping[int, int], shares: Mapping[str, float], *, seed: int) -> dict[int, str]:
    """The part of each block, drawn by seed; ``weights`` are the requests per block."""
    total = sum(weights.values())
    missing = {name: share * total for name, share in sorted(shares.items())}
    part_of: dict[int, str] = {}
    for block in generator_for("split", seed).permutation(sorted(weights)).tolist():
        part = max(missing, key=missing.__getitem__)
        part_of[block] = part
        missing[part] -= weights[block]
    return part_of


def part_statistics(rows: Sequence[Row]) -> dict[str, Any]:
    """What a part looks like, in JSON types.

    ``duration_s`` runs from the first to the last arrival. ``dispersion_10s`` is the index of dispersion (variance ÷
    mean) of the arrivals per 10 s: 1 for a Poisson process, above 1 for bursts, None for fewer than two windows; the
    holes a split leaves in a part count as silence. ``arrivals`` counts requests per ``bucket_s`` seconds.
    Percentiles are values that occur (the smallest with at least that share at or below it).
    """
    offsets = offsets_ns(rows)
    bucket_s = bucket_width_s(max(offsets, default=0))
    return {
        "count": len(rows),
        "classes": dict(sorted(Counter(row.class_ for row in rows).items())),
        "conversations": len({row.conversation for row in rows}),
        "duration_s": max(offsets, default=0) / NANOSECONDS,
        "prompt_characters": spread([prompt_characters(row) for row in rows], p50=50, p90=90),
        "max_tokens": spread([row.max_tokens for row in rows], p50=50),
        "dispersion_10s": dispersion(offsets, window_s=DISPERSION_WINDOW_S),
        "bucket_s": bucket_s,
        "arrivals": per_bucket(offsets, bucket_s=bucket_s),
    }


def offsets_ns(rows: Sequence[Row]) -> list[int]:
    first = min((row.arrival_ns for row in rows), default=0)
    return [row.arrival_ns - first for row in rows]


def prompt_characters(row: Row) -> int:
    return sum(len(message.content) for message in row.messages)


def spread(values: Sequence[int], **percentiles: float) -> dict[str, int | None]:
    if not values:
        return dict.fromkeys((*percentiles, "max"))
    shown = {name: int(np.percentile(values, at, method="inverted_cdf")) for name, at in percentiles.items()}
    return {**shown, "max": max(values)}


def dispersion(offsets: Sequence[int], *, window_s: int) -> float | None:
    """Sample variance ÷ mean of the counts per window; silent windows count without being listed."""
    if not offsets:
        return None
    counts = Counter(offset // (window_s * NANOSECONDS) for offset in offsets)
    windows = max(counts) + 1
    if windows < 2:
        return None
    mean = len(offsets) / windows
    squares = sum((count - mean) ** 2 for count in counts.values()) + (windows - len(counts)) * mean**2
    return squares / (windows - 1) / mean


def bucket_width_s(span_ns: int) -> int:
    """The smallest multiple of 10 s that keeps the chart at or below 180 bars."""
    tens = span_ns // (MOST_BUCKETS * DISPERSION_WINDOW_S * NANOSECONDS) + 1
    return tens * DISPERSION_WINDOW_S


def per_bucket(offsets: Sequence[int], *, bucket_s: int) -> list[int]:
    counts = Counter(offset // (bucket_s * NANOSECONDS) for offset in offsets)
    return [counts[bucket] for bucket in range(max(counts, default=-1) + 1)]
