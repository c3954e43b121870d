"""What the author of a draft is told before it is frozen, and is no reason to refuse it."""

import pytest
from django.test import Client
from django.urls import reverse

from decisions.models import Account, BriefRevision, Route
from decisions.rules.cautions import cautions
from decisions.services.create_brief import create_brief
from loadtests.statistics.pairs import least_sign_flip_p_value, sign_flip_p_value
from tests.support.judged import GUARDRAILS, RATES, SEED, a_brief

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


def test_a_look_that_can_never_pass_is_named() -> None:
    """Six pairs on one side are one of 2^6 = 64 flips: 0.015625, which 0.015 doesn't reach and 0.016 does."""
    looks = {"seed": SEED, "pairs": 8, "looks": 3}
    first = {"pairs": 4, "alpha": 0.01}
    assert cautions(a_brief(rule=looks | {"interim": [first, {"pairs": 6, "alpha": 0.016}]})) == []
    (said,) = cautions(a_brief(rule=looks | {"interim": [first, {"pairs": 6, "alpha": 0.015}]}))
    assert said == (
        "Look 2, after 6 pairs, can never pass: its tests are at alpha 0.015, and the sign-flip test, which must agree "
        "from 6 pairs on, gives no p-value below 0.0156 with 6 pairs. Give it more alpha or more pairs."
    )
    (last,) = cautions(a_brief(rule=looks | {"interim": [{"pairs": 4, "alpha": 0.02}, {"pairs": 6, "alpha": 0.027}]}))
    assert last.startswith("Look 3, after 8 pairs, can never pass: its tests are at alpha 0.003,")
    hopeless = cautions(a_brief(rule={"seed": SEED, "pairs": 6, "confidence": 0.99}))[0]
    assert hopeless.startswith("The verdict can never pass: its tests are at alpha 0.01,")


@pytest.mark.parametrize("pairs", [6, 16, 20])
def test_the_least_p_value_is_that_of_pairs_that_all_agree(pairs: int) -> None:
    assert sign_flip_p_value([1.0] * pairs) == least_sign_flip_p_value(pairs)


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
