"""The verdict: from the frozen brief and the evidence to PASS, FAIL, INCONCLUSIVE or INVALID (design §6).

Pure and versioned: the same brief, nominee and trials, in any order, give the same document on every machine. A verdict
names the version that made it, and every version that ever made one can still be called by its name.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from decisions.rules.behaviour import Behaviour
from decisions.rules.brief import Brief, Suite, parse_brief
from decisions.rules.capacity import capacity_rows
from decisions.rules.evidence import TrialEvidence
from decisions.rules.guardrails import guardrail_rows
from decisions.rules.level_summary import level_rows, pairs_as_run
from decisions.rules.looks import belonging, judged_by, look_reached
from decisions.rules.noise_floor import noise_floor
from decisions.rules.nomination import tuning_rows
from decisions.rules.outcome import outcome_rows
from decisions.rules.plain import plain
from decisions.rules.requirements import Row, after_holm, broken_rows
from decisions.rules.sentences import (
    fail_sentence,
    inconclusive_sentence,
    invalid_sentence,
    nobody_sentence,
    pass_sentence,
)
from decisions.rules.trial_summary import trial_rows
from decisions.rules.validity import Check, checks, held_out_pairs, identified
from loadtests.canonical import canonical, digest
from loadtests.statistics.looks import Look

VERDICT_CODE = "draftproof.verdict/2"
FIRST_CODE = "draftproof.verdict/1"
CODES = (FIRST_CODE, VERDICT_CODE)
# What the first version didn't know: a brief that asks for one of these was never judged by it.
LATER_METRICS = frozenset({"slo_goodput", "capacity", "cancelled_share", "preemptions", "behaviour"})
Result = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]

NOT_COVERED = "Preserved behaviour (the same output with and without speculation) is not part of this verdict."
NO_TUNING = "Tuning trials of the candidates beside the baseline."
WEAKEST_FIRST = ("simulated", "imported", "measured")


@dataclass(frozen=True)
class Findings:
    """Everything a verdict is drawn from, once computed."""

    outcome: list[Row]
    guardrails: list[Row]
    checks: list[Check]
    floor: dict[str, Any]
    broken: list[Row]
    later: bool

    @property
    def too_small(self) -> list[Row]:
        return [row for row in self.outcome if row.role == "improve" and row.shown == "broken"]

    @property
    def missed(self) -> list[Row]:
        """The outcome first, then the guardrails, then the levels that had only to be no worse."""
        return self.too_small + sorted(self.broken, key=lambda row: row.role != "guardrail")

    @property
    def required(self) -> list[Row]:
        return [row for row in [*self.outcome, *self.guardrails] if row.role != "reported"]

    @property
    def result(self) -> Result:
        if any(one.ok is False for one in self.checks):
            return "INVALID"
        if (self.broken or self.too_small) and not self.too_early:
            return "FAIL"
        shown = all(row.shown == "shown" for row in self.required)
        valid = all(one.ok for one in self.checks)
        return "PASS" if shown and valid and self.floor["ok"] else "INCONCLUSIVE"

    @property
    def too_early(self) -> bool:
        """Before the first planned look nothing is decided either way (from verdict/2 on): alpha is for what the brief
        planned, and whoever looks pair by pair would see every candidate fail once."""
        return self.later and any(one.id == "pairs" and one.ok is None for one in self.checks)

    @property
    def settles(self) -> list[str]:
        if self.result != "INCONCLUSIVE":
            return []
        unknown = {one.id: one.settles for one in self.checks if one.ok is None}
        floors = [row["sentence"] for row in self.floor["cells"] if row["ok"] is False]
        if "pairs" in unknown:  # what else is open may look different once the planned pairs are complete
            return [unknown.pop("pairs"), *unknown.values(), *floors]
        return [*unknown.values(), *floors, *(row.settles for row in self.required if row.shown != "shown")]


@dataclass(frozen=True)
class Judged:
    """What a verdict is computed for: the brief as frozen, as its look judges it, and the trials of that look."""

    frozen: Brief
    brief: Brief
    nominee: str | None
    trials: list[TrialEvidence]
    look: Look
    behaviour: Behaviour | None
    code: str

    def of(self, purpose: str) -> list[TrialEvidence]:
        return [one for one in self.trials if one.purpose == purpose]


def verdict_content(
    brief: bytes,
    nominee: str | None,
    trials: Sequence[TrialEvidence],
    evidence: Sequence[str],
    *,
    behaviour: Behaviour | None = None,
    suite_to_come: bool = False,
    code: str = VERDICT_CODE,
) -> bytes:
    """The verdict's canonical bytes, from the frozen brief's; ``evidence`` are the digests of the trials' manifests.

    Raises ValueError as ``verdict`` does, and where the bytes are no brief.
    """
    asked = parse_brief(json.loads(brief))
    document = verdict(asked, nominee, trials, behaviour=behaviour, suite_to_come=suite_to_come, code=code)
    return canonical(document | {"brief": digest(brief), "evidence": sorted(evidence)})


def verdict(
    brief: Brief,
    nominee: str | None,
    trials: Sequence[TrialEvidence],
    *,
    behaviour: Behaviour | None = None,
    suite_to_come: bool = False,
    code: str = VERDICT_CODE,
) -> dict[str, Any]:
    """The verdict document, ready for RFC 8785; ``nominee`` None means that nobody was nominated. ``suite_to_come``: a
    look on the way, which the guardrail on preserved behaviour has no part in.

    Raises ValueError for a nominee that isn't a candidate of the brief, and for a version that there isn't or that
    didn't know what the brief asks for.
    """
    if nominee is not None and not brief.has_candidate(nominee):
        raise ValueError(f"{nominee!r} is not a candidate of this brief")
    check_code(brief, code)
    look = look_reached(brief, trials)
    kept = sorted(belonging(brief, trials, look), key=lambda one: one.order)
    by_look = without_suite(judged_by(brief, look)) if suite_to_come else judged_by(brief, look)
    judged = Judged(brief, by_look, nominee, kept, look, behaviour, code)
    found = findings(judged)
    result = found.result if nominee else without_nominee(found, judged.trials)
    document = first_document(judged, found, result)
    if code != FIRST_CODE:
        document |= later_fields(judged, document)
    plainly: dict[str, Any] = plain(document)
    return plainly


def without_suite(brief: Brief) -> Brief:
    rails = tuple(rail for rail in brief.guardrails if rail.metric != "behaviour")
    return brief.model_copy(update={"guardrails": rails, "behaviour": None})


def check_code(brief: Brief, code: str) -> None:
    if code not in CODES:
        raise ValueError(f"there is no verdict code {code!r}; there are: {', '.join(CODES)}")
    asked = {brief.outcome.metric, *(rail.metric for rail in brief.guardrails)}
    unknown = sorted(asked & LATER_METRICS)
    if code == FIRST_CODE and (unknown or brief.capacity or brief.rule.looks > 1):
        raise ValueError(f"{FIRST_CODE} knows no {', '.join(unknown) or 'ladder, and one look alone'}")


def first_document(judged: Judged, found: Findings, result: Result) -> dict[str, Any]:
    brief, nominee, held_out = judged.brief, judged.nominee, judged.of("held-out")
    return {
        "code": judged.code,
        "brief": judged.frozen.digest,
        "nominee": nominee,
        "configuration": brief.configuration(nominee or "baseline").digest,
        "verdict": result,
        "sentence": sentence(judged, found, result),
        "settles": settles(judged, found, result),
        "confidence": judged.frozen.rule.confidence,
        "outcome": [row.document for row in found.outcome],
        "guardrails": [row.document for row in found.guardrails],
        "broken": [row.fields["id"] for row in found.missed],
        "validity": [one.document for one in found.checks],
        "noise_floor": found.floor,
        "tuning": tuning_rows(brief, judged.of("tuning")),
        "levels": level_rows(brief, held_out),
        "fallback": level_rows(brief, judged.of("fallback")),
        "pairs": pairs_as_run(held_out),
        "evidence_class": evidence_class(judged.trials),
        "limits": limits(judged),
    }


def later_fields(judged: Judged, document: dict[str, Any]) -> dict[str, Any]:
    """What the second version adds to the first one's document."""
    held_out, look = judged.of("held-out"), judged.look
    return {
        "look": {"number": look.number, "of": judged.frozen.rule.looks, "pairs": look.pairs, "alpha": look.alpha},
        "capacity": capacity_rows(judged.brief, held_out),
        "trials": trial_rows(judged.brief, held_out),
        "levels": [with_goodput(row, judged) for row in document["levels"]],
    }


def with_goodput(row: dict[str, Any], judged: Judged) -> dict[str, Any]:
    """Requests within deadline per second: over all trials of an arm at a level together."""
    arms = [one for one in judged.of("held-out") if (one.level, one.arm) == (row["level"], row["arm"])]
    seconds = sum(one.window_s for one in arms)
    known = row["attainment"] is not None and seconds > 0
    return row | {"slo_goodput_per_s": row["within_deadline"] / seconds if known else None}


def settles(judged: Judged, found: Findings, result: Result) -> list[str]:
    if judged.nominee is None:
        return [NO_TUNING] if result == "INCONCLUSIVE" else []
    said = found.settles
    later = judged.look.number < judged.frozen.rule.looks
    if said and later and all(one.ok for one in found.checks if one.id == "pairs"):
        following = judged.frozen.rule.planned_looks[judged.look.number]
        return [f"The next planned look, after {following.pairs} pairs.", *said]
    return said


def without_nominee(found: Findings, trials: Sequence[TrialEvidence]) -> Result:
    """Speculation has to earn its place: where tuning gave no candidate, the brief's question is answered with no."""
    if found.result == "INVALID":
        return "INVALID"
    return "FAIL" if any(one.purpose == "tuning" for one in trials) else "INCONCLUSIVE"


def findings(judged: Judged) -> Findings:
    brief = judged.brief
    later = judged.code != FIRST_CODE
    validity = checks(brief, judged.nominee, judged.trials, later=later)
    if later:
        validity = [identified(one, judged.trials) for one in validity]
    # What all the planned pairs can show at the last look, whichever this one is.
    floor = noise_floor(judged_by(judged.frozen, judged.frozen.rule.planned_looks[-1]), judged.trials)
    if judged.nominee is None:
        return Findings([], [], validity, floor, [], later)
    pairs = held_out_pairs(brief, judged.trials)
    rails = guardrail_rows(brief, pairs, judged.behaviour, later=later)
    outcome = outcome_rows(brief, pairs, later=later)
    broken = broken_rows([*outcome, *rails], brief.rule.alpha)
    return Findings(after_holm(outcome, broken), after_holm(rails, broken), validity, floor, broken, later)


def sentence(judged: Judged, found: Findings, result: Result) -> str:
    brief, nominee, later = judged.brief, judged.nominee, judged.code != FIRST_CODE
    if result == "INVALID":
        return invalid_sentence(found.checks)
    if nominee is None and result == "INCONCLUSIVE":
        return "Nothing was measured yet, so there is nothing to say for or against speculation."
    if nominee is None:
        return nobody_sentence(tuning_rows(brief, judged.of("tuning")))
    if result == "PASS":
        return pass_sentence(brief, nominee, found.outcome, later=later)
    if result == "FAIL":
        return fail_sentence(brief, nominee, found.missed, later=later)
    return inconclusive_sentence(brief, nominee, found.outcome, settles(judged, found, result), later=later)


def evidence_class(trials: Sequence[TrialEvidence]) -> str | None:
    """The weakest class among the trials: only measured evidence can carry an approval."""
    classes = {one.evidence_class for one in trials}
    return next((one for one in WEAKEST_FIRST if one in classes), None)


def limits_of_suite(asked: Suite | None) -> Iterator[str]:
    if asked is None:
        yield NOT_COVERED
    elif asked.only:
        yield f"Preserved behaviour was asked of these cases alone: {', '.join(asked.only)}."


def limits(judged: Judged) -> list[str]:
    found = [*limits_of_suite(judged.brief.suite)]
    weakest = evidence_class(judged.trials)
    if weakest in ("simulated", "imported"):
        return [f"Some of the evidence is {weakest}: it can't carry an approval.", *found]
    return found
