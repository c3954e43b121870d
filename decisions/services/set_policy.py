from dataclasses import replace

from decisions import ledger
from decisions.models import Account, Service, SigningPolicy
from decisions.rules.policy import HANDS, Policy, policy_problems
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import Relation, may_set_policy
from decisions.selectors.policies import policy_in_force
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def set_policy(
    *, service: Service, environment: str, policy: Policy, begun_on: int, reason: str, by: Account
) -> SigningPolicy:
    """A new version of what signatures on the service's routes of this environment take, for requests that are opened
    from now on. ``begun_on``: the version that was read before; raises Refused where somebody has set another since."""
    subject = f"service {service.slug}"
    refusal = may_set_policy(person(by), Relation(service_owners=owners(service)))
    if refusal:
        refuse("policy-set", refusal, subject=subject, actor=by.username)
    policy = replace(policy, may_not_sign=tuple(one for one in HANDS if one in policy.may_not_sign))
    problems = policy_problems(policy)
    if problems:
        raise Refused("; ".join(f"{field}: {said}" for field, said in problems.items()))
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        if not service.routes.filter(environment=environment).exists():
            raise Refused(f"{service.name} has no route in {environment}")
        before = policy_in_force(service, environment)
        if before.version != begun_on:
            raise Refused("somebody has set another policy meanwhile: read that one first")
        if before.policy == policy:
            raise Refused("this is the policy that is in force already")
        stored = SigningPolicy.objects.create(
            service=service,
            environment=environment,
            version=before.version + 1,
            document=policy.document,
            reason=reason.strip(),
            set_by=by.username,
        )
        ledger.append(
            "policy-set",
            subject=subject,
            actor=by.username,
            details={
                "environment": environment,
                "version": stored.version,
                "before": before.policy.document,
                "after": policy.document,
                "reason": stored.reason,
            },
        )
    return stored
