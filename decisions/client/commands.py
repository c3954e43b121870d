"""``draftproof login``, ``submit``, ``watch`` and ``check``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from decisions.client.credentials import (
    Credentials,
    Unusable,
    checked_token,
    checked_url,
    credentials,
    default_file,
    is_plain,
    keep,
)
from decisions.client.server import Refusal, Server
from decisions.commands.compare import EXIT
from loadtests.commands.printing import print_result

REFUSED = 1
UNUSABLE = Unusable.exit_code
# Besides those of a verdict: it ended without one, or waits for a person.
NO_VERDICT = 5
CHECKED = {"in-force": 0, "none": 1, "stale": 2}
# Times that ``watch`` asks a server that doesn't answer.
ASKED_AGAIN = 12
# Of ``check``: 2 says stale there.
NOT_ASKED = 3
FILE = click.Path(dir_okay=False, path_type=Path)


def printed(document: dict[str, Any]) -> None:
    print_result(json.dumps(document, indent=2, ensure_ascii=False))


def server_of(context: click.Context) -> Server:
    return Server(credentials(context.obj or (lambda name: None), default_file()))


@contextmanager
def refusals_said(context: click.Context, *, status: int = REFUSED, signed_out: int = UNUSABLE) -> Iterator[None]:
    """``signed_out``: the exit status where the token is not valid."""
    try:
        yield
    except Refusal as refusal:
        for line in refusal.lines:
            click.echo(line, err=True)
        context.exit(signed_out if refusal.status == 401 else status)


class NotAsked(Unusable):
    exit_code = NOT_ASKED


class NeverStale(click.Command):
    """A slip in the command line exits with 2 otherwise, which says stale here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise NotAsked(error.format_message()) from None


@click.command("login")
@click.argument("url")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input instead of asking for it.")
@click.pass_context
def login(context: click.Context, url: str, token_stdin: bool) -> None:
    """Keep the address of a server and a token for it, in a file that only you can read.

    Make the token on the server's page "Tokens". Exit status: 0 kept, 2 not. Without a file, in a pipeline, set
    DRAFTPROOF_URL and DRAFTPROOF_TOKEN instead.
    """
    given = sys.stdin.read() if token_stdin else click.prompt("Token", hide_input=True, err=True)
    kept = Credentials(checked_url(url), checked_token(given))
    if is_plain(kept.url):
        click.echo("Warning: without https anybody on the way can read the token", err=True)
    with refusals_said(context, status=UNUSABLE):
        told = Server(kept).get("token")
    try:
        keep(kept, default_file())
    except OSError as error:
        raise Unusable(f"{default_file()} can't be written: {error.strerror}") from None
    printed(told)


@click.command("submit")
@click.argument("brief", type=FILE)
@click.option("--replace", type=click.IntRange(1), metavar="N", help="Instead of a new one: the words of brief N.")
@click.option("--freeze", is_flag=True, help="Then freeze it.")
@click.option("--start", is_flag=True, help="Then freeze it and start its stages.")
@click.option("--key", help="Of this act, to run it again: what was done isn't done twice.")
@click.pass_context
def submit(
    context: click.Context, brief: Path, replace: int | None, freeze: bool, start: bool, key: str | None
) -> None:
    """Send the file BRIEF to the server, which keeps it as a draft, and print what became of it as JSON.

    Exit status: 0 done, 1 refused, with the reasons by line on standard error, 2 when nothing could be asked.
    """
    try:
        source = brief.read_text(encoding="utf-8")
    except OSError as error:
        raise Unusable(f"{brief} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unusable(f"{brief} is no brief: it isn't UTF-8") from None
    server = server_of(context)
    with refusals_said(context):
        revision = rewritten(server, replace, source, key) if replace else written(server, source, key)
        for act in [*(["freeze"] if freeze or start else []), *(["start"] if start else [])]:
            number = (revision["brief"], "revisions", revision["revision"])
            with where_it_stands(server, revision):
                revision = server.post("briefs", *number, act, key=key and f"{key}-{act}")
    printed(shown(server, revision))


def written(server: Server, source: str, key: str | None) -> dict[str, Any]:
    return server.post("briefs", body={"source": source}, key=key)


def rewritten(server: Server, brief: int, source: str, key: str | None) -> dict[str, Any]:
    """Its draft, or a new one where the latest revision is none."""
    latest = server.get("briefs", brief)
    number = latest["revision"]
    if latest["state"] != "draft":
        revised = server.post("briefs", brief, "revisions", number, "revise", key=key and f"{key}-revise")
        number = revised["revision"]
    return server.put("briefs", brief, "revisions", number, body={"source": source})


@contextmanager
def where_it_stands(server: Server, revision: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except Refusal:
        where = server.page("briefs", revision["brief"], revision["revision"])
        click.echo(f"Kept as brief {revision['brief']}, {revision['state']}: {where}", err=True)
        raise


def shown(server: Server, revision: dict[str, Any]) -> dict[str, Any]:
    named = {name: revision[name] for name in ("brief", "revision", "title", "service", "route", "state", "digest")}
    return named | {"page": server.page("briefs", revision["brief"], revision["revision"])}


@click.command("watch")
@click.argument("brief", type=click.IntRange(1))
@click.option("--revision", type=click.IntRange(1), help="Instead of the latest.")
@click.option("--every", default=10.0, show_default=True, type=click.FloatRange(1, 3600), help="Seconds between asks.")
@click.pass_context
def watch(context: click.Context, brief: int, revision: int | None, every: float) -> None:
    """Say how far brief BRIEF is, until there is a verdict or it ends, and print the last state as JSON.

    Exit status by verdict: 0 PASS, 1 FAIL, 3 INCONCLUSIVE, 4 INVALID; 5 where it ended without one or waits for a
    person, 2 when it could not be asked.
    """
    server = server_of(context)
    with refusals_said(context, status=UNUSABLE):
        number = revision or server.get("briefs", brief)["revision"]
        told = followed(lambda: server.get("briefs", brief, "revisions", number, "progress"), every)
    printed(told)
    context.exit(EXIT.get(told["verdict"] or "", NO_VERDICT))


def followed(ask: Callable[[], dict[str, Any]], every: float) -> dict[str, Any]:
    """The progress when it has ended; each change of it is a line on standard error."""
    said = ""
    while True:
        told = asked_patiently(ask, every)
        line = line_of_progress(told)
        if line != said:
            click.echo(line, err=True)
            said = line
        if told["verdict"] or told["halted"] or told["state"] != "measuring":
            return told
        time.sleep(every)


def asked_patiently(ask: Callable[[], dict[str, Any]], every: float) -> dict[str, Any]:
    """A brief takes hours: a server that is restarted meanwhile ends nothing."""
    for left in reversed(range(ASKED_AGAIN)):
        try:
            return ask()
        except Unusable as error:
            if not left:
                raise
            click.echo(f"{error.message}; asking again", err=True)
            time.sleep(every)
    raise AssertionError("the last try returns or raises")


def line_of_progress(told: dict[str, Any]) -> str:
    if told["halted"]:
        return f"stopped: {told['halted']}"
    stage = next((one for one in told["stages"] if one["state"] in ("now", "held")), None)
    if told["state"] != "measuring" or stage is None:
        return f"{told['state']}{': ' + told['verdict'] if told['verdict'] else ''}"
    return f"{stage['name']}: {stage['done']} of {stage['total']} boots, about {told['seconds_left'] / 60:.0f} min left"


@click.command("check", cls=NeverStale)
@click.option("--route", required=True, help="Its name in briefs and for gateways.")
@click.option("--environment", help="That it has to be of, such as production.")
@click.option("--configuration", metavar="SHA256", help="Digest of what is about to be deployed.")
@click.pass_context
def check(context: click.Context, route: str, environment: str | None, configuration: str | None) -> None:
    """Say whether what is released on ROUTE may be relied on, for a deployment pipeline, and print it as JSON.

    Exit status: 0 in force and valid, 1 not: nothing is in force, or not for this environment or configuration,
    2 stale: it has expired, or what it rests on has changed, 3 when it could not be asked.
    """
    try:
        with refusals_said(context, status=NOT_ASKED, signed_out=NOT_ASKED):
            told = server_of(context).get("routes", route)
    except Unusable as error:
        raise NotAsked(error.message) from None
    why_not = why_not_this(told, environment, configuration)
    printed(told)
    click.echo(why_not or told["sentence"], err=True)
    context.exit(1 if why_not else CHECKED[told["standing"]])


def why_not_this(told: dict[str, Any], environment: str | None, configuration: str | None) -> str | None:
    if environment is not None and told["environment"] != environment:
        return f"the route {told['route']} is of {told['environment']}, not of {environment}"
    if configuration is not None and told["release"] and told["release"]["configuration"] != configuration.lower():
        return f"another configuration was released on {told['route']}: {told['release']['configuration']}"
    return None
