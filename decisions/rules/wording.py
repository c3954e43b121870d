"""Numbers as an owner reads them: a unit on each, a real minus sign, as few digits as matter."""

import math
from collections.abc import Sequence

from decisions.rules.brief import Cell
from loadtests.traffic.levels import Arrival

MINUS = "−"
BASELINE = "baseline"
MOST_DIGITS = 6


def signed(number: float, digits: int = 1) -> str:
    text = f"{abs(number):.{digits}f}"
    if float(text) == 0:
        return text
    return (MINUS if number < 0 else "+") + text


def share(number: float, digits: int = 1) -> str:
    """0.949 → '94.9 %'; small shares keep the digits that tell them from zero."""
    percent = 100 * number
    return f"{percent:.{max(digits, 1 if percent >= 1 or percent == 0 else 2)}f} %"


def digits_apart(limit: float, *numbers: float | None, least: int = 1) -> int:
    """The fewest digits after the point with which no number reads as the limit does unless it is the same, but for
    what no reader would call a difference."""
    others = [one for one in numbers if one is not None and math.isfinite(one) and abs(one - limit) > 10**-MOST_DIGITS]
    told = (digits for digits in range(least, MOST_DIGITS) if reads_apart(limit, others, digits))
    return next(told, MOST_DIGITS)


def reads_apart(limit: float, others: Sequence[float], digits: int) -> bool:
    return all(f"{one:.{digits}f}" != f"{limit:.{digits}f}" for one in others)


def quantity(number: float | None, unit: str, digits: int | None = None) -> str:
    """``digits`` after the point, at least, of a share in percent or of seconds."""
    if number is None or not math.isfinite(number):
        return "never" if unit == "s" else "not known"
    if unit == "share":
        return share(number, digits or 1)
    if unit == "s":
        return f"{number:.{max(digits or 0, 2)}f} s"
    if unit == "cases":
        return counted(round(number), "case")
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.1f} {unit}"


def change(number: float | None, scale: str, digits: int = 1) -> str:
    """A difference of shares in points, or a ratio minus one in percent."""
    if number is None or not math.isfinite(number):
        return "no number"
    return f"{signed(100 * number, digits)} {'points' if scale == 'difference' else '%'}"


def amount(number: float, scale: str) -> str:
    """What a brief asks for: 0.01 → '1 point' of a difference of shares, '1 %' of a ratio."""
    text = f"{100 * number:g}"
    if scale != "difference":
        return f"{text} %"
    return f"{text} point" if text == "1" else f"{text} points"


def interval(low: float | None, high: float | None, scale: str, digits: int = 1) -> str:
    """'+2.4 to +5.0', '+100.0 % or more', 'no bound either way'."""
    bounds = [None if one is None or not math.isfinite(one) else one for one in (low, high)]
    if bounds == [None, None]:
        return "no bound either way"
    if None in bounds:
        end = next(one for one in bounds if one is not None)
        return f"{change(end, scale, digits)} or {'more' if bounds[1] is None else 'less'}"
    ends = " to ".join(signed(100 * one, digits) for one in bounds if one is not None)
    return ends + ("" if scale == "difference" else " %")


def confidence(level: float) -> str:
    return f"{100 * level:.4g} %"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def capitalised(said: str) -> str:
    return said[:1].upper() + said[1:]


def arm_said(arm: str) -> str:
    """A candidate goes by its name."""
    return "the baseline" if arm == BASELINE else arm


def at(cell: Cell) -> str:
    return at_level(cell.level, cell.class_)


def at_level(level: str, class_: str) -> str:
    return f"at {level}" + ("" if class_ == "all" else f" for {class_}")


def process_words(arrival: Arrival) -> str:
    """An arrival process with its rates, as "on–off: 5 requests/s for 10 s, then none for 20 s"."""
    if arrival.process == "replay":
        scale = arrival.time_scale or 1
        return "replayed as recorded" if scale == 1 else f"replayed, times × {scale:g}"
    rate = f"{arrival.rate:g} requests/s"
    if arrival.process == "on-off":
        quiet = f"{arrival.rate_off:g} requests/s" if arrival.rate_off else "none"
        return f"on–off: {rate} for {arrival.on_s:g} s, then {quiet} for {arrival.off_s:g} s"
    if arrival.process == "ramp":
        return f"ramp from {arrival.rate:g} to {arrival.rate_to:g} requests/s"
    bursts = f", bursts (variation {arrival.cv:g})" if arrival.cv and arrival.cv > 1 else ""
    return f"{arrival.process}, {rate}{bursts}"
