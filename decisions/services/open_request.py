from datetime import timedelta

from django.utils import timezone

from decisions.models import SignatureRequest, Verdict
from decisions.rules.signing import bound_digest
from decisions.selectors.policies import policy_in_force


def open_request(*, verdict: Verdict, by: str) -> SignatureRequest:
    """Asks the owners to decide on a verdict, under the policy that is in force now. Called within an act that writes
    the event."""
    revision = verdict.revision
    route = revision.brief.route
    found = policy_in_force(route.service, route.environment)
    now = timezone.now()
    return SignatureRequest.objects.create(
        revision=revision,
        verdict=verdict,
        policy_document=found.policy.document,
        policy_version=found.version,
        environment=found.environment,
        bound=bound_digest(brief=revision.digest, evidence=verdict.evidence_digest, verdict=verdict.digest),
        opened_by=by,
        opened_at=now,
        expires_at=now + timedelta(days=found.policy.request_days),
    )
