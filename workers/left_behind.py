"""What a killed worker leaves of a trial: kept as evidence of an attempt that was cut off, apart from the next one."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings

from loadtests.evidence.records import measured, read_records, records_content, records_of
from loadtests.evidence.store import write_durably
from loadtests.generator.spool import completed_by, told_by
from loadtests.generator.trial import WarmUp
from loadtests.generator.unserved import unserved
from loadtests.models import Boot, Trial
from loadtests.traffic.levels import Level
from loadtests.traffic.planned import PlannedRequest, plan_content
from workers.insist import insist
from workers.trial_evidence import Measured, level_of, store_trial

logger = logging.getLogger(__name__)

UNKNOWN = "the worker was killed while this request was open or waiting: what became of it is unknown"
OVER = (Boot.State.LOST, Boot.State.CANCELLED, Boot.State.VOID)
OWNER_ALONE = 0o600


@dataclass(frozen=True)
class TrialFiles:
    """The plan of a trial that is under way, the records that it would have if nothing of it were known, and the spools
    that say what is. They are there from before its first request until its evidence is stored."""

    directory: Path
    trial: int

    @property
    def plan(self) -> Path:
        return self.directory / f"trial-{self.trial}.plan.json"

    @property
    def records(self) -> Path:
        return self.directory / f"trial-{self.trial}.parquet"

    @property
    def spool(self) -> Path:
        return self.directory / f"trial-{self.trial}.spool"

    def begin(self, planned: list[PlannedRequest], level: Level, model: str) -> None:
        """The plan last: where it is, the records are whole."""
        records = unserved(planned, model=model, level=level.name, reason=UNKNOWN)
        write_durably(self.records, records_content(records), OWNER_ALONE)
        write_durably(self.plan, plan_content(planned, level), OWNER_ALONE)

    def spools(self) -> list[Path]:
        """One for each process of the client."""
        return sorted(self.directory.glob(f"{self.spool.name}*"))

    def remove(self) -> None:
        for path in (self.plan, self.records, *self.spools()):
            path.unlink(missing_ok=True)


def keep_left_behind(host: str) -> None:
    """Of every trial that a worker of this host was carrying out when it was killed. Those of running boots are left:
    their worker may be alive."""
    for plan in sorted(Path(settings.RUNS_DIR).glob("boot-*/trial-*.plan.json")):
        number = plan.name.removeprefix("trial-").partition(".")[0]
        found = Trial.objects.filter(pk=number, boot__host=host, boot__state__in=OVER).select_related("boot__campaign")
        for trial in found:
            take_up(trial, TrialFiles(plan.parent, trial.pk))


def take_up(trial: Trial, files: TrialFiles) -> None:
    """What can't be kept now stays where it is for the next time: it must not keep the next boot from running."""
    try:
        if not trial.manifest_digest:
            keep(trial, files)
            logger.warning("what was left of %s was kept as cut off", trial)
    except Exception:
        logger.exception("what was left of %s could not be kept", trial)
    else:
        files.remove()


def keep(trial: Trial, files: TrialFiles) -> None:
    known, started_at = told_by(files.spools())
    records = completed_by(records_of(read_records(files.records)), known)
    begun = trial.started_at or trial.boot.claimed_at
    left = Measured(
        records=records,
        started_at=started_at or (round(begun.timestamp() * 1e9) if begun else 0),
        stopped=True,
        fingerprints=dict(Counter(one.fingerprint for one in measured(records) if one.status == "completed")),
        findings=[f"the worker was killed: {len(known)} of {len(records)} requests had ended when it last said so"],
        counters=None,
        warm_up=WarmUp(0, 0),
        neighbour_cpu_share=None,
    )
    level = level_of(trial.boot, trial.level)
    insist(partial(store_trial, trial.boot, trial, level, files.plan.read_bytes(), left, None, files.directory))
