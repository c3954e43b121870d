from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from django.conf import settings

from decisions import ledger
from decisions.models import Account, BriefRevision, ImportedTrial
from decisions.rules.brief import BadBrief, Brief
from decisions.rules.states import DRAFT, FROZEN, MEASURING
from decisions.rules.who_may import may_import_evidence
from decisions.rules.wording import arm_said
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests import uploads
from loadtests.canonical import digest
from loadtests.credentials import beginning_without_credentials
from loadtests.evidence.foreign import EvidenceRefused, ImportedManifest
from loadtests.evidence.foreign import import_evidence as read_here
from loadtests.evidence.records import read_records
from loadtests.evidence.store import digest_of_file
from loadtests.journal import act
from loadtests.naming import Held
from loadtests.services.import_traffic import kept, name_files, naming

# Once there is a verdict, what its owner has read no longer changes.
OPEN = (DRAFT, FROZEN, MEASURING)
BASELINE = "baseline"
# A page waits so long for a file to be read; 50 MB of details take about two seconds.
PAGE_LIMIT_S = 120
# For the process itself, should nobody be there to end it.
PAST_THE_LIMIT_S = 10
RUNS_LISTED = 20
LONGEST_NOTE = 300
# A page waits so long for files that are being removed.
NAMING_PATIENCE_S = 30.0
# What tells the runs of a file apart, under the tools' names.
TELLING = ("type_", "rate", "request_rate", "streams", "max_concurrency", "concurrency")

Read = Callable[[Path, Path, str], dict[str, Any]]


def read_apart(path: Path, out: Path, wanted: str) -> dict[str, Any]:
    """In a process of its own: a file that takes too much time or memory ends that, and not the web server; and it ends
    with the web server."""
    memory = settings.RESULT_MEMORY_BYTES
    bounds = [str(os.getpid()), str(int(PAGE_LIMIT_S) + PAST_THE_LIMIT_S), str(memory)]
    command = [sys.executable, "-m", "config.cli", "import-evidence", str(path), "--format", wanted, "--out", str(out)]
    command += ["--bounds", *bounds]
    try:
        done = subprocess.run(  # noqa: S603 - a format of ours, and paths that we have drawn
            command, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=PAGE_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EvidenceRefused(
            f"reading it took longer than {PAGE_LIMIT_S / 60:g} minutes and was ended: let whoever runs this "
            "installation import it with manage.py import_evidence, which waits"
        ) from None
    if done.returncode == 2:
        raise EvidenceRefused(done.stderr.strip().removeprefix("Error: "))
    if done.returncode == 3:
        raise EvidenceRefused(
            f"reading it took more than {memory / 1e9:g} GB of memory: import a shorter run, or let whoever runs this "
            "installation raise DRAFTPROOF_RESULT_MEMORY_GB or import it with manage.py import_evidence"
        )
    if done.returncode:
        raise EvidenceRefused(
            "the process that read it died, as one does that is out of memory: import a shorter run, or have it "
            "imported with manage.py import_evidence on a larger machine"
        )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def import_evidence(
    *,
    revision: BriefRevision,
    path: Path,
    file_name: str,
    arm: str,
    level: str,
    by: Account,
    run: int | None = None,
    wanted: str = "auto",
    note: str = "",
    read: Read = read_here,
) -> ImportedTrial:
    """Brings one run of another tool's result file to a revision, as a trial of one of its arms at one of its levels.

    It is shown and compared, and no verdict is ever computed from it. Refused with a sentence, nothing is kept.
    """
    refusal = may_import_evidence(person(by))
    if refusal:
        refuse("evidence-import", refusal, subject=subject(revision), actor=by.username)
    check_place(revision, arm, level)
    with uploads.workplace("evidence-") as place:
        file = place / uploads.safe_name(file_name)
        file.symlink_to(path.absolute())
        try:
            runs = read(file, place / "runs", wanted)["runs"]
        except EvidenceRefused as error:
            raise Refused(str(error)) from None
        chosen = chosen_run(runs, place / "runs", run)
        trial, files = trial_in(place / "runs" / chosen["directory"], chosen)
        trial.revision, trial.arm, trial.level, trial.imported_by = revision, arm, level, by.username
        trial.note = beginning_without_credentials(note, LONGEST_NOTE)
        with kept(files, place), naming(files, patience_s=NAMING_PATIENCE_S) as lock:
            record(trial, by, files, lock)
    return trial


def check_place(revision: BriefRevision, arm: str, level: str) -> None:
    check_open(revision)
    try:
        document = revision.document
    except BadBrief as error:
        raise Refused(f"the draft can't be read, so nobody knows its arms and levels: {error}") from None
    if arm != BASELINE and not document.has_candidate(arm):
        raise Refused(f"arm: this brief has no {arm!r}; it has {', '.join(arms_of(document))}")
    if level not in (levels := [one.name for one in document.levels]):
        raise Refused(f"level: this brief has no {level!r}; it has {', '.join(levels)}")


def arms_of(document: Brief) -> list[str]:
    return [BASELINE, *(one.name for one in document.all_candidates)]


def check_open(revision: BriefRevision) -> None:
    if revision.state not in OPEN:
        raise Refused(
            f"the revision is {revision.state}: imported trials come and go before its verdict. A new revision takes "
            "them"
        )


def chosen_run(runs: Sequence[dict[str, Any]], directory: Path, wanted: int | None) -> dict[str, Any]:
    if wanted is None and len(runs) == 1:
        return runs[0]
    if wanted is not None and 0 < wanted <= len(runs):
        return runs[wanted - 1]
    told = [f"run {number}: {told_apart(directory, one)}" for number, one in enumerate(runs[:RUNS_LISTED], start=1)]
    more = ["…"] if len(runs) > RUNS_LISTED else []
    asked = "say which one of them is this level’s" if wanted is None else f"there is no run {wanted}"
    number = f"{len(runs)} runs" if len(runs) != 1 else "1 run"
    raise Refused(f"run: the file holds {number}, and {asked}. {'; '.join([*told, *more])}")


def told_apart(directory: Path, run: dict[str, Any]) -> str:
    manifest = ImportedManifest.model_validate_json((directory / run["directory"] / "manifest.json").read_bytes())
    settings = [f"{name.rstrip('_')} {manifest.settings[name]}" for name in TELLING if name in manifest.settings]
    planned = "an unknown number of" if manifest.planned is None else f"{manifest.planned:,}"
    return ", ".join([f"{planned} requests", *settings])


def trial_in(directory: Path, summary: dict[str, Any]) -> tuple[ImportedTrial, dict[str, Path]]:
    """The trial of a run's directory, and the files that it names, by their digests."""
    content = (directory / "manifest.json").read_bytes()
    manifest = ImportedManifest.model_validate_json(content)
    records = directory / "records.parquet"
    records_digest = digest_of_file(records) if records.exists() else ""
    trial = ImportedTrial(
        tool=manifest.source.tool,
        file_name=manifest.source.file[:200],
        file_digest=manifest.source.sha256,
        run=manifest.source.run,
        summary=summary_of(manifest, summary, tokens_in(records)),
        records_digest=records_digest,
        manifest_digest=digest(content),
    )
    files = {trial.manifest_digest: directory / "manifest.json"}
    return trial, files | ({records_digest: records} if records_digest else {})


def summary_of(manifest: ImportedManifest, told: dict[str, Any], tokens: int | None) -> dict[str, Any]:
    """As that of our own trials, as far as the file tells; what it doesn't tell is null."""
    whole = manifest.recorded == manifest.planned
    rate = tokens / manifest.window_s if whole and tokens is not None and manifest.window_s else None
    return {
        "evidence_class": manifest.evidence_class,
        "planned": manifest.planned,
        "statuses": manifest.statuses,
        "recorded": manifest.recorded,
        "planned_times": manifest.planned_times,
        "lag_ms": manifest.lag_ms,
        "first_token_ms": told.get("first_token_ms"),
        "completion_ms": told.get("completion_ms"),
        "percentiles": told.get("percentiles"),
        "output_tokens": tokens,
        "output_tokens_per_s": rate,
        "window_s": manifest.window_s,
        "tool_version": manifest.source.tool_version,
        "model": manifest.model,
        "lacks": list(manifest.lacks),
        "findings": list(manifest.findings),
    }


def tokens_in(records: Path) -> int | None:
    """Of all requests; None where that of a completed one isn't told."""
    if not records.exists():
        return None
    table = read_records(records)
    completed = table.filter(pc.equal(table["status"], "completed"))
    if completed["output_tokens"].null_count:
        return None
    return int(pc.sum(table["output_tokens"]).as_py() or 0)


def record(trial: ImportedTrial, by: Account, files: Collection[str], lock: Held) -> None:
    revision = trial.revision
    with act():
        check_open(BriefRevision.objects.only("state").get(pk=revision.pk))
        same = {"file_digest": trial.file_digest, "run": trial.run, "set_aside_at": None}
        known = revision.imported_trials.filter(**same).first()
        if known:
            raise Refused(
                f"run {known.run} of this file stands here already as {arm_said(known.arm)} at {known.level} (imported "
                f"trial {known.pk}): set that one aside first"
            )
        name_files(files, lock)
        trial.save(force_insert=True)
        # Whoever brings evidence has a hand in what is decided.
        revision.run_starters.add(by)
        ledger.append(
            "evidence-imported",
            subject=subject(revision),
            actor=by.username,
            details={
                "trial": trial.pk,
                "arm": trial.arm,
                "level": trial.level,
                "tool": trial.tool,
                "file": trial.file_name,
                "file_sha256": trial.file_digest,
                "run": trial.run,
                "note": trial.note,
                "manifest": trial.manifest_digest,
                "records": trial.records_digest,
            },
        )
