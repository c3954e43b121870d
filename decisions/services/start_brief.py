from decisions.models import Account, BriefRevision
from decisions.rules.who_may import may_start
from decisions.services.advance_brief import advance_brief
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from loadtests.journal import act


def start_brief(*, revision: BriefRevision, by: Account) -> None:
    """Starts the stages of a frozen brief; they then follow each other by themselves until the verdict waits."""
    refusal = may_start(person(by))
    if refusal:
        refuse("brief-start", refusal, subject=subject(revision), actor=by.username)
    with act():
        move_revision(revision=revision, act="start", actor=by.username, details={})
        revision.run_starters.add(by)
    advance_brief(revision=revision)
