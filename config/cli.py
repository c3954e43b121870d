"""``draftproof``: the command line. It needs no database and no settings."""

import os
from importlib import import_module
from typing import Any

import click

from loadtests.commands.printing import help_printed
from loadtests.commands.signals import Ending, ended_by_signals
from loadtests.commands.streams import steady_streams

# Read when they are asked for: together they take seconds to load.
COMMANDS = {
    "behaviour": "loadtests.commands.behaviour:behaviour",
    "check": "decisions.client.commands:check",
    "compare": "decisions.commands.compare:compare",
    "compile": "decisions.commands.compile:compile_command",
    "fit-costs": "loadtests.commands.fit_costs:fit_costs_command",
    "import": "loadtests.commands.import_traffic:import_traffic",
    "import-evidence": "loadtests.commands.import_evidence:import_evidence_command",
    "lint": "decisions.commands.lint:lint",
    "login": "decisions.client.commands:login",
    "replay": "loadtests.commands.replay:replay",
    "rerun": "loadtests.commands.rerun:rerun",
    "self-test": "loadtests.commands.self_test:self_test_command",
    "simulate": "loadtests.commands.simulate:simulate",
    "submit": "decisions.client.commands:submit",
    "verify": "decisions.commands.verify:verify",
    "watch": "decisions.client.commands:watch",
}
# Those that end with the status of whoever was interrupted, from their first moment on.
STOPPED = ("behaviour", "replay", "rerun")


class Draftproof(click.Group):
    # Whoever asks for a command without running one is ended by nothing.
    ending: Ending | None = None

    def main(self, *args: Any, **more: Any) -> Any:
        steady_streams()
        with help_printed(), ended_by_signals() as self.ending:
            return super().main(*args, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if self.ending and cmd_name in STOPPED:
            self.ending.begin()
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        if self.ending:
            self.ending.check()
        return command


@click.group(cls=Draftproof, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="draftproof")
@click.pass_context
def main(context: click.Context) -> None:
    """Draftproof: measure a language-model server under real traffic.

    Commands print their result as JSON on standard output. Exit status 7, of each of them: it could not be printed.
    """
    # Commands outside config/ don't read the environment: they are handed the one way to do it.
    context.obj = os.environ.get


if __name__ == "__main__":
    main()
