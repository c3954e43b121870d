"""Several people decide at the same moment: whatever the order, there is one decision, on what was judged."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection, transaction

from decisions import ledger
from decisions.models import Account, BriefRevision, Event, Release, Signature, SignatureRequest
from decisions.rules.signing import APPROVE
from decisions.selectors.review import bound_now
from decisions.services.edit_brief import edit_brief
from decisions.services.open_request import open_request
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.revise_brief import revise_brief
from decisions.services.sign_decision import sign_decision
from decisions.services.withdraw_brief import withdraw_brief
from loadtests import journal
from loadtests.models import Trial
from tests.conftest import PASSWORD
from tests.support.reviewed import Reviewed, build_reviewed

pytestmark = pytest.mark.django_db(transaction=True)

REASON = "The evidence settles it."
# Events that end a review.
ENDS = ("brief-approve", "brief-reject", "brief-request-changes", "brief-withdraw")
CHANGED = "evidence-changed"


@pytest.fixture
def case(transactional_db: None) -> Reviewed:
    for name in ("engineer", "owner", "auditor", "operator"):
        Group.objects.get_or_create(name=name)
    cache.clear()
    return build_reviewed(PASSWORD)


def at_once(acts: list[Callable[[], object]]) -> list[object]:
    """What each came to, all begun at the same moment on connections of their own."""
    barrier = threading.Barrier(len(acts))
    found: list[object] = [None] * len(acts)

    def run(place: int) -> None:
        barrier.wait()
        try:
            found[place] = acts[place]()
        except Refused as refusal:
            found[place] = refusal
        except Exception as error:
            found[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[place]) for place in range(len(acts))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(timeout=240)
    assert not any(one.is_alive() for one in threads)
    unforeseen = [one for one in found if isinstance(one, Exception) and not isinstance(one, Refused)]
    assert unforeseen == []
    return found


def signing(case: Reviewed, who: Account, meaning: str) -> Callable[[], object]:
    verdict = case.verdict
    return lambda: sign_decision(
        verdict=verdict, by=who, credentials=Credentials(PASSWORD), meaning=meaning, reason=REASON
    )


def withdrawing(case: Reviewed) -> Callable[[], object]:
    revision, engineer = case.revision, case.people["engineer"]
    return lambda: withdraw_brief(revision=revision, by=engineer, reason="It was written for another route")


def new_events(since: int) -> list[Event]:
    return list(Event.objects.filter(sequence__gt=since).order_by("sequence"))


def last_event() -> int:
    return Event.objects.latest("sequence").sequence


def ended(since: int) -> list[str]:
    return [one.kind for one in new_events(since) if one.kind in ENDS]


@pytest.mark.parametrize("meanings", [("approve", "approve"), ("approve", "request-changes"), ("reject", "approve")])
def test_two_owners_at_once_make_one_decision(case: Reviewed, meanings: tuple[str, str]) -> None:
    case.ask_under(second_against_verdict=False)
    since = last_event()
    owners = [case.people[name] for name in ("owner", "second_owner")]
    found = at_once([signing(case, who, meaning) for who, meaning in zip(owners, meanings, strict=True)])
    assert sorted(isinstance(one, Refused) for one in found) == [False, True]
    assert len(ended(since)) == Signature.objects.count() == 1
    assert Release.objects.count() == (case.revision.state == "approved")
    assert case.request.outcome == case.revision.state
    assert ledger.verify().broken is None


def test_the_last_two_approvals_of_a_quorum_make_one_release(case: Reviewed) -> None:
    case.ask_under(quorum=2)
    since = last_event()
    found = at_once([signing(case, case.people[name], "approve") for name in ("owner", "second_owner", "third_owner")])
    assert sorted(isinstance(one, Refused) for one in found) == [False, False, True]
    assert (ended(since), Release.objects.count(), Signature.objects.count()) == (["brief-approve"], 1, 2)
    counted = [one.details["signature"] for one in new_events(since) if "signature" in one.details]
    assert counted == [1, 2]


def test_the_same_owner_twice_at_once_signs_once(case: Reviewed) -> None:
    case.ask_under(quorum=2)
    found = at_once([signing(case, case.people["owner"], "approve") for _ in range(3)])
    assert sum(isinstance(one, Signature) for one in found) == Signature.objects.count() == 1
    assert case.revision.state == "in-review"


def test_approving_against_withdrawing_ends_in_one_of_them(case: Reviewed) -> None:
    since = last_event()
    found = at_once([signing(case, case.people["owner"], "approve"), withdrawing(case)])
    assert sorted(isinstance(one, Refused) for one in found) == [False, True]
    (end,) = ended(since)
    approved = end == "brief-approve"
    assert (case.revision.state, Release.objects.count()) == (("approved", 1) if approved else ("withdrawn", 0))
    assert case.request.outcome == case.revision.state
    assert ledger.verify().broken is None


def test_the_glass_is_broken_once(case: Reviewed) -> None:
    case.ask_under(quorum=2)
    found = at_once([signing(case, case.people[name], "break-glass") for name in ("owner", "second_owner")])
    assert sorted(isinstance(one, Refused) for one in found) == [False, True]
    assert (Release.objects.count(), case.revision.state) == (1, "in-review")


@pytest.mark.services
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one writer in at a time by itself")
def test_fifty_people_at_once_never_make_two_decisions_nor_approve_what_changed(case: Reviewed) -> None:
    owners, draw = list(more_owners(case, 30)), random.Random(7)
    case.ask_under(quorum=3)
    outcomes = []
    for approving, against, withdrawing_too, changers in MIXES:
        begin_again(case)
        since = last_event()
        free = iter(owners)
        acts = [
            *(signing(case, next(free), APPROVE) for _ in range(approving)),
            *(signing(case, next(free), "reject") for _ in range(against)),
            *(
                signing(case, next(free), meaning)
                for meaning in ("request-changes", "break-glass", "break-glass")[:against]
            ),
            *(withdrawing(case) for _ in range(withdrawing_too)),
            *(changing(case, number) for number in range(changers)),
        ]
        acts += [editing(case, number) for number in range(50 - len(acts))]
        draw.shuffle(acts)
        assert len(acts) == 50
        at_once(acts)
        outcomes.append(case.revision.state)
        check(case, since)
    assert ledger.verify().broken is None
    # With nobody against it there is a release; with everybody at once, any one end.
    assert outcomes[0] == "approved"
    assert set(outcomes) <= {"approved", "rejected", "changes-requested", "withdrawn", "in-review"}


# How many approve, reject, withdraw and change the evidence; the rest of the fifty edit.
MIXES = ((27, 0, 0, 0), (24, 3, 1, 0), (20, 3, 8, 0), (27, 0, 0, 4), (24, 0, 2, 8), (20, 3, 2, 2))


def more_owners(case: Reviewed, count: int) -> Iterator[Account]:
    group = Group.objects.get(name="owner")
    for number in range(count):
        one = Account.objects.create_user(f"owner_{number}", password=PASSWORD)
        one.groups.add(group)
        case.service.owners.add(one)
        yield one


def editing(case: Reviewed, number: int) -> Callable[[], object]:
    """Engineers who would change the words under the signatures, or begin the next revision beside them."""
    revision, engineer = case.revision, case.people["engineer"]
    if number % 2:
        return lambda: edit_brief(revision=revision, source=revision.source, by=engineer)
    return lambda: revise_brief(revision=revision, by=engineer)


def changing(case: Reviewed, number: int) -> Callable[[], object]:
    """Evidence that is no longer what was judged, as after a stage that runs again."""
    trials = Trial.objects.filter(boot__campaign__purpose="held-out", state="finished").order_by("pk")
    pk = trials[number].pk

    def change() -> None:
        with journal.act():
            Trial.objects.filter(pk=pk).update(manifest_digest=f"{number:064x}")
            journal.record(CHANGED, subject=f"trial {pk}", actor="draftproof")

    return change


def check(case: Reviewed, since: int) -> None:
    events, revision, request = new_events(since), case.revision, case.request
    ends = [one for one in events if one.kind in ENDS]
    changes = [one.sequence for one in events if one.kind == CHANGED]
    approvals = [one for one in events if one.kind in ("brief-approve", "brief-approve-in-part", "brief-break-glass")]
    assert len(ends) <= 1
    # Nobody approved after the evidence had changed, and what was approved is what the request is bound to.
    assert all(one.sequence < min(changes, default=10**9) for one in approvals)
    signatures = list(Signature.objects.filter(request=request))
    assert {one.bound for one in signatures} <= {request.bound}
    assert len({(one.signer_id, one.meaning) for one in signatures}) == len(signatures)
    decided = Release.objects.filter(signature__request=request, signature__meaning=APPROVE)
    if revision.state == "approved":
        assert (decided.count(), request.outcome) == (1, "approved")
        assert sum(one.meaning == APPROVE for one in signatures) == request.policy.quorum
    else:
        assert not decided.exists()
    if not changes:
        assert bound_now(revision, request.verdict) == request.bound
    assert Release.objects.filter(route=case.route, revoked_at=None, superseded_at=None).count() <= 1


def begin_again(case: Reviewed) -> SignatureRequest:
    """The same verdict in review once more, with its evidence as it was; the ledger goes on."""
    with transaction.atomic():
        verdict: Any = case.verdict
        Release.objects.all().delete()
        Signature.objects.all().delete()
        SignatureRequest.objects.all().delete()
        BriefRevision.objects.exclude(pk=case.pk).delete()
        BriefRevision.objects.filter(pk=case.pk).update(state="in-review")
        for pk, manifest in MANIFESTS.items():
            Trial.objects.filter(pk=pk).update(manifest_digest=manifest)
        return open_request(verdict=verdict, by="draftproof")


MANIFESTS: dict[int, str] = {}


@pytest.fixture(autouse=True)
def remembered(case: Reviewed) -> None:
    MANIFESTS.clear()
    MANIFESTS.update(Trial.objects.values_list("pk", "manifest_digest"))
