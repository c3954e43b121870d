"""Donors dealt to the parts of a split, so that each part has texts of every length that its requests ask for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.groups import Int32

Int64 = NDArray[np.int64]
Int8 = NDArray[np.int8]
NOBODY = -1


@dataclass(frozen=True)
class Deck:
    """Donors of one class (None: any) and one length, by index, and how many requests of each part ask for them."""

    class_: str | None
    bits: int
    donors: Int64
    asked: Int64


def dealt(decks: Iterable[Deck], group_of: Int32, *, seed: int) -> Int8:
    """The part of each donor, NOBODY where no request asks for it. ``group_of`` are the groups of texts that must
    stay together.

    Decks are dealt out one after the other, those with the fewest groups first, since they leave the least choice.
    In each, every part gets a group, the one with the most requests first; then a group goes to the part furthest
    below its share of the requests.
    """
    part_of_group = np.full(int(group_of.max()) + 1, NOBODY, dtype=np.int8)
    pending = [(np.unique(group_of[deck.donors]), deck) for deck in decks if len(deck.donors)]
    for groups, deck in sorted(pending, key=lambda one: (len(one[0]), one[1].bits, one[1].class_ or "")):
        taken = part_of_group[groups]
        free = groups[taken == NOBODY]
        have = np.bincount(taken[taken != NOBODY], minlength=len(deck.asked))
        drawn = generator_for("donor groups", seed, deck.class_ or "", deck.bits).permutation(free)
        for group, part in zip(drawn.tolist(), turns(deck.asked, have, len(groups)), strict=False):
            part_of_group[group] = part
    found: Int8 = part_of_group[group_of]
    return found


def turns(asked: Int64, have: Int64, groups: int) -> Iterator[int]:
    """The part that each further group goes to, for ever."""
    missing = asked / asked.sum() * groups - have
    most_first = np.argsort(-asked, kind="stable").tolist()
    without = [part for part in most_first if asked[part] and not have[part]]
    while True:
        part = without.pop(0) if without else int(missing.argmax())
        missing[part] -= 1
        yield part
