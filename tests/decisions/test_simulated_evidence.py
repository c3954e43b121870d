"""Simulated evidence goes through every stage up to its owner, and no further."""

import pytest
from django.test import Client
from django.urls import reverse

from decisions import ledger
from decisions.models import Account, Event, Release, Route, Signature
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.sign_decision import sign_decision
from loadtests.models import Campaign
from tests.conftest import PASSWORD
from tests.support.play import play, started_brief

pytestmark = pytest.mark.django_db

REFUSAL = "The evidence is simulated: only measured evidence can carry an approval."
REASON = "It went so well in the rehearsal"


def test_it_comes_to_review_and_is_refused_there(
    route: Route, engineer: Account, owner: Account, client: Client
) -> None:
    revision = started_brief(route, engineer)
    play(revision, spread=0.002, evidence_class="simulated")
    verdict = revision.verdicts.get()
    purposes = list(Campaign.objects.order_by("pk").values_list("purpose", flat=True))
    assert purposes == ["noise-floor", "tuning", "held-out", "fallback"]
    assert revision.nominee
    assert (revision.state, verdict.result) == ("in-review", "PASS")
    assert verdict.document["evidence_class"] == "simulated"

    with pytest.raises(Refused, match=REFUSAL):
        sign_decision(verdict=verdict, by=owner, credentials=Credentials(PASSWORD), meaning="approve", reason=REASON)

    # The owner sees why before choosing, and is told again who sends the form all the same.
    client.force_login(owner)
    place = [revision.brief_id, revision.number]
    page = client.get(reverse("brief-sign-off", args=place))
    said = page.content.decode()
    assert "Evidence is simulated" in said
    assert REFUSAL in said
    closed = {one["value"]: one["closed"] for one in page.context["meanings"]}
    assert closed == {"approve": REFUSAL, "reject": "", "request-changes": ""}
    form = {"meaning": "approve", "reason": REASON, "password": PASSWORD}
    shown = client.post(reverse("brief-sign", args=place), form).context["shown"]
    answer = client.post(reverse("brief-sign", args=place), form | {"shown": shown})
    assert answer.status_code == 422
    assert REFUSAL.removesuffix(".") in answer.content.decode()

    revision.refresh_from_db()
    assert revision.state == "in-review"
    assert not Signature.objects.exists()
    assert not Release.objects.exists()
    assert [event.actor for event in Event.objects.filter(kind="sign-refused")] == ["owner", "owner"]
    assert ledger.verify().broken is None

    # What is no approval can be signed.
    sign_decision(
        verdict=verdict,
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="request-changes",
        reason="Measure it for real",
    )
    revision.refresh_from_db()
    assert revision.state == "changes-requested"
