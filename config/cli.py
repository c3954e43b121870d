"""``draftproof``: the command line. It needs no database and no settings."""

import os

import click

from decisions.commands.compare import compare
from decisions.commands.lint import lint
from loadtests.commands.behaviour import behaviour
from loadtests.commands.compile import compile_command
from loadtests.commands.fit_costs import fit_costs_command
from loadtests.commands.import_evidence import import_evidence_command
from loadtests.commands.import_traffic import import_traffic
from loadtests.commands.replay import replay
from loadtests.commands.rerun import rerun
from loadtests.commands.self_test import self_test_command
from loadtests.commands.simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="draftproof")
@click.pass_context
def main(context: click.Context) -> None:
    """Draftproof: measure a language-model server under real traffic.

    Commands print their result as JSON on standard output. Exit status 7, of each of them: it could not be printed.
    """
    # Commands outside config/ don't read the environment: they are handed the one way to do it.
    context.obj = os.environ.get


main.add_command(behaviour)
main.add_command(compare)
main.add_command(compile_command)
main.add_command(lint)
main.add_command(replay)
main.add_command(rerun)
main.add_command(import_traffic)
main.add_command(import_evidence_command)
main.add_command(simulate)
main.add_command(fit_costs_command)
main.add_command(self_test_command)

if __name__ == "__main__":
    main()
