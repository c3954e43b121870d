"""Trials and boots: facts, counts and digests. Latencies stand in the verdict, text stands nowhere."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Router, Schema

from decisions.api.auth import access, account_of
from decisions.api.keys import Number, Reason
from decisions.api.once import Key, once
from decisions.api.paging import Page, Paging, page_of
from decisions.rules.tokens import WORKER
from decisions.rules.who_may import may_declare_fault
from decisions.selectors.runs import boots, revision_of, trial_row
from decisions.services.declare_fault import declare_fault
from loadtests.models import Boot, Trial

router = Router(tags=["runs"])


class BootOut(Schema):
    id: int
    campaign: int
    purpose: str
    brief: int | None
    revision: int | None
    pool: str
    pair: int | None
    arm: str
    candidate: str
    configuration: str
    attempt: int
    state: str
    died: bool
    reason: str
    worker: str
    host: str
    started_at: datetime | None
    stopped_at: datetime | None


class TrialOut(Schema):
    id: int
    boot: BootOut
    level: str
    state: str
    evidence_class: str | None
    planned: int
    sent: int
    ended: dict[str, int]
    plan_digest: str
    records_digest: str
    manifest_digest: str
    started_at: datetime | None
    ended_at: datetime | None


class Fault(Schema):
    reason: Reason


def boot_shown(boot: Boot) -> BootOut:
    revision = revision_of(boot)
    return BootOut(
        id=boot.pk,
        campaign=boot.campaign_id,
        purpose=boot.campaign.purpose,
        brief=revision.brief_id if revision else None,
        revision=revision.number if revision else None,
        pool=boot.pool,
        pair=boot.pair,
        arm=boot.arm,
        candidate=boot.candidate,
        configuration=boot.configuration.digest,
        attempt=boot.attempt,
        state=boot.state,
        died=boot.died,
        reason=boot.reason,
        worker=boot.worker,
        host=boot.host,
        started_at=boot.started_at,
        stopped_at=boot.stopped_at,
    )


def trial_shown(trial: Trial) -> TrialOut:
    row = trial_row(trial)
    return TrialOut(
        id=trial.pk,
        boot=boot_shown(trial.boot),
        level=trial.level,
        state=trial.state,
        evidence_class=trial.summary.get("evidence_class"),
        planned=row.planned,
        sent=row.sent,
        ended=dict(row.statuses),
        plan_digest=trial.plan_digest,
        records_digest=trial.records_digest,
        manifest_digest=trial.manifest_digest,
        started_at=trial.started_at,
        ended_at=trial.ended_at,
    )


def trials() -> QuerySet[Trial]:
    return Trial.objects.select_related("boot__configuration", "boot__campaign__brief_campaign__revision__brief").defer(
        "boot__campaign__plan", "boot__log_tail", "boot__campaign__brief_campaign__revision__content"
    )


@router.get("/trials", response=Page[TrialOut], summary="Trials, the newest first", **access())
def list_trials(
    request: HttpRequest, asked: Paging, brief: int | None = None, revision: int | None = None, purpose: str = ""
) -> object:
    wanted = trials()
    if brief is not None:
        wanted = wanted.filter(boot__campaign__brief_campaign__revision__brief=brief)
    if revision is not None:
        wanted = wanted.filter(boot__campaign__brief_campaign__revision__number=revision)
    return page_of(wanted.filter(boot__campaign__purpose=purpose) if purpose else wanted, asked, trial_shown)


@router.get("/trials/{number}", response=TrialOut, summary="One trial", **access())
def read_trial(request: HttpRequest, number: Number) -> TrialOut:
    found = trials().filter(pk=number).first()
    if found is None:
        raise Http404("there is no such trial")
    return trial_shown(found)


@router.get(
    "/pools/{pool}/boots", response=Page[BootOut], summary="What runs on a pool and what waits", **access(WORKER)
)
def list_queue(request: HttpRequest, pool: str, asked: Paging) -> object:
    wanted = boots().filter(pool=pool, state__in=[Boot.State.RUNNING, Boot.State.WAITING])
    return page_of(wanted, asked, boot_shown)


@router.post(
    "/boots/{number}/fault",
    response=BootOut,
    summary="State that a boot failed by a fault of worker, host or operator",
    **access(WORKER, may_declare_fault),
)
def fault(request: HttpRequest, number: Number, body: Fault, key: Key = None) -> HttpResponse:
    """Its whole pair is run again; this attempt stays in the history."""
    found = boot_or_404(number)

    def act() -> BootOut:
        declare_fault(boot=found, by=account_of(request), reason=body.reason)
        return boot_shown(boot_or_404(number))

    return once(request, key, act)


def boot_or_404(number: int) -> Boot:
    found = boots().filter(pk=number, campaign__brief_campaign__isnull=False).first()
    if found is None:
        raise Http404("there is no such boot of a brief")
    return found
