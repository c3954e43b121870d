"""``draftproof lint``: the preflight of a brief, or of a bare speculative setting, without a database."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from decisions.commands.compare import DIRECTORY, FILE, Unusable
from decisions.rules.as_written import SETTING as SETTING_FIELD
from decisions.rules.as_written import finding_of
from decisions.rules.brief import LONGEST_SOURCE, BadBrief, read_brief
from decisions.rules.findings import FACTS_VERSION, VLLM, Finding
from decisions.rules.flagged import OTHER_VERSION, preflight
from decisions.rules.preflight import Known, findings_of, refused
from loadtests.checkpoints import CheckpointFacts, read_facts, recorded_facts
from loadtests.commands.printing import print_result
from loadtests.configurations import (
    OPTIONS,
    Checkpoint,
    Configuration,
    EngineArguments,
    Hardware,
    Runtime,
    Speculative,
)
from loadtests.strict_yaml import BadYaml, read_yaml

SCHEMA = "draftproof.preflight/1"
REFUSED = 1
# Of a bare setting nobody knows the checkpoints' digests.
TARGET = Checkpoint(name="target", weights_sha256="0" * 64, tokenizer_sha256="0" * 64)
DRAFTER = Checkpoint(name="drafter", weights_sha256="1" * 64, tokenizer_sha256="0" * 64)


def of_brief(path: Path, models: Path | None) -> list[Finding]:
    """Raises Unusable where anything but the preflight stands against it."""
    try:
        brief = read_brief(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unusable(f"{path} is no brief: it isn't UTF-8") from None
    except BadBrief as error:
        if any(problem not in error.rules for problem in error.problems):
            raise Unusable(f"{path} is no brief: {error}") from None
        return list(error.findings)
    return preflight(brief, Known(recorded_facts(models) if models else {}))


def of_setting(text: str, configuration: Configuration, known: Known) -> list[Finding]:
    """``configuration`` is the baseline that the setting runs on. Raises Unusable."""
    said = list(OTHER_VERSION.findings(configuration.runtime))
    try:
        setting = Speculative.model_validate(in_our_words(setting_in(text)))
    except ValidationError as error:
        slips = [{**one, "loc": (SETTING_FIELD, *one["loc"])} for one in error.errors(include_url=False)]
        found = {number: finding for number, one in enumerate(slips) if (finding := finding_of(one))}
        others = [one for number, one in enumerate(slips) if number not in found]
        if others:
            raise Unusable("; ".join(f"{dotted(one)}: {one['msg']}" for one in others)) from None
        return [*found.values(), *said]
    return [*findings_of(configuration.with_speculative(setting), known, where=SETTING_FIELD), *said]


def dotted(slip: Mapping[str, Any]) -> str:
    """Where it is, as a dotted name."""
    return ".".join(str(one) for one in slip["loc"])


def setting_in(text: str) -> dict[str, Any]:
    if len(text) > LONGEST_SOURCE:
        raise Unusable(f"--speculative-config is longer than {LONGEST_SOURCE // 1000} kB")
    try:
        setting = read_yaml(text)
    except BadYaml as error:
        raise Unusable(f"--speculative-config is no JSON: {error}") from None
    if not isinstance(setting, dict):
        raise Unusable("--speculative-config is an object of the engine's keys, as vLLM takes it")
    return setting


def in_our_words(setting: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM says ``model`` for what a configuration calls ``drafter``, and for a proposer's class."""
    ours = dict(setting)
    method = ours.get("method")
    if method == "custom_class" and "model" in ours:
        ours["custom_class"] = ours.pop("model")
    elif (method is None or method in OPTIONS["drafter"]) and "model" in ours:
        del ours["model"]
        ours["drafter"] = DRAFTER.model_dump()
    elif method in ("ngram", "suffix") and ours.get("model") == method:
        # vLLM fills it in itself.
        del ours["model"]
    return ours


def facts_in(directory: Path) -> CheckpointFacts:
    try:
        return read_facts(directory)
    except (OSError, ValueError, RecursionError) as error:
        raise Unusable(f"{directory} is no checkpoint that can be read: {error}") from None


def known_of(target: Path | None, drafter: Path | None) -> Known:
    given = ((TARGET, target), (DRAFTER, drafter))
    return Known({(one.weights_sha256, one.tokenizer_sha256): facts_in(path) for one, path in given if path})


@click.command("lint")
@click.argument("brief", type=FILE, required=False)
@click.option("--models", type=DIRECTORY, help="With a brief: where its checkpoints are recorded (var/models).")
@click.option("--speculative-config", metavar="JSON", help="Instead of a brief: a setting in the words of vLLM.")
@click.option("--engine-version", metavar="V", help="With a setting: the version of vLLM that will run it.")
@click.option("--cpu", is_flag=True, help="With a setting: it runs on a CPU.")
@click.option("--enforce-eager", is_flag=True, help="With a setting: no CUDA graphs.")
@click.option("--max-num-seqs", default=256, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--tensor-parallel-size", default=1, show_default=True, type=click.IntRange(1, 1_024))
@click.option("--data-parallel-size", default=1, show_default=True, type=click.IntRange(1, 1_024))
@click.option("--target", type=DIRECTORY, help="With a setting: the target's checkpoint.")
@click.option("--drafter", type=DIRECTORY, help="With a setting: the drafter's checkpoint.")
@click.pass_context
def lint(
    context: click.Context,
    /,
    brief: Path | None,
    models: Path | None,
    speculative_config: str | None,
    engine_version: str | None,
    cpu: bool,
    target: Path | None,
    drafter: Path | None,
    **arguments: Any,
) -> None:
    """Print what the preflight refuses and flags, as JSON; docs/preflight.md explains each rule.

    Exit status: 0 when nothing is refused, 1 when something is, 2 when there is nothing that can be checked, with the
    reason and nothing on standard output.
    """
    with every_error_said():
        if brief is not None and speculative_config is None and engine_version is None:
            findings = of_brief(brief, models)
        elif brief is None and models is None and speculative_config is not None and engine_version is not None:
            configuration = running(engine_version, cpu, arguments)
            findings = of_setting(speculative_config, configuration, known_of(target, drafter))
        else:
            raise Unusable("say either a brief, or --speculative-config with --engine-version")
    print_result(json.dumps(document_of(findings), indent=2, ensure_ascii=False))
    context.exit(REFUSED if refused(findings) else 0)


@contextmanager
def every_error_said() -> Iterator[None]:
    """The status of an uncaught error is that of a refusal."""
    try:
        yield
    except Unusable:
        raise
    except Exception as error:
        raise Unusable(
            f"nothing was checked, because of an error of this program: {type(error).__name__}: {error}"
        ) from error


def running(version: str, cpu: bool, arguments: Mapping[str, Any]) -> Configuration:
    """Whoever asks starts the engine: what our own worker sees to, nobody sees to there."""
    return Configuration(
        schema="draftproof.configuration/1",
        runtime=Runtime(engine="remote", version=version),
        target=TARGET,
        # The target's own length isn't asked for: none is too long for it.
        arguments=EngineArguments(max_model_len=100_000_000, **arguments),
        hardware=Hardware(pool="any", accelerator="cpu" if cpu else "accelerator"),
    )


def document_of(findings: list[Finding]) -> dict[str, Any]:
    no = len(refused(findings))
    return {
        "schema": SCHEMA,
        "facts": {"engine": VLLM, "version": FACTS_VERSION},
        "refused": no,
        "flagged": len(findings) - no,
        "findings": [one.document for one in findings],
    }
