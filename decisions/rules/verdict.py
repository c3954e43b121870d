"""The verdict: from the frozen brief and the evidence to PASS, FAIL, INCONCLUSIVE or INVALID (design §6).

Pure and versioned: the same brief, nominee and trials, in any order, give the same document on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.gates import Row, after_holm, broken_rows, guardrail_rows, outcome_rows
from decisions.rules.level_summary import level_rows, pairs_as_run
from decisions.rules.noise_floor import noise_floor
from decisions.rules.nomination import tuning_rows
from decisions.rules.plain import plain
from decisions.rules.sentences import (
    fail_sentence,
    inconclusive_sentence,
    invalid_sentence,
    nobody_sentence,
    pass_sentence,
)
from decisions.rules.validity import Check, checks, held_out_pairs

VERDICT_CODE = "draftproof.verdict/1"
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
        if self.broken or self.too_small:
            return "FAIL"
        shown = all(row.shown == "shown" for row in self.required)
        valid = all(one.ok for one in self.checks)
        return "PASS" if shown and valid and self.floor["ok"] else "INCONCLUSIVE"

    @property
    def settles(self) -> list[str]:
        if self.result != "INCONCLUSIVE":
            return []
        unknown = {one.id: one.settles for one in self.checks if one.ok is None}
        floors = [row["sentence"] for row in self.floor["cells"] if row["ok"] is False]
        if "pairs" in unknown:  # what else is open may look different once the planned pairs are complete
            return [unknown.pop("pairs"), *unknown.values(), *floors]
        return [*unknown.values(), *floors, *(row.settles for row in self.required if row.shown != "shown")]


def verdict(brief: Brief, nominee: str | None, trials: Sequence[TrialEvidence]) -> dict[str, Any]:
    """The verdict document, ready for RFC 8785; ``nominee`` None means that nobody was nominated.

    Raises ValueError for a nominee that isn't a candidate of the brief.
    """
    if nominee is not None and nominee not in {one.name for one in brief.candidates}:
        raise ValueError(f"{nominee!r} is not a candidate of this brief")
    trials = sorted(trials, key=lambda one: one.order)
    found = findings(brief, nominee, trials)
    held_out = [one for one in trials if one.purpose == "held-out"]
    result = found.result if nominee else without_nominee(found, trials)
    document: dict[str, Any] = plain(
        {
            "code": VERDICT_CODE,
            "brief": brief.digest,
            "nominee": nominee,
            "configuration": brief.configuration(nominee or "baseline").digest,
            "verdict": result,
            "sentence": sentence(brief, nominee, trials, found, result),
            "settles": found.settles if nominee else [NO_TUNING] if result == "INCONCLUSIVE" else [],
            "confidence": brief.rule.confidence,
            "outcome": [row.document for row in found.outcome],
            "guardrails": [row.document for row in found.guardrails],
            "broken": [row.fields["id"] for row in found.missed],
            "validity": [one.document for one in found.checks],
            "noise_floor": found.floor,
            "tuning": tuning_rows(brief, [one for one in trials if one.purpose == "tuning"]),
            "levels": level_rows(brief, held_out),
            "fallback": level_rows(brief, [one for one in trials if one.purpose == "fallback"]),
            "pairs": pairs_as_run(held_out),
            "evidence_class": evidence_class(trials),
            "limits": limits(trials),
        }
    )
    return document


def without_nominee(found: Findings, trials: Sequence[TrialEvidence]) -> Result:
    """Speculation has to earn its place: where tuning gave no candidate, the brief's question is answered with no."""
    if found.result == "INVALID":
        return "INVALID"
    return "FAIL" if any(one.purpose == "tuning" for one in trials) else "INCONCLUSIVE"


def findings(brief: Brief, nominee: str | None, trials: Sequence[TrialEvidence]) -> Findings:
    validity = checks(brief, nominee, trials)
    floor = noise_floor(brief, trials)
    if nominee is None:
        return Findings([], [], validity, floor, [])
    pairs = held_out_pairs(brief, trials)
    outcome, rails = outcome_rows(brief, pairs), guardrail_rows(brief, pairs)
    broken = broken_rows([*outcome, *rails], brief.rule.alpha)
    return Findings(after_holm(outcome, broken), after_holm(rails, broken), validity, floor, broken)


def sentence(
    brief: Brief, nominee: str | None, trials: Sequence[TrialEvidence], found: Findings, result: Result
) -> str:
    if result == "INVALID":
        return invalid_sentence(found.checks)
    if nominee is None and result == "INCONCLUSIVE":
        return "Nothing was measured yet, so there is nothing to say for or against speculation."
    if nominee is None:
        return nobody_sentence(tuning_rows(brief, [one for one in trials if one.purpose == "tuning"]))
    if result == "PASS":
        return pass_sentence(brief, nominee, found.outcome)
    if result == "FAIL":
        return fail_sentence(brief, nominee, found.missed)
    return inconclusive_sentence(brief, nominee, found.outcome, found.settles)


def evidence_class(trials: Sequence[TrialEvidence]) -> str | None:
    """The weakest class among the trials: only measured evidence can carry an approval."""
    classes = {one.evidence_class for one in trials}
    return next((one for one in WEAKEST_FIRST if one in classes), None)


def limits(trials: Sequence[TrialEvidence]) -> list[str]:
    weakest = evidence_class(trials)
    if weakest in ("simulated", "imported"):
        return [f"Some of the evidence is {weakest}: it can't carry an approval.", NOT_COVERED]
    return [NOT_COVERED]
