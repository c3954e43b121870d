"""A service with three owners, an operator and a brief whose PASS waits for them; its records are made up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from decisions.models import Account, BriefRevision, Route, Service, SignatureRequest, SigningPolicy, Verdict
from decisions.rules.policy import DEFAULT, PRODUCTION
from decisions.services.open_request import open_request
from decisions.services.set_policy import set_policy
from tests.support.house import person, start, support_assistant, written
from tests.support.play import play

CAST = {
    "engineer": ("engineer",),
    "owner": ("owner",),
    "second_owner": ("owner",),
    "third_owner": ("owner",),
    "auditor": ("auditor",),
    "operator": ("operator",),
    "superuser": ("owner",),
    "stranger": (),
}
OWNERS = ("owner", "second_owner", "third_owner", "superuser")


@dataclass(frozen=True)
class Reviewed:
    people: dict[str, Account]
    service: Service
    route: Route
    pk: int

    @property
    def revision(self) -> BriefRevision:
        return BriefRevision.objects.get(pk=self.pk)

    @property
    def verdict(self) -> Verdict:
        return Verdict.objects.filter(revision=self.pk).latest("pk")

    @property
    def request(self) -> SignatureRequest:
        return SignatureRequest.objects.filter(revision=self.pk).latest("pk")

    def set_policy(self, **changes: Any) -> SigningPolicy:
        """By the operator; for requests that are opened from now on."""
        return set_policy(
            service=self.service,
            environment=PRODUCTION,
            policy=replace(DEFAULT, **changes),
            begun_on=SigningPolicy.objects.filter(service=self.service).count(),
            reason="As the house rules say",
            by=self.people["operator"],
        )

    def ask_under(self, **changes: Any) -> SignatureRequest:
        """The owners asked anew under another policy, as if it had been in force when the verdict came."""
        self.set_policy(**changes)
        SignatureRequest.objects.filter(revision=self.pk).delete()
        return open_request(verdict=self.verdict, by="draftproof")


def build_reviewed(password: str) -> Reviewed:
    people = {name: person(name, password, groups) for name, groups in CAST.items()}
    route = support_assistant(people[name] for name in OWNERS)
    revision = written(route, people["engineer"], "Prompt lookup for chat")
    start(revision, people["engineer"])
    # A spread this small leaves no doubt about the verdict, whatever the draw.
    play(revision, spread=0.002)
    return Reviewed(people, route.service, route, revision.pk)
