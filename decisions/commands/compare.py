"""``draftproof compare``: the verdict of a brief on directories of trials, without a database."""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from decisions.commands.between_trials import drafted
from decisions.commands.boots import Boot
from decisions.commands.directories import Plans, check_brief, check_once, check_pairs, evidence_in, read_boots
from decisions.commands.suite_file import behaviour_in
from decisions.rules.brief import BadBrief, Brief, read_brief
from decisions.rules.verdict import CODES, VERDICT_CODE, verdict_content
from loadtests.commands.printing import print_result
from loadtests.evidence.directories import UnusableEvidence

UNUSABLE = 2
EXIT = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3, "INVALID": 4}
NO_SUITE = (
    "The brief asks for the preserved-behaviour suite, and no result of it was given, so its guardrail stays open and "
    "nothing can pass: run draftproof behaviour, and give its result.json with --behaviour"
)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
MANY: dict[str, Any] = {"multiple": True, "type": DIRECTORY, "metavar": "DIR…"}


class Unusable(click.ClickException):
    """Nothing was judged."""

    exit_code = UNUSABLE


class Directories(click.Command):
    """An option that takes directories takes all that follow it, as a shell writes them for ``boot-*``."""

    takes_many = ("--baseline", "--candidate", "--control-of", "--control")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = None
        for word in args:
            if word.startswith("-"):
                option = word if word in self.takes_many else None
            elif option and spread[-1] != option:
                spread.append(option)
            spread.append(word)
        return super().parse_args(ctx, spread)


def brief_in(path: Path) -> tuple[Brief, bytes]:
    """The brief, and the bytes that its digest is of."""
    try:
        brief = read_brief(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Unusable(f"{path} is no brief: it isn't UTF-8") from None
    except BadBrief as error:
        raise Unusable(f"{path} is no brief: {error}") from None
    return brief, brief.content


def nominee_of(brief: Brief, candidates: Sequence[Boot], given: str | None) -> str:
    """The candidate whose configuration the trials name, or the only one, or the one that was given."""
    names = {brief.configuration(one.name).digest: one.name for one in brief.all_candidates}
    if given is not None and not brief.has_candidate(given):
        raise Unusable(f"--nominee {given} is no candidate of the brief; there are: {', '.join(names.values())}")
    told = {one.manifest.digests.configuration for boot in candidates for one in boot.trials}
    found = {names[one] for one in told if one in names}
    if told == {brief.baseline.digest}:
        raise Unusable("the candidate's trials ran the brief's baseline: name --baseline and --candidate the other way")
    if given is not None:
        return given
    if len(found) == 1:
        return found.pop()
    if len(names) == 1:
        return brief.all_candidates[0].name
    which = f"say which is meant with --nominee ({', '.join(names.values())})"
    raise Unusable(f"{ran(told, found)}: {which}")


def ran(told: AbstractSet[str | None], found: AbstractSet[str]) -> str:
    if len(found) > 1:
        return f"the candidate's trials ran several of the brief's candidates, {' and '.join(sorted(found))}"
    if told == {None}:
        return "the candidate's trials don't tell which configuration they ran"
    return "the candidate's trials ran a configuration that is no candidate of the brief"


def arms_in(
    brief: Brief,
    baseline: Sequence[Path],
    candidate: Sequence[Path],
    control_of: Sequence[Path],
    control: Sequence[Path],
    nominee: str | None,
) -> tuple[str, list[Boot]]:
    """The nominee, and every boot in its place. Raises UnusableEvidence."""
    plans: Plans = {}
    before = read_boots(baseline, "held-out", "baseline", plans)
    after = read_boots(candidate, "held-out", "candidate", plans)
    check_pairs(before, after, ("--baseline", "--candidate"))
    first = read_boots(control_of, "noise-floor", "baseline", plans)
    second = read_boots(control, "noise-floor", "control", plans)
    check_pairs(first, second, ("--control-of", "--control"))
    name = nominee_of(brief, after, nominee)
    after = [Boot(replace(one.place, candidate=name), one.trials) for one in after]
    boots = [*first, *second, *before, *after]
    check_once(boots)
    check_brief(brief, boots)
    return name, boots


def check_exercised(document: bytes, boots: Sequence[Boot]) -> None:
    """What a candidate gained without a single draft, it didn't gain by speculation."""
    if json.loads(document)["verdict"] == "PASS" and drafted(boots) == 0:
        raise UnusableEvidence(
            "the candidate drafted no token in any held-out trial, so what was measured is no speculation: look in its "
            "engine's log for why none was proposed, and measure again"
        )


@click.command(cls=Directories)
@click.option(
    "--brief", "brief_path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"
)
@click.option(
    "--baseline", required=True, multiple=True, type=DIRECTORY, metavar="DIR…", help="Held-out baseline boots."
)
@click.option("--candidate", required=True, multiple=True, type=DIRECTORY, metavar="DIR…", help="Their pairs.")
@click.option("--control-of", multiple=True, type=DIRECTORY, metavar="DIR…", help="Baseline boots of the noise floor.")
@click.option("--control", multiple=True, type=DIRECTORY, metavar="DIR…", help="Their pairs: the baseline once more.")
@click.option("--nominee", metavar="NAME", help="Candidate of the brief, where the trials don't tell which.")
@click.option(
    "--behaviour",
    "suite",
    type=FILE,
    metavar="FILE",
    help="result.json of draftproof behaviour, where the brief asks for that suite.",
)
@click.option(
    "--rules", default=VERDICT_CODE, show_default=True, type=click.Choice(CODES), help="Version of the rules."
)
@click.pass_context
def compare(
    context: click.Context,
    brief_path: Path,
    baseline: tuple[Path, ...],
    candidate: tuple[Path, ...],
    control_of: tuple[Path, ...],
    control: tuple[Path, ...],
    nominee: str | None,
    suite: Path | None,
    rules: str,
) -> None:
    """Judge a brief on directories of trials and print the verdict as canonical JSON.

    A directory is that of a trial, of a boot (with a trial's directory for each level) or of boots, as draftproof
    replay and draftproof simulate write them. The first baseline boot and the first candidate boot are pair 1, and so
    on. Exit status: 0 PASS, 1 FAIL, 3 INCONCLUSIVE, 4 INVALID; 2 when the evidence can't be judged, with the reason,
    and nothing on standard output.
    """
    document = judged(brief_path, (baseline, candidate, control_of, control), nominee, suite, rules)
    print_result(document)
    context.exit(EXIT[json.loads(document)["verdict"]])


def judged(
    path: Path,
    arms: tuple[Sequence[Path], Sequence[Path], Sequence[Path], Sequence[Path]],
    nominee: str | None,
    suite: Path | None,
    rules: str,
) -> bytes:
    """Raises Unusable for whatever goes wrong: the status of an uncaught error is that of a FAIL."""
    try:
        brief, content = brief_in(path)
        name, boots = arms_in(brief, *arms, nominee)
        trials = evidence_in(brief, boots)
        evidence = [one.manifest_sha256 for boot in boots for one in boot.trials]
        behaviour = None if suite is None else behaviour_in(suite, brief)
        evidence += [] if behaviour is None else [behaviour.evidence]
        document = verdict_content(content, name, trials, evidence, behaviour=behaviour, code=rules)
        if behaviour is None and brief.suite is not None:
            click.echo(NO_SUITE, err=True)
        check_exercised(document, boots)
        return document
    except Unusable:
        raise
    except (UnusableEvidence, ValueError) as error:
        raise Unusable(str(error)) from None
    except Exception as error:
        raise Unusable(
            f"nothing was judged, because of an error of this program: {type(error).__name__}: {error}"
        ) from error
