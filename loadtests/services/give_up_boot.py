from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Max, QuerySet
from django.utils import timezone

from loadtests import journal, queue
from loadtests.journal import act
from loadtests.models import Boot, Campaign, SuiteRun, Trial
from loadtests.services.end_campaign import end_campaign
from loadtests.services.refused import Refused

MISSED_BEATS = 3
VOIDABLE = (Boot.State.WAITING, Boot.State.RUNNING, Boot.State.FINISHED)


def orphans() -> QuerySet[Boot]:
    """Boots that ended without their worker, whose engine may still be running on their host."""
    ended = (Boot.State.LOST, Boot.State.CANCELLED, Boot.State.VOID)
    return Boot.objects.filter(state__in=ended, engine_group__isnull=False)


def lose_silent_boots() -> list[Boot]:
    """Marks as lost every running boot whose worker has missed three beats, and plans its next attempt."""
    limit = timezone.now() - timedelta(seconds=MISSED_BEATS * settings.HEARTBEAT_S)
    silent = Boot.objects.filter(state=Boot.State.RUNNING, heartbeat_at__lt=limit).select_related("campaign")
    return [boot for boot in silent if lose(boot, limit)]


def lose(boot: Boot, limit: datetime) -> bool:
    """Unless a beat arrived meanwhile. The time since its last beat was not spent on any engine of ours."""
    with act():
        if not Boot.objects.filter(pk=boot.pk, heartbeat_at__lt=limit).exists():
            return False
        lost = give_up_boot(boot=boot, state=Boot.State.LOST, reason="its worker fell silent", actor="reconciler")
        Boot.objects.filter(pk=boot.pk, state=Boot.State.LOST).update(stopped_at=F("heartbeat_at"))
        return lost


def give_up_boot(*, boot: Boot, state: Boot.State, reason: str, actor: str) -> bool:
    """Ends a running boot without a result; what it had measured stays in history and its pair is run again."""
    with act():
        moved = Boot.objects.filter(pk=boot.pk, state=Boot.State.RUNNING).update(
            state=state, reason=reason, stopped_at=timezone.now()
        )
        if not moved:
            return False
        Trial.objects.filter(boot=boot).exclude(state=Trial.State.FINISHED).update(state=Trial.State.CUT_OFF)
        journal.record(f"boot-{state}", subject=f"boot {boot.pk}", actor=actor, reason=reason, attempt=boot.attempt)
        boot.refresh_from_db()
        if boot.campaign.state in Campaign.OPEN:
            run_again(boot=boot, actor=actor)
    return True


def run_again(*, boot: Boot, actor: str) -> None:
    """The next attempt: of the boot, or of its whole pair, since the arms of a pair belong together."""
    campaign = boot.campaign
    again = partners(boot)
    attempt = next_attempt(again, campaign)
    if attempt > 1 + campaign.max_reattempts:
        end_campaign(
            campaign=campaign,
            state=Campaign.State.STOPPED,
            reason=f"{boot} was cut off and the brief allows {campaign.max_reattempts} further attempts: "
            "find the cause, then write a new revision",
            actor=actor,
        )
        return
    for one in again:
        # A partner that is just running is let go too: its worker notices at the next beat and stops the engine.
        Boot.objects.filter(pk=one.pk, state__in=VOIDABLE).update(
            state=Boot.State.VOID, reason=f"its pair was run again because of {boot}"
        )
        Trial.objects.filter(boot=one, state=Trial.State.RUNNING).update(state=Trial.State.CUT_OFF)
        copy_boot(one, attempt)
    queue.request_boot(boot.pool)


def next_attempt(again: Sequence[Boot], campaign: Campaign) -> int:
    places = campaign.boots.filter(position__in=[one.position for one in again])
    return 1 + int(places.aggregate(last=Max("attempt"))["last"] or 0)


def partners(boot: Boot) -> list[Boot]:
    """The latest attempt of each place of the boot's pair, or the boot alone where it has no pair."""
    if boot.pair is None:
        return [boot]
    latest: dict[int, Boot] = {}
    for one in boot.campaign.boots.filter(pair=boot.pair).order_by("attempt"):
        latest[one.position] = one
    return [latest[position] for position in sorted(latest)]


def copy_boot(boot: Boot, attempt: int) -> Boot:
    copy = Boot.objects.create(
        campaign=boot.campaign,
        pool=boot.pool,
        position=boot.position,
        pair=boot.pair,
        arm=boot.arm,
        candidate=boot.candidate,
        configuration=boot.configuration,
        attempt=attempt,
    )
    for trial in boot.trials.all():
        Trial.objects.create(
            boot=copy, position=trial.position, level=trial.level, segment=trial.segment, planned=trial.planned
        )
    if SuiteRun.objects.filter(boot=boot).exists():
        SuiteRun.objects.create(boot=copy)
    return copy


def declare_fault(*, boot: Boot, reason: str, actor: str) -> None:
    """A person states that a finished boot failed by a fault of ours: its whole pair is run again."""
    with act():
        campaign = Campaign.objects.select_for_update().get(pk=boot.campaign_id)
        boot.refresh_from_db()
        if boot.state != Boot.State.FINISHED:
            raise Refused(f"{boot} is {boot.state}: only a finished boot can be declared faulty")
        if campaign.state not in (*Campaign.OPEN, Campaign.State.DONE):
            raise Refused(f"the campaign is {campaign.state}: nothing can be run again in it")
        if next_attempt(partners(boot), campaign) > 1 + campaign.max_reattempts:
            raise Refused(f"the brief allows {campaign.max_reattempts} further attempts, and they are used up")
        journal.record("fault-declared", subject=f"boot {boot.pk}", actor=actor, reason=reason, campaign=campaign.pk)
        Campaign.objects.filter(pk=campaign.pk).update(state=Campaign.State.RUNNING, ended_at=None)
        boot.campaign.refresh_from_db()
        run_again(boot=boot, actor=actor)
        Boot.objects.filter(pk=boot.pk).update(reason=f"declared a fault by {actor}: {reason}")
