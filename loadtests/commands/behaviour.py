"""``draftproof behaviour``: the preserved-behaviour suite, against two servers that somebody started."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import uvloop

from loadtests.behaviour.case import Case, Settings
from loadtests.behaviour.collect import Progress
from loadtests.behaviour.greedy import TIE_NATS
from loadtests.behaviour.own_cases import BadCases, read_own_cases
from loadtests.behaviour.plan import ALPHA, SuitePlan
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.result import SuiteResult
from loadtests.behaviour.server import ClientFault
from loadtests.behaviour.suite import run_suite
from loadtests.commands.numbers import Number
from loadtests.commands.printing import UNPRINTED, print_result
from loadtests.commands.replay import (
    FILE,
    LOST,
    NOT_KEPT,
    Nobody,
    Unusable,
    api_key_of,
    check_model,
    check_out,
    held,
    reached,
    write_evidence,
)
from loadtests.commands.signals import INTERRUPTED, Signals, heard_signals
from loadtests.generator import Endpoint, Unreachable
from loadtests.generator.way import tls_of

BROKEN = 1
# Neither shown nor broken: not exercised, it can't be told, or the suite came to no end.
OPEN = 4
SERVERS = 3


def keys_of(variables: tuple[str, ...], read_variable: Callable[[str], str | None]) -> list[str | None]:
    """The keys of baseline, candidate and control: one for all of them, or one each in this order."""
    keys = [api_key_of(one, read_variable) for one in variables]
    if len(keys) > SERVERS:
        raise Unusable(
            f"--api-key-env is given {len(keys)} times: give it once, or for baseline, candidate and control"
        )
    if len(keys) < 2:
        return (keys or [None]) * SERVERS
    return [*keys, *keys[:1]][:SERVERS]


def endpoint_of(address: str, model: str, key: str | None, ca_bundle: Path | None) -> Endpoint:
    """The bundle is for those of the servers that are asked over TLS."""
    plain = Endpoint(address, model, key)
    endpoint = Endpoint(address, model, key, ca_bundle=ca_bundle) if plain.secure else plain
    tls_of(endpoint)
    return endpoint


def own_cases(files: tuple[Path, ...]) -> list[Case]:
    found: list[Case] = []
    for file in files:
        try:
            found += [one.case for one in read_own_cases(file.read_bytes(), file.name).cases]
        except BadCases as error:
            raise Unusable(str(error)) from None
        except OSError as error:
            raise Unusable(f"{file} can't be read ({error.strerror or error})") from None
    return found


def show(progress: Progress) -> None:
    """A line that is written over on a terminal; elsewhere one a server, when it is through."""
    through = progress.done == progress.planned
    if sys.stderr.isatty():
        line = f"\r{progress.server}: {progress.done} of {progress.planned} runs of cases, {progress.last}\x1b[K"
        click.echo(line, err=True, nl=through)
    elif through:
        click.echo(f"{progress.server}: {progress.done} runs of cases", err=True)


def summary_of(result: SuiteResult, out: Path, why_not: str | None) -> dict[str, Any]:
    kept: dict[str, Any] = {"result_sha256": result.digest, "out": str(out)}
    if why_not is not None:
        kept = {"result_sha256": None, "out": None, "not_kept": why_not}
    return {
        "outcome": result.outcome,
        "sentence": result.sentence,
        "exercised": result.exercised,
        "counted": result.counted,
        "broken": list(result.broken),
        "changed": list(result.named("changed")),
        "cases": {one.id: {"state": one.state, "said": one.said} for one in result.cases},
        "left_out": list(result.left_out),
        "drafts": result.drafts.model_dump(mode="json"),
        "declared": result.declared.model_dump(mode="json"),
        "false_alarms": result.false_alarms.model_dump(mode="json"),
        "problems": list(result.problems),
        **kept,
    }


async def run_and_keep(
    endpoints: tuple[Endpoint, Endpoint, Endpoint | None], plan: SuitePlan, out: Path, signals: Signals
) -> tuple[SuiteResult, str | None]:
    """The result, and why its evidence could not be written, if it could not."""
    baseline, candidate, control = endpoints
    for one in (baseline, candidate, *([control] if control else [])):
        await reached(one, ())
    contents: list[tuple[str, bytes]] = []
    try:
        result = await run_suite(
            baseline,
            candidate,
            plan,
            lambda name, content: contents.append((name, content)),
            control=control,
            on_progress=show,
            stop=signals.stop(),
        )
    except Unreachable as error:
        raise Nobody(str(error)) from None
    return result, write_evidence(out, contents)


@click.command()
@click.option("--baseline-url", required=True, help="The server without speculation, with or without /v1.")
@click.option("--candidate-url", required=True, help="The server with it.")
@click.option("--control-url", help="A second server without it; left out, the baseline is asked again.")
@click.option("--model", required=True, help="Model name to ask all of them for.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the evidence.")
@click.option("--concurrency", default=8, show_default=True, type=click.IntRange(1, 1_024), help="Requests at once.")
@click.option("--thorough", is_flag=True, help="Every case in every manner, and many more samples: hours, not minutes.")
@click.option("--cases", "files", multiple=True, type=FILE, metavar="FILE", help="Your own cases, YAML or JSON.")
@click.option("--only", multiple=True, metavar="ID", help="This case alone, or these; a verdict needs all of them.")
@click.option("--temperature", default=1.0, show_default=True, type=Number(0, 2), help="The service's own.")
@click.option("--top-p", default=1.0, show_default=True, type=Number(0, 1, min_open=True), help="The service's own.")
@click.option("--top-k", default=0, show_default=True, type=click.IntRange(0), help="The service's own; 0 for none.")
@click.option(
    "--tie-nats", default=TIE_NATS, show_default=True, type=Number(0, 2), help="Two tokens so near are a tie."
)
@click.option("--uses", multiple=True, metavar="FIELD", help="A request field that the service needs, such as min_p.")
@click.option("--alpha", default=ALPHA, show_default=True, type=Number(0, 0.5, min_open=True), help="False-alarm rate.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**53 - 1), help="Draws seeds and order.")
@click.option(
    "--timeout", "timeout_s", default=60.0, show_default=True, type=Number(0.1), help="Seconds for an answer."
)
@click.option("--ca-bundle", type=FILE, help="Certificates to trust instead of the system's.")
@click.option(
    "--api-key-env",
    multiple=True,
    metavar="VAR",
    help="Environment variable with the bearer token; several are for baseline, candidate and control, in this order.",
)
@click.pass_context
def behaviour(
    context: click.Context,
    /,
    baseline_url: str,
    candidate_url: str,
    control_url: str | None,
    model: str,
    out: Path,
    concurrency: int,
    thorough: bool,
    files: tuple[Path, ...],
    only: tuple[str, ...],
    temperature: float,
    top_p: float,
    top_k: int,
    tie_nats: float,
    uses: tuple[str, ...],
    alpha: float,
    seed: int,
    timeout_s: float,
    ca_bundle: Path | None,
    api_key_env: tuple[str, ...],
) -> None:
    """Ask two servers the same, and tell whether the candidate still answers as its baseline does.

    Writes baseline.jsonl, control.jsonl and candidate.jsonl with every answer, and result.json. Exit status: 0 when
    behaviour is held; 1 when a case broke, or the candidate died; 2 when it can't be run; 3 when a server can't be
    reached and nothing was asked; 4 when nothing is shown: no drafts were accepted and rejected, the answers don't
    settle it, or the baseline died; 5 when this machine ran out of something; 6 when the evidence could not be written;
    7 when it is kept and the summary could not be printed; 130 after Ctrl-C, SIGTERM or a closed terminal.
    """
    check_out(out)
    check_model(model)
    try:
        keys = keys_of(api_key_env, context.obj)
        baseline, candidate = (
            endpoint_of(address, model, key, ca_bundle)
            for address, key in zip((baseline_url, candidate_url), keys[:2], strict=True)
        )
        control = None if control_url is None else endpoint_of(control_url, model, keys[2], ca_bundle)
        plan = suite_plan(
            only=only,
            own=own_cases(files),
            settings=Settings(temperature, top_p, top_k, thorough, tie_nats, frozenset(uses)),
            concurrency=concurrency,
            alpha=alpha,
            seed=seed,
            timeout_s=timeout_s,
        )
    except ValueError as error:
        raise Unusable(str(error)) from None
    with heard_signals() as signals:
        with held(out):
            try:
                result, why_not = uvloop.run(run_and_keep((baseline, candidate, control), plan, out, signals))
            except ClientFault as error:
                click.echo(f"Error: {error}", err=True)
                context.exit(LOST)
        if why_not is not None:
            click.echo(f"Error: {why_not}", err=True)
        status = exit_status(result, kept=why_not is None, interrupted=signals.heard)
        told = json.dumps(summary_of(result, out, why_not), indent=2, ensure_ascii=False)
        print_result(told, otherwise=NOT_KEPT if why_not is not None else UNPRINTED)
        context.exit(status)


def exit_status(result: SuiteResult, *, kept: bool, interrupted: bool) -> int:
    if not kept:
        return NOT_KEPT
    if interrupted and any(one.stopped for one in result.asked.values()):
        return INTERRUPTED
    return {"held": 0, "broken": BROKEN}.get(result.outcome, OPEN)
