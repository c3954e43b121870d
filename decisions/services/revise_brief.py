from django.db.models import Max

from decisions import ledger
from decisions.models import Account, BriefRevision
from decisions.rules.who_may import may_write_brief
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def revise_brief(*, revision: BriefRevision, by: Account) -> BriefRevision:
    """A new draft revision that begins with this one's words."""
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("brief-revise", refusal, subject=subject(revision), actor=by.username)
    if revision.state in ("measuring", "in-review"):
        raise Refused(
            f"{revision} is {revision.state}: cancel or withdraw it, or let its owner decide, before the next"
        )
    with act():
        if revision.state == "frozen":
            # Nobody may start a brief whose next revision is being written.
            move_revision(revision=revision, act="supersede", actor=by.username, details={})
        siblings = BriefRevision.objects.filter(brief=revision.brief)
        if siblings.filter(state="draft").exists():
            raise Refused("there is a draft of this brief already: edit that one")
        number = (siblings.aggregate(last=Max("number"))["last"] or 0) + 1
        draft = BriefRevision.objects.create(brief=revision.brief, number=number, source=revision.source, author=by)
        # Its words are still those of the people who wrote them: none of them can sign on it.
        draft.editors.add(by, revision.author, *revision.editors.all())
        ledger.append("brief-revised", subject=subject(draft), actor=by.username, details={"from": revision.number})
    return draft
