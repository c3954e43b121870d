from django.utils import timezone

from decisions.models import SignatureRequest
from decisions.services.refused import Refused


def close_request(*, request: SignatureRequest, outcome: str) -> None:
    """By compare-and-swap, within the act that ends it and writes the event: a request is answered once."""
    now = timezone.now()
    if not SignatureRequest.objects.filter(pk=request.pk, closed_at=None).update(closed_at=now, outcome=outcome):
        raise Refused("this request for signatures was answered already: look at it again")
    request.closed_at, request.outcome = now, outcome
