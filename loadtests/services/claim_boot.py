from django.db import IntegrityError
from django.db.models import Exists, OuterRef
from django.utils import timezone

from loadtests import journal
from loadtests.journal import act
from loadtests.models import Boot, Campaign
from loadtests.services.end_campaign import end_campaign


def waiting_boots(pool: str) -> "list[Boot]":
    """The pool's waiting boots in the order in which they may run: campaigns by age, attempts of a place in turn."""
    earlier = Boot.objects.filter(
        campaign=OuterRef("campaign"), position__lt=OuterRef("position"), state__in=["waiting", "running"]
    )
    return list(
        Boot.objects.filter(pool=pool, state=Boot.State.WAITING, campaign__state__in=Campaign.OPEN)
        .exclude(Exists(earlier))
        .select_related("campaign", "configuration")
        .order_by("campaign_id", "position", "attempt")[:1]
    )


def claim_boot(*, pool: str, worker: str, host: str) -> Boot | None:
    """The next boot for this worker, claimed by compare-and-swap; None when there is nothing or the pool is taken."""
    for boot in waiting_boots(pool):
        if budget_is_used(boot.campaign) or not belongs_here(boot, host):
            return None
        try:
            return claim(boot, worker, host)
        except IntegrityError:
            # Another boot of the pool is running: the partial unique index says so.
            return None
    return None


def belongs_here(boot: Boot, host: str) -> bool:
    """The second arm of a pair runs where the first one ran: a pair that spans two machines compares machines."""
    if boot.pair is None:
        return True
    first = boot.campaign.boots.filter(pair=boot.pair, attempt=boot.attempt).exclude(pk=boot.pk).exclude(host="")
    return not first.exclude(host=host).exists()


def claim(boot: Boot, worker: str, host: str) -> Boot | None:
    now = timezone.now()
    with act():
        taken = Boot.objects.filter(pk=boot.pk, state=Boot.State.WAITING).update(
            state=Boot.State.RUNNING, worker=worker, host=host, claimed_at=now, heartbeat_at=now
        )
        if not taken:
            return None
        Campaign.objects.filter(pk=boot.campaign_id, state=Campaign.State.QUEUED).update(
            state=Campaign.State.RUNNING, started_at=now
        )
        journal.record(
            "boot-claimed",
            subject=f"boot {boot.pk}",
            actor=worker,
            campaign=boot.campaign_id,
            arm=boot.arm,
            pair=boot.pair,
            attempt=boot.attempt,
            configuration=boot.configuration.digest,
        )
    boot.refresh_from_db()
    return boot


def budget_is_used(campaign: Campaign) -> bool:
    used = sum(boot.engine_minutes for boot in campaign.boots.all())
    if used < campaign.budget_engine_minutes:
        return False
    end_campaign(
        campaign=campaign,
        state=Campaign.State.STOPPED,
        reason=f"the brief's budget of engine time is used up ({used:.1f} of the {campaign.budget_engine_minutes:.1f} "
        "minutes left to this campaign): plan less, or write a revision with a larger budget",
        actor="worker",
    )
    return True


def pools_with_work() -> set[str]:
    """Pools in which a boot waits and none runs."""
    waiting = Boot.objects.filter(state=Boot.State.WAITING, campaign__state__in=Campaign.OPEN)
    busy = Boot.objects.filter(state=Boot.State.RUNNING).values("pool")
    return set(waiting.exclude(pool__in=busy).values_list("pool", flat=True))
