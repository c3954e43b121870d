"""What a boot's page says of its engine and of what each trial can vouch for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from decisions.selectors.evidence import GENERATION_TOKENS
from decisions.selectors.runs import TrialRow
from loadtests.services.record_engine import SELF_TEST

# The host's own places: no figure depends on them, and they name the people of a machine.
LEFT_OUT = frozenset({"HOME", "PATH"})


@dataclass(frozen=True)
class Fact:
    name: str
    value: Any = None
    at: datetime | None = None
    lines: list[tuple[str, Any]] | None = None


def engine_facts(facts: Mapping[str, Any]) -> list[Fact]:
    return [fact_of(name, value) for name, value in facts.items() if name != SELF_TEST]


@dataclass(frozen=True)
class ClientFloor:
    """What the client itself adds, against a server that answers at once: times are 99th percentiles in ms."""

    rate: float
    processes: int
    lag_ms: float | None
    first_token_ms: float | None
    completion_ms: float | None
    host: str
    at: datetime


def client_floor(facts: Mapping[str, Any]) -> ClientFloor | None:
    if (told := facts.get(SELF_TEST)) is None:
        return None
    lag, first, whole = (told.get(name) or {} for name in ("lag_ms", "added_first_token_ms", "added_completion_ms"))
    return ClientFloor(
        told["rate"],
        told["processes"],
        lag.get("p99"),
        first.get("p99"),
        whole.get("p99"),
        told["host"],
        datetime.fromisoformat(told["measured_at"]),
    )


def fact_of(name: str, value: Any) -> Fact:
    if name == "leader_started" and isinstance(value, int | float) and value > 0:
        return Fact(name, at=datetime.fromtimestamp(value, UTC))
    if name in ("group", "server_id"):
        return Fact(name, str(value))
    if isinstance(value, Mapping):
        return Fact(name, lines=[(spoken(key), short(one)) for key, one in value.items() if key not in LEFT_OUT])
    return Fact(name, value)


def spoken(name: str) -> str:
    """cpu_model → cpu model; a variable of the environment keeps its name."""
    return name if name.isupper() else name.replace("_", " ")


def short(value: Any) -> Any:
    return "none" if value in ([], {}, "") else value


@dataclass(frozen=True)
class TrialChecks:
    """No latency and, while the trial is sealed, no count of tokens: divided by the window it would be an outcome."""

    level: str
    neighbours: float | None
    lag_ms: float | None
    fingerprints: str
    tokens: str


def trial_checks(rows: Iterable[TrialRow], configuration: str, *, sealed: bool) -> list[TrialChecks]:
    return [checks_of(row, configuration, sealed) for row in rows if row.over and row.trial.summary]


def checks_of(row: TrialRow, configuration: str, sealed: bool) -> TrialChecks:
    summary = row.trial.summary
    return TrialChecks(
        row.trial.level,
        summary.get("neighbour_cpu_share"),
        (summary.get("lag_ms") or {}).get("p99"),
        fingerprint_words(summary.get("fingerprints") or {}, configuration),
        token_words(summary.get("verified_output_tokens"), row.trial.counters.get(GENERATION_TOKENS), sealed),
    )


def fingerprint_words(found: Mapping[str, int], configuration: str) -> str:
    total, own = sum(found.values()), found.get(configuration, 0)
    if not total:
        return "not known"
    if own == total:
        return f"all {total:,} responses carried the configuration’s digest"
    return f"{own:,} of {total:,} responses carried the configuration’s digest"


def token_words(ours: int | None, engines: float | None, sealed: bool) -> str:
    if ours is None:
        return "not known"
    if engines is None:
        return "the engine’s count is not known" if sealed else f"{ours:,} tokens, the engine’s count is not known"
    more = round(engines) - ours
    if sealed:
        return "the engine counted the same" if not more else f"the engine counted {more:+,} against the responses"
    return f"{ours:,} tokens, the engine counted {round(engines):,}"
