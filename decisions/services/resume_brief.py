from decisions import ledger
from decisions.models import Account, BriefRevision
from decisions.rules.who_may import may_start
from decisions.selectors.progress import last_campaign
from decisions.services.advance_brief import advance_brief
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act
from loadtests.models import Campaign

ENDED = (Campaign.State.STOPPED, Campaign.State.CANCELLED)


def resume_brief(*, revision: BriefRevision, by: Account) -> None:
    """Goes on after a stop. Held-out traffic that was used is used: then only a new revision helps."""
    refusal = may_start(person(by))
    if refusal:
        refuse("brief-resume", refusal, subject=subject(revision), actor=by.username)
    held_out = last_campaign(revision, Campaign.Purpose.HELD_OUT)
    if held_out and held_out.state in ENDED and held_out.boots.filter(trials__state="finished").exists():
        raise Refused(
            "the held-out campaign was cut off after its traffic was read: write a revision with fresh traffic"
        )
    with act():
        if not BriefRevision.objects.filter(pk=revision.pk, state="measuring").exclude(halted="").update(halted=""):
            raise Refused(f"{revision} has not been halted")
        revision.run_starters.add(by)
        ledger.append("brief-resumed", subject=subject(revision), actor=by.username, details={})
    revision.refresh_from_db()
    advance_brief(revision=revision)
