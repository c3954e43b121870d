"""An act holds a lock for which everybody waits who writes: what it reads of the evidence was read before it."""

from pathlib import Path

import pytest
from django.db import connection

from decisions.models import Account, Route
from decisions.services.reauthenticate import Credentials
from decisions.services.sign_decision import sign_decision
from loadtests.evidence.ahead import act_on_evidence, need, source
from loadtests.evidence.store import EvidenceMissing, EvidenceStore
from loadtests.evidence.stores import evidence_store
from loadtests.models import Removal
from loadtests.part_indexes import held
from tests.conftest import PASSWORD
from tests.support.play import other_traffic, play, started_brief

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What is read of the store, and whether it was within an act."""
    get, found = EvidenceStore.get, list[tuple[str, bool]]()

    def noted(self: EvidenceStore, wanted: str) -> bytes:
        found.append((wanted, connection.in_atomic_block))
        return get(self, wanted)

    monkeypatch.setattr(EvidenceStore, "get", noted)
    return found


def test_nobody_waits_for_the_store_on_the_way_of_a_decision(
    route: Route, engineer: Account, owner: Account, reads: list[tuple[str, bool]], tmp_path: Path
) -> None:
    """Nomination, verdict, plans of campaigns and the signature; and who read the held-out rows before, by the indexes
    of another brief's traffic."""
    held.cache_clear()
    play(started_brief(route, engineer))
    held.cache_clear()
    revision = started_brief(route, engineer, path=other_traffic(tmp_path))
    play(revision)
    held.cache_clear()
    sign_decision(
        verdict=revision.verdicts.get(),
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="approve",
        reason="It settles the matter.",
    )
    assert reads
    assert [wanted for wanted, within_an_act in reads if within_an_act] == []


def test_an_act_begins_again_once_what_it_needs_was_read(reads: list[tuple[str, bool]]) -> None:
    store = evidence_store()
    one, other, begun = store.put(b"one"), store.put(b"other"), list[None]()

    def doing() -> bytes:
        begun.append(None)
        Removal.objects.create(digest="f" * 64)
        need([one, other])
        return source().get(one) + source().get(other)

    assert act_on_evidence(doing) == b"oneother"
    assert len(begun) == 2
    assert Removal.objects.count() == 1
    assert reads == [(digest, False) for digest in sorted([one, other])]
    assert source() is store


def test_what_is_missing_is_missing_within_the_act() -> None:
    def doing() -> str:
        try:
            source().get("e" * 64)
        except EvidenceMissing as error:
            return str(error)
        return ""

    assert act_on_evidence(doing).startswith(f"no evidence {'e' * 64} in ")


def test_an_act_that_fails_leaves_the_store_to_the_next() -> None:
    def doing() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        act_on_evidence(doing)
    assert source() is evidence_store()
