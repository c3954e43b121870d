"""A verdict in review: policies, quorum, expiry, cooling-off, the broken glass, and approvals that fall away.

It is built once; every test's changes are rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions import ledger
from decisions.models import Event, Release, ReviewComment, Signature, SignatureRequest, SigningPolicy
from decisions.selectors.inbox import to_sign, waiting_for
from decisions.selectors.review import review_of
from decisions.selectors.route_configuration import route_configuration
from decisions.services import sign_decision as signing
from decisions.services.ask_again import ask_again
from decisions.services.reauthenticate import Credentials, Proof
from decisions.services.record_expiries import record_expiries
from decisions.services.refused import Refused
from decisions.services.revoke_release import revoke_release
from decisions.services.sign_decision import sign_decision, statement_to_sign
from decisions.services.withdraw_brief import withdraw_brief
from loadtests.models import Trial
from tests.conftest import PASSWORD
from tests.support.reviewed import Reviewed, build_reviewed

REASON = "The evidence settles it."
Later = Callable[[timedelta], datetime]


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[Reviewed, Path]:
    return build_reviewed(PASSWORD), module_evidence


@pytest.fixture
def case(built: tuple[Reviewed, Path], db: None, settings: Any) -> Reviewed:
    settings.EVIDENCE_DIR = built[1]
    cache.clear()
    return built[0]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """The clock of the whole house goes on by so much; no background task runs."""
    began = timezone.now()

    def go_on(by: timedelta) -> datetime:
        monkeypatch.setattr(timezone, "now", lambda: began + by)
        return began + by

    return go_on


@pytest.fixture
def as_(case: Reviewed) -> Callable[[str], Client]:
    def sign_in(who: str) -> Client:
        client = Client()
        client.force_login(case.people[who])
        return client

    return sign_in


def sign(case: Reviewed, who: str, meaning: str = "approve", *, password: str = PASSWORD) -> Signature:
    return sign_decision(
        verdict=case.verdict, by=case.people[who], credentials=Credentials(password), meaning=meaning, reason=REASON
    )


def refused(case: Reviewed, who: str, meaning: str = "approve", **more: str) -> str:
    """The sentence, which stands in the ledger too."""
    with pytest.raises(Refused) as refusal:
        sign(case, who, meaning, **more)
    event = Event.objects.filter(kind="sign-refused").latest("sequence")
    assert (event.actor, event.details) == (who, {"reason": refusal.value.sentence})
    return refusal.value.sentence


def change_evidence() -> None:
    trial = Trial.objects.filter(boot__campaign__purpose="held-out", state="finished").earliest("pk")
    Trial.objects.filter(pk=trial.pk).update(manifest_digest="f" * 64)


def speculation(case: Reviewed) -> str:
    return str(route_configuration(case.route)["speculation"])


def page_of(case: Reviewed, client: Client, name: str = "brief-sign-off") -> str:
    response = client.get(reverse(name, args=[case.revision.brief_id, case.revision.number]))
    assert response.status_code == 200
    return response.content.decode()


class TestQuorum:
    def test_two_owners_approve_and_the_second_decides(self, case: Reviewed) -> None:
        case.ask_under(quorum=2)
        first = sign(case, "owner")
        assert (case.revision.state, Release.objects.count(), speculation(case)) == ("in-review", 0, "off")
        second = sign(case, "second_owner")
        assert (case.revision.state, speculation(case)) == ("approved", "on")
        assert Release.objects.get().signature == second
        assert (case.request.outcome, first.request) == ("approved", second.request)
        events = Event.objects.filter(kind__in=["brief-approve-in-part", "brief-approve"]).order_by("sequence")
        assert [(one.kind, one.details["signature"], one.details["of"]) for one in events] == [
            ("brief-approve-in-part", 1, 2),
            ("brief-approve", 2, 2),
        ]
        assert ledger.verify().broken is None

    def test_one_person_counts_once(self, case: Reviewed) -> None:
        case.ask_under(quorum=2)
        sign(case, "owner")
        assert refused(case, "owner") == "you have signed this already: it takes another owner’s signature"
        assert case.revision.state == "in-review"

    def test_what_was_signed_waits_for_the_others_alone(self, case: Reviewed) -> None:
        case.ask_under(quorum=2)
        sign(case, "owner")
        assert to_sign(case.people["owner"]) == []
        assert [one.revision for one in to_sign(case.people["second_owner"])] == [case.revision]

    def test_a_pass_is_rejected_by_two(self, case: Reviewed) -> None:
        sign(case, "owner", "reject")
        assert case.revision.state == "in-review"
        sign(case, "second_owner", "reject")
        assert (case.revision.state, case.request.outcome) == ("rejected", "rejected")

    def test_or_by_one_where_the_policy_says_so(self, case: Reviewed) -> None:
        case.ask_under(second_against_verdict=False)
        sign(case, "owner", "reject")
        assert case.revision.state == "rejected"

    def test_a_rejection_in_part_stands_in_nobody_s_way(self, case: Reviewed) -> None:
        sign(case, "owner", "reject")
        sign(case, "second_owner")
        assert case.revision.state == "approved"

    def test_whoever_approved_may_think_again(self, case: Reviewed) -> None:
        case.ask_under(quorum=2)
        sign(case, "owner")
        sign(case, "owner", "request-changes")
        assert (case.revision.state, Release.objects.exists()) == ("changes-requested", False)
        assert "changes-requested" in refused(case, "second_owner")


class TestPolicy:
    def test_the_request_keeps_the_policy_it_was_opened_under(self, case: Reviewed) -> None:
        before = case.request.policy
        case.set_policy(quorum=3, request_days=1)
        assert case.request.policy == before
        sign(case, "owner")
        assert case.revision.state == "approved"

    def test_a_change_is_one_event_with_what_was_before(self, case: Reviewed) -> None:
        count = Event.objects.count()
        stored = case.set_policy(quorum=2)
        event = Event.objects.latest("sequence")
        assert Event.objects.count() == count + 1
        assert (event.kind, event.actor, event.subject) == ("policy-set", "operator", "service support-assistant")
        assert (event.details["before"]["quorum"], event.details["after"]["quorum"]) == (1, 2)
        assert (
            (event.details["version"], event.details["environment"])
            == (stored.version, "production")
            == (1, "production")
        )

    def test_whose_policy_was_changed_meanwhile_reads_it_first(self, case: Reviewed) -> None:
        case.set_policy(quorum=2)
        SigningPolicy.objects.all().delete()
        SigningPolicy.objects.create(
            service=case.service, environment="production", version=4, document={}, reason="x", set_by="operator"
        )
        with pytest.raises(Refused, match="somebody has set another policy meanwhile"):
            case.set_policy(quorum=3)

    def test_a_release_lasts_as_long_as_policy_and_brief_both_allow(self, case: Reviewed) -> None:
        case.ask_under(release_days=5)
        sign(case, "owner")
        release = Release.objects.get()
        assert release.expires_at - release.released_at == timedelta(days=5)

    def test_nobody_approves_before_the_cooling_off_is_over(self, case: Reviewed, later: Later) -> None:
        case.ask_under(cooling_off_hours=24)
        assert "lets nobody approve before" in refused(case, "owner")
        later(timedelta(hours=24, minutes=1))
        sign(case, "owner")
        assert case.revision.state == "approved"

    def test_the_form_sets_it(self, case: Reviewed, as_: Callable[[str], Client]) -> None:
        address = reverse("service-policy", args=["support-assistant", "production"])
        form = {
            "quorum": "2",
            "request_days": "10",
            "release_days": "60",
            "cooling_off_hours": "0",
            "break_glass_hours": "24",
            "may_not_sign": ["author", "editor", "run-starter"],
            "break_glass": "on",
            "begun_on": "0",
            "reason": "Two pairs of eyes from now on",
        }
        client = as_("operator")
        assert 'name="quorum"' in client.get(address).content.decode()
        bad = client.post(address, form | {"quorum": "9", "release_days": "soon"})
        assert bad.status_code == 422
        assert "a whole number from 1 to 730" in bad.content.decode().lower()
        assert client.post(address, form | {"reason": "no"}).status_code == 422
        assert not SigningPolicy.objects.exists()
        assert client.post(address, form)["Location"] == address
        stored = SigningPolicy.objects.get()
        assert (stored.policy.quorum, stored.policy.second_against_verdict, stored.set_by) == (2, False, "operator")
        page = client.get(address).content.decode()
        assert "A release needs that 2 owners sign." in page
        assert "Two pairs of eyes from now on" in page
        again = client.post(address, form | {"quorum": "3"})
        assert (again.status_code, SigningPolicy.objects.count()) == (422, 1)
        assert client.get(reverse("service-policy", args=["support-assistant", "staging"])).status_code == 404

    @pytest.mark.parametrize("who", ["engineer", "owner", "auditor"])
    def test_others_read_it_and_are_refused_with_an_event(
        self, case: Reviewed, as_: Callable[[str], Client], who: str
    ) -> None:
        address = reverse("service-policy", args=["support-assistant", "production"])
        page = as_(who).get(address).content.decode()
        assert "A release needs that one owner signs." in page
        assert 'name="quorum"' not in page
        with pytest.raises(Refused, match="operator"):
            case_as(case, who).set_policy(quorum=2)
        assert Event.objects.latest("sequence").kind == "policy-set-refused"

    def test_whoever_signs_by_it_does_not_set_it(self, case: Reviewed) -> None:
        case.service.owners.add(case.people["operator"])
        try:
            with pytest.raises(Refused, match="An owner of a service can't set its policy"):
                case.set_policy(quorum=2)
        finally:
            case.service.owners.remove(case.people["operator"])


def case_as(case: Reviewed, who: str) -> Reviewed:
    return Reviewed(case.people | {"operator": case.people[who]}, case.service, case.route, case.pk)


class TestExpiry:
    """Nothing but the clock goes on: no task, no event."""

    def test_an_expired_request_is_signed_by_nobody(
        self, case: Reviewed, later: Later, as_: Callable[[str], Client]
    ) -> None:
        count = Event.objects.count()
        later(timedelta(days=14, seconds=1))
        assert Event.objects.count() == count
        assert to_sign(case.people["owner"]) == []
        for meaning in ("approve", "reject", "request-changes", "break-glass"):
            assert "the request for signatures expired at" in refused(case, "owner", meaning)
        page = page_of(case, as_("owner"))
        assert "request expired" in page
        assert 'id="sign-form"' not in page
        assert "request expired" in as_("auditor").get(reverse("briefs")).content.decode()
        work = waiting_for(case.people["engineer"])
        assert [(one.revision, one.act) for one in work] == [(case.revision, "Ask again or withdraw")]

    def test_the_engineer_asks_again_and_old_signatures_do_not_count(self, case: Reviewed, later: Later) -> None:
        case.ask_under(quorum=2)
        sign(case, "owner")
        with pytest.raises(Refused, match="has not expired"):
            ask_again(revision=case.revision, by=case.people["engineer"])
        later(timedelta(days=15))
        case.set_policy(quorum=2, request_days=3)
        with pytest.raises(Refused, match="group engineer"):
            ask_again(revision=case.revision, by=case.people["owner"])
        opened = ask_again(revision=case.revision, by=case.people["engineer"])
        assert opened.policy.request_days == 3
        assert Event.objects.get(kind="signatures-asked-again").actor == "engineer"
        sign(case, "second_owner")
        assert case.revision.state == "in-review"
        sign(case, "owner")
        assert case.revision.state == "approved"

    def test_an_expired_release_is_not_in_force(
        self, case: Reviewed, later: Later, as_: Callable[[str], Client]
    ) -> None:
        sign(case, "owner")
        assert speculation(case) == "on"
        count = Event.objects.count()
        later(timedelta(days=90, seconds=1))
        assert (speculation(case), Event.objects.count()) == ("off", count)
        assert not Release.objects.in_force(timezone.now()).exists()
        page = as_("owner").get(reverse("route", args=["support-assistant", "chat"])).content.decode()
        assert "The baseline: the target without a speculative setting." in page
        assert "expired" in page

    def test_the_task_writes_the_event_once_and_changes_nothing_else(self, case: Reviewed, later: Later) -> None:
        sign(case, "owner")
        later(timedelta(days=91))
        record_expiries()
        record_expiries()
        event = Event.objects.get(kind="release-expired")
        assert (event.actor, event.details["release"]) == ("draftproof", Release.objects.get().pk)
        SignatureRequest.objects.filter(pk=case.request.pk).update(closed_at=None, outcome="")
        record_expiries()
        record_expiries()
        assert Event.objects.filter(kind="request-expired").count() == 1
        assert ledger.verify().broken is None


class TestBreakingTheGlass:
    @pytest.fixture
    def broken(self, case: Reviewed) -> Release:
        case.ask_under(quorum=2)
        sign(case, "owner", "break-glass")
        return Release.objects.get()

    def test_one_owner_releases_and_the_decision_stays_open(self, case: Reviewed, broken: Release) -> None:
        assert broken.expires_at - broken.released_at == timedelta(hours=72)
        assert (case.revision.state, speculation(case), case.request.closed_at) == ("in-review", "on", None)
        assert "Ends: 72 hours from the signature on" in bytes(broken.signature.statement).decode()
        assert Event.objects.get(kind="brief-break-glass").actor == "owner"

    def test_it_ends_after_72_hours_by_itself_and_the_follow_up_waits(
        self, case: Reviewed, broken: Release, later: Later, as_: Callable[[str], Client]
    ) -> None:
        count = Event.objects.count()
        later(timedelta(hours=71, minutes=59))
        assert speculation(case) == "on"
        later(timedelta(hours=72, seconds=1))
        assert (speculation(case), Event.objects.count()) == ("off", count)
        for who in ("owner", "second_owner", "third_owner"):
            assert [(one.act, one.glass_broken) for one in waiting_for(case.people[who])] == [("Follow up", True)]
        inbox = as_("second_owner").get("/").content.decode()
        assert "The glass was broken for this: decide on it." in inbox
        # Nor does it lapse with the request.
        later(timedelta(days=60))
        assert [one.act for one in waiting_for(case.people["second_owner"])] == ["Follow up"]
        sign(case, "second_owner")
        sign(case, "third_owner")
        assert (case.revision.state, speculation(case)) == ("approved", "on")
        assert waiting_for(case.people["owner"]) == []

    def test_its_signature_counts_for_no_quorum(self, case: Reviewed, broken: Release) -> None:
        sign(case, "second_owner")
        assert case.revision.state == "in-review"
        assert "was broken already" in refused(case, "third_owner", "break-glass")
        sign(case, "owner")
        assert case.revision.state == "approved"
        broken.refresh_from_db()
        assert broken.superseded_at is not None
        assert Release.objects.in_force(timezone.now()).get().signature.meaning == "approve"

    def test_deciding_against_it_ends_it_at_once(self, case: Reviewed, broken: Release) -> None:
        sign(case, "second_owner", "reject")
        assert speculation(case) == "on"
        sign(case, "third_owner", "reject")
        broken.refresh_from_db()
        assert (speculation(case), broken.revoked_by) == ("off", "third_owner")
        assert Event.objects.filter(kind="release-revoked").count() == 1

    def test_nobody_withdraws_what_it_was_broken_for(self, case: Reviewed, broken: Release) -> None:
        with pytest.raises(Refused, match="its owners have to decide on it"):
            withdraw_brief(revision=case.revision, by=case.people["engineer"], reason="It was a mistake")
        assert case.revision.state == "in-review"

    def test_an_owner_still_falls_back_in_one_act(self, case: Reviewed, broken: Release) -> None:
        revoke_release(
            release=broken, by=case.people["second_owner"], credentials=Credentials(PASSWORD), reason="It went badly"
        )
        assert speculation(case) == "off"
        assert [one.act for one in waiting_for(case.people["owner"])] == ["Follow up"]

    @pytest.mark.parametrize(
        ("policy", "said"),
        [({"request_days": 10}, "alone is enough"), ({"quorum": 2, "break_glass": False}, "doesn’t")],
    )
    def test_there_is_a_glass_only_where_one_owner_could_not_approve(
        self, case: Reviewed, policy: dict[str, Any], said: str
    ) -> None:
        case.ask_under(**policy)
        assert said in refused(case, "owner", "break-glass")
        assert not Release.objects.exists()

    def test_it_needs_the_evidence_all_the_same(self, case: Reviewed) -> None:
        case.ask_under(quorum=2)
        change_evidence()
        assert "no longer what the verdict was computed from" in refused(case, "owner", "break-glass")


class TestWhatAnApprovalIsBoundTo:
    @pytest.fixture
    def approved_in_part(self, case: Reviewed) -> Signature:
        case.ask_under(quorum=2)
        return sign(case, "owner")

    def fell(self, case: Reviewed, client: Client) -> None:
        review = review_of(case.revision, case.verdict, timezone.now())
        assert ([one.fallen for one in review.signatures], review.approvals) == ([True], 0)
        page = page_of(case, client)
        assert "fallen away" in page
        assert "Signatures fell away: what they were bound to has changed" in page

    def test_it_stands_while_nothing_changes(self, case: Reviewed, approved_in_part: Signature) -> None:
        review = review_of(case.revision, case.verdict, timezone.now())
        assert ([one.fallen for one in review.signatures], review.approvals) == ([False], 1)
        assert approved_in_part.bound == review.bound == case.request.bound

    def test_it_falls_away_with_its_evidence(
        self, case: Reviewed, approved_in_part: Signature, as_: Callable[[str], Client]
    ) -> None:
        change_evidence()
        self.fell(case, as_("auditor"))
        assert "no longer what the verdict was computed from" in refused(case, "second_owner")
        assert (case.revision.state, Release.objects.exists()) == ("in-review", False)
        record_expiries()
        record_expiries()
        event = Event.objects.get(kind="signatures-fell-away")
        assert event.details["signatures"] == [approved_in_part.digest]

    def test_it_falls_away_with_its_verdict(
        self, case: Reviewed, approved_in_part: Signature, as_: Callable[[str], Client]
    ) -> None:
        changed = case.verdict.document | {"sentence": "It is better than it is."}
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE decisions_verdict SET content = %s WHERE id = %s",
                [json.dumps(changed).encode(), case.verdict.pk],
            )
        self.fell(case, as_("auditor"))
        assert "no longer has the digest it was signed under" in refused(case, "second_owner")

    def test_it_falls_away_with_its_brief(
        self, case: Reviewed, approved_in_part: Signature, as_: Callable[[str], Client]
    ) -> None:
        changed = json.loads(bytes(case.revision.content or b"")) | {"release_days": 7}
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE decisions_briefrevision SET content = %s WHERE id = %s", [json.dumps(changed).encode(), case.pk]
            )
        self.fell(case, as_("auditor"))
        assert "no longer has the digest it was signed under" in refused(case, "second_owner")


class TestReview:
    def test_comments_decide_nothing_and_leave_their_digest(self, case: Reviewed, as_: Callable[[str], Client]) -> None:
        address = reverse("brief-comment", args=[case.revision.brief_id, case.revision.number])
        assert as_("auditor").post(address, {"text": "Why is <peak> so\nnear?"}).status_code == 302
        comment = ReviewComment.objects.get()
        event = Event.objects.get(kind="brief-commented")
        assert (event.actor, event.details["comment"]) == ("auditor", comment.pk)
        assert "Why is" not in json.dumps(event.details)
        page = page_of(case, as_("owner"))
        assert "Why is &lt;peak&gt; so\nnear?" in page
        assert case.revision.state == "in-review"
        empty = as_("engineer").post(address, {"text": "  "})
        assert empty.status_code == 422
        assert "Write a comment first" in empty.content.decode()

    def test_who_may_not_comment_is_refused_with_an_event(
        self, case: Reviewed, as_: Callable[[str], Client], client: Client
    ) -> None:
        address = reverse("brief-comment", args=[case.revision.brief_id, case.revision.number])
        assert as_("operator").post(address, {"text": "Looks good"}).status_code == 422
        assert Event.objects.get(kind="comment-refused").actor == "operator"
        assert as_("stranger").post(address, {"text": "Looks good"}).status_code == 403
        assert client.post(address, {"text": "Looks good"})["Location"].startswith("/sign-in/")
        assert not ReviewComment.objects.exists()

    def test_the_review_tells_what_happened_in_order(self, case: Reviewed, as_: Callable[[str], Client]) -> None:
        case.ask_under(quorum=2)
        as_("engineer").post(
            reverse("brief-comment", args=[case.revision.brief_id, 1]), {"text": "Please look at peak first."}
        )
        sign(case, "owner")
        page = page_of(case, as_("second_owner"))
        places = [
            page.index(words)
            for words in ("asked the owners", "Please look at peak first.", "Approve: this configuration may run")
        ]
        assert places == sorted(places)
        assert "Approvals 1 of 2" in page
        assert "once 2 owners have approved" in page

    def test_a_withdrawal_closes_the_request(self, case: Reviewed, as_: Callable[[str], Client]) -> None:
        withdraw_brief(revision=case.revision, by=case.people["engineer"], reason="The route is going away")
        assert (case.revision.state, case.request.outcome) == ("withdrawn", "withdrawn")
        assert "The route is going away" in page_of(case, as_("owner"))
        assert "withdrawn" in refused(case, "owner")

    def test_gates_lead_to_their_evidence(self, case: Reviewed, as_: Callable[[str], Client]) -> None:
        page = page_of(case, as_("owner"))
        gates = page[page.index("<h2>Gates</h2>") : page.index("<h2>Policy of this request</h2>")]
        items = [one for one in gates.split("<li ")[1:] if "</li>" in one]
        assert len(items) >= 6
        assert all("<a href=" in one for one in items)
        for place in ("held-out/#fallback", "held-out/#pairs", "health/#checks", "sign-off/#review"):
            assert place in gates

    def test_name_meaning_and_time_stand_wherever_the_decision_does(
        self, case: Reviewed, as_: Callable[[str], Client]
    ) -> None:
        signature = sign(case, "owner")
        at = signature.signed_at
        words = f"{at.day} {at:%b %Y, %H:%M:%S} UTC"
        client = as_("auditor")
        revision = case.revision
        tabs = ("brief", "brief-held-out", "brief-sign-off", "brief-history", "brief-changes")
        pages = [
            *(reverse(name, args=[revision.brief_id, revision.number]) for name in tabs),
            "/",
            reverse("service", args=["support-assistant"]),
            reverse("route", args=["support-assistant", "chat"]),
        ]
        for address in pages:
            page = client.get(address).content.decode()
            assert words in page, address
            assert "approved" in page
            assert "owner" in page
        told = json.loads(client.get("/api/v1/routes/chat/configuration").content)["decision"]
        assert (told["signed_by"], told["meaning"], told["signed_at"]) == ("owner", "approve", at.isoformat())


class TestReauthentication:
    def test_each_failure_and_each_forbidden_signature_is_an_event(self, case: Reviewed) -> None:
        for who, password in (("owner", "guess"), ("owner", ""), ("superuser", PASSWORD), ("engineer", PASSWORD)):
            refused(case, who, password=password)
        events = Event.objects.filter(kind="sign-refused").order_by("sequence")
        assert [(one.actor, one.details["reason"].split(":")[0]) for one in events] == [
            ("owner", "the password is wrong"),
            ("owner", "the password is wrong"),
            ("superuser", "A superuser can't sign a decision."),
            ("engineer", "Only someone in the group owner can sign a decision."),
        ]

    def test_an_account_without_a_password_of_its_own_signs_nothing(self, case: Reviewed) -> None:
        owner = case.people["owner"]
        kept = owner.password
        owner.set_unusable_password()
        owner.save()
        try:
            assert "neither a password nor a second factor" in refused(case, "owner")
        finally:
            owner.password = kept

    def test_a_proof_that_is_too_old_carries_no_signature(
        self, case: Reviewed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = Proof(timezone.now() - timedelta(minutes=6), "single sign-on")
        monkeypatch.setattr(signing, "reauthenticate", lambda person, credentials: old)
        assert "more than 5 minutes before the signature" in refused(case, "owner")
        fresh = Proof(timezone.now(), "security key")
        monkeypatch.setattr(signing, "reauthenticate", lambda person, credentials: fresh)
        assert sign(case, "owner").authentication == "security key"

    def test_a_signature_holds_all_that_a_bundle_needs(self, case: Reviewed) -> None:
        shown = statement_to_sign(verdict=case.verdict, by=case.people["owner"], meaning="approve", reason=REASON)
        found = sign(case, "owner")
        assert bytes(found.statement).decode() == shown
        assert "Policy: production, version 0; signatures that this takes: 1" in shown.splitlines()
        assert f"Bound: sha256 {case.request.bound}" in shown.splitlines()
        assert (found.signer_name, found.signer_username, found.authentication) == ("owner", "owner", "password")

    def test_whoever_lost_the_role_meanwhile_does_not_sign(self, case: Reviewed) -> None:
        owner = case.people["owner"]
        assert "owner" in owner.group_names
        group = owner.groups.get(name="owner")
        owner.groups.remove(group)
        try:
            assert "group owner" in refused(case, "owner")
        finally:
            owner.groups.add(group)


def test_the_differences_to_any_earlier_revision_are_shown(case: Reviewed, as_: Callable[[str], Client]) -> None:
    from decisions.services.edit_brief import edit_brief
    from decisions.services.revise_brief import revise_brief

    engineer = case.people["engineer"]
    sign(case, "owner", "request-changes")
    second = revise_brief(revision=case.revision, by=engineer)
    edit_brief(revision=second, source=second.source.replace("release_days: 90", "release_days: 30"), by=engineer)
    page = as_("auditor").get(reverse("brief-changes", args=[second.brief_id, 2])).content.decode()
    assert "+release_days: 30" in page.replace("+ ", "+")
    client = as_("auditor")
    assert client.get(reverse("brief-changes", args=[second.brief_id, 2]), {"since": "9"}).status_code == 404
    first = client.get(reverse("brief-changes", args=[second.brief_id, 1])).content.decode()
    assert "Nothing to compare with" in first
