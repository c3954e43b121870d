from decisions.models import Account, BriefRevision, SignatureRequest
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import may_write_brief
from decisions.services.close_request import close_request
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def withdraw_brief(*, revision: BriefRevision, by: Account, reason: str) -> None:
    """Takes a brief back: a draft or frozen one, or a verdict that nobody has decided on yet."""
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("brief-withdraw", refusal, subject=subject(revision), actor=by.username)
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        request = revision.signature_requests.filter(closed_at=None).first()
        if request and request.glass_broken_at:
            raise Refused(
                "the glass was broken for this brief: its owners have to decide on it, and it stays until then"
            )
        move_revision(revision=revision, act="withdraw", actor=by.username, details={"reason": reason})
        if request:
            close_request(request=request, outcome=SignatureRequest.Outcome.WITHDRAWN)
