"""What the author of a draft is told before it is frozen, and is no reason to refuse it."""

import pytest
from django.test import Client
from django.urls import reverse

from decisions.models import Account, BriefRevision, Route
from decisions.rules.cautions import cautions
from decisions.services.create_brief import create_brief
from tests.support.judged import GUARDRAILS, RATES, a_brief

UNREAD = (
    "Neither the outcome nor a guardrail reads the load level {}: there a candidate has only to be no worse than the "
    "non-inferiority margin allows. Name it in outcome.improve_in or in a guardrail, or leave it out if nothing is to "
    "be decided there."
)
PEAK = [one for one in GUARDRAILS if one["cell"] == {"level": "peak"}]


def test_a_level_that_the_outcome_or_a_guardrail_reads_is_nothing_to_say() -> None:
    assert set(RATES) == {"quiet", "peak"}
    assert cautions(a_brief()) == []
    improved = {"metric": "attainment", "minimum_improvement": 0.02, "non_inferiority_margin": 0.02}
    cells = [{"level": level, "class": "chat"} for level in RATES]
    assert cautions(a_brief(outcome=improved | {"improve_in": cells}, guardrails=[])) == []


def test_a_level_that_nothing_reads_is_named() -> None:
    assert cautions(a_brief(guardrails=PEAK)) == [UNREAD.format("quiet")]
    assert cautions(a_brief(guardrails=[])) == [UNREAD.format("quiet")]


@pytest.mark.django_db
def test_it_is_said_on_the_page_of_a_draft_alone(client: Client, route: Route, engineer: Account) -> None:
    source = a_brief(guardrails=PEAK).content.decode()
    draft = create_brief(route=route, source=source, by=engineer)
    client.force_login(engineer)
    address = reverse("brief", args=[draft.brief_id, draft.number])
    page = client.get(address).content.decode()
    assert "Before this draft is frozen" in page
    assert UNREAD.format("quiet") in page
    BriefRevision.objects.filter(pk=draft.pk).update(state="withdrawn")
    assert "Before this draft is frozen" not in client.get(address).content.decode()
