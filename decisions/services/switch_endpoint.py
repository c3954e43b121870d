from django.utils import timezone

from decisions import ledger
from decisions.models import Account, Endpoint
from decisions.services.manage_endpoint import check_may_manage, check_room, subject
from decisions.services.refused import Refused
from loadtests.journal import act


def disable_endpoint(*, endpoint: Endpoint, by: Account) -> None:
    """Nothing more is posted there; what still waited for it is given up."""
    check_may_manage(endpoint.service, by, "endpoint-disable")
    with act():
        enabled = Endpoint.objects.filter(pk=endpoint.pk, disabled_at=None)
        if not enabled.update(disabled_at=timezone.now(), disabled_note=f"by {by.username}"):
            raise Refused("it is disabled already")
        ledger.append("endpoint-disabled", subject=subject(endpoint), actor=by.username, details=endpoint.told)


def enable_endpoint(*, endpoint: Endpoint, by: Account) -> None:
    """What happened meanwhile isn't posted afterwards."""
    check_may_manage(endpoint.service, by, "endpoint-enable")
    with act():
        check_room(endpoint.service)
        disabled = Endpoint.objects.filter(pk=endpoint.pk).exclude(disabled_at=None)
        if not disabled.update(disabled_at=None, disabled_note="", given_up=0):
            raise Refused("it is enabled already")
        ledger.append("endpoint-enabled", subject=subject(endpoint), actor=by.username, details=endpoint.told)
