"""``draftproof compile``: a candidate, or any speculative setting and schedule, as the settings of an engine."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from decisions.commands.compare import FILE, Unusable
from decisions.rules.search import Family, OutsideSearch, first_entrants, in_search
from loadtests.commands.printing import print_result
from loadtests.configurations import Configuration, EngineArguments, Speculative, foreign_difference
from loadtests.strict_yaml import BadYaml
from loadtests.strict_yaml import read_yaml as read_strict_yaml
from loadtests.tuning.compile import ENGINES, EngineName, Uncompilable, compiled
from loadtests.tuning.schedule import BadSchedule, Schedule, schedule_of


@dataclass(frozen=True)
class Asked:
    """A speculative setting, the engine arguments that it runs under, and the K that its drafter was trained for, where
    the brief says so."""

    speculative: Speculative
    arguments: EngineArguments
    trained_block: int | None = None


def of_brief(path: Path, name: str) -> Asked:
    """A candidate that the brief writes out, or one that its search forms: a schedule that tuning proposed too."""
    document = read_yaml(path)
    written = [one for one in listed(document, "candidates") if one.get("name") == name]
    try:
        baseline = Configuration.model_validate(document.get("baseline"))
        if written:
            return Asked(speculative_of(written[0], baseline), baseline.arguments)
        families = tuple(Family.model_validate(one) for one in listed(document, "search"))
        family, schedule = in_search(families, name, baseline.arguments.max_num_seqs)
        setting = family.speculative_of(schedule, baseline.arguments.max_num_seqs)
    except ValidationError as error:
        raise Unusable(f"{path}: {first_problem(error)}") from None
    except OutsideSearch as error:
        raise Unusable(f"{path} has no candidate {name}; it has {known(document, families)}\n{error}") from None
    except BadSchedule as error:
        raise Unusable(f"candidate {name}: {error}") from None
    return Asked(setting, baseline.arguments, family.trained_block)


def known(document: dict[str, Any], families: tuple[Family, ...]) -> str:
    written = [str(one.get("name")) for one in listed(document, "candidates")]
    formed = [name for family in families for name, _ in first_entrants(family)]
    return ", ".join([*written, *formed]) or "none"


def speculative_of(candidate: dict[str, Any], baseline: Configuration) -> Speculative:
    """A candidate says its speculative setting, or a whole configuration that differs from the baseline in it alone."""
    if "configuration" not in candidate:
        return Speculative.model_validate(candidate.get("speculative"))
    whole = Configuration.model_validate(candidate["configuration"])
    if foreign := foreign_difference(baseline, whole):
        changes = ", ".join(f"{key}: {left!r} → {right!r}" for key, (left, right) in foreign.items())
        raise Unusable(
            f"candidate {candidate['name']} differs from the baseline in more than the speculative setting: {changes}"
        )
    if whole.speculative is None:
        raise Unusable(f"candidate {candidate['name']} has no speculative setting: there is nothing to compile")
    return whole.speculative


def listed(document: dict[str, Any], field: str) -> list[dict[str, Any]]:
    found = document.get(field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = read_strict_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unusable(f"{path} is neither YAML nor JSON: it isn't UTF-8") from None
    except BadYaml as error:
        raise Unusable(f"{path} is {error}") from None
    if not isinstance(document, dict):
        raise Unusable(f"{path} is a mapping of fields, or it is nothing that can be compiled")
    return document


def of_setting(path: Path, max_num_seqs: int | None, data_parallel_size: int) -> Asked:
    if max_num_seqs is None:
        raise Unusable("say --max-num-seqs: the engine's limit closes the last range of a schedule")
    try:
        arguments = EngineArguments(max_num_seqs=max_num_seqs, data_parallel_size=data_parallel_size)
        return Asked(Speculative.model_validate(read_yaml(path)), arguments)
    except ValidationError as error:
        raise Unusable(f"{path}: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    one = error.errors()[0]
    field = ".".join(str(part) for part in one["loc"]) or "(whole document)"
    return f"{field}: {one['msg'].removeprefix('Value error, ')}"


def asked(
    brief: Path | None, candidate: str | None, speculative: Path | None, max_num_seqs: int | None, ranks: int
) -> Asked:
    if brief is not None and candidate is not None and speculative is None:
        return of_brief(brief, candidate)
    if speculative is not None and brief is None and candidate is None:
        return of_setting(speculative, max_num_seqs, ranks)
    raise Unusable("say either --brief with --candidate, or --speculative with --max-num-seqs")


@click.command("compile")
@click.option("--engine", required=True, type=click.Choice(ENGINES))
@click.option("--brief", type=FILE, help="Acceptance brief; --candidate says which of its candidates.")
@click.option("--candidate", metavar="NAME", help="Also one of a search: ngram-k4, or ngram-s1x8-5x0 under a schedule.")
@click.option("--speculative", type=FILE, help="Speculative setting of a configuration, as JSON, instead of a brief.")
@click.option("--schedule", metavar="TEXT", help="In place of the setting's own K: 1x8-5x2-17x0 is lo x K.")
@click.option("--max-num-seqs", type=click.IntRange(1, 100_000), help="With --speculative: the engine's largest batch.")
@click.option("--data-parallel-size", default=1, type=click.IntRange(1, 1_024), show_default=True)
@click.option(
    "--trained-block",
    type=click.IntRange(1, 64),
    help="The K that the drafter was trained for; else as the brief says.",
)
@click.option("--drafter-path", help="Where the engine finds the drafter; else its checkpoint's name.")
def compile_command(
    engine: EngineName,
    brief: Path | None,
    candidate: str | None,
    speculative: Path | None,
    schedule: str | None,
    max_num_seqs: int | None,
    data_parallel_size: int,
    trained_block: int | None,
    drafter_path: str | None,
) -> None:
    """Print the settings for an engine as JSON on standard output, and on standard error what to know about them.

    Exit status: 0, or 2 when the engine can't run it; then every reason is on standard error, one a line.
    """
    wanted = asked(brief, candidate, speculative, max_num_seqs, data_parallel_size)
    try:
        found = compiled(
            engine,
            wanted.speculative,
            schedule_of(wanted.speculative) if schedule is None else Schedule.parse(schedule),
            arguments=wanted.arguments,
            trained_block=trained_block or wanted.trained_block,
            drafter_path=drafter_path,
        )
    except Uncompilable as error:
        raise Unusable("\n".join(error.reasons)) from None
    except BadSchedule as error:
        raise Unusable(str(error)) from None
    for note in found.notes:
        click.echo(note, err=True)
    print_result(json.dumps(found.settings, indent=2, ensure_ascii=False))
