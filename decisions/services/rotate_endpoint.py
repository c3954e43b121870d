from django.db.models import F
from django.utils import timezone

from decisions import ledger
from decisions.at_rest import encrypted
from decisions.models import Account, Endpoint
from decisions.rules.delivery import WEBHOOK
from decisions.services.add_endpoint import NewSecret, new_secret
from decisions.services.manage_endpoint import check_may_manage, subject
from decisions.services.refused import Refused
from loadtests.journal import act


def rotate_endpoint(*, endpoint: Endpoint, by: Account) -> NewSecret:
    """A new secret. For a day messages are signed with the one before as well, so that none is refused meanwhile;
    rotated twice, a secret that has leaked signs nothing more."""
    check_may_manage(endpoint.service, by, "endpoint-rotate")
    if endpoint.kind != WEBHOOK:
        raise Refused("Slack has no secret but its address: add it anew, and disable this one")
    secret = new_secret()
    with act():
        Endpoint.objects.filter(pk=endpoint.pk).update(
            old_secret=F("secret"), secret=encrypted(secret), secret_set_at=timezone.now()
        )
        ledger.append("endpoint-rotated", subject=subject(endpoint), actor=by.username, details=endpoint.told)
    endpoint.refresh_from_db()
    return NewSecret(endpoint, secret)
