"""That an engine preserves behaviour under a method of speculation: what a suite's result demonstrates, in which mode
of sampling, and which modes a brief needs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loadtests.behaviour.case import Need
from loadtests.behaviour.result import CaseResult, SuiteResult

Mode = Literal["greedy", "sampled", "constrained"]
MODES: dict[Mode, str] = {
    "greedy": "greedy",
    "sampled": "sampled (temperature, top-p, top-k)",
    "constrained": "constrained (structured output)",
}
SIMULATED = "simulated"
# Request fields by which an answer is bound to a form: OpenAI's, vLLM's, and those of older vLLM.
CONSTRAINING = frozenset(
    [
        *("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("guided_decoding_backend", "guided_whitespace_pattern"),
    ]
)
STRUCTURED: Need = "structured_output"


@dataclass(frozen=True)
class Implementation:
    """An engine and how it drafts. ``engine`` as in a configuration's runtime: one that others start is the same code
    as one that we start, and a simulated one is none of both."""

    engine: str
    distribution: str
    version: str
    method: str

    @property
    def is_simulated(self) -> bool:
        return self.engine == SIMULATED

    @property
    def label(self) -> str:
        name = "the simulated engine" if self.is_simulated else f"{self.distribution} {self.version}"
        return f"{name} with {self.method}"


def demonstrates(case: CaseResult) -> Mode | None:
    """Which mode a case is about: equal greedy output is T1, the sampled distribution T3, and structured output needs
    what it is called after. Any other invariant holds or breaks in every mode."""
    if case.tier == "T1":
        return "greedy"
    if case.tier == "T3":
        return "sampled"
    return "constrained" if STRUCTURED in case.needs else None


def modes_held(result: SuiteResult) -> set[Mode]:
    return {mode for case in result.cases if case.state == "held" and (mode := demonstrates(case))}


def why_not(result: SuiteResult, about: Implementation, mode: Mode) -> str | None:
    """Why the result demonstrates nothing of this mode; None where it does."""
    if result.outcome != "held":
        return (
            f"the suite's outcome is {result.outcome.replace('_', ' ')}, and only one that held demonstrates anything"
        )
    if result.problems:
        return f"the suite says itself why it can't be trusted: {result.problems[0]:.200}"
    if result.left_out:
        return f"the suite was asked without {len(result.left_out)} of its cases, {result.left_out[0]:.80} among them"
    if not result.exercised:
        return "drafts were not both accepted and rejected: the suite exercised nothing"
    if result.declared.rule in ("lossy", "synthetic"):
        return f"the engine declares a {result.declared.rule} acceptance rule: its output is not the target's"
    told = result.asked["candidate"].version
    if told is not None and public(told) != public(about.version) and not about.is_simulated:
        return f"the candidate of this result was version {told}, not {about.version}"
    if mode not in modes_held(result):
        return f"no case of this result that is about {MODES[mode]} output held"
    return None


def public(version: str) -> str:
    """Without the local part: a build for a CPU may call itself 0.32.0+cpu."""
    return version.partition("+")[0]


def summary_of(result: SuiteResult) -> dict[str, Any]:
    """What a page shows of a result, years later too: counts and names of ours, and no word of an answer or of what a
    service's own cases are called."""
    tiers: dict[str, Counter[str]] = {}
    for case in result.cases:
        tiers.setdefault(case.tier, Counter())[case.state] += 1
    return {
        "cases": {tier: dict(sorted(states.items())) for tier, states in sorted(tiers.items())},
        "own": sum(case.source == "owner" for case in result.cases),
        "open": [
            {"id": case.id, "state": case.state}
            for case in result.cases
            if case.source == "registry" and not case.counted
        ],
        "drafts": {"proposed": result.drafts.proposed, "accepted": result.drafts.accepted},
        "declared": result.declared.rule,
        "false_alarm": result.false_alarms.alpha,
        "plan": result.plan_sha256,
        "version": result.asked["candidate"].version,
    }


@dataclass(frozen=True)
class Temperatures:
    """Of the requests of a part: how many there are, and how many are sampled at a temperature above 0."""

    requests: int
    sampled: int


@dataclass(frozen=True)
class Needed:
    """A mode of sampling that a brief's service uses, and how that was found. ``mode`` is None where nobody can tell
    whether its traffic is sampled."""

    mode: Mode | None
    found: str


def modes_needed(
    temperatures: Temperatures | str,
    unread_fields: Mapping[str, int],
    suite_temperature: float | None,
    uses: Iterable[str],
) -> list[Needed]:
    """Greedy or sampled, by what the traffic's requests say; and constrained as well where any of them asks for a form.

    ``temperatures`` is a sentence where they can't be known: then the brief's own suite tells, if it has a temperature.
    ``unread_fields``: request fields that the traffic's file had and that its set doesn't keep, with counts.
    """
    return [plain_mode(temperatures, suite_temperature), *constrained(unread_fields, uses)]


def plain_mode(temperatures: Temperatures | str, suite_temperature: float | None) -> Needed:
    if isinstance(temperatures, Temperatures):
        if temperatures.sampled:
            said = f"{temperatures.sampled:,} of the {temperatures.requests:,} requests of the tuning part"
            return Needed("sampled", f"{said} have a temperature above 0")
        return Needed("greedy", f"all {temperatures.requests:,} requests of the tuning part have temperature 0")
    if suite_temperature is None:
        return Needed(None, temperatures)
    mode: Mode = "sampled" if suite_temperature else "greedy"
    return Needed(
        mode, f"the brief's suite asks at temperature {suite_temperature:g}, and of its traffic {temperatures}"
    )


def constrained(unread_fields: Mapping[str, int], uses: Iterable[str]) -> Iterator[Needed]:
    counts = {name: count for name, count in unread_fields.items() if not CONSTRAINING.isdisjoint(name.split("."))}
    named = sorted(CONSTRAINING.intersection(uses))
    if counts:
        name, count = max(counts.items(), key=lambda one: one[1])
        requests = f"{count:,} request{'' if count == 1 else 's'}"
        yield Needed("constrained", f"{requests} of the imported file had {name}, which the traffic set doesn't keep")
    elif named:
        yield Needed("constrained", f"the brief's suite says that the service uses {', '.join(named)}")
