from django.utils import timezone

from decisions import ledger
from decisions.models import Account, Demonstration
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import may_vouch
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def withdraw_demonstration(*, demonstration: Demonstration, by: Account, reason: str) -> None:
    """Takes a demonstration back, also somebody else's: whoever learns that it doesn't hold must not have to look for
    them. It stays in the list with the reason."""
    subject = f"demonstration {demonstration.pk}"
    refusal = may_vouch(person(by))
    if refusal:
        refuse("demonstration-withdraw", refusal, subject=subject, actor=by.username)
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        done = Demonstration.objects.filter(pk=demonstration.pk, withdrawn_at=None).update(
            withdrawn_at=timezone.now(), withdrawn_by=by.username, withdrawn_reason=reason.strip()
        )
        if not done:
            raise Refused("it has been withdrawn already")
        ledger.append(
            "demonstration-withdrawn",
            subject=subject,
            actor=by.username,
            details={"reason": reason.strip(), "result": demonstration.result_digest},
        )
    demonstration.refresh_from_db()
