"""What is kept of a service's prompts, as its form says it: days, and one expression a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from decisions.services.set_privacy import LONGEST_RETENTION
from loadtests.traffic.importers.redaction import MOST_PATTERNS, REPLACEMENT, problem_of

ARROW = " => "


@dataclass(frozen=True)
class LineProblem:
    line: int
    sentence: str


@dataclass(frozen=True)
class PrivacyForm:
    """What was typed, and what is wrong with it."""

    days: str
    lines: str
    days_problem: str = ""
    line_problems: list[LineProblem] = field(default_factory=list)

    @property
    def problems(self) -> int:
        return len(self.line_problems) + bool(self.days_problem)

    @property
    def retention_days(self) -> int | None:
        return int(self.days) if self.days else None

    @property
    def redactions(self) -> list[dict[str, str]]:
        return [dict(zip(("pattern", "replacement"), pair, strict=True)) for _, pair in pairs_of(self.lines)]


def kept(retention_days: int | None, redactions: Sequence[Mapping[str, str]]) -> PrivacyForm:
    lines = "\n".join(f"{one['pattern']}{ARROW}{one['replacement']}" for one in redactions)
    return PrivacyForm("" if retention_days is None else str(retention_days), lines)


def typed(days: str, lines: str) -> PrivacyForm:
    days, lines = days.strip(), lines.replace("\r\n", "\n")
    found = pairs_of(lines)
    problems = [LineProblem(number, said) for number, pair in found if (said := problem_of(*pair))]
    if len(found) > MOST_PATTERNS:
        last = found[MOST_PATTERNS][0]
        problems.append(LineProblem(last, f"{MOST_PATTERNS} expressions are the most: join some with |"))
    return PrivacyForm(days, lines, days_problem(days), problems)


def days_problem(days: str) -> str:
    if not days or (days.isascii() and days.isdecimal() and len(days) < 6 and 1 <= int(days) <= LONGEST_RETENTION):
        return ""
    return f"a whole number of days from 1 to {LONGEST_RETENTION:,}, or empty to keep text until someone deletes it"


def pairs_of(lines: str) -> list[tuple[int, tuple[str, str]]]:
    """(line, (pattern, replacement)) of every line that isn't blank; spaces belong to what they stand in."""
    return [(number, pair_of(line)) for number, line in enumerate(lines.split("\n"), start=1) if line.strip()]


def pair_of(line: str) -> tuple[str, str]:
    pattern, arrow, replacement = line.rpartition(ARROW)
    if arrow:
        return pattern, replacement
    # An arrow at the end replaces by nothing; many editors drop the space after it.
    return (line.removesuffix(ARROW.rstrip()), "") if line.endswith(ARROW.rstrip()) else (line, REPLACEMENT)
