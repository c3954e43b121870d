from django.utils import timezone

from loadtests import journal
from loadtests.journal import act
from loadtests.models import Boot, Campaign


def end_campaign(*, campaign: Campaign, state: Campaign.State, reason: str, actor: str) -> bool:
    """Moves an open campaign to its end; False when it had ended already. What was waiting will not run."""
    with act():
        moved = Campaign.objects.filter(pk=campaign.pk, state__in=Campaign.OPEN).update(
            state=state, reason=reason, ended_at=timezone.now()
        )
        if not moved:
            return False
        Boot.objects.filter(campaign=campaign, state=Boot.State.WAITING).update(
            state=Boot.State.CANCELLED, reason=reason
        )
        journal.record(f"campaign-{state}", subject=f"campaign {campaign.pk}", actor=actor, reason=reason)
    return True


def end_if_complete(*, campaign: Campaign, actor: str) -> None:
    """A campaign is done when every place in its order has a finished boot."""
    open_boots = campaign.boots.filter(state__in=[Boot.State.WAITING, Boot.State.RUNNING]).exists()
    if not open_boots:
        end_campaign(campaign=campaign, state=Campaign.State.DONE, reason="", actor=actor)
