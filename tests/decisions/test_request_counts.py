"""How many requests a draft plans to judge each cell on, and which of its limits they are too few for."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from decisions.models import Account, Route
from decisions.rules.brief import Brief
from decisions.rules.cautions import cautions
from decisions.rules.request_counts import CellRequests, Traffic, request_counts
from decisions.services.create_brief import create_brief
from loadtests.statistics.pairs import matched_share_se, t_bounds
from tests.support.judged import SEED, a_brief

LATE = {"id": "late", "metric": "late_share", "kind": "absolute", "cell": {"level": "peak", "class": "chat"}}
P99 = {
    "id": "slow",
    "metric": "completion_quantile",
    "quantile": 0.99,
    "kind": "absolute",
    "cell": {"level": "peak"},
    "limit": 6,
}
FASTER_P90 = {
    "id": "first",
    "metric": "first_token_quantile",
    "quantile": 0.9,
    "kind": "relative",
    "cell": {"level": "quiet"},
    "limit": 0.1,
}


def short_brief(**changes: Any) -> Brief:
    """Windows of 12 requests at quiet and 30 at peak, four pairs."""
    levels = [
        {"name": "quiet", "arrival": {"process": "poisson", "rate": 0.5}, "duration_s": 24},
        {"name": "peak", "arrival": {"process": "gamma", "rate": 1.5, "cv": 2}, "duration_s": 20},
    ]
    usual: dict[str, Any] = {"levels": levels, "guardrails": [P99, LATE | {"limit": 0.05}, FASTER_P90]}
    return a_brief(**(usual | changes))


def by_label(found: list[CellRequests]) -> dict[str, CellRequests]:
    return {one.cell.label: one for one in found}


def test_every_gating_cell_has_its_expected_requests() -> None:
    found = by_label(request_counts(short_brief(), Traffic(None, {"chat": 0.6, "rewrite": 0.4})))
    assert {name: (one.window, one.total) for name, one in found.items()} == {
        "quiet": (12, 48),
        "peak": (30, 120),
        "peak, chat": (18, 72),
    }


def test_a_class_and_a_replay_of_which_nothing_is_known() -> None:
    levels = [
        {"name": "quiet", "arrival": {"process": "replay", "time_scale": 0.5}, "duration_s": 100},
        {"name": "peak", "arrival": {"process": "constant", "rate": 2}, "duration_s": 100},
    ]
    unknown = by_label(request_counts(short_brief(levels=levels)))
    assert (unknown["quiet"].window, unknown["peak, chat"].window, unknown["peak"].window) == (None, None, 200)
    assert unknown["quiet"].unmet == []
    # Half the time between two requests is twice the recorded rate.
    known = by_label(request_counts(short_brief(levels=levels), Traffic(0.3, {"chat": 0.5})))
    assert known["quiet"].window == pytest.approx(60)
    assert known["peak, chat"].window == 100


def test_limits_take_the_numbers_of_the_exact_binomial_test() -> None:
    """Of none over the limit at 95 %: 299 for 1 %, 59 for 5 %; at α 0.02 it is 390 and 77."""
    needed = {one.said: one.needed for cell in request_counts(short_brief()) for one in cell.demands}
    assert needed["guardrail slow (p99 at most 6 s)"] == 299
    assert needed["guardrail late (at most 5 %)"] == 59
    assert needed["guardrail first (p90)"] == 11
    looks = {"seed": SEED, "pairs": 6, "looks": 2, "interim": [{"pairs": 4, "alpha": 0.03}]}
    later = {one.said: one.needed for cell in request_counts(short_brief(rule=looks)) for one in cell.demands}
    assert later["guardrail slow (p99 at most 6 s)"] == 390
    assert later["guardrail late (at most 5 %)"] == 77


def test_a_margin_takes_so_many_that_perfect_agreement_shows_it() -> None:
    (demand,) = by_label(request_counts(short_brief(guardrails=[])))["quiet"].demands
    assert demand.said == "the margin (no worse by more than 2 points)"
    needed = demand.needed or 0

    def shown(requests: int) -> bool:
        agreed = t_bounds([0.0] * 4, alpha=0.05, smallest_se=matched_share_se(0, 0, requests))
        return agreed.low >= -0.02

    assert (shown(needed), shown(needed - 1)) == (True, False)


def test_a_ladder_takes_its_rungs_at_half_of_alpha() -> None:
    outcome = {"metric": "capacity", "improve_in": [{"level": "peak"}]}
    brief = short_brief(
        outcome=outcome | {"minimum_improvement": 0.5, "non_inferiority_margin": 0.05},
        capacity={"levels": ["quiet", "peak"], "target": 0.9},
        guardrails=[],
    )
    peak, quiet = (by_label(request_counts(brief))[level] for level in ("peak", "quiet"))
    ladder = "the ladder's target of 90 %"
    assert {one.said: one.needed for one in peak.demands} == {ladder: 36}
    assert {one.said: one.needed for one in quiet.demands} == {
        "the margin (no worse by more than 5 points)": 65,
        ladder: 36,
    }


def test_the_author_is_told_what_is_too_few_and_what_would_do() -> None:
    brief = short_brief(guardrails=[P99, FASTER_P90 | {"quantile": 0.95}])
    assert cautions(brief) == [
        "Too few requests at quiet: about 12 in a window and 48 over all 4 pairs. The margin (no worse by more than "
        "2 points) takes 165, even if both arms agree on every one. Guardrail first (p95) takes 21 in a window, since "
        "with fewer it rests on the slowest alone. Plan longer windows or a higher rate.",
        "Too few requests at peak: about 30 in a window and 120 over all 4 pairs. Guardrail slow (p99 at most "
        "6 s) takes 299, with none of them slower. Plan longer windows or a higher rate, or 10 pairs.",
    ]


def test_a_limit_that_no_number_shows() -> None:
    tight = LATE | {"limit": 1e-8, "cell": {"level": "peak"}}
    said = cautions(short_brief(guardrails=[tight]))[-1]
    assert "takes more than 10,000,000." in said
    assert said.endswith("Plan longer windows or a higher rate.")


@pytest.mark.django_db
def test_the_page_of_a_draft_warns_and_shows_the_numbers(client: Client, route: Route, engineer: Account) -> None:
    draft = create_brief(route=route, source=short_brief(guardrails=[P99]).content.decode(), by=engineer)
    client.force_login(engineer)
    found = client.get(reverse("brief", args=[draft.brief_id, draft.number])).content.decode().replace("\u00a0", " ")
    assert "Too few requests at peak: about 30 in a window and 120 over all 4 pairs." in found
    table = found[found.index("Requests to judge by") :].split("</table>")[0]
    assert "over 4 pairs, each arm" in table
    assert "about 120" in table
    assert "guardrail slow (p99 at most 6 s): at least 299" in table
