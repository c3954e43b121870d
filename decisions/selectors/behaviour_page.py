"""What the preserved-behaviour suite is at and what it found, as its pages show it."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from decisions.models import BehaviourResult, BriefRevision
from decisions.rules.brief import Brief
from decisions.rules.states import MEASURING
from decisions.selectors.runs import SuiteRow, suite_row
from loadtests.behaviour.answers import Line, read_line
from loadtests.behaviour.case import EVERY_MANNER, first_difference
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import (
    WORST_FIRST,
    CaseResult,
    CaseRun,
    Difference,
    Finding,
    State,
    SuiteResult,
    Tier,
    read_result,
)
from loadtests.canonical import canonical
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.models import Boot, Campaign, SuiteRun
from loadtests.models.campaign import latest_attempts

# Of one case in one manner.
MOST_LISTED = 100
# Characters of one text, and of one line of the answers, that a page shows.
MOST_TEXT = 20_000
MOST_LINE = 60_000
# Instead of the title that an owner wrote.
VEILED = "One of the service’s own cases"
# Characters before the first difference, where not all of a text is shown.
BEFORE = 2_000

# not-asked: no guardrail of the brief rests on the suite. nobody: no candidate to ask. judging: the answers are there.
# ended: the brief came to its end without it.
Stage = Literal["not-asked", "ahead", "nobody", "running", "judging", "stopped", "ended", "judged"]
# Seen while it changes by itself.
LIVE: tuple[Stage, ...] = ("running", "judging")


# How far it is


def suite_campaign(campaigns: Sequence[Campaign]) -> Campaign | None:
    """The last one: an earlier one was stopped."""
    found = [one for one in campaigns if one.purpose == Campaign.Purpose.BEHAVIOUR]
    return found[-1] if found else None


def stage_of(revision: BriefRevision, document: Brief, campaign: Campaign | None, judged: bool) -> Stage:
    if document.suite is None:
        return "not-asked"
    if judged:
        return "judged"
    measuring = revision.state == MEASURING
    if campaign is not None:
        return stage_of_campaign(campaign, measuring)
    if revision.nomination is not None and not revision.nominee:
        return "nobody"
    return "ahead" if measuring or revision.state in ("draft", "frozen") else "ended"


def stage_of_campaign(campaign: Campaign, measuring: bool) -> Stage:
    if campaign.state in Campaign.OPEN:
        return "running"
    if campaign.state == Campaign.State.DONE:
        return "judging" if measuring else "ended"
    return "stopped"


@dataclass(frozen=True)
class SuiteBoot:
    """``replaced``: another attempt took its place."""

    boot: Boot
    suite: SuiteRow | None
    replaced: bool


def suite_boot_rows(campaign: Campaign) -> list[SuiteBoot]:
    """In the order in which they run; every attempt."""
    runs = {one.boot_id: one for one in SuiteRun.objects.filter(boot__campaign=campaign)}
    boots = list(campaign.boots.all())
    latest = {one.pk for one in latest_attempts(boots)}
    return [
        SuiteBoot(boot, suite_row(runs[boot.pk]) if boot.pk in runs else None, boot.pk not in latest) for boot in boots
    ]


# What was found


@dataclass(frozen=True)
class Stored:
    """``result`` is None where its bytes can't be had or read, and ``missing`` then says why."""

    result: SuiteResult | None
    missing: str = ""


def stored_result(found: BehaviourResult) -> Stored:
    """Raises EvidenceUnreachable while the store can't be asked."""
    try:
        return Stored(read_result(evidence_store().get(found.digest)))
    except EvidenceUnreachable:
        raise
    except (EvidenceMissing, EvidenceDamaged) as error:
        return Stored(None, str(error))
    except ValueError:
        return Stored(None, f"evidence {found.digest} is no result of the suite that this version can read")


@dataclass(frozen=True)
class Cell:
    """``run`` is None where the case isn't asked in that manner."""

    manner: str
    run: CaseRun | None


@dataclass(frozen=True)
class MatrixRow:
    case: CaseResult
    cells: list[Cell]


@dataclass(frozen=True)
class TierRows:
    tier: Tier
    counts: list[tuple[State, int]]
    rows: list[MatrixRow]


def matrix(result: SuiteResult) -> list[TierRows]:
    tiers = dict.fromkeys(sorted(one.tier for one in result.cases))
    return [tier_rows(tier, [one for one in result.cases if one.tier == tier]) for tier in tiers]


def tier_rows(tier: Tier, cases: Sequence[CaseResult]) -> TierRows:
    return TierRows(tier, counts_of(cases), [MatrixRow(one, cells_of(one)) for one in cases])


def counts_of(cases: Sequence[CaseResult]) -> list[tuple[State, int]]:
    """The worst first; none that there is none of."""
    counted = [(state, sum(one.state == state for one in cases)) for state in WORST_FIRST]
    return [one for one in counted if one[1]]


def cells_of(case: CaseResult) -> list[Cell]:
    runs = {one.manner: one for one in case.runs}
    return [Cell(one.id, runs.get(one.id)) for one in EVERY_MANNER]


@dataclass(frozen=True)
class Named:
    """A case with the run that made it what it is."""

    case: CaseResult
    run: CaseRun | None


def named(result: SuiteResult, *states: State) -> list[Named]:
    """The cases that came to one of these states, in their order, each with a run that says why."""
    return [Named(one, run_of(one, state)) for state in states for one in result.cases if one.state == state]


def run_of(case: CaseResult, state: State) -> CaseRun | None:
    """Of several manners one that came to the case's own state: a comparison that is open in one may hold in others.
    Where only their sum did (nothing told of drafts in any), the first."""
    return next((run for run in case.runs if run.finding.state == state), next(iter(case.runs), None))


def found_run(result: SuiteResult, case: str, manner: str) -> tuple[CaseResult, CaseRun] | None:
    return next(
        ((one, run) for one in result.cases if one.id == case for run in one.runs if run.manner == manner), None
    )


def has_own_cases(result: SuiteResult) -> bool:
    return any(is_own(one) for one in result.cases)


def is_own(case: CaseResult) -> bool:
    """The service's own case: its prompts and outputs are personal data."""
    return case.source == "owner"


def without_texts(result: SuiteResult) -> SuiteResult:
    """What may be seen by whoever may not read the service's own cases: of these the states, counts and numbers."""
    return result.model_copy(update={"cases": tuple(veiled(one) if is_own(one) else one for one in result.cases)})


def veiled(case: CaseResult) -> CaseResult:
    return case.model_copy(update={"title": VEILED, "said": "", "runs": tuple(veiled_run(one) for one in case.runs)})


def veiled_run(run: CaseRun) -> CaseRun:
    alone = {
        name: one and veiled_finding(one) for name, one in (("baseline", run.baseline), ("candidate", run.candidate))
    }
    return run.model_copy(update={"finding": veiled_finding(run.finding), **alone})


def veiled_finding(finding: Finding) -> Finding:
    numbers = {name: one for name, one in finding.numbers.items() if isinstance(one, int | float)}
    return Finding(state=finding.state, said="", numbers=numbers)


# Two texts beside each other


@dataclass(frozen=True)
class Text:
    """``mark`` is the character at which it parts from the other, and empty where it ends there or nowhere parts.
    ``left_out``: characters before what is shown, ``cut`` behind it."""

    before: str
    mark: str
    after: str
    ends: bool = False
    left_out: int = 0
    cut: int = 0

    @property
    def empty(self) -> bool:
        return not (self.before or self.mark or self.after or self.left_out)

    @property
    def shown_mark(self) -> str:
        """What can be seen of a character that leaves no trace."""
        return {"\n": "↵\n", " ": "␣", "\t": "⇥"}.get(self.mark, self.mark)


@dataclass(frozen=True)
class Apart:
    """``at`` is None where the texts are the same. ``left_is``: whose text stands there; None where nobody has one."""

    label: str
    choice: int
    at: int | None
    left_is: Literal["baseline", "expected"] | None
    left: Text | None
    right: Text


def apart_of(one: Difference) -> Apart:
    """As the result shows it, by excerpts."""
    left_is, left = left_of(one)
    if left is None:
        return Apart(label_of(one.answer), one.choice, one.at, None, None, text(one.candidate, None, one.begins))
    at = parting(left, one.candidate)
    return Apart(
        label_of(one.answer),
        one.choice,
        None if at is None else one.begins + at,
        left_is,
        text(left, at, one.begins),
        text(one.candidate, at, one.begins),
    )


def left_of(one: Difference) -> tuple[Literal["baseline", "expected"] | None, str | None]:
    if one.expected is not None:
        return "expected", one.expected
    return ("baseline", one.baseline) if one.baseline is not None else (None, None)


def label_of(answer: str) -> str:
    """Of case/manner/label."""
    return answer.split("/", 2)[-1]


def parting(left: str, right: str) -> int | None:
    return None if left == right else first_difference(left, right)


def text(whole: str, at: int | None, left_out: int = 0, cut: int = 0) -> Text:
    if at is None:
        return Text(whole, "", "", left_out=left_out, cut=cut)
    return Text(whole[:at], whole[at : at + 1], whole[at + 1 :], at >= len(whole), left_out, cut)


def whole_texts(label: str, baseline: Reply | None, candidate: Reply | None) -> list[Apart]:
    """Every choice of two answers, as far as a page shows them."""
    left, right = choices_of(baseline), choices_of(candidate)
    return [whole_text(label, index, left.get(index), right.get(index)) for index in sorted({*left, *right})]


def choices_of(reply: Reply | None) -> dict[int, Choice]:
    return {one.index: one for one in reply.choices} if reply else {}


def whole_text(label: str, index: int, left: Choice | None, right: Choice | None) -> Apart:
    one, other = spoken(left), spoken(right)
    at = parting(one, other)
    begins = max(0, at - BEFORE) if at is not None and max(len(one), len(other)) > MOST_TEXT else 0

    def window(whole: str) -> Text:
        shown = whole[begins : begins + MOST_TEXT]
        cut = max(0, len(whole) - begins - MOST_TEXT)
        return text(shown, None if at is None else at - begins, begins, cut)

    return Apart(label, index, at, "baseline", window(one), window(other))


def spoken(choice: Choice | None) -> str:
    """What a user sees of a choice; the arguments of a tool call where there is no text."""
    if choice is None:
        return ""
    return choice.text or "\n".join(f"{call.name}({call.arguments})" for call in choice.calls)


# The answers themselves


@dataclass(frozen=True)
class Exchange:
    """One request, and what either server answered; None where it was not asked."""

    label: str
    baseline: Line | None
    candidate: Line | None

    @property
    def line(self) -> Line | None:
        return self.baseline or self.candidate

    @property
    def replies(self) -> tuple[Reply | None, Reply | None]:
        baseline, candidate = (None if one is None else one.reply for one in (self.baseline, self.candidate))
        return baseline, candidate

    @property
    def said(self) -> str:
        """How the two answers lie to each other, in words."""
        for name, reply in zip(("baseline", "candidate"), self.replies, strict=True):
            if reply is None:
                return f"the {name} was not asked"
            if reply.status != "answered":
                return f"the {name} {'refused' if reply.status == 'refused' else 'gave no answer'}"
        at = next((one.at for one in whole_texts(self.label, *self.replies) if one.at is not None), None)
        return "the same text" if at is None else f"apart from character {at + 1:,} on"


@dataclass(frozen=True)
class Exchanges:
    """``more``: how many further ones there are. ``missing``: why they can't be shown."""

    listed: list[Exchange]
    more: int = 0
    missing: str = ""


def exchanges_of(found: BehaviourResult, case: str, manner: str, wanted: Container[str]) -> Exchanges:
    """The first of them, and those whose labels are ``wanted``. Raises EvidenceUnreachable."""
    try:
        sides = [kept_lines(found.answers.get(arm, ""), case, manner) for arm in ("baseline", "candidate")]
        labels = list(dict.fromkeys([*sides[0], *sides[1]]))
        listed = [*labels[:MOST_LISTED], *(one for one in labels[MOST_LISTED:] if one in wanted)]
        return Exchanges(
            [exchange(one, *(side.get(one) for side in sides)) for one in listed], len(labels) - len(listed)
        )
    except EvidenceUnreachable:
        raise
    except (EvidenceMissing, EvidenceDamaged) as error:
        return Exchanges([], missing=str(error))
    except (ValueError, KeyError):
        return Exchanges([], missing="they are no lines that this version can read")


def exchange(label: str, baseline: bytes | None, candidate: bytes | None) -> Exchange:
    old, new = (None if one is None else read_line(one) for one in (baseline, candidate))
    return Exchange(label, old, new)


def kept_lines(digest: str, case: str, manner: str) -> dict[str, bytes]:
    """By label, unread: a case may have thousands."""
    if not digest:
        raise EvidenceMissing("no answers were kept")
    return lines_of(evidence_store().get(digest), case, manner)


def lines_of(content: bytes, case: str, manner: str) -> dict[str, bytes]:
    """A line is canonical, so its id is written as here; the first one is the file's head."""
    begins = b'"id":' + canonical(f"{case}/{manner}/")[:-1]
    label = re.compile(re.escape(begins) + rb'((?:[^"\\]|\\.)*)"')
    found = ((label.search(line), line) for line in islice(content.splitlines(), 1, None))
    return {json.loads(b'"%b"' % at[1]): line for at, line in found if at}


@dataclass(frozen=True)
class Request:
    """``said``: (role, text) of each message, or of the prompt; ``settings`` is everything else."""

    said: list[tuple[str, str]]
    settings: dict[str, Any]


def request_of(line: Line) -> Request:
    body = dict(line.request)
    messages = [one for one in body.pop("messages", ()) if isinstance(one, Mapping)]
    said = [(str(one.get("role", "")), words_of(one.get("content"))) for one in messages]
    if "prompt" in body:
        said.append(("prompt", words_of(body.pop("prompt"))))
    return Request(said, body)


def words_of(content: object) -> str:
    """A text, or parts of one; token ids and whatever else there may be are written as they are."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
