"""``draftproof verify``: the verifier that every bundle has in it (``decisions/verify.py``), as a command."""

import click

from decisions import verify as verifier
from loadtests.commands.printing import print_result

FILE = click.Path(dir_okay=False)


@click.command("verify")
@click.argument("bundle", type=FILE)
@click.option("--fingerprint", metavar="KEY_ID", help="Of the installation's key, from outside the bundle.")
@click.option("--key", type=FILE, help="The installation's public key in PEM, from outside the bundle.")
@click.option("--checkpoint", type=FILE, help="Of the ledger, that you kept.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
@click.pass_context
def verify(
    context: click.Context,
    bundle: str,
    fingerprint: str | None,
    key: str | None,
    checkpoint: str | None,
    as_json: bool,
) -> None:
    """Verify the BUNDLE of a decision, without a server and without extracting anything.

    Exit status: 0 verified, 1 not verified, 2 could not be read. Without a key from outside the bundle nothing is
    verified: anybody can make a bundle with a key of their own.
    """
    status, said = verifier.run(bundle, fingerprint=fingerprint, key=key, checkpoint=checkpoint, json_wanted=as_json)
    print_result(said.removesuffix("\n"))
    context.exit(status)
