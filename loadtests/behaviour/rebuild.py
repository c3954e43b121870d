"""A stored plan of the suite, made a plan again by whoever asks it or judges it later. Pure."""

from collections.abc import Mapping
from typing import Any

from loadtests.behaviour.case import Settings
from loadtests.behaviour.own_cases import OwnCase
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.result import Declared
from loadtests.canonical import digest_of


class OtherSuite(ValueError):
    """This program's cases are not those that were laid down."""


def plan_of_document(document: Mapping[str, Any]) -> SuitePlan:
    """The plan that ``SuitePlan.document`` was written of. Raises OtherSuite where this program would ask or judge
    something else: another version of it laid the plan down."""
    try:
        cases = document["cases"]
        own = tuple(OwnCase.model_validate(one["document"]).case for one in cases if one["source"] == "owner")
        plan = suite_plan(
            only=[one["id"] for one in cases],
            own=own,
            settings=Settings(
                temperature=document["temperature"],
                top_p=document["top_p"],
                top_k=document["top_k"],
                thorough=document["thorough"],
                tie_nats=document["tie_nats"],
                uses=frozenset(document["uses"]),
            ),
            concurrency=document["concurrency"],
            alpha=document["alpha"],
            seed=document["seed"],
            timeout_s=document["timeout_s"],
            declared=Declared.model_validate(document["declared"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise OtherSuite(f"the suite that was laid down can't be asked here: {error}") from None
    if plan.digest != digest_of(document):
        raise OtherSuite(
            "the suite that was laid down is not the one of this program: web and worker are of different versions, or "
            "were updated meanwhile; run the behaviour stage again"
        )
    return plan
