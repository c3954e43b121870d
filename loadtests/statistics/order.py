"""In which order arms and levels run (design §6): drawn from the brief's seed, the same on every machine."""

from collections.abc import Sequence

from loadtests.traffic.arrivals import derived_seed

ARMS = ("baseline", "candidate")
A_A_ARMS = ("baseline", "control")


def arm_orders(pairs: int, seed: int, *, arms: tuple[str, str] = ARMS) -> list[tuple[str, str]]:
    """The arms of each pair (counted from 0) in the order they run: A B B A …, per block of two pairs.

    The first arm of a block is drawn, its second pair runs the other way round, so that a steady drift of the machine
    weighs on both arms alike. Raises ValueError for an odd or negative number of pairs. Source: design §6;
    counterbalancing as in Cox, "Planning of experiments" (1958) ch. 13.
    """
    if pairs < 0 or pairs % 2:
        raise ValueError(f"{pairs} pairs: the order is drawn per block of two")
    orders: list[tuple[str, str]] = []
    for block in range(pairs // 2):
        # One bit of a SHA-256 per block: no generator whose stream could change with a version.
        turned = derived_seed("arm order", seed, block) % 2 == 1
        first = (arms[1], arms[0]) if turned else arms
        orders += [first, (first[1], first[0])]
    return orders


def level_order(levels: Sequence[str], seed: int, pair: int) -> list[str]:
    """The levels in the order both arms of ``pair`` (counted from 0) run them, drawn per pair.

    Every order is equally likely: names sorted by a hash of seed, pair and name. Raises ValueError for equal names.
    """
    if len(set(levels)) != len(levels):
        raise ValueError("two levels have the same name")
    return sorted(levels, key=lambda name: derived_seed("level order", seed, pair, name))
