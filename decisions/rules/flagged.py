"""The preflight over a whole brief: what an engine would refuse, or do otherwise than an author may think."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from decisions.rules.as_written import FOREIGN_DIFFERENCE, WRITTEN
from decisions.rules.brief import Brief
from decisions.rules.findings import FACTS_VERSION, Finding, Rule
from decisions.rules.preflight import NOTHING, SETTING, Known, findings_of
from decisions.rules.search import first_entrants
from loadtests.configurations import Runtime

# Fields of a request that no server with speculation takes (vllm/sampling_params.py, vllm/v1/sample/logits_processor).
UNSUPPORTED = ("min_p", "logit_bias", "logits_processors")


def other_version(runtime: Runtime) -> Iterator[str]:
    # A local part (+cpu) says who built it, not what it is.
    if runtime.runs_vllm and runtime.version.partition("+")[0] != FACTS_VERSION:
        yield (
            f"the runtime is vLLM {runtime.version}, and these rules rest on {FACTS_VERSION}: what changed between "
            "them isn't known here"
        )


def per_request_metrics(runtime: Runtime) -> Iterator[str]:
    """Our own worker knows; whoever starts the servers of a remote engine has to."""
    if runtime.runs_vllm and runtime.engine == "remote":
        yield (
            "start the candidates with --per-request-spec-decode-metrics summary and the baseline without it: vLLM "
            "refuses the flag on a server without speculation, and without it acceptance per request is missing"
        )


@dataclass(frozen=True)
class Asked:
    """What the requests of a service ask for beyond what a traffic set keeps: by the brief's own word, and by the
    fields that the traffic's file had (with counts)."""

    uses: tuple[str, ...] = ()
    unread_fields: Mapping[str, int] = field(default_factory=dict)


def sampling_of_the_service(asked: Asked) -> Iterator[str]:
    for name in UNSUPPORTED:
        count = sum(number for path, number in asked.unread_fields.items() if name in path.split("."))
        if name in asked.uses or count:
            said = f"{count:,} requests of the imported file have" if count else "the brief says that its requests use"
            yield (
                f"{said} {name}, which no server with speculation takes: in the service they fail on every candidate, "
                "and a trial, which sends them without it, doesn't show that"
            )


OTHER_VERSION: Rule[Runtime] = Rule("other-version", "flagged", other_version)
PER_REQUEST_METRICS: Rule[Runtime] = Rule("per-request-metrics", "flagged", per_request_metrics)
SAMPLING_OF_THE_SERVICE: Rule[Asked] = Rule("sampling-of-the-service", "flagged", sampling_of_the_service)

EVERY_RULE: tuple[Rule[Any], ...] = (
    *WRITTEN,
    FOREIGN_DIFFERENCE,
    *SETTING,
    OTHER_VERSION,
    PER_REQUEST_METRICS,
    SAMPLING_OF_THE_SERVICE,
)


def preflight(brief: Brief, known: Known = NOTHING) -> list[Finding]:
    """What the preflight says of a brief, what it refuses first; the same of several candidates of a family once."""
    found = dict.fromkeys([*of_the_brief(brief, known), *of_the_candidates(brief, known)])
    return sorted(found, key=lambda one: one.severity != "refused")


def of_the_brief(brief: Brief, known: Known) -> Iterator[Finding]:
    runtime, uses = brief.baseline.runtime, brief.behaviour.uses if brief.behaviour else ()
    yield from OTHER_VERSION.findings(runtime, where="baseline.runtime.version")
    yield from PER_REQUEST_METRICS.findings(runtime, where="baseline.runtime.engine")
    if runtime.runs_vllm:
        yield from SAMPLING_OF_THE_SERVICE.findings(Asked(uses, known.unread_fields), where="traffic")


def of_the_candidates(brief: Brief, known: Known) -> Iterator[Finding]:
    for place, one in enumerate(brief.candidates):
        where = f"candidates.{place}.speculative"
        yield from findings_of(brief.configuration(one.name), known, where=where, of=f"candidate {one.name}")
    for place, family in enumerate(brief.search):
        for name, _ in first_entrants(family):
            where = f"search.{place}.speculative"
            yield from findings_of(brief.configuration(name), known, where=where, of=f"family {family.name}")


def of_these(brief: Brief, names: Iterable[str], known: Known) -> list[Finding]:
    """Of candidates by their names, those that tuning proposed among them."""
    return [
        finding
        for name in names
        for finding in findings_of(brief.configuration(name), known, where=name, of=f"candidate {name}")
    ]
