"""``draftproof rerun``: the very requests of a trial again, byte by byte at the very times, from what it left."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import uvloop
from pydantic import ValidationError

from loadtests.canonical import digest
from loadtests.commands.replay import (
    FILE,
    Unusable,
    api_key_of,
    check_out,
    command_line,
    end,
    exit_status,
    first_problem,
    held,
    holds_rows,
    kept_in,
    reached,
    show,
    with_lateness,
)
from loadtests.commands.signals import Signals, heard_signals
from loadtests.evidence.manifest import (
    Digests,
    Manifest,
    manifest_content,
    named,
    read_manifest,
    this_client,
    timestamp,
)
from loadtests.evidence.records import records_content
from loadtests.evidence.store import DIGEST, EvidenceDamaged, EvidenceMissing, EvidenceStore
from loadtests.evidence.summary import commonest_errors, summarise
from loadtests.generator import Endpoint, Reached, TrialRun, run_trial
from loadtests.generator.endpoint import Asked
from loadtests.generator.trial import THOUGHT
from loadtests.generator.way import tls_of
from loadtests.traffic.arrivals import exact
from loadtests.traffic.levels import Level
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import NANOSECONDS, BadRow, Row, part_digest, read_rows

PLAN = "plan.json"
MAX_WHOLE = 2**53 - 1
# What only the outline of a row has, which is kept when its text is deleted.
OUTLINE = "row_sha256"


@dataclass(frozen=True)
class Rerun:
    """Everything a rerun does, settled and verified before anything is sent."""

    manifest: Manifest
    manifest_sha256: str
    plan: bytes
    planned: list[PlannedRequest]
    level: Level
    endpoint: Endpoint


def read_manifest_file(path: Path) -> tuple[Manifest, str]:
    """The manifest and its digest, which is checked where the file lies in an evidence store."""
    content = path.read_bytes()
    found = digest(content)
    named_by = f"{path.parent.name}{path.name}"
    if DIGEST.fullmatch(named_by) and named_by != found:
        raise Unusable(f"{path} is damaged: it should have the digest {named_by} and has {found}")
    try:
        manifest = read_manifest(content)
    except ValidationError as error:
        within = [] if error.errors()[0]["loc"] else ["(whole file)"]
        raise spoiled(f"{path} is no manifest of a trial: {first_problem(error, *within)}") from None
    for field, number in unwritable(manifest.model_dump(by_alias=True)):
        raise spoiled(f"{path} is no manifest of a trial: {field}: {shortened(number)} could not be written again")
    return manifest, found


def spoiled(what: str) -> Unusable:
    return Unusable(f"{what}. Give the manifest as the trial left it.")


def unwritable(document: Any, field: str = "") -> Iterator[tuple[str, float]]:
    """What could be read and never be written again (RFC 8785): no finite numbers, and whole ones that are too long."""
    if isinstance(document, float) and not math.isfinite(document):
        yield field, document
    if isinstance(document, int) and abs(document) > MAX_WHOLE:
        yield field, document
    lists = document if isinstance(document, list | tuple) else ()
    for name, value in document.items() if isinstance(document, dict) else enumerate(lists):
        yield from unwritable(value, f"{field}.{name}".lstrip("."))


def stored_plan(path: Path, wanted: str, given: Path | None) -> tuple[bytes, str]:
    """From --plan, from beside the manifest, or from the evidence store that the manifest lies in; and where it was."""
    beside = given or path.with_name(PLAN)
    where = str(beside)
    if beside.is_file():
        content = beside.read_bytes()
    elif path.parent.parent.name == "sha256":
        content, where = from_store(EvidenceStore(path.parent.parent.parent), wanted), f"the plan {wanted}"
    else:
        raise Unusable(f"the plan {wanted} is missing: there is no {beside}; give it with --plan")
    if (found := digest(content)) != wanted:
        raise Unusable(f"{beside} is not the plan of this trial: its SHA-256 is {found}, the manifest names {wanted}")
    return content, where


def from_store(store: EvidenceStore, wanted: str) -> bytes:
    try:
        return store.get(wanted)
    except (EvidenceMissing, EvidenceDamaged) as error:
        raise Unusable(f"the plan is missing: {error}") from None


def rows_of_part(path: Path) -> list[Row]:
    with path.open("rb") as lines:
        first = lines.readline()
    if is_outline(first):
        raise Unusable(
            f"{path.name} is the outline that was kept when the part's text was deleted: "
            "lengths and hashes are left, and no request can be sent from them"
        )
    if not holds_rows(path):
        raise Unusable(
            f"{path.name} holds no rows in our own form: where the trial replayed another file, import that with "
            "draftproof import, and give its rows.jsonl"
        )
    try:
        return list(read_rows(path))
    except BadRow as error:
        raise Unusable(str(error)) from None


def is_outline(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and OUTLINE in document and "messages" not in document


class Planned(NamedTuple):
    """A request as a plan has it."""

    request_id: str
    row: int
    row_sha256: str
    planned_ns: int
    give_up_ns: int | None = None


WHAT_IS_RIGHT: dict[str, tuple[str, Callable[[Any, Level], bool]]] = {
    "request_id": ("a name", lambda value, _: isinstance(value, str) and value != ""),
    "row": ("a row's index from 0", lambda value, _: is_whole(value) and value >= 0),
    "row_sha256": ("a SHA-256", lambda value, _: isinstance(value, str) and bool(DIGEST.fullmatch(value))),
    "planned_ns": ("a time of the level's, in whole ns", lambda value, level: is_whole(value) and within(value, level)),
    "give_up_ns": ("a time in whole ns, or null", lambda value, _: value is None or (is_whole(value) and value >= 0)),
}


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def within(planned_ns: int, level: Level) -> bool:
    return 0 <= planned_ns <= math.ceil((exact(level.warm_up_s) + exact(level.duration_s)) * NANOSECONDS)


def requests_of(plan: bytes, where: str, level: Level) -> list[Planned]:
    """A plan may have been made by hand, with its digest: what no plan of ours holds is refused, with its field."""
    try:
        document = json.loads(plan)
    except (ValueError, RecursionError):
        raise Unusable(f"{where} is no plan: it is no JSON") from None
    requests = document.get("requests") if isinstance(document, dict) else None
    if not isinstance(requests, list) or not requests:
        raise Unusable(f"{where} is no plan: requests is no list, or empty")
    found = [request_of(fields, f"{where}: requests.{index}", level) for index, fields in enumerate(requests)]
    first_with: dict[str, int] = {}
    for index, one in enumerate(found):
        if (other := first_with.setdefault(one.request_id, index)) != index:
            raise Unusable(f"{where}: requests.{index}.request_id is {one.request_id!r}, which {other} has already")
    return found


def request_of(fields: object, where: str, level: Level) -> Planned:
    if not isinstance(fields, list) or len(fields) not in (4, 5):
        raise Unusable(f"{where} must be a list of {', '.join(Planned._fields)}")
    for (name, (wanted, is_right)), value in zip(WHAT_IS_RIGHT.items(), fields, strict=False):
        if not is_right(value, level):
            raise Unusable(f"{where}.{name} must be {wanted}, not {shortened(value)}")
    return Planned(*fields)


def shortened(value: object) -> str:
    return json.dumps(value)[:80]


def level_of(manifest: Manifest, path: Path) -> Level:
    try:
        level = Level.model_validate_json(json.dumps(manifest.level), strict=True)
    except ValidationError as error:
        raise spoiled(f"{path}: {first_problem(error, 'level')}") from None
    for name, told, meant in (
        ("window_s", manifest.window_s, level.duration_s),
        ("drain_s", manifest.drain_s, level.drain_s),
    ):
        if told != meant:
            raise spoiled(f"{path}: {name} is {told:g}, and by its level it is {meant:g}")
    return level


def asked_of(manifest: Manifest, path: Path) -> Asked:
    """A way to ask that we don't know would send other bytes."""
    try:
        return Asked.model_validate({} if (told := manifest.engine.get("asked")) is None else told)
    except ValidationError as error:
        raise spoiled(f"{path}: {first_problem(error, 'engine', 'asked')}") from None


def check_times(manifest: Manifest) -> None:
    """The plan of a trial with a think time isn't when its later turns left."""
    for finding in manifest.findings:
        if finding.endswith(THOUGHT):
            raise Unusable(f"the trial can't be run again at its times, for the plan has them not all: {finding}")


def planned_of(requests: Sequence[Planned], rows: Sequence[Row], level: Level, name: str) -> list[PlannedRequest]:
    """The plan's requests with their rows; refuses the first whose row is another than the one that was sent."""
    window_ns = math.ceil(exact(level.warm_up_s) * NANOSECONDS)
    planned = []
    for request_id, row, row_sha256, planned_ns, give_up in requests:
        if row >= len(rows):
            raise Unusable(f"{name} has {len(rows)} rows and request {request_id} was row {row + 1}: rows are missing")
        if (found := digest(rows[row].content)) != row_sha256:
            raise Unusable(
                f"row {row + 1} of {name} ({rows[row].id}) has changed since request {request_id} was sent: "
                f"its SHA-256 is {found}, the plan names {row_sha256}"
            )
        planned.append(PlannedRequest(request_id, row, rows[row], planned_ns, give_up, warm_up=planned_ns < window_ns))
    return planned


def check_part(wanted: str | None, rows: Sequence[Row], name: str) -> None:
    """Rows that were not sent may have changed as well: then the file is another part."""
    if wanted is not None and (found := part_digest(rows)) != wanted:
        raise Unusable(
            f"{name} is not the part of this trial: its SHA-256 is {found}, the manifest names {wanted}; "
            "the rows that were sent are the same, others are not"
        )


def settled(
    path: Path,
    rows_path: Path,
    plan_path: Path | None,
    base_url: str | None,
    api_key: str | None,
    ca_bundle: Path | None,
) -> Rerun:
    manifest, manifest_sha256 = read_manifest_file(path)
    check_times(manifest)
    plan, where = stored_plan(path, manifest.digests.plan, plan_path)
    rows = rows_of_part(rows_path)
    level = level_of(manifest, path)
    planned = planned_of(requests_of(plan, where, level), rows, level, rows_path.name)
    check_part(manifest.digests.part, rows, rows_path.name)
    if digest(plan_content(planned, level)) != manifest.digests.plan:
        raise Unusable("the manifest's level and its plan don't belong together: one of them was changed")
    asked = asked_of(manifest, path)
    if not manifest.model.strip():
        raise spoiled(f"{path}: model is empty")
    address = manifest.base_url if base_url is None else base_url
    if address is None:
        raise Unusable("the manifest names no server, so say which with --base-url")
    endpoint = Endpoint(address, manifest.model, api_key, ca_bundle=ca_bundle).asked_as(asked)
    tls_of(endpoint)
    return Rerun(manifest, manifest_sha256, plan, planned, level, endpoint)


async def run(wanted: Rerun, signals: Signals) -> tuple[Reached, TrialRun]:
    found = await reached(wanted.endpoint, [one.traffic_row for one in wanted.planned])
    trial = await run_trial(
        wanted.planned,
        wanted.endpoint,
        level=wanted.level.name,
        window_s=wanted.level.duration_s,
        drain_s=wanted.level.drain_s,
        warm_up_s=wanted.level.warm_up_s,
        max_concurrency=wanted.level.max_concurrency,
        on_progress=show if sys.stderr.isatty() else None,
        stop=signals.stop(),
    )
    return found, trial


def manifest_of(
    wanted: Rerun, found: Reached, trial: TrialRun, records: str, summary: dict[str, Any], command: Sequence[str]
) -> Manifest:
    """Of the class imported, whatever the first run was: we neither started nor probed this server."""
    first = wanted.manifest
    return Manifest(
        evidence_class="imported",
        level=first.level,
        base_url=wanted.endpoint.base_url,
        model=wanted.endpoint.model,
        started_at=timestamp(trial.started_at),
        window_s=trial.window_s,
        drain_s=trial.drain_s,
        stopped=trial.stopped,
        digests=Digests(plan=first.digests.plan, records=records, part=first.digests.part, brief=first.digests.brief),
        planned=summary["planned"],
        statuses=summary["statuses"],
        lag_ms=trial.lag_ms,
        fingerprints=named(trial.fingerprints),
        findings=tuple(trial.findings),
        warm_up_requests=summary.get("warm_up_requests", 0),
        seeds=first.seeds,
        engine={
            "models": None if found.models is None else list(found.models),
            "asked": wanted.endpoint.asked,
        },
        rerun_of=wanted.manifest_sha256,
        client=this_client(command),
    )


def keep(wanted: Rerun, found: Reached, trial: TrialRun, out: Path, command: Sequence[str]) -> dict[str, Any]:
    """Write plan, records and manifest, in this order, and give the summary."""
    records = records_content(trial.records)
    summary = summarise(trial.records, window_s=trial.window_s, deadlines=wanted.level.deadlines)
    manifest = manifest_content(manifest_of(wanted, found, trial, digest(records), summary, command))
    kept = kept_in(out, [(PLAN, wanted.plan), ("records.parquet", records), ("manifest.json", manifest)])
    return summary | {
        "stopped": trial.stopped,
        "errors": commonest_errors(trial.records),
        "findings": trial.findings,
        "fingerprints": named(trial.fingerprints),
        "rerun_of": wanted.manifest_sha256,
        **kept,
    }


async def run_and_keep(wanted: Rerun, out: Path, command: Sequence[str], signals: Signals) -> dict[str, Any]:
    found, trial = await run(wanted, signals)
    return keep(wanted, found, with_lateness(trial), out, command)


@click.command()
@click.argument("manifest", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--rows", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Where it lies elsewhere.")
@click.option("--base-url", help="Server's address, where it is another than the manifest's.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the bearer token.")
@click.option("--ca-bundle", type=FILE, help="Certificates to trust instead of the system's.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the evidence.")
@click.pass_context
def rerun(
    context: click.Context,
    manifest: Path,
    rows: Path,
    plan: Path | None,
    base_url: str | None,
    api_key_env: str | None,
    ca_bundle: Path | None,
    out: Path,
) -> None:
    """Send the requests of a trial again: the same bytes at the same planned times.

    MANIFEST is the trial's, --rows the part of the traffic set that it was planned on. The plan is looked for beside
    the manifest, then in the evidence store that it lies in. Nothing is sent unless plan, part and every row are
    the ones that the manifest names. Exit status as of replay.
    """
    check_out(out)
    try:
        wanted = settled(manifest, rows, plan, base_url, api_key_of(api_key_env, context.obj), ca_bundle)
    except ValueError as error:
        raise Unusable(str(error)) from None
    with heard_signals() as signals:
        with held(out):
            summary = uvloop.run(run_and_keep(wanted, out, command_line(), signals))
        end(context, summary, exit_status(summary))
