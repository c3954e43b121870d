"""What a service asks of the signatures on its decisions: read by everybody, set by an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from decisions.models import Account, Service
from decisions.pages.access import require
from decisions.rules.policy import DEFAULT, HANDS, HANDS_SAID, LIMITS, Policy, in_words, policy_problems
from decisions.rules.who_may import Relation, may_set_policy
from decisions.selectors import services as selectors
from decisions.selectors.policies import InForce, policies_of, versions_of
from decisions.services.people import owners, person
from decisions.services.refused import Refused
from decisions.services.set_policy import set_policy

# field → label, unit, what it means
NUMBERS = {
    "quorum": ("Approvals that a release needs", "owners", "Each is a signature of another person."),
    "request_days": ("A request for signatures expires after", "days", "Then an engineer has to ask again."),
    "release_days": ("A release expires after", "days", "At the latest: where its brief says less, that holds."),
    "cooling_off_hours": ("Nobody approves in the first", "hours", "From the request on; 0 for no such time."),
    "break_glass_hours": ("A release by a broken glass lasts", "hours", "Then the baseline answers again by itself."),
}


@dataclass(frozen=True)
class NumberField:
    name: str
    label: str
    unit: str
    hint: str
    value: str
    least: int
    most: int
    problem: str


@dataclass(frozen=True)
class PolicyForm:
    """What was typed, and what is wrong with it."""

    numbers: Mapping[str, str]
    may_not_sign: tuple[str, ...]
    second_against_verdict: bool
    break_glass: bool
    begun_on: int
    reason: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> list[NumberField]:
        return [
            NumberField(name, *NUMBERS[name], self.numbers[name], *LIMITS[name], self.problems.get(name, ""))
            for name in NUMBERS
        ]

    @property
    def hands(self) -> list[tuple[str, str, bool]]:
        return [(one, HANDS_SAID[one], one in self.may_not_sign) for one in HANDS]

    @property
    def policy(self) -> Policy:
        numbers = {name: int(value) for name, value in self.numbers.items()}
        return replace(
            DEFAULT,
            may_not_sign=self.may_not_sign,
            second_against_verdict=self.second_against_verdict,
            break_glass=self.break_glass,
            **numbers,
        )


def kept(found: InForce) -> PolicyForm:
    policy = found.policy
    return PolicyForm(
        numbers={name: str(getattr(policy, name)) for name in NUMBERS},
        may_not_sign=policy.may_not_sign,
        second_against_verdict=policy.second_against_verdict,
        break_glass=policy.break_glass,
        begun_on=found.version,
    )


def typed(sent: QueryDict) -> PolicyForm:
    numbers = {name: sent.get(name, "").strip() for name in NUMBERS}
    begun_on = sent.get("begun_on", "")
    form = PolicyForm(
        numbers=numbers,
        may_not_sign=tuple(one for one in HANDS if one in sent.getlist("may_not_sign")),
        second_against_verdict="second_against_verdict" in sent,
        break_glass="break_glass" in sent,
        begun_on=int(begun_on) if is_number(begun_on) else -1,
        reason=sent.get("reason", ""),
    )
    unread = {
        name: f"a whole number from {LIMITS[name][0]} to {LIMITS[name][1]}"
        for name, value in numbers.items()
        if not is_number(value)
    }
    return replace(form, problems=unread or policy_problems(form.policy))


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 7


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def policy(request: HttpRequest, slug: str, environment: str) -> HttpResponse:
    account = require(request)
    service = get_object_or_404(selectors.services(), slug=slug)
    every = policies_of(service)
    found = next((one for one in every if one.environment == environment), None)
    if found is None:
        raise Http404("no route of this service is in that environment")
    if request.method != "POST":
        return render_policy(request, service, account, every, found, kept(found))
    form = typed(request.POST)
    if form.problems:
        return render_policy(request, service, account, every, found, form, status=422)
    try:
        set_policy(
            service=service,
            environment=environment,
            policy=form.policy,
            begun_on=form.begun_on,
            reason=form.reason,
            by=account,
        )
    except Refused as refusal:
        return render_policy(request, service, account, every, found, form, refusal=str(refusal), status=422)
    messages.success(request, "This policy holds for requests from now on; those that are open keep theirs.")
    return redirect("service-policy", slug, environment)


def render_policy(
    request: HttpRequest,
    service: Service,
    account: Account,
    every: list[InForce],
    found: InForce,
    form: PolicyForm,
    *,
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    why_not = may_set_policy(person(account), Relation(service_owners=owners(service)))
    context = {
        "service": service,
        "found": found,
        "environments": every,
        "words": in_words(found.policy),
        "versions": [(one, in_words(one.policy)) for one in versions_of(service, found.environment)],
        "form": form,
        "why_not_set": why_not,
        "refusal": refusal,
    }
    return render(request, "services/policy.html", context, status=status)
