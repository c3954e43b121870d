from decisions.models import Account, BriefRevision
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import may_declare_fault
from decisions.selectors.looks import decided_look
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act
from loadtests.models import Boot, Campaign
from loadtests.services import give_up_boot

EXPLORED = (Campaign.Purpose.NOISE_FLOOR, Campaign.Purpose.TUNING)


def declare_fault(*, boot: Boot, by: Account, reason: str) -> None:
    """States that a boot failed by a fault of worker, host or operator: its whole pair is run again.

    Whoever does has a hand in the evidence and can't sign on it.
    """
    refusal = may_declare_fault(person(by))
    if refusal:
        refuse("declare-fault", refusal, subject=f"boot {boot.pk}", actor=by.username)
    if is_too_short(reason):
        raise Refused(f"say in at least {SHORTEST_REASON} characters what the fault was")
    with act():
        # Read within the act: the verdict may have been computed since the page was drawn.
        revision = BriefRevision.objects.get(campaigns__campaign__boots=boot)
        why_not = why_no_fault(revision, boot)
        if why_not:
            raise Refused(why_not)
        give_up_boot.declare_fault(boot=boot, reason=reason.strip(), actor=by.username)
        revision.run_starters.add(by)


def why_no_fault(revision: BriefRevision, boot: Boot) -> str | None:
    if revision.state != "measuring":
        return f"the brief is {revision.state}: evidence can't be run again after its verdict"
    if boot.campaign.purpose in EXPLORED and revision.nomination is not None:
        return "the nomination rests on this boot: cancel the brief and write a revision to measure it again"
    if later_rounds(revision, boot):
        return "later rounds of the race rest on this boot: cancel the brief and write a revision to measure it again"
    if boot.campaign.purpose == Campaign.Purpose.HELD_OUT and (decided := decided_look(revision)):
        return f"look {decided.number} has decided on these pairs: evidence can't be run again after that"
    return None


def later_rounds(revision: BriefRevision, boot: Boot) -> bool:
    """Each was planned from what all boots before it told."""
    later = revision.campaigns.filter(race__isnull=False, campaign__pk__gt=boot.campaign_id)
    return boot.campaign.purpose in EXPLORED and later.exists()
