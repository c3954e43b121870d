"""``draftproof fit-costs``: what a step costs, by directories of measured trials, for ``simulate --costs``."""

import json
from pathlib import Path

import click
import pyarrow as pa

from loadtests.commands.printing import print_result
from loadtests.evidence.directories import UnusableEvidence, boots_in, kept_trial
from loadtests.simulator.fitting import fit_costs

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


class Unusable(click.ClickException):
    exit_code = 2


def records_in(directories: tuple[Path, ...]) -> list[pa.Table]:
    return [kept_trial(trial).records for one in directories for boot in boots_in(one) for trial in boot]


@click.command("fit-costs")
@click.argument("plain", nargs=-1, required=True, type=DIRECTORY)
@click.option("--speculating", multiple=True, type=DIRECTORY, help="Trials in which --method drafted; several.")
@click.option("--method", default="", help="Speculative method of --speculating, as in a configuration.")
def fit_costs_command(plain: tuple[Path, ...], speculating: tuple[Path, ...], method: str) -> None:
    """Fit the costs of a step to trials without speculation, and a drafter's to trials with it; print them as JSON.

    A directory is that of a trial, of a boot or of boots, as draftproof replay writes them. Exit status: 0, or 2 when
    the trials don't tell.
    """
    try:
        found = fit_costs(records_in(plain), records_in(speculating), method=method)
    except (UnusableEvidence, ValueError) as error:
        raise Unusable(str(error)) from None
    print_result(json.dumps(found.model_dump(mode="json", by_alias=True), indent=2))
