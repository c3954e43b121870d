"""Where a trial's records deny what its engine told: its times, its counters, and which kind of engine it is."""

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import JsonValue

from loadtests.evidence.manifest import NANOSECONDS, Manifest
from loadtests.evidence.record_columns import Contradiction, Floats, Records
from loadtests.evidence.summary import NS_PER_MS

# Both ends measure stretches of time by clocks of their own, which drift, and round them.
CLOCK_MS, CLOCK_DRIFT = 10.0, 1e-3
# In virtual time there is one clock, told in nanoseconds.
VIRTUAL_MS = 0.01
DRAFTED = (
    ("draft_tokens", "vllm:spec_decode_num_draft_tokens_total"),
    ("accepted_tokens", "vllm:spec_decode_num_accepted_tokens_total"),
    ("rounds", "vllm:spec_decode_num_drafts_total"),
)
PREEMPTIONS = "vllm:num_preemptions_total"
SUCCEEDED = "vllm:request_success_total"
# Of all requests together: the engine's own histogram, and until when the client waited for the same.
LATENCIES = (("vllm:time_to_first_token_seconds", "first_token_ns"), ("vllm:e2e_request_latency_seconds", "ended_ns"))
SIMULATED = "simulated"
SIMULATOR = "loadtests.simulator.server"


def virtual(manifest: Manifest) -> bool:
    """Simulated in virtual time: nobody was asked."""
    return manifest.evidence_class == SIMULATED and manifest.base_url is None


def luck_of(manifest: Manifest) -> str:
    """What two boots in virtual time need to have in common to be one; no two others are ever alike. Where nothing
    disturbs them, two configurations may be as fast to the nanosecond, and so may two boots of one."""
    return f"{manifest.digests.configuration} {manifest.seeds.get('boot')}" if virtual(manifest) else ""


def in_class(manifest: Manifest) -> Iterator[str]:
    """Only what says nothing of a simulation may be of another class."""
    if manifest.evidence_class != SIMULATED:
        for where, told in simulated_by(manifest):
            yield f"evidence_class is {manifest.evidence_class}, and {where} is {told}: that engine is a simulated one"
    if manifest.evidence_class == "measured" and manifest.base_url is None and manifest.statuses.get("completed"):
        yield "evidence_class is measured, and base_url is missing: no server was asked"


def simulated_by(manifest: Manifest) -> Iterator[tuple[str, str]]:
    engine, command = manifest.engine, manifest.client.command
    details = engine.get("details")
    for where, facts in (("engine", engine), ("engine.details", details if isinstance(details, dict) else {})):
        if facts.get("engine_model") is not None:
            yield f"{where}.engine_model", "told"
    if engine.get("device") == SIMULATED:
        yield "engine.device", SIMULATED
    if str(engine.get("version", "")).startswith(SIMULATED):
        yield "engine.version", str(engine["version"])
    if SIMULATOR in started_by(manifest):
        yield "engine.command", f"that of {SIMULATOR}"
    if command[1:2] == ("simulate",):
        yield "client.command", "that of draftproof simulate"


def started_by(manifest: Manifest) -> list[str]:
    """The words that the engine itself was started with; none where others run it: what is told then is a hook of
    theirs, and what it starts with which settings, nobody knows."""
    told, details = manifest.engine.get("command"), manifest.engine.get("details")
    hook = isinstance(details, dict) and details.get("base_url") is not None
    return [str(one) for one in told] if isinstance(told, list) and not hook else []


def tells_its_times(manifest: Manifest) -> bool:
    """A server that others run may tell what it likes, and one that is simulated in scaled time its own seconds."""
    return manifest.evidence_class == "measured" or virtual(manifest)


def server_times(records: Records, manifest: Manifest) -> Iterator[Contradiction]:
    """What a server did within a request can't have taken longer than the request; in virtual time nor less."""
    if not tells_its_times(manifest):
        return
    told = records.server_ms
    for name, one in told.items():
        yield Contradiction(np.nan_to_num(one) < 0, f"{name} is below 0")
    begun, how = told["server_queue_ms"] + told["server_prefill_ms"], "server_queue_ms + server_prefill_ms"
    exact = virtual(manifest)
    if not exact and not started_by(manifest):
        # Of a version that somebody else runs, the time to the first token may have the queue in it.
        begun, how = np.fmax(told["server_queue_ms"], told["server_prefill_ms"]), "server_queue_ms or server_prefill_ms"
    for name, took, until in (
        (how, begun, "first_token_ns"),
        # The last token may be one that nobody sees, such as the end of the sequence.
        (f"{how} + server_decode_ms", begun + told["server_decode_ms"], "last_token_ns" if exact else "ended_ns"),
    ):
        seen = seen_ms(records, until)
        wrong = np.nan_to_num(took - seen * (1 + CLOCK_DRIFT)) > CLOCK_MS
        yield Contradiction(wrong, f"{name} are longer than from sent_ns {{sent_ns}} to {until} {{{until}}}")
        shorter = np.nan_to_num(seen - took) > VIRTUAL_MS
        said = f"{name} are shorter than from sent_ns {{sent_ns}} to {until} {{{until}}}, and there is no way between"
        yield Contradiction(shorter & exact, said)


def seen_ms(records: Records, until: str) -> Floats:
    """From sending to that moment, by the client's clock; NaN where it doesn't tell."""
    known = records.known["sent_ns"] & records.known[until]
    seen = (records.numbers[until] - records.numbers["sent_ns"]) / NS_PER_MS
    return np.where(known, seen, np.nan)


def in_drafts(records: Records, manifest: Manifest) -> Iterator[str]:
    """The engine counts what requests tell of themselves, and what of those that were cut off."""
    difference = manifest.counters.difference if manifest.counters else {}
    for name, counter in DRAFTED:
        told, counted = records.sum_of(name), difference.get(counter)
        if counted is not None and told > counted:
            yield f"counters.difference.{counter} is {counted:g}, and by the records {name} are {told:,}"
    yield from in_timeline(manifest.engine.get("timeline"), difference)
    if tells_its_times(manifest):
        yield from in_totals(records, difference)


def in_totals(records: Records, difference: Mapping[str, float]) -> Iterator[str]:
    """The engine's own totals of the requests that it finished, each of which somebody waited for."""
    succeeded = [one for name, one in difference.items() if name.startswith(SUCCEEDED)]
    completed = int(records.of_status("completed").sum())
    if succeeded and completed > sum(succeeded):
        yield f"counters.difference.{SUCCEEDED} is {sum(succeeded):g}, and by the records {completed:,} completed"
    sent = records.known["sent_ns"]
    for name, until in LATENCIES:
        took, count = difference.get(f"{name}_sum"), difference.get(f"{name}_count")
        if took is None or count is None or count > sent.sum():
            continue
        end = np.where(records.known[until], records.numbers[until], records.numbers["ended_ns"])
        waited_s = float((end - records.numbers["sent_ns"])[sent].sum()) / NANOSECONDS
        if took > waited_s * (1 + CLOCK_DRIFT) + count * CLOCK_MS / 1e3:
            said = f"by the records its requests waited {waited_s:.3f} s from sent_ns to {until}"
            yield f"counters.difference.{name}_sum is {took:.3f} s, and {said}"


def in_timeline(told: JsonValue, difference: Mapping[str, float]) -> Iterator[str]:
    """That of a simulated engine stands in the manifest, its preemptions counted from the trial's start."""
    seconds = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    most = max((found for one in seconds if isinstance(found := one.get("preemptions"), int | float)), default=0)
    counted = difference.get(PREEMPTIONS)
    if counted is not None and most > counted:
        yield f"counters.difference.{PREEMPTIONS} is {counted:g}, and engine.timeline has {most:g}"
