"""Which part each row of a set goes to: whole conversations, whole blocks of time, nothing alike on two sides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.columns import Columns, Int64
from loadtests.traffic.groups import Int32, Pairs, groups_of
from loadtests.traffic.time_blocks import block_starts, blocks_of, stretches_of

KINDS = ("tuning", "held-out", "evaluation")
NEEDED = KINDS[:2]
FURTHEST_FROM_SHARE = 0.05
# Of the conversations: from here on the prompts that are alike decide what a part gets, not the blocks.
MANY_JOINED = 0.2
# Of the requests: from here on it is one conversation, or one group of them, that leaves nothing for a part.
MOST = 0.5
MUCH_FOREIGN = 0.1

Stretches = list[list[int]]


@dataclass(frozen=True)
class Division:
    """``part_of`` holds each row's place in ``kinds``, ``unit_of`` the unit that it was dealt with, ``block_of`` the
    block of time that it arrives in (its unit where there are none); ``document`` says how it came about."""

    kinds: tuple[str, ...]
    part_of: NDArray[np.int8]
    unit_of: Int32
    block_of: Int32
    stretches: dict[str, Stretches]
    document: dict[str, Any]


@dataclass(frozen=True)
class Alike:
    """How alike prompts were looked for, and the conversations that hold such."""

    pairs: Pairs
    threshold: float
    method: str


def divide(
    columns: Columns, alike: Alike, *, shares: Mapping[str, float], seed: int, block_s: float, timed: bool
) -> Division:
    """The rows by part.

    A group of conversations, joined by prompts that are alike, belongs to the block of its first request: a prompt
    seen in tuning is no test in the held-out part. Blocks are handed out in a drawn order, each to the part furthest
    below its share of requests. Where nobody recorded times, a group is a unit of its own, handed out in the same
    way. Raises ValueError where the shares or the block can't be, or where nothing is left for a part.
    """
    chosen = given(shares)
    groups = groups_of(columns.conversation_count, alike.pairs)
    starts = block_starts(columns.arrivals_ns, block_s=block_s) if timed else None
    own_blocks = None if starts is None else blocks_of(columns.arrivals_ns, starts)
    unit_of = units(columns, groups, own_blocks)
    weights = np.bincount(unit_of, minlength=0 if starts is None else len(starts))
    part_of_unit = assigned(weights, chosen, seed=seed)
    part_of = part_of_unit[unit_of]
    found = joined(columns, groups)
    counts = np.bincount(part_of, minlength=len(chosen))
    check_parts(chosen, counts, found, alike.threshold, units=len(weights), block_s=block_s if timed else None)
    document = {
        "shares": chosen,
        "achieved": {kind: float(count / len(columns)) for kind, count in zip(chosen, counts, strict=True)},
        "seed": seed,
        "block_s": block_s if timed else None,
        "blocks": len(weights) if timed else 0,
        "near_duplicates": {
            "threshold": alike.threshold,
            "method": alike.method,
            "conversations_joined": found.conversations,
            "largest_group": found.largest,
        },
        "foreign_share": 0.0 if own_blocks is None else float((part_of_unit[own_blocks] != part_of).mean()),
    }
    return Division(
        kinds=tuple(chosen),
        part_of=part_of,
        unit_of=unit_of.astype(np.int32),
        block_of=(unit_of if own_blocks is None else own_blocks).astype(np.int32),
        stretches=stretches_by_part(chosen, part_of_unit, starts, end_ns=columns.end_ns),
        document={**document, "warnings": warnings(document, found)},
    )


def given(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares that are more than nothing, in the order of ``KINDS``."""
    chosen = {kind: float(shares[kind]) for kind in KINDS if shares.get(kind, 0) != 0}
    possible = set(shares) <= set(KINDS) and set(NEEDED) <= set(chosen) and min(chosen.values()) > 0
    if not possible or not abs(sum(chosen.values()) - 1) <= 1e-9:
        named = ", ".join(f"{kind} {share:g}" for kind, share in shares.items())
        raise ValueError(
            f"shares go to tuning and held-out, and to evaluation if wanted; they are above 0 and add up to 1, "
            f"and can't be {named}"
        )
    return chosen


def units(columns: Columns, groups: Int32, own_blocks: Int64 | None) -> Int64:
    """The unit that each row moves with: the block of its group's first request, or the group itself."""
    group_of_row = groups[columns.conversations]
    if own_blocks is None:
        return np.unique(group_of_row, return_inverse=True)[1]
    # Conversations are numbered as they appear, so a group has the number of its first, and that has its first row.
    first_row = np.empty(columns.conversation_count, dtype=np.int64)
    # Backwards, so that the first is the one that stays.
    first_row[columns.conversations[::-1]] = np.arange(len(columns))[::-1]
    blocks: Int64 = own_blocks[first_row[group_of_row]]
    return blocks


def assigned(weights: Int64, shares: Mapping[str, float], *, seed: int) -> NDArray[np.int8]:
    """The part of each unit as a place in ``shares``, drawn by seed; ``weights`` are the requests per unit."""
    total = int(weights.sum())
    missing = [share * total for share in shares.values()]
    part_of = np.zeros(len(weights), dtype=np.int8)
    for unit in generator_for("split", seed).permutation(len(weights)).tolist():
        part = missing.index(max(missing))
        part_of[unit] = part
        missing[part] -= int(weights[unit])
    return part_of


def stretches_by_part(
    kinds: Mapping[str, float], part_of_unit: NDArray[np.int8], starts: Int64 | None, *, end_ns: int
) -> dict[str, Stretches]:
    if starts is None:
        return {kind: [[0, end_ns]] for kind in kinds}
    return {kind: stretches_of(starts, part_of_unit == place, end_ns) for place, kind in enumerate(kinds)}


@dataclass(frozen=True)
class Joined:
    """The conversations that hang together with others, of ``of`` with ``rows`` requests in all, and the largest group
    of them, which may be one conversation."""

    conversations: int
    of: int
    rows: int
    largest: dict[str, int]

    @property
    def many(self) -> bool:
        return self.conversations > MANY_JOINED * self.of

    @property
    def largest_share(self) -> float:
        return self.largest["rows"] / self.rows

    @property
    def sentence(self) -> str:
        largest = f"{self.largest['conversations']:,} conversations ({self.largest['rows']:,} requests)"
        if not self.many or self.conversations == self.largest["conversations"]:
            return f"{largest} hang together by alike prompts"
        return (
            f"{self.conversations:,} of {self.of:,} conversations hang together with others by alike prompts, up to "
            f"{largest} in one group,"
        )

    @property
    def largest_sentence(self) -> str:
        count = self.largest["conversations"]
        what = "one conversation" if count == 1 else f"one group of {count:,} conversations with alike prompts"
        return (
            f"{what} holds {self.largest['rows']:,} of the {self.rows:,} requests ({self.largest_share:.0%}) and stays "
            "on one side"
        )


def joined(columns: Columns, groups: Int32) -> Joined:
    count = int((np.bincount(groups)[groups] > 1).sum())
    return Joined(count, len(groups), len(columns), largest_group(columns, groups))


def largest_group(columns: Columns, groups: Int32) -> dict[str, int]:
    """The group with the most rows, of equals the earliest."""
    rows = np.bincount(groups[columns.conversations])
    largest = int(rows.argmax())
    return {"conversations": int((groups == largest).sum()), "rows": int(rows[largest])}


def check_parts(
    shares: Mapping[str, float],
    counts: Int64,
    found: Joined,
    threshold: float,
    *,
    units: int,
    block_s: float | None,
) -> None:
    empty = ", ".join(kind for kind, count in zip(shares, counts, strict=True) if not count)
    if empty:
        why, what = obstacle(found, threshold, parts=len(shares), units=units, block_s=block_s)
        raise ValueError(f"nothing is left for {empty}: {why}; {what}")


def obstacle(found: Joined, threshold: float, *, parts: int, units: int, block_s: float | None) -> tuple[str, str]:
    """What leaves nothing for a part, and what to do."""
    if found.largest_share >= MOST:
        return found.largest_sentence, smaller_groups(found, threshold)
    some = "" if units == 1 else "s"
    pieces = f"group{some} of conversations" if block_s is None else f"time block{some} of {block_s:g} s"
    together = f", and {found.sentence.rstrip(',')}" if found.conversations else ""
    why = f"the traffic has {units} {pieces} for {parts} parts{together}"
    if found.many:
        return why, less_alike(threshold)
    return why, "import more traffic" if block_s is None else "choose shorter blocks or import more traffic"


def smaller_groups(found: Joined, threshold: float) -> str:
    if found.largest["conversations"] > 1:
        return less_alike(threshold)
    return (
        "import traffic of more conversations, or, if what is read as the conversation is something else, such as a "
        "user, import the file without it"
    )


def less_alike(threshold: float) -> str:
    raised = "" if threshold == 1 else "raise --similarity, "
    return f"{raised}bring more different prompts, or use fewer parts"


def warnings(document: Mapping[str, Any], found: Joined) -> list[str]:
    return [*shares_missed(document, found), *much_foreign(document["foreign_share"])]


def much_foreign(share: float) -> list[str]:
    if share <= MUCH_FOREIGN:
        return []
    return [
        f"{share:.0%} of the requests arrive in time that belongs to another part, since they go with an earlier "
        "request (its conversation, or an alike prompt): a replay leaves them out and is so much lighter"
    ]


def shares_missed(document: Mapping[str, Any], found: Joined) -> list[str]:
    missed = missed_shares(document)
    return [f"{missed}, because {why_missed(document, found)}"] if missed else []


def missed_shares(document: Mapping[str, Any]) -> str:
    shares, achieved = document["shares"], document["achieved"]
    missed = [kind for kind, share in shares.items() if abs(achieved[kind] - share) > FURTHEST_FROM_SHARE]
    return ", ".join(
        f"{kind} has {achieved[kind]:.0%} of the requests instead of {shares[kind]:.0%}" for kind in missed
    )


def why_missed(document: Mapping[str, Any], found: Joined) -> str:
    threshold = document["near_duplicates"]["threshold"]
    large = found.largest_share > FURTHEST_FROM_SHARE
    if found.many or (large and found.conversations):
        return f"{found.sentence} and stay on one side: {less_alike(threshold)}"
    if large:
        return f"{found.largest_sentence}: {smaller_groups(found, threshold)}"
    if document["block_s"] is None:
        return "there are too few conversations: import more traffic"
    return f"the traffic has {document['blocks']:,} time blocks: choose shorter ones, or import more traffic"
