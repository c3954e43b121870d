"""``draftproof simulate``: trials in virtual time on an engine whose truth is stated, in the layout of evidence."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from loadtests.canonical import digest
from loadtests.commands.printing import print_result
from loadtests.configurations import Checkpoint, Configuration, EngineArguments, Hardware, Runtime, Speculative
from loadtests.evidence.manifest import (
    Digests,
    Manifest,
    counters_around,
    manifest_content,
    named,
    this_client,
    timestamp,
)
from loadtests.evidence.records import records_content
from loadtests.evidence.store import write_durably
from loadtests.evidence.summary import summarise
from loadtests.simulator import PRESETS, Boot, EngineModel, SimulatedTrial, preset, read_costs, read_model
from loadtests.traffic.arrivals import derived_seed
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import Segment, plan_level, segments
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import NANOSECONDS, BadRow, Row, part_digest, read_rows

UNUSABLE = 2
VERSION = "simulated-1"
MAX_SEED = 2**53 - 1


class Unusable(click.ClickException):
    """What was asked for can't be done; nothing was written."""

    exit_code = UNUSABLE


@dataclass(frozen=True)
class Simulation:
    """Everything that the command does, settled before it begins."""

    model: EngineModel
    configuration: Configuration
    rows: list[Row]
    levels: list[Level]
    places: dict[tuple[int, str], Segment]
    boots: int
    seed: int
    content_seed: int
    control: bool

    def boot_seed(self, boot: int) -> int:
        """Two configurations never share a boot's luck, even where they share all else; nor do baseline and control."""
        of = ("simulated boot", self.seed, self.configuration.digest, boot)
        return derived_seed(*of, "control") if self.control else derived_seed(*of)


def configuration_of(model: EngineModel, arguments: EngineArguments, speculative: Speculative | None) -> Configuration:
    """The model's digest stands for the checkpoint: it is all that there is to the target."""
    return Configuration(
        runtime=Runtime(engine="simulated", distribution="draftproof", version=VERSION),
        target=Checkpoint(name=model.name, weights_sha256=model.digest, tokenizer_sha256=model.digest),
        arguments=arguments,
        hardware=Hardware(pool="simulated", accelerator="simulated"),
        speculative=speculative,
    )


def arguments_of(model: EngineModel) -> EngineArguments:
    return EngineArguments(
        max_model_len=model.max_model_len,
        max_num_seqs=model.max_num_seqs,
        max_num_batched_tokens=model.max_num_batched_tokens,
        block_size=model.block_size,
        enable_prefix_caching=model.prefix_caching,
    )


def planned_of(wanted: Simulation, boot: int, level: Level) -> list[PlannedRequest]:
    place = wanted.places[boot, level.name]
    rows = [(index, wanted.rows[index]) for index in place.rows]
    return plan_level(rows, level, seed=place.seed, prefix=f"{level.name}-{place.start}")


def run_boot(wanted: Simulation, number: int, out: Path) -> list[dict[str, Any]]:
    boot = Boot(
        wanted.model,
        wanted.configuration.speculative,
        seed=wanted.boot_seed(number),
        content_seed=wanted.content_seed,
        fingerprint=wanted.configuration.digest,
    )
    kept = []
    for level in wanted.levels:
        planned = planned_of(wanted, number, level)
        trial = boot.run_trial(
            planned,
            level=level.name,
            window_s=level.duration_s,
            drain_s=level.drain_s,
            warm_up_s=level.warm_up_s,
            max_concurrency=level.max_concurrency,
        )
        kept.append(keep(wanted, number, boot, level, planned, trial, out / f"boot-{number + 1:03d}" / level.name))
    return kept


def keep(
    wanted: Simulation,
    number: int,
    boot: Boot,
    level: Level,
    planned: Sequence[PlannedRequest],
    trial: SimulatedTrial,
    out: Path,
) -> dict[str, Any]:
    """Write plan, records and manifest, in this order, and give the trial's summary."""
    plan, records = plan_content(planned, level), records_content(trial.records)
    summary = summarise(trial.records, window_s=level.duration_s, deadlines=level.deadlines)
    digests = Digests(
        plan=digest(plan),
        records=digest(records),
        part=part_digest(wanted.rows),
        configuration=wanted.configuration.digest,
    )
    manifest = manifest_content(manifest_of(wanted, number, boot, level, trial, summary, digests))
    for name, content in (("plan.json", plan), ("records.parquet", records), ("manifest.json", manifest)):
        write_durably(out / name, content)
    return {"boot": number + 1, "level": level.name, "out": str(out), "manifest_sha256": digest(manifest)} | summary


def manifest_of(
    wanted: Simulation,
    number: int,
    boot: Boot,
    level: Level,
    trial: SimulatedTrial,
    summary: dict[str, Any],
    digests: Digests,
) -> Manifest:
    fingerprints = Counter(one.fingerprint for one in trial.records if one.status == "completed" and not one.warm_up)
    return Manifest(
        evidence_class="simulated",
        level=level.model_dump(mode="json"),
        model=wanted.model.name,
        # Virtual time begins with the epoch; it has no other date.
        started_at=timestamp(round(trial.began_s * NANOSECONDS)),
        window_s=level.duration_s,
        drain_s=level.drain_s,
        stopped=False,
        digests=digests,
        planned=summary["planned"],
        statuses=summary["statuses"],
        lag_ms=summary["lag_ms"],
        fingerprints=named(fingerprints),
        warm_up_requests=summary.get("warm_up_requests", 0),
        seeds={
            "segments": wanted.seed,
            "segment": wanted.places[number, level.name].seed,
            "boot": wanted.boot_seed(number),
            "content": wanted.content_seed,
        },
        engine=facts_of(wanted, number, boot) | {"timeline": [asdict(one) for one in trial.timeline]},
        counters=counters_around(trial.before, trial.after),
        # Its machine is its own.
        neighbour_cpu_share=0.0,
        client=this_client(sys.argv),
    )


def facts_of(wanted: Simulation, number: int, boot: Boot) -> dict[str, Any]:
    return {
        "server_id": f"simulated-{wanted.boot_seed(number):012x}",
        "version": VERSION,
        "device": "simulated",
        "kv_cache_tokens": boot.engine.capacity * wanted.model.block_size,
        "engine_model": wanted.model.model_dump(mode="json", by_alias=True),
        "boot_factor": boot.engine.pace.factor,
    }


def first_problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    one = error.errors()[0]
    field = ".".join(str(part) for part in one["loc"])
    return f"{field}: {one['msg']}" if field else str(one["msg"]).removeprefix("Value error, ")


def settled(
    model: EngineModel,
    rows: list[Row],
    levels: Sequence[str],
    speculative: str | None,
    *,
    boots: int,
    seed: int,
    content_seed: int,
    control: bool,
    wrap: bool,
) -> Simulation:
    found = [Level.model_validate_json(one) for one in levels]
    if len({one.name for one in found}) < len(found):
        raise ValueError("two levels have the same name")
    setting = None if speculative is None else Speculative.model_validate_json(speculative)
    return Simulation(
        model=model,
        configuration=configuration_of(model, arguments_of(model), setting),
        rows=rows,
        levels=found,
        places=segments(rows, found, pairs=boots, seed=seed, wrap=wrap),
        boots=boots,
        seed=seed,
        content_seed=content_seed,
        control=control,
    )


@click.command()
@click.option("--traffic", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--preset", "name", default="cpu-2core", type=click.Choice(sorted(PRESETS)), show_default=True)
@click.option("--model", "document", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Saved model.")
@click.option(
    "--costs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Costs over the model's: see fit-costs.",
)
@click.option("--speculative", metavar="JSON", help="Speculative setting of a configuration; without it there is none.")
@click.option(
    "--level", "levels", metavar="JSON", multiple=True, required=True, help="Load level as in a brief; several."
)
@click.option("--boots", default=1, type=click.IntRange(1, 10_000), show_default=True)
@click.option("--seed", default=0, type=click.IntRange(0, MAX_SEED), help="The same in both arms: the same requests.")
@click.option(
    "--content-seed", default=0, type=click.IntRange(0, MAX_SEED), help="Which texts are easy, how long answers."
)
@click.option("--control", is_flag=True, help="Other boots of the same configuration: for the noise floor.")
@click.option("--wrap", is_flag=True, help="Go through the traffic again when it ends; else boots share no request.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="New or empty directory for the evidence.")
def simulate(
    traffic: Path,
    name: str,
    document: Path | None,
    costs: Path | None,
    speculative: str | None,
    levels: tuple[str, ...],
    boots: int,
    seed: int,
    content_seed: int,
    control: bool,
    wrap: bool,
    out: Path,
) -> None:
    """Run a traffic file against a simulated engine in virtual time and print a JSON summary of every trial.

    Writes configuration.json, and boot-NNN/LEVEL/ with plan.json, records.parquet and manifest.json. The evidence is of
    the class simulated: nobody can approve on it. Exit status: 0, or 2 when it can't be run and nothing was written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Unusable(f"{out} is there and not empty: evidence is never written over")
    try:
        model = preset(name) if document is None else read_model(document)
        model = model if costs is None else model.with_costs(read_costs(costs))
        rows = list(read_rows(traffic))
        seeds = {"boots": boots, "seed": seed, "content_seed": content_seed}
        wanted = settled(model, rows, levels, speculative, **seeds, control=control, wrap=wrap)
        Boot(model, wanted.configuration.speculative, seed=0)
    except (ValueError, BadRow) as error:
        raise Unusable(first_problem(error) if isinstance(error, ValueError) else str(error)) from None
    write_durably(out / "configuration.json", wanted.configuration.content)
    kept = [trial for number in range(boots) for trial in run_boot(wanted, number, out)]
    told = {"configuration_sha256": wanted.configuration.digest, "engine_model_sha256": model.digest, "trials": kept}
    print_result(json.dumps(told, indent=2, ensure_ascii=False))
