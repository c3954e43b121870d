from decisions.models import Account, BriefRevision
from decisions.rules.who_may import may_start
from decisions.selectors.traffic import text_gone
from decisions.services.advance_brief import advance_brief
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act
from loadtests.models import TrafficSet


def start_brief(*, revision: BriefRevision, by: Account) -> None:
    """Starts the stages of a frozen brief; they then follow each other by themselves until the verdict waits."""
    refusal = may_start(person(by))
    if refusal:
        refuse("brief-start", refusal, subject=subject(revision), actor=by.username)
    with act():
        # Within the act: the text of a brief that measures isn't deleted, that of a frozen one may be at any time.
        gone = text_gone(TrafficSet.objects.filter(revisions=revision).first())
        if gone:
            raise Refused(gone)
        move_revision(revision=revision, act="start", actor=by.username, details={})
        revision.run_starters.add(by)
    advance_brief(revision=revision)
