from decisions.models import Account, BriefRevision
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import may_start
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act
from loadtests.models import Campaign
from loadtests.services.end_campaign import end_campaign


def cancel_brief(*, revision: BriefRevision, by: Account, reason: str) -> None:
    """Ends what runs for this revision; its evidence stays, its verdict will never come."""
    refusal = may_start(person(by))
    if refusal:
        refuse("brief-cancel", refusal, subject=subject(revision), actor=by.username)
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        move_revision(revision=revision, act="cancel", actor=by.username, details={"reason": reason})
        for campaign in Campaign.objects.filter(brief_campaign__revision=revision, state__in=Campaign.OPEN):
            end_campaign(campaign=campaign, state=Campaign.State.CANCELLED, reason=reason, actor=by.username)
