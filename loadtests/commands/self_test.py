"""``draftproof self-test``: what the client itself adds, before an engine is started."""

import json

import click

from loadtests.commands.numbers import Number, number_for
from loadtests.commands.printing import print_result
from loadtests.generator.self_test import LAG_LIMIT_MS, self_test
from loadtests.traffic.levels import Arrival

CANT_HOLD = 4
ADVICE = "Lower the rate, or send from more processes or another machine."


@click.command("self-test")
@click.option("--rate", required=True, type=number_for(Arrival, "rate"), help="Requests per second.")
@click.option("--tokens", default=64, show_default=True, type=click.IntRange(1), help="Events per stream.")
@click.option("--gap-ms", default=5.0, show_default=True, type=Number(0), help="Between two events.")
@click.option("--duration", default=10.0, show_default=True, type=Number(0.1), help="Seconds.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1, 64), help="Client processes.")
@click.option("--lag-limit-ms", default=LAG_LIMIT_MS, show_default=True, type=Number(0, min_open=True))
@click.pass_context
def self_test_command(
    context: click.Context,
    /,
    rate: float,
    tokens: int,
    gap_ms: float,
    duration: float,
    processes: int,
    lag_limit_ms: float,
) -> None:
    """Measure the client against a server that answers at once, and print its floor as JSON.

    Exit status: 0 when the rate can be held, 4 with a sentence when it can't, 7 when the floor could not be printed.
    """
    floor = self_test(rate, stream_tokens=tokens, gap_ms=gap_ms, duration_s=duration, processes=processes)
    print_result(json.dumps(floor.document | {"holds": floor.holds(lag_limit_ms)}, indent=2))
    if refusal := floor.refusal(lag_limit_ms):
        click.echo(f"{refusal} {ADVICE}", err=True)
        context.exit(CANT_HOLD)
