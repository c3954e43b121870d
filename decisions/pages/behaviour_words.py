"""The words of the behaviour tab: what tiers, states and outcomes mean, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from decisions.rules.brief import Suite
from decisions.rules.wording import counted, share
from loadtests.behaviour.result import SERVERS, CaseRun, Declared, Finding, Outcome, Rule, State, SuiteResult, Tier


@dataclass(frozen=True)
class OutcomeWords:
    """``kind`` is the colour of the card."""

    word: str
    icon: str
    kind: str


OUTCOMES: dict[Outcome, OutcomeWords] = {
    "held": OutcomeWords("HELD", "check", "pass"),
    "broken": OutcomeWords("BROKEN", "cross", "fail"),
    "not_exercised": OutcomeWords("NOT EXERCISED", "circle", "invalid"),
    "cannot_tell": OutcomeWords("CANNOT TELL", "question", "inconclusive"),
    "failed": OutcomeWords("CAME TO NO END", "void", "invalid"),
}


@dataclass(frozen=True)
class TierWords:
    name: str
    meaning: str


TIERS: dict[Tier, TierWords] = {
    "T1": TierWords(
        "Greedy output",
        "Greedy tokens against the baseline’s, beside what the baseline does against itself. A divergence is excused "
        "only where the baseline’s own two best tokens tie.",
    ),
    "T2": TierWords(
        "Rules that need no baseline",
        "Formats, stop strings, lengths, log probabilities, streaming: what a request asks for must be so in every "
        "answer. A rule that the baseline breaks as well says nothing about speculation.",
    ),
    "T3": TierWords(
        "Sampled output",
        "Tokens 2 to 6 of sampled answers: their distribution against the baseline’s, beside that of the baseline "
        "against itself.",
    ),
}

# In the order of a legend: what was shown first.
WORDS: dict[State, str] = {
    "held": "it was exercised and shown to be preserved",
    "broken": "another output than the baseline’s beyond what the baseline does against itself, or a rule broken that "
    "the baseline keeps",
    "changed": "the candidate openly refuses a request field that the baseline takes, or takes one that it refuses, "
    "and the service was not said to use it",
    "unsupported": "the baseline refuses such requests, so there is nothing to preserve: nothing was shown",
    "not_exercised": "what the case is about did not happen, such as a draft or a stop string: nothing was shown",
    "cannot_tell": "it was asked, and the answers don’t settle it",
}

RULES: dict[Rule, str] = {
    "exact": "exact: by this rule the output is distributed as the target’s own",
    "lossy": "lossy: by this rule the output is not the target’s own",
    "synthetic": "synthetic: acceptance, and with it the output, is made up",
    "unknown": "nobody told",
}

# A statistical case's numbers as the page calls them; others keep their own names.
NAMES = {
    "p": "p-value",
    "p_at_worst": "p-value with every unjudged divergence against the candidate",
    "p_control": "p-value of the control",
    "p_together": "p-value of all prompts together",
    "p_adjusted": "p-value, adjusted for the prompts",
    "drafted": "with drafts",
    "largest": "largest shift",
    "not_exercised": "prompts without drafts",
    "alpha": "false-alarm rate of this test",
    "tie_nats": "tie threshold, nats",
    "flip_rate": "flips to be noticed, share of positions",
    "power": "chance to notice them",
    "chance": "chance to notice",
    "smallest_shift": "smallest shift noticed, in every prompt",
    "smallest_shift_alone": "smallest shift noticed, in one prompt",
}
MOST_WORDS = 300


@dataclass(frozen=True)
class RuleWords:
    """``label``: whether anything was declared."""

    label: str
    meaning: str
    source: str


def rule_words(declared: Declared) -> RuleWords:
    label = "unknown" if declared.rule == "unknown" else "declared"
    return RuleWords(label, RULES[declared.rule], declared.source)


def asked_facts(result: SuiteResult) -> list[tuple[str, str]]:
    """How the suite was asked and judged, as its plan says."""
    plan: Mapping[str, Any] = result.plan
    tests = result.false_alarms.tests
    shared = f", divided evenly over {counted(tests, 'statistical test')}" if tests else "; no test is statistical"
    own = sum(one.source == "owner" for one in result.cases)
    facts = [
        ("Cases", f"{len(result.cases)}{f', {own} of them the service’s own' if own else ''}"),
        ("Requests", requests_words(result)),
        *settings_facts(plan),
        ("False alarms", f"at most {share(result.false_alarms.alpha)} for the whole suite{shared}"),
        ("Seed", plan.get("seed")),
        ("Timeout", f"{plan['timeout_s']:g} s an answer" if "timeout_s" in plan else None),
        ("Left out", ", ".join(str(one) for one in plan.get("left_out") or ())),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def requests_words(result: SuiteResult) -> str:
    asked = [(name, result.asked[name]) for name in SERVERS if name in result.asked]
    return ", ".join(f"{name} {one.requests:,}{failed_words(one.failed)}" for name, one in asked)


def failed_words(failed: int) -> str:
    return f" ({failed:,} without an answer)" if failed else ""


def brief_facts(suite: Suite) -> list[tuple[str, str]]:
    """How the brief wants it asked."""
    facts = [
        *settings_facts(suite.model_dump()),
        ("False alarms", f"at most {share(suite.false_alarm)} for the whole suite"),
        ("Cases", ", ".join(suite.only) if suite.only else None),
        ("Own cases", suite.cases[:12] + "…" if suite.cases else None),
    ]
    return [(name, str(value)) for name, value in facts if value]


def settings_facts(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "concurrency" in plan:
        yield "Concurrency", f"{plan['concurrency']} requests at once"
    if "temperature" in plan:
        yield "Sampling", sampling_words(plan)
    if plan.get("tie_nats") is not None:
        yield "Tie threshold", f"{plan['tie_nats']:g} nats between the baseline’s two best tokens"
    yield "Manners", "every case in every manner" if plan.get("thorough") else "each case in its usual manners"
    if plan.get("uses"):
        yield "The service uses", ", ".join(str(one) for one in plan["uses"])


def sampling_words(plan: Mapping[str, Any]) -> str:
    top_k = plan.get("top_k") or "no limit"
    return f"temperature {plan['temperature']:g}, top_p {plan.get('top_p', 1):g}, top_k {top_k}"


@dataclass(frozen=True)
class Noticed:
    """What a statistical case could have seen, had it been there."""

    case: str
    manner: str
    sentence: str


def noticed(result: SuiteResult) -> list[Noticed]:
    return [
        Noticed(case.id, run.manner, sentence)
        for case in result.cases
        for run in case.runs
        if (sentence := power_words(run.finding.numbers))
    ]


def power_words(numbers: Mapping[str, Any]) -> str:
    power, rate, shift = (number_of(numbers.get(name)) for name in ("power", "flip_rate", "smallest_shift"))
    if power is not None:
        flips = f"flips of {share(rate)} of the drafted positions" if rate is not None else "a difference"
        return f"{flips} would have been noticed with a chance of {share(power)}"
    if shift is not None:
        chance = number_of(numbers.get("chance"))
        sure = f" with a chance of {share(chance)}" if chance is not None else ""
        where = "of the probability, at one position of every prompt,"
        return f"a shift of {share(shift)} {where} would have been noticed{sure}"
    return ""


def number_of(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def figures(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a statistical case rests on, one number a row; of a group each with the group's name."""
    return [(name, value_words(value)) for name, value in flat(numbers, "") if value is not None]


def flat(numbers: Mapping[str, Any], group: str) -> Iterator[tuple[str, Any]]:
    for name, value in numbers.items():
        said = NAMES.get(name, name.replace("_", " "))
        if isinstance(value, Mapping):
            yield from flat(value, f"{group}{said}: ")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            yield from ((f"{group}{said}, {place}", one) for place, one in enumerate(value, start=1))
        else:
            yield f"{group}{said}", value


def value_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float):
        return f"{value:.3g}".replace("-", "−")
    if isinstance(value, list):
        return shortened(", ".join(value_words(one) for one in value)) or "none"
    if isinstance(value, Mapping):
        return shortened("; ".join(f"{NAMES.get(name, name)} {value_words(one)}" for name, one in value.items()))
    return shortened(str(value))


def shortened(words: str) -> str:
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"


def alone_rows(run: CaseRun) -> list[tuple[str, Finding]]:
    """What a rule came to on either server alone."""
    return [(name, one) for name, one in (("baseline", run.baseline), ("candidate", run.candidate)) if one is not None]
