from django.utils import timezone

from decisions import ledger
from decisions.models import Account, BriefRevision, SignatureRequest
from decisions.rules.states import IN_REVIEW
from decisions.rules.who_may import may_write_brief
from decisions.selectors.review import request_of
from decisions.services.close_request import close_request
from decisions.services.move_revision import subject
from decisions.services.open_request import open_request
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def ask_again(*, revision: BriefRevision, by: Account) -> SignatureRequest:
    """A new request for signatures in the place of one that expired, under the policy that is in force now; what was
    signed for the old one doesn't count for it."""
    refusal = may_write_brief(person(by))
    if refusal:
        refuse("ask-again", refusal, subject=subject(revision), actor=by.username)
    with act():
        revision.refresh_from_db()
        request = request_of(revision)
        if revision.state != IN_REVIEW or request is None:
            raise Refused(f"{revision} is {revision.state}: there is nothing to sign on it")
        if not SignatureRequest.objects.lapsed(timezone.now()).filter(pk=request.pk).exists():
            raise Refused("the owners are asked already, and the request has not expired")
        close_request(request=request, outcome=SignatureRequest.Outcome.EXPIRED)
        opened = open_request(verdict=request.verdict, by=by.username)
        details = {"replaces": request.pk, **opened.told}
        ledger.append("signatures-asked-again", subject=subject(revision), actor=by.username, details=details)
    return opened
