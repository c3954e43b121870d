"""From a started brief to a signed release and back, over made-up records and everything else real."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from decisions import ledger
from decisions.models import Account, BriefRevision, Event, Release, Route, Signature, Verdict
from decisions.rules.brief import BadBrief
from decisions.rules.verdict import CODES, VERDICT_CODE
from decisions.services.cancel_brief import cancel_brief
from decisions.services.compute_verdict import content_by
from decisions.services.create_brief import create_brief
from decisions.services.declare_fault import declare_fault
from decisions.services.edit_brief import edit_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.revise_brief import revise_brief
from decisions.services.revoke_release import revoke_release
from decisions.services.sign_decision import sign_decision, statement_to_sign
from decisions.services.start_brief import start_brief
from decisions.services.withdraw_brief import withdraw_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot, Campaign
from tests.conftest import PASSWORD
from tests.support.play import (
    changes_nothing,
    harms_at_peak,
    harms_everywhere,
    other_traffic,
    play,
    started_brief,
)

pytestmark = pytest.mark.django_db

REASON = "The evidence settles it."
Sign = Callable[..., Signature]


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    return started_brief(route, engineer)


def last_verdict(revision: BriefRevision) -> Verdict:
    verdict = revision.verdicts.last()
    assert verdict is not None
    return verdict


def sign(verdict: Verdict, by: Account, meaning: str = "approve", *, password: str = PASSWORD) -> Signature:
    return sign_decision(verdict=verdict, by=by, credentials=Credentials(password), meaning=meaning, reason=REASON)


def configuration(client: Client, **headers: str) -> dict[str, object]:
    response = client.get("/api/v1/routes/chat/configuration", headers=headers)
    assert response.status_code == 200
    answer: dict[str, object] = json.loads(response.content)
    return answer


def test_a_candidate_that_helps_passes_is_approved_and_revoked(
    revision: BriefRevision, owner: Account, client: Client
) -> None:
    play(revision)
    verdict = last_verdict(revision)
    assert (revision.state, verdict.result) == ("in-review", "PASS"), verdict.document
    assert configuration(client)["speculative"] is None
    before = client.get("/api/v1/routes/chat/configuration")
    known = {"If-None-Match": before["ETag"]}
    unchanged = client.get("/api/v1/routes/chat/configuration", headers=known)
    assert (unchanged.status_code, unchanged.content) == (304, b"")

    signature = sign(verdict, owner)
    assert client.get("/api/v1/routes/chat/configuration", headers=known).status_code == 200
    assert bytes(signature.statement).decode() == statement_to_sign(
        verdict=verdict, by=owner, meaning="approve", reason=REASON
    )
    answer = configuration(client)
    assert answer["speculative"] == revision.document.configuration(revision.nominee).speculative.model_dump(  # type: ignore[union-attr]
        mode="json", exclude_none=True
    )
    assert answer["decision"]["digest"] == signature.digest  # type: ignore[index]
    assert [level["level"] for level in answer["tested_range"]["levels"]] == ["ordinary", "peak", "quiet"]  # type: ignore[index]

    revoke_release(
        release=Release.objects.get(), by=owner, credentials=Credentials(PASSWORD), reason="An incident was reported"
    )
    assert configuration(client)["speculation"] == "off"
    assert ledger.verify().broken is None


def test_a_route_nobody_knows_is_not_found(client: Client) -> None:
    assert client.get("/api/v1/routes/nowhere/configuration").status_code == 404


def test_candidates_that_change_nothing_never_pass(revision: BriefRevision) -> None:
    play(revision, changes_nothing)
    assert last_verdict(revision).result in ("FAIL", "INCONCLUSIVE")


def test_harm_at_peak_fails_and_cannot_be_approved(revision: BriefRevision, owner: Account) -> None:
    play(revision, harms_at_peak)
    verdict = last_verdict(revision)
    assert verdict.result == "FAIL"
    with pytest.raises(Refused, match="only a PASS"):
        sign(verdict, owner)
    sign(verdict, owner, "reject")
    revision.refresh_from_db()
    assert revision.state == "rejected"
    assert not Release.objects.exists()


def test_who_may_not_sign_is_refused_and_recorded(
    revision: BriefRevision,
    engineer: Account,
    superuser: Account,
    auditor: Account,
    stranger: Account,
    owner: Account,
) -> None:
    play(revision)
    cast = [(engineer, "group owner"), (superuser, "superuser"), (auditor, "group owner"), (stranger, "group owner")]
    for who, why in cast:
        with pytest.raises(Refused, match=why):
            sign(last_verdict(revision), who)
    with pytest.raises(Refused, match="password is wrong"):
        sign(last_verdict(revision), owner, password="guess")
    refused = Event.objects.filter(kind="sign-refused").order_by("sequence")
    assert [event.actor for event in refused] == ["engineer", "superuser", "auditor", "stranger", "owner"]
    revision.refresh_from_db()
    assert revision.state == "in-review"


def test_an_owner_who_wrote_the_brief_cannot_sign_it(route: Route, owner: Account, second_owner: Account) -> None:
    owner.groups.add(Group.objects.get(name="engineer"))
    revision = started_brief(route, owner)
    play(revision)
    with pytest.raises(Refused, match="author"):
        sign(last_verdict(revision), owner)
    sign(last_verdict(revision), second_owner)


def test_a_decision_is_made_once(revision: BriefRevision, owner: Account, second_owner: Account) -> None:
    play(revision)
    verdict = last_verdict(revision)
    sign(verdict, owner)
    with pytest.raises(Refused, match="approved"):
        sign(Verdict.objects.get(pk=verdict.pk), second_owner, "reject")
    assert Signature.objects.count() == Release.objects.count() == 1


def test_revoking_needs_an_owner_and_their_password(
    revision: BriefRevision, owner: Account, engineer: Account, superuser: Account
) -> None:
    play(revision)
    sign(last_verdict(revision), owner)
    release = Release.objects.get()
    for who, password in ((engineer, PASSWORD), (superuser, PASSWORD), (owner, "guess")):
        with pytest.raises(Refused):
            revoke_release(
                release=release, by=who, credentials=Credentials(password), reason="An incident was reported"
            )
    assert Event.objects.filter(kind="revoke-refused").count() == 3
    release.refresh_from_db()
    assert release.revoked_at is None


def test_a_new_release_takes_the_place_of_the_old(
    route: Route, engineer: Account, owner: Account, tmp_path: Path
) -> None:
    for path in (SUPPORT_ASSISTANT, other_traffic(tmp_path)):
        revision = started_brief(route, engineer, path=path)
        play(revision)
        sign(last_verdict(revision), owner)
    old, new = Release.objects.order_by("pk")
    assert (old.superseded_at is None, new.superseded_at is None) == (False, True)
    assert (old.revision.state, new.revision.state) == ("superseded", "approved")


def test_a_recomputed_verdict_has_the_same_bytes(revision: BriefRevision) -> None:
    from decisions.rules.verdict import verdict as judge
    from decisions.selectors.evidence import evidence_of

    play(revision)
    stored = last_verdict(revision).document
    again = judge(revision.document, revision.nominee or None, evidence_of(revision)[::-1])
    assert {name: stored[name] for name in again} == again


@pytest.mark.parametrize("code", CODES)
def test_every_version_of_the_rules_can_be_asked_again(revision: BriefRevision, code: str) -> None:
    play(revision)
    verdict = last_verdict(revision)
    content = content_by(revision=revision, code=code)
    document = json.loads(content)
    assert (document["code"], document["evidence"]) == (code, verdict.document["evidence"])
    assert (document["verdict"], document["brief"]) == (verdict.result, revision.digest)
    if code == VERDICT_CODE:
        assert content == bytes(verdict.content)


def test_the_stages_follow_each_other_and_held_out_comes_after_nomination(revision: BriefRevision) -> None:
    play(revision)
    purposes = list(Campaign.objects.order_by("pk").values_list("purpose", flat=True))
    assert purposes == ["noise-floor", "tuning", "held-out", "fallback"]
    nominated = Event.objects.get(kind="brief-nominated").sequence
    first_read = Event.objects.filter(kind="held-out-read").order_by("sequence").first()
    assert first_read is not None
    assert nominated < first_read.sequence


def test_a_declared_fault_is_measured_again_before_the_verdict(revision: BriefRevision, engineer: Account) -> None:
    import random

    from decisions.services.advance_brief import advance_brief
    from loadtests.services.claim_boot import claim_boot
    from tests.support.play import helps_when_quiet, run

    boot = claim_boot(pool="cpu", worker="player", host="host")
    assert boot is not None
    run(boot, helps_when_quiet, 1.0, random.Random(1))
    boot.refresh_from_db()
    declare_fault(boot=boot, by=engineer, reason="The host was rebooted for maintenance")
    play(revision)
    assert last_verdict(revision).result == "PASS"
    assert Boot.objects.filter(state="void").count() == 2
    advance_brief(revision=revision)
    with pytest.raises(Refused, match="after its verdict"):
        declare_fault(
            boot=Boot.objects.filter(state="finished").latest("pk"), by=engineer, reason="Too late for this one"
        )


def test_a_candidate_with_another_setting_is_refused_with_the_difference(route: Route, engineer: Account) -> None:
    draft = started_brief(route, engineer)
    document = json.loads(draft.source)
    document["candidates"][0] = {
        "name": "sneaky",
        "configuration": document["baseline"]
        | {
            "arguments": document["baseline"]["arguments"] | {"max_num_seqs": 8},
            "speculative": {"method": "ngram", "num_speculative_tokens": 4},
        },
    }
    with pytest.raises(BadBrief, match=r"arguments\.max_num_seqs: 16 → 8"):
        create_brief(route=route, source=json.dumps(document), by=engineer)


def test_a_frozen_brief_is_changed_only_by_a_new_revision(revision: BriefRevision, engineer: Account) -> None:
    with pytest.raises(Refused, match="a change makes a new revision"):
        edit_brief(revision=revision, source=revision.source, by=engineer)
    with pytest.raises(Refused, match="cancel or withdraw it"):
        revise_brief(revision=revision, by=engineer)
    with pytest.raises(Refused, match="say why in at least 10 characters"):
        cancel_brief(revision=revision, by=engineer, reason="   no      ")
    cancel_brief(revision=revision, by=engineer, reason="A mistake in the levels")
    assert not Campaign.objects.filter(state__in=Campaign.OPEN).exists()
    draft = revise_brief(revision=revision, by=engineer)
    assert (draft.number, draft.state) == (2, "draft")
    freeze_brief(revision=draft, by=engineer)
    assert draft.digest == revision.digest


def test_someone_who_is_no_engineer_cannot_write_a_brief(
    revision: BriefRevision, route: Route, auditor: Account
) -> None:
    with pytest.raises(Refused, match="engineer"):
        create_brief(route=route, source=revision.source, by=auditor)
    assert Event.objects.get(kind="brief-create-refused").actor == "auditor"


def test_a_plan_that_needs_more_held_out_traffic_is_refused_before_it_is_frozen(
    route: Route, engineer: Account
) -> None:
    document = json.loads(started_brief(route, engineer).source)
    document["levels"][2]["arrival"] = {"process": "constant", "rate": 20}
    draft = create_brief(route=route, source=json.dumps(document), by=engineer)
    with pytest.raises(BadBrief, match="levels: the held-out part has 269 requests"):
        freeze_brief(revision=draft, by=engineer)
    draft.refresh_from_db()
    assert (draft.state, draft.digest) == ("draft", "")


def test_the_rule_says_whether_a_candidate_that_tuning_did_not_favour_is_tested(
    revision: BriefRevision, engineer: Account, route: Route
) -> None:
    """The same evidence, two rules: one tests the best candidate all the same, the other leaves speculation off."""
    play(revision, harms_everywhere)
    assert revision.nomination is not None
    assert revision.nominee
    assert "asks for the best one's held-out test" in revision.nomination["reason"]
    strict = revise_after_decision(revision, engineer)
    play(strict, harms_everywhere)
    assert strict.nominee == ""
    assert last_verdict(strict).result == "FAIL"
    assert not Campaign.objects.filter(brief_campaign__revision=strict, purpose="held-out").exists()


def revise_after_decision(revision: BriefRevision, engineer: Account) -> BriefRevision:
    withdraw_brief(revision=revision, by=engineer, reason="Tested with another rule")
    draft = revise_brief(revision=revision, by=engineer)
    document = json.loads(draft.source)
    document["rule"]["nomination"] = "best-in-improve-cells"
    edit_brief(revision=draft, source=json.dumps(document), by=engineer)
    freeze_brief(revision=draft, by=engineer)
    start_brief(revision=draft, by=engineer)
    return draft
