"""How the parts of a traffic set look in every picture: a colour, and a dash or a pattern beside it."""

from typing import NamedTuple

from decisions.charts.figure import ACCENT, GREY, SOFT

TUNING = "tuning"
HELD_OUT = "held-out"


class Look(NamedTuple):
    colour: str
    dash: str
    pattern: str


LOOKS = {TUNING: Look(GREY, "6px,2px", ""), HELD_OUT: Look(ACCENT, "solid", "/")}
OTHER = Look(SOFT, "2px,2px", ".")


def look_of(part: str) -> Look:
    return LOOKS.get(part, OTHER)
