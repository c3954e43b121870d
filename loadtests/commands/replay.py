"""``draftproof replay``: the load generator alone, against any OpenAI-compatible server."""

import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import click
import uvloop
from pydantic import ValidationError

from loadtests.canonical import digest
from loadtests.commands.numbers import Number, number_for
from loadtests.commands.printing import UNPRINTED, print_result
from loadtests.commands.signals import INTERRUPTED, Signals, heard_signals
from loadtests.evidence.manifest import Digests, Manifest, manifest_content, named, this_client, timestamp
from loadtests.evidence.records import records_content
from loadtests.evidence.store import make_directory, write_durably
from loadtests.evidence.summary import commonest_errors, summarise
from loadtests.generator import APIS, Endpoint, Progress, Reached, TrialRun, Unreachable, reach, run_trial
from loadtests.generator.several import GeneratorLost, run_several
from loadtests.generator.way import tls_of
from loadtests.traffic.arrivals import arrival_times_ns, exact
from loadtests.traffic.importers import FORMAT_NAMES, TO_MAP, ImportRefused, Wanted, import_file
from loadtests.traffic.levels import NEEDS, Arrival, Deadline, Level, Patience
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import NANOSECONDS, BadRow, Row, part_digest, read_rows, request_body

UNUSABLE = 2
UNREACHABLE = 3
NOTHING_COMPLETED = 4
LOST = 5
NOT_KEPT = 6
MODELS_SHOWN = 10
MAX_SEED = 2**53 - 1
MAX_FIRST_LINE = 64 << 20
BOM = b"\xef\xbb\xbf"
# A lag p99 above it is a finding: the limit of a brief that gives none.
LATE_MS = 50.0
IMPORT_FIRST = "import it with draftproof import, where --map says which of them is what, and replay its rows.jsonl"


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Unusable(click.ClickException):
    """What was asked for can't be done; nothing was sent."""

    exit_code = UNUSABLE


class Nobody(click.ClickException):
    exit_code = UNREACHABLE


@dataclass(frozen=True)
class Replay:
    """Everything a replay does, settled before anything is sent."""

    rows: list[Row]
    # Of rows that were left out of the file, by reason.
    skipped: dict[str, int]
    planned: list[PlannedRequest]
    level: Level
    seed: int
    endpoint: Endpoint
    # None: where the server is known to tell them.
    token_ids: bool | None
    processes: int
    think_s: float | None


@dataclass(frozen=True)
class Traffic:
    """A file's rows, how many were left out by reason, and whether somebody recorded when they came."""

    rows: list[Row]
    skipped: dict[str, int]
    timed: bool


def usable_rows(traffic: Path, format_: str) -> Traffic:
    """A file of our own rows is read as it is: one that can't be used is a mistake there. Any other is imported, and
    what can't be used is counted. Raises Unusable."""
    if format_ != "auto" or not holds_rows(traffic):
        return imported_rows(traffic, format_)
    try:
        rows = list(read_rows(traffic))
    except BadRow as error:
        raise Unusable(str(error)) from None
    # Rows that all arrive at once are rows whose times nobody recorded: replayed, they would be one burst.
    return Traffic(rows, {}, len(rows) == 1 or len({row.arrival_s for row in rows}) > 1)


def holds_rows(traffic: Path) -> bool:
    with traffic.open("rb") as lines:
        first = lines.readline(MAX_FIRST_LINE).strip().removeprefix(BOM)
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.keys() >= {"id", "conversation", "arrival_s", "class", "messages"}


def imported_rows(traffic: Path, format_: str) -> Traffic:
    with tempfile.TemporaryDirectory(prefix="draftproof-replay-") as directory:
        out = Path(directory) / "set"
        try:
            document = import_file(Wanted(traffic, format=format_), out)
        except ImportRefused as error:
            raise Unusable(TO_MAP.sub(f"; {IMPORT_FIRST}", str(error))) from None
        if document["label"] == "lengths without text":
            raise Unusable(
                f"{traffic.name} holds lengths and no text: import it with --donor, and replay its rows.jsonl"
            )
        rows = list(read_rows(out / "rows.jsonl"))
    skipped: dict[str, int] = document["skipped"]
    if skipped:
        said = ", ".join(f"{reason} {count}" for reason, count in sorted(skipped.items()))
        click.echo(f"warning: {sum(skipped.values())} rows of {traffic.name} can't be used: {said}", err=True)
    return Traffic(rows, skipped, not document["needs_arrival_process"])


def check_rate(process: str, rate: float | None) -> None:
    """It is the first thing that somebody tries who has a file without times."""
    if process == "replay" and rate is not None:
        raise Unusable(
            "--rate alone says nothing: a replay keeps the recorded times, which --time-scale squeezes or stretches; "
            f"to send at a rate, name a process as well, as in --arrival poisson --rate {rate:g}"
        )


def check_times(arrival: Arrival, traffic: Traffic) -> None:
    if arrival.process == "replay" and not traffic.timed:
        raise Unusable("the file has no times to replay: give an arrival process with --arrival and --rate")


def first_problem(error: ValueError, *within: str) -> str:
    """``within`` are the fields that hold what was read."""
    if not isinstance(error, ValidationError):
        return str(error)
    one = error.errors()[0]
    field = ".".join(str(part) for part in (*within, *one["loc"]))
    return f"{field}: {one['msg']}" if field else str(one["msg"]).removeprefix("Value error, ")


def whole_file_s(arrival: Arrival, rows: Sequence[Row], seed: int) -> float:
    """The time in which every row of the file leaves once: up to where the next one would."""
    recorded = [row.arrival_ns for row in rows]
    if arrival.mean_rate is None:
        span = (max(recorded) - recorded[0]) * (arrival.time_scale or 1.0)
        return span // NANOSECONDS + 1.0
    if arrival.process == "ramp":
        raise ValueError("give --duration: it says how steep the ramp is")
    for doubling in range(1, 20):
        window_s = len(rows) / arrival.mean_rate * 2**doubling
        # Bursty gaps can leave a short window empty, which is an error there; a longer one isn't.
        with suppress(ValueError):
            times = arrival_times_ns(arrival, duration_s=window_s, seed=seed, recorded_ns=())
            if len(times) > len(rows):
                return max(times[len(rows)], 1) / NANOSECONDS
    raise ValueError("the gaps are too uneven to say how long the file lasts: give --duration")


def window_of(arrival: Arrival, rows: Sequence[Row], seed: int, warm_up: float) -> float:
    left = exact(whole_file_s(arrival, rows, seed)) - exact(warm_up)
    if left <= 0:
        raise ValueError(f"--warm-up {warm_up:g} takes the whole file: shorten it, or give --duration")
    # To the nanosecond: warm-up and window together would else be a little longer than the file, or shorter.
    return float(round(left, 9))


def patience_of(text: str | None) -> Patience | None:
    """SHARE:SECONDS or SHARE:SECONDS:exponential."""
    if text is None:
        return None
    share, _, rest = text.partition(":")
    after_s, _, spread = rest.partition(":")
    try:
        return Patience.model_validate({"share": share, "after_s": after_s, "spread": spread or "constant"})
    except ValidationError as error:
        wanted = "give SHARE:SECONDS or SHARE:SECONDS:exponential, such as 0.2:10"
        raise Unusable(f"--patience {text}: {wanted} ({first_problem(error)})") from None


def deadlines_of(first_token: float | None, completion: float | None) -> dict[str, Deadline]:
    if first_token is None and completion is None:
        return {}
    if first_token is None or completion is None:
        raise Unusable("give both --first-token-deadline and --completion-deadline, or neither")
    return {"default": Deadline(first_token_s=first_token, completion_s=completion)}


def api_key_of(variable: str | None, read_variable: Callable[[str], str | None]) -> str | None:
    if variable is None:
        return None
    if not (key := read_variable(variable)):
        raise Unusable(f"--api-key-env names {variable}, which is not set")
    return key


def check(wanted: Replay) -> None:
    """What can be known to fail before anything is sent. Raises ValueError."""
    tls_of(wanted.endpoint)
    asked = wanted.endpoint
    for row in {id(one.traffic_row): one.traffic_row for one in wanted.planned}.values():
        request_body(row, asked.model, api=asked.api)
    if wanted.level.deadlines and not asked.stream:
        raise ValueError("a whole answer tells no first token, so no deadline can be judged: leave --no-stream out")
    if wanted.processes > 1 and wanted.level.max_concurrency is not None:
        raise ValueError(
            "--max-concurrency needs one client process, for its slots are one queue: leave --processes out"
        )
    if wanted.processes > 1 and wanted.think_s is not None:
        raise ValueError("--think-time needs one client process: leave --processes out")


def check_out(out: Path) -> None:
    check_text("--out", str(out))
    try:
        if (out.is_symlink() or out.exists()) and not out.is_dir():
            raise Unusable(f"{out} is there and is no directory: evidence is never written over")
        if out.is_dir() and any(out.iterdir()):
            raise Unusable(f"{out} is there and not empty: evidence is never written over")
    except OSError as error:
        raise no_directory(out, error) from None


def check_model(model: str) -> None:
    check_text("--model", model)
    if not model.strip():
        raise Unusable("--model is empty: give the name under which the server knows the model")


def check_text(option: str, value: str) -> None:
    """Evidence and summary are UTF-8; a shell passes on any bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unusable(f"{option} is no valid UTF-8, and could not be written down") from None


def no_directory(out: Path, error: OSError) -> Unusable:
    return Unusable(f"nothing was sent: no evidence could be written to {out} ({error.strerror or error})")


@contextmanager
def held(out: Path) -> Iterator[None]:
    """The directory made, found writable, and ours alone until the block ends; without evidence in it, what was made
    for it is removed again. Raises Unusable."""
    made: list[Path] = []
    try:
        made += [one for one in (out, *out.parents) if not one.exists()]
        make_directory(out)
        handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        remove_empty(made)
        raise no_directory(out, error) from None
    try:
        claim(out, handle)
        try:
            yield
        finally:
            remove_empty(made)
    finally:
        os.close(handle)


def claim(out: Path, handle: int) -> None:
    """The lock is let go by the system however we end, so nothing stays that would have to be cleared away."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before us may have filled it since we looked.
        check_out(out)
        with tempfile.TemporaryFile(dir=out):
            pass
    except BlockingIOError:
        raise Unusable(f"{out} is being written to by another run: give each a directory of its own") from None
    except OSError as error:
        raise no_directory(out, error) from None


def remove_empty(made: Sequence[Path]) -> None:
    for one in made:
        with suppress(OSError):
            one.rmdir()


def write_evidence(out: Path, contents: Sequence[tuple[str, bytes]]) -> str | None:
    """Write the files in this order, or none of them: then why not."""
    try:
        for name, content in contents:
            write_durably(out / name, content)
    except OSError as error:
        for name, _ in contents:
            with suppress(OSError):
                (out / name).unlink(missing_ok=True)
        return f"nothing was kept: the evidence could not be written to {out} ({error.strerror or error})"
    return None


def kept_in(out: Path, contents: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """Write the evidence, of which the manifest comes last, and give what the summary says of it."""
    why_not = write_evidence(out, contents)
    if why_not is not None:
        click.echo(f"Error: {why_not}", err=True)
        return {"manifest_sha256": None, "out": None, "not_kept": why_not}
    return {"manifest_sha256": digest(contents[-1][1]), "out": str(out)}


def command_line() -> list[str]:
    """As it was given; what is no UTF-8 in it becomes a question mark, for evidence can't hold it."""
    return [one.encode("utf-8", "replace").decode() for one in sys.argv]


def with_lateness(trial: TrialRun) -> TrialRun:
    """With a finding where the client itself was too late for its numbers to be the server's."""
    late = (trial.lag_ms or {}).get("p99", 0.0)
    if late <= LATE_MS:
        return trial
    said = (
        f"the client was late: its lag p99 was {late:.0f} ms, above {LATE_MS:g} ms, so times from the planned arrival "
        "are partly its own: send less, or with more --processes"
    )
    return replace(trial, findings=[*trial.findings, said])


async def reached(endpoint: Endpoint, rows: Iterable[Row]) -> Reached:
    try:
        found = await reach(endpoint, prompts=(message.content for row in rows for message in row.messages))
    except Unreachable as error:
        raise Nobody(str(error)) from None
    if found.models and endpoint.model not in found.models:
        named_first = ", ".join(found.models[:MODELS_SHOWN])
        more = f" and {len(found.models) - MODELS_SHOWN} more" if len(found.models) > MODELS_SHOWN else ""
        click.echo(f"warning: {endpoint.model} is not among the server's models: {named_first}{more}", err=True)
    return found


def show(progress: Progress) -> None:
    ended = " ".join(f"{status} {count}" for status, count in sorted(progress.ended.items()))
    line = f"\r{progress.elapsed_s:6.0f} s  sent {progress.sent} of {progress.planned}  {ended}\x1b[K"
    click.echo(line, err=True, nl=False)


def endpoint_of(wanted: Replay, found: Reached) -> Endpoint:
    """Asked for token ids as the command says, or where the server is known to tell them."""
    return replace(wanted.endpoint, token_ids=found.token_ids if wanted.token_ids is None else wanted.token_ids)


async def run(wanted: Replay, signals: Signals) -> tuple[Reached, TrialRun, bool]:
    """What the server said of itself, what was recorded, and whether a process of ours was lost on the way."""
    found = await reached(wanted.endpoint, wanted.rows)
    endpoint = endpoint_of(wanted, found)
    limits: dict[str, Any] = {
        "level": wanted.level.name,
        "window_s": wanted.level.duration_s,
        "drain_s": wanted.level.drain_s,
        "warm_up_s": wanted.level.warm_up_s,
        "max_concurrency": wanted.level.max_concurrency,
        "on_progress": show if sys.stderr.isatty() else None,
        "stop": signals.stop(),
    }
    if wanted.processes == 1:
        return found, await run_trial(wanted.planned, endpoint, think_s=wanted.think_s, **limits), False
    try:
        return found, await run_several(wanted.planned, endpoint, processes=wanted.processes, **limits), False
    except GeneratorLost as lost:
        return found, lost.partial, True


def manifest_of(
    wanted: Replay, found: Reached, trial: TrialRun, digests: Digests, summary: dict[str, Any], command: Sequence[str]
) -> Manifest:
    return Manifest(
        # We neither started nor probed the server, so nobody can approve on this.
        evidence_class="imported",
        level=wanted.level.model_dump(mode="json"),
        base_url=wanted.endpoint.base_url,
        model=wanted.endpoint.model,
        started_at=timestamp(trial.started_at),
        window_s=trial.window_s,
        drain_s=trial.drain_s,
        stopped=trial.stopped,
        digests=digests,
        planned=summary["planned"],
        statuses=summary["statuses"],
        lag_ms=trial.lag_ms,
        fingerprints=named(trial.fingerprints),
        findings=tuple(trial.findings),
        warm_up_requests=summary.get("warm_up_requests", 0),
        seeds={"arrivals": wanted.seed},
        engine={
            "models": None if found.models is None else list(found.models),
            "asked": endpoint_of(wanted, found).asked,
        },
        client=this_client(command),
    )


def keep(wanted: Replay, found: Reached, trial: TrialRun, out: Path, command: Sequence[str]) -> dict[str, Any]:
    """Write plan, records and manifest, in this order, and give the summary."""
    plan, records = plan_content(wanted.planned, wanted.level), records_content(trial.records)
    digests = Digests(plan=digest(plan), records=digest(records), part=part_digest(wanted.rows))
    summary = summarise(trial.records, window_s=trial.window_s, deadlines=wanted.level.deadlines)
    manifest = manifest_content(manifest_of(wanted, found, trial, digests, summary, command))
    kept = kept_in(out, [("plan.json", plan), ("records.parquet", records), ("manifest.json", manifest)])
    return summary | {
        "skipped_rows": wanted.skipped,
        "stopped": trial.stopped,
        "errors": commonest_errors(trial.records),
        "findings": trial.findings,
        "fingerprints": named(trial.fingerprints),
        **kept,
    }


async def run_and_keep(
    wanted: Replay, out: Path, command: Sequence[str], signals: Signals
) -> tuple[dict[str, Any], bool]:
    """The summary, and whether a process of ours was lost."""
    server, trial, lost = await run(wanted, signals)
    return keep(wanted, server, with_lateness(trial), out, command), lost


@click.command()
@click.option("--traffic", required=True, type=FILE, help="Any file that `draftproof import` reads.")
@click.option("--format", "format_", default="auto", show_default=True, type=click.Choice(FORMAT_NAMES))
@click.option("--base-url", required=True, help="Server's address, with or without /v1.")
@click.option("--model", required=True, help="Model name to ask for.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the evidence.")
@click.option(
    "--arrival",
    "process",
    default="replay",
    show_default=True,
    type=click.Choice(list(NEEDS)),
    help="When requests leave: as recorded (replay), or drawn with a --rate.",
)
@click.option(
    "--rate",
    type=number_for(Arrival, "rate"),
    help="Requests per second (not for replay); those of the bursts for on-off.",
)
@click.option("--cv", type=number_for(Arrival, "cv"), help="Coefficient of variation of the gaps (gamma alone).")
@click.option("--on", "on_s", type=number_for(Arrival, "on_s"), help="Seconds that a burst lasts (on-off alone).")
@click.option("--off", "off_s", type=number_for(Arrival, "off_s"), help="Seconds between two bursts (on-off alone).")
@click.option(
    "--rate-off",
    default=0.0,
    type=number_for(Arrival, "rate_off"),
    help="Requests per second between bursts (on-off alone).",
)
@click.option(
    "--rate-to", type=number_for(Arrival, "rate_to"), help="Requests per second at the window's end (ramp alone)."
)
@click.option("--seed", default=0, type=click.IntRange(0, MAX_SEED), help="Draws the arrival times, and who gives up.")
@click.option(
    "--time-scale",
    type=number_for(Arrival, "time_scale"),
    help="Below 1 squeezes recorded times, above 1 stretches them.",
)
@click.option(
    "--warm-up",
    default=0.0,
    type=number_for(Level, "warm_up_s"),
    help="Seconds before the window; their requests are in no number.",
)
@click.option(
    "--duration",
    type=number_for(Level, "duration_s"),
    help="Window in seconds; without it every row of the file leaves once.",
)
@click.option(
    "--drain",
    default=30.0,
    show_default=True,
    type=number_for(Level, "drain_s"),
    help="Seconds that open requests get after the window.",
)
@click.option(
    "--max-concurrency",
    type=click.IntRange(1, 100_000),
    help="Most requests open at once; more wait in order of arrival.",
)
@click.option("--patience", metavar="SHARE:SECONDS[:exponential]", help="Share of users that give up, and after what.")
@click.option(
    "--first-token-deadline", type=number_for(Deadline, "first_token_s"), help="Seconds from the planned arrival."
)
@click.option(
    "--completion-deadline", type=number_for(Deadline, "completion_s"), help="Seconds from the planned arrival."
)
@click.option("--api", default="chat", show_default=True, type=click.Choice(APIS), help="Kind of completion.")
@click.option("--stream/--no-stream", default=True, show_default=True, help="Whole answers tell no first token.")
@click.option("--token-ids/--no-token-ids", default=None, help="Ask for token ids. Without either: where vLLM answers.")
@click.option(
    "--think-time", "think_s", type=Number(0), help="Seconds from an answer to the next turn: exploring alone."
)
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1, 64), help="Client processes.")
@click.option("--ca-bundle", type=FILE, help="Certificates to trust instead of the system's.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the bearer token.")
@click.pass_context
def replay(
    context: click.Context,
    /,
    traffic: Path,
    format_: str,
    base_url: str,
    model: str,
    out: Path,
    seed: int,
    warm_up: float,
    duration: float | None,
    drain: float,
    max_concurrency: int | None,
    patience: str | None,
    first_token_deadline: float | None,
    completion_deadline: float | None,
    api: Literal["chat", "completions"],
    stream: bool,
    token_ids: bool | None,
    think_s: float | None,
    processes: int,
    ca_bundle: Path | None,
    api_key_env: str | None,
    **arrival: Any,
) -> None:
    """Send a traffic file to a server at its planned times and print a JSON summary.

    Writes plan.json, records.parquet and manifest.json. Exit status: 0 when the plan was run, whatever became of some
    of its requests; 2 when it can't be run; 3 when the server can't be reached and nothing was sent; 4 when the plan
    was run and not one request of its window completed; 5 when a client process was lost; 6 when the evidence could not
    be written, of which nothing is left then; 7 when the evidence is kept and the summary could not be printed; 130
    after Ctrl-C, SIGTERM or a closed terminal. With 4, 5 and 130 the summary is printed and what was measured is kept,
    with 5 and 130 marked as stopped; with 6 it is printed alone. Stopped before --out is made, nothing is.
    """
    check_out(out)
    check_model(model)
    check_rate(arrival["process"], arrival["rate"])
    found = usable_rows(traffic, format_)
    rows = found.rows
    try:
        process = Arrival(**arrival)
        check_times(process, found)
        level = Level(
            name=process.process,
            arrival=process,
            duration_s=window_of(process, rows, seed, warm_up) if duration is None else duration,
            drain_s=drain,
            warm_up_s=warm_up,
            max_concurrency=max_concurrency,
            deadlines=deadlines_of(first_token_deadline, completion_deadline),
            patience=patience_of(patience),
        )
        wanted = Replay(
            rows=rows,
            skipped=found.skipped,
            planned=plan_level(list(enumerate(rows)), level, seed=seed, prefix="r"),
            level=level,
            seed=seed,
            endpoint=Endpoint(base_url, model, api_key_of(api_key_env, context.obj), api, stream, False, ca_bundle),
            token_ids=token_ids,
            processes=processes,
            think_s=think_s,
        )
        check(wanted)
    except ValueError as error:
        raise Unusable(first_problem(error)) from None
    with heard_signals() as signals:
        with held(out):
            summary, lost = uvloop.run(run_and_keep(wanted, out, command_line(), signals))
        end(context, summary, LOST if lost and summary["out"] else exit_status(summary))


def end(context: click.Context, summary: dict[str, Any], status: int) -> NoReturn:
    """Evidence that isn't there is worse than a summary that isn't."""
    printed_or = NOT_KEPT if status == NOT_KEPT else UNPRINTED
    print_result(json.dumps(summary, indent=2, ensure_ascii=False), otherwise=printed_or)
    context.exit(status)


def exit_status(summary: dict[str, Any]) -> int:
    if summary["out"] is None:
        return NOT_KEPT
    if summary["stopped"]:
        return INTERRUPTED
    return 0 if summary["statuses"]["completed"] else NOTHING_COMPLETED
