"""The pages over a house in which things have happened. It is built once; every test's changes are rolled back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse

from decisions.models import BriefRevision, Event, Release, Signature
from decisions.selectors.pictures import HeldOutPictures, drawn_from_evidence
from loadtests.models import Boot, Trial
from tests.conftest import PASSWORD
from tests.support.house import House, build_house

REASON = "The evidence settles it."
LATENCY = re.compile(r"\b\d+(\.\d+)?\s*(ms|s)\b")


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[House, Path]:
    return build_house(PASSWORD), module_evidence


@pytest.fixture
def house(built: tuple[House, Path], db: None, settings: Any) -> Iterator[House]:
    settings.EVIDENCE_DIR = built[1]
    cache.clear()
    drawn_from_evidence.cache_clear()
    yield built[0]
    drawn_from_evidence.cache_clear()


@pytest.fixture
def as_(house: House) -> Callable[[str], Client]:
    def sign_in(who: str) -> Client:
        client = Client()
        client.force_login(house.people[who])
        return client

    return sign_in


def tab(revision: BriefRevision, name: str = "brief") -> str:
    return reverse(name, args=[revision.brief_id, revision.number])


def pages_of(house: House) -> list[str]:
    names = ("tuning", "held-out", "behaviour", "health", "imported", "sign-off", "changes", "history")
    tabs = ("brief", *(f"brief-{name}" for name in names))
    finished = Boot.objects.filter(state="finished").latest("pk")
    return [
        *(reverse(name) for name in ("inbox", "inbox-running", "services", "briefs", "traffic", "runs", "runs-live")),
        reverse("service", args=["support-assistant"]),
        reverse("service-cases", args=["support-assistant"]),
        reverse("service-policy", args=["support-assistant", "production"]),
        reverse("demonstrations"),
        reverse("notifications"),
        reverse("route", args=["support-assistant", "chat"]),
        reverse("traffic-set", args=[house.in_review.traffic_set_id]),
        *(tab(one, name) for one in (house.in_review, house.measuring, house.draft) for name in tabs),
        *(reverse("boot", args=[boot.pk]) for boot in (house.live_boot, house.lost_boot, finished)),
        reverse("boot-live", args=[house.live_boot.pk]),
        tab(house.measuring, "brief-progress"),
        tab(house.measuring, "brief-tuning-race"),
    ]


def text(response: Any) -> str:
    assert response.status_code in (200, 422), response.status_code
    return str(response.content.decode())


@pytest.mark.parametrize("who", ["engineer", "owner", "auditor"])
def test_every_page_opens_for_the_right_people(house: House, as_: Callable[[str], Client], who: str) -> None:
    client = as_(who)
    for page in pages_of(house):
        assert client.get(page).status_code == 200, page


def test_every_page_sends_someone_unknown_to_sign_in(house: House, client: Client) -> None:
    for page in [*pages_of(house), reverse("ledger"), reverse("brief-new")]:
        response = client.get(page)
        assert (response.status_code, response["Location"].split("?")[0]) == (302, "/sign-in/"), page


def test_every_page_tells_a_stranger_what_is_missing(house: House, as_: Callable[[str], Client]) -> None:
    client = as_("stranger")
    for page in pages_of(house):
        response = client.get(page)
        assert response.status_code == 403, page
        assert "has no role here yet" in response.content.decode()


def test_no_page_asks_for_more_queries_than_its_budget(
    house: House, as_: Callable[[str], Client], django_assert_max_num_queries: Any
) -> None:
    client = as_("owner")
    for page in pages_of(house):
        with django_assert_max_num_queries(34, info=page):
            client.get(page)


def test_no_page_holds_an_inline_style_or_script(house: House, as_: Callable[[str], Client]) -> None:
    client = as_("owner")
    for page in pages_of(house):
        found = client.get(page).content.decode()
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=", found), page
        assert all("src=" in tag or "application/json" in tag for tag in re.findall(r"<script[^>]*>", found)), page


def test_the_inbox_shows_each_what_waits_for_them(house: House, as_: Callable[[str], Client]) -> None:
    owners, engineers, auditors = (text(as_(who).get("/")) for who in ("owner", "engineer", "auditor"))
    assert "Review and sign" in owners
    assert "Prompt lookup for chat" in owners
    assert "Edit or freeze" in engineers
    assert "Review and sign" not in engineers
    assert "Nothing waits for you" in auditors
    assert all("Prompt lookup, second try" in page for page in (owners, engineers, auditors))


def test_a_superuser_has_nothing_to_sign(house: House, as_: Callable[[str], Client]) -> None:
    assert "Review and sign" not in text(as_("superuser").get("/"))
    assert "A superuser can&#x27;t sign" in text(as_("superuser").get(tab(house.in_review, "brief-sign-off")))


def test_held_out_shows_progress_and_failures_but_no_latency_before_the_verdict(
    house: House, as_: Callable[[str], Client]
) -> None:
    client = as_("engineer")
    page = text(client.get(tab(house.measuring, "brief-held-out")))
    assert "Progress and failures only" in page
    assert "lost" in page
    assert "1 timed out" in page
    for forbidden in ("data-chart", "Completion p50", "attainment", "completion_ms", "Every pair", "Each trial"):
        assert forbidden not in page
    finished = house.measuring.campaigns.get(campaign__purpose="held-out").campaign.boots.filter(state="finished")
    boot_page = text(client.get(reverse("boot", args=[finished[0].pk])))
    assert "never how long they took" in boot_page
    assert "completion p50" not in boot_page
    assert "never how long they took" not in text(
        client.get(reverse("boot", args=[Boot.objects.filter(campaign__purpose="tuning").first().pk]))  # type: ignore[union-attr]
    )


def test_held_out_shows_its_pictures_once_the_verdict_exists(house: House, as_: Callable[[str], Client]) -> None:
    page = text(as_("owner").get(tab(house.in_review, "brief-held-out")))
    # Three levels: completion, pairs, pairs by class and each trial by itself; and attainment over all.
    assert page.count("data-chart") == 13
    assert "Progress and failures only" not in page


def test_health_says_before_the_verdict_what_will_be_asked_and_what_the_pairs_can_show(
    house: House, as_: Callable[[str], Client]
) -> None:
    client = as_("owner")
    page = text(client.get(tab(house.measuring, "brief-health")))
    assert "Checked with the verdict" in page
    assert "Did the client keep its times?" in page
    assert re.search(r"Quiet: 4 pairs can show [\d.]+\s%; the brief asks for 5\s%", page)
    # The noise floor's picture, and none of held-out trials.
    assert (page.count("data-chart"), page.count('class="check ')) == (1, 0)
    draft = text(client.get(tab(house.draft, "brief-health")))
    assert "The noise floor isn’t known yet" in draft
    assert "data-chart" not in draft


def test_pictures_are_missing_with_a_reason_where_their_evidence_is(
    house: House, as_: Callable[[str], Client], settings: Any, tmp_path: Path
) -> None:
    settings.EVIDENCE_DIR = tmp_path / "elsewhere"
    page = text(as_("owner").get(tab(house.in_review, "brief-sign-off")))
    assert "The pictures can’t be drawn: no evidence" in page
    assert "Outcome and guardrails" in page


def test_the_running_boot_refreshes_itself_until_it_ends(house: House, as_: Callable[[str], Client]) -> None:
    client = as_("auditor")
    live = reverse("boot-live", args=[house.live_boot.pk])
    assert 'hx-trigger="every 2s"' in text(client.get(live))
    Boot.objects.filter(pk=house.live_boot.pk).update(state="finished")
    assert client.get(live)["HX-Refresh"] == "true"
    assert "hx-trigger" not in text(client.get(reverse("boot", args=[house.live_boot.pk])))


def test_a_boot_shows_what_the_client_itself_adds(house: House, as_: Callable[[str], Client]) -> None:
    page = text(as_("engineer").get(reverse("boot", args=[house.live_boot.pk])))
    assert "3 requests a second, the most that the campaign plans" in page
    for value in ("0.4\u202fms", "1.2\u202fms", "1.5\u202fms", "host-1", "12:00:00 UTC"):
        assert value in page
    # It tells nothing of the engine.
    assert "self test" not in page
    assert "The client" not in text(as_("engineer").get(reverse("boot", args=[house.lost_boot.pk])))


def test_a_part_that_refreshes_itself_asks_to_sign_in_again_by_a_reload(house: House, client: Client) -> None:
    live = reverse("boot-live", args=[house.live_boot.pk])
    response = client.get(live, headers={"HX-Request": "true"}, follow=True)
    assert response["HX-Refresh"] == "true"


def test_a_dead_engine_is_a_result_with_its_log(house: House, as_: Callable[[str], Client]) -> None:
    boot = Boot.objects.filter(state="finished").earliest("pk")
    Boot.objects.filter(pk=boot.pk).update(died=True, reason="code 137", log_tail="EngineCore <died>")
    page = text(as_("engineer").get(reverse("boot", args=[boot.pk])))
    assert "The engine died or could not start" in page
    assert "EngineCore &lt;died&gt;" in page


class TestSigning:
    def form(self, client: Client, revision: BriefRevision, **changes: str) -> Any:
        wanted = {"meaning": "approve", "reason": REASON, "password": PASSWORD} | changes
        if "shown" not in wanted:
            asked = {name: wanted[name] for name in ("meaning", "reason")}
            statement = text(client.get(tab(revision, "brief-statement"), asked))
            wanted["shown"] = re.findall(r'name="shown" value="([^"]*)"', statement)[0]
        return client.post(tab(revision, "brief-sign"), wanted)

    def test_the_owner_reads_the_statement_and_signs_it(self, house: House, as_: Callable[[str], Client]) -> None:
        client = as_("owner")
        response = self.form(client, house.in_review)
        assert (response.status_code, response["Location"]) == (302, tab(house.in_review, "brief-sign-off"))
        signature = Signature.objects.get()
        page = text(client.get(response["Location"]))
        assert bytes(signature.statement).decode().splitlines()[0] in page
        assert "Approve: this configuration may run on the route" in page
        assert "Revoke: fall back now" in text(client.get(reverse("route", args=["support-assistant", "chat"])))

    def test_what_was_not_shown_is_not_signed(self, house: House, as_: Callable[[str], Client]) -> None:
        response = self.form(as_("owner"), house.in_review, shown="")
        page = text(response)
        assert response.status_code == 422
        assert "Read the statement below" in page
        assert f"Reason: {REASON}" in page
        assert not Signature.objects.exists()

    def test_a_wrong_password_keeps_what_was_written(self, house: House, as_: Callable[[str], Client]) -> None:
        response = self.form(as_("owner"), house.in_review, password="guess")
        assert response.status_code == 422
        assert "password is wrong" in text(response)
        assert REASON in text(response)
        assert "guess" not in text(response)
        assert '<div id="refused" class="note note-bad" role="alert" tabindex="-1">' in text(response)
        assert f'action="{tab(house.in_review, "brief-sign")}#refused"' in text(response)
        assert Event.objects.filter(kind="sign-refused").count() == 1

    @pytest.mark.parametrize("who", ["engineer", "superuser", "auditor"])
    def test_who_may_not_sign_is_refused_with_a_reason_and_an_event(
        self, house: House, as_: Callable[[str], Client], who: str
    ) -> None:
        client = as_(who)
        assert 'id="sign-form"' not in text(client.get(tab(house.in_review, "brief-sign-off")))
        response = self.form(client, house.in_review, shown="")
        assert response.status_code == 422
        assert Event.objects.get(kind="sign-refused").actor == who
        assert not Signature.objects.exists()


class TestAskingForChanges:
    @pytest.fixture
    def sent_back(self, house: House, as_: Callable[[str], Client]) -> BriefRevision:
        TestSigning().form(as_("owner"), house.in_review, meaning="request-changes")
        house.in_review.refresh_from_db()
        return house.in_review

    def test_its_page_says_so_and_offers_the_engineer_a_new_revision(
        self, sent_back: BriefRevision, as_: Callable[[str], Client]
    ) -> None:
        page = text(as_("engineer").get(tab(sent_back, "brief-sign-off")))
        assert "Signed: changes requested" in page
        assert "Changes were requested for this revision" in page
        assert "New revision" in page
        assert "New revision" not in text(as_("owner").get(tab(sent_back, "brief-sign-off")))

    def test_it_waits_until_there_is_a_newer_revision_of_whatever_state(
        self, sent_back: BriefRevision, as_: Callable[[str], Client]
    ) -> None:
        client = as_("engineer")
        assert "Read and revise" in text(client.get("/"))
        client.post(reverse("brief-act", args=[sent_back.brief_id, sent_back.number, "revise"]))
        BriefRevision.objects.filter(brief=sent_back.brief_id, number=2).update(state="withdrawn")
        assert "Read and revise" not in text(client.get("/"))

    def test_what_is_no_draft_is_not_edited(self, sent_back: BriefRevision, as_: Callable[[str], Client]) -> None:
        response = as_("engineer").get(tab(sent_back, "brief-edit"), follow=True)
        assert response.redirect_chain == [(tab(sent_back), 302)]
        assert "Only a draft can be edited" in text(response)


def test_where_nobody_was_nominated_the_decision_shows_why_and_what_tuning_saw(
    house: House, as_: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "No candidate did better than no speculation where it must improve; ngram came closest."
    verdict = house.in_review.verdicts.last()
    assert verdict is not None
    changed = verdict.document
    changed["validity"][5] |= {"ok": False, "sentence": "Something else took 33 % of the machine."}
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE decisions_verdict SET result = 'INVALID', content = %s WHERE id = %s",
            [json.dumps(changed).encode(), verdict.pk],
        )
    nomination = (house.in_review.nomination or {}) | {"candidate": None, "reason": reason}
    BriefRevision.objects.filter(pk=house.in_review.pk).update(nominee="", nomination=nomination)
    monkeypatch.setattr("decisions.pages.signing.held_out_pictures", lambda verdict: HeldOutPictures([], None, []))
    page = text(as_("owner").get(tab(house.in_review, "brief-sign-off")))
    assert reason in page
    assert "Tuning: draft length × load" in page
    assert "Free the machine of everything else while boots run." in page
    assert "A new revision, measured once the cause is gone." in page
    assert "1 of 13 validity checks broken" in page


def test_a_verdict_that_rests_on_the_suite_names_what_broke_and_leads_to_its_tab(
    house: House, as_: Callable[[str], Client]
) -> None:
    verdict = house.in_review.verdicts.last()
    assert verdict is not None
    changed = verdict.document
    suite = {"metric": "behaviour", "shown": "broken", "scale": "absolute", "unit": "cases", "low": None, "high": None}
    found = {"candidate": 1, "over": 1, "requests": 40, "cases": ["greedy-parity"]}
    changed["guardrails"].append(changed["guardrails"][0] | suite | found)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE decisions_verdict SET content = %s WHERE id = %s", [json.dumps(changed).encode(), verdict.pk]
        )
    page = text(as_("owner").get(tab(house.in_review, "brief-sign-off")))
    # In the card, among the gates, in the row, and as a tab.
    assert page.count(f'href="{tab(house.in_review, "brief-behaviour")}"') == 4
    assert page.count("Behaviour broken in 1 of 40 cases: greedy-parity") == 2
    assert "broken: greedy-parity" in page


def test_a_finished_trial_says_what_it_can_vouch_for(house: House, as_: Callable[[str], Client]) -> None:
    trials = Trial.objects.filter(state="finished", boot__campaign__brief_campaign__revision=house.measuring)
    tuned = trials.filter(boot__campaign__purpose="tuning").earliest("pk")
    sealed = trials.filter(boot__campaign__purpose="held-out", boot__state="finished").earliest("pk")
    client = as_("auditor")
    tokens = tuned.summary["verified_output_tokens"]
    page = text(client.get(reverse("boot", args=[tuned.boot_id])))
    assert f"{tokens:,} tokens, the engine counted {tokens:,}" in page
    page = text(client.get(reverse("boot", args=[sealed.boot_id])))
    assert "the engine counted the same" in page
    assert f"{sealed.summary['verified_output_tokens']:,} tokens" not in page


def test_a_boot_whose_trials_are_over_is_stopping_its_engine(house: House, as_: Callable[[str], Client]) -> None:
    Trial.objects.filter(boot=house.live_boot).update(state="finished")
    page = text(as_("auditor").get(reverse("boot-live", args=[house.live_boot.pk])))
    assert "stopping the engine" in page


class TestRevoking:
    @pytest.fixture
    def released(self, house: House, as_: Callable[[str], Client]) -> Release:
        TestSigning().form(as_("owner"), house.in_review)
        return Release.objects.get()

    def revoke(self, client: Client, release: Release, **changes: str) -> Any:
        wanted = {"release": str(release.pk), "reason": "An incident was reported", "password": PASSWORD} | changes
        return client.post(reverse("revoke", args=["support-assistant", "chat"]), wanted)

    def test_the_owner_falls_back_in_one_act(self, released: Release, as_: Callable[[str], Client]) -> None:
        client = as_("owner")
        assert self.revoke(client, released).status_code == 302
        page = text(client.get(reverse("route", args=["support-assistant", "chat"])))
        assert "The baseline: the target without a speculative setting." in page
        assert "An incident was reported" in page

    def test_a_decision_says_what_became_of_its_release(
        self, released: Release, house: House, as_: Callable[[str], Client]
    ) -> None:
        client = as_("owner")
        pages = ["/", reverse("service", args=["support-assistant"]), tab(house.in_review, "brief-sign-off")]
        assert all("in force on chat until" in text(client.get(page)) for page in pages)
        self.revoke(client, released)
        for page in pages:
            assert "revoked on chat by owner at" in text(client.get(page))
            assert "in force on chat until" not in text(client.get(page))

    def test_whoever_is_late_is_told_that_the_baseline_answers(
        self, released: Release, as_: Callable[[str], Client]
    ) -> None:
        self.revoke(as_("owner"), released)
        late = as_("second_owner").post(
            reverse("revoke", args=["support-assistant", "chat"]), {"release": released.pk}, follow=True
        )
        assert late.redirect_chain == [(reverse("route", args=["support-assistant", "chat"]), 302)]
        assert "Nothing is in force: the baseline already answers." in text(late)

    def test_the_address_of_the_form_leads_back_to_the_route(
        self, released: Release, as_: Callable[[str], Client]
    ) -> None:
        response = as_("owner").get(reverse("revoke", args=["support-assistant", "chat"]))
        assert response["Location"] == reverse("route", args=["support-assistant", "chat"])

    def test_a_wrong_password_revokes_nothing(self, released: Release, as_: Callable[[str], Client]) -> None:
        response = self.revoke(as_("owner"), released, password="guess")
        assert response.status_code == 422
        assert "An incident was reported" in text(response)
        released.refresh_from_db()
        assert released.revoked_at is None

    def test_an_engineer_sees_why_not(self, released: Release, as_: Callable[[str], Client]) -> None:
        assert 'name="password"' not in text(as_("engineer").get(reverse("route", args=["support-assistant", "chat"])))
        assert self.revoke(as_("engineer"), released).status_code == 422
        assert Event.objects.get(kind="revoke-refused").actor == "engineer"


def test_records_can_be_downloaded_once_the_brief_is_decided(house: House, as_: Callable[[str], Client]) -> None:
    trial = Trial.objects.filter(boot__campaign__brief_campaign__revision=house.in_review).earliest("pk")
    client = as_("auditor")
    assert client.get(reverse("records", args=[trial.pk])).status_code == 404
    TestSigning().form(as_("owner"), house.in_review)
    response = client.get(reverse("records", args=[trial.pk]))
    assert response.content.startswith(b"PAR1")
    assert "attachment" in response["Content-Disposition"]


def test_declaring_a_fault_asks_for_a_reason_and_runs_the_pair_again(
    house: House, as_: Callable[[str], Client]
) -> None:
    boot = Boot.objects.filter(campaign__brief_campaign__revision=house.measuring, state="finished").latest("pk")
    client, address = as_("engineer"), reverse("declare-fault", args=[boot.pk])
    assert client.post(address, {"reason": "short"}).status_code == 422
    assert client.post(address, {"reason": "The host was rebooted for maintenance"}).status_code == 302
    assert "Declared a fault by engineer" in text(client.get(reverse("boot", args=[boot.pk])))


def test_the_history_is_filtered_and_says_whether_the_chain_holds(house: House, as_: Callable[[str], Client]) -> None:
    client = as_("auditor")
    everything = text(client.get(reverse("ledger")))
    assert f"#{Event.objects.count()}</a> at" in everything
    assert "older" in everything
    lost = text(client.get(reverse("ledger"), {"kind": "boot-lost", "actor": "reconciler"}))
    assert f"boot {house.lost_boot.pk}" in lost
    assert "No event matches" in text(client.get(reverse("ledger"), {"subject": "nothing of that name"}))


def test_a_brief_moves_on_by_its_buttons(house: House, as_: Callable[[str], Client]) -> None:
    client = as_("engineer")

    def press(act: str, **fields: str) -> str:
        address = reverse("brief-act", args=[house.draft.brief_id, house.draft.number, act])
        return text(client.post(address, fields, follow=True))

    assert "Frozen." in press("freeze")
    assert "say why in at least 10 characters" in press("withdraw", reason="no")
    assert "Withdrawn." in press("withdraw", reason="Written for the wrong route")
    assert "Edit the draft" in press("revise")


def test_who_may_not_start_runs_is_told_so(house: House, as_: Callable[[str], Client]) -> None:
    address = reverse("brief-act", args=[house.measuring.brief_id, house.measuring.number, "cancel"])
    page = text(as_("auditor").post(address, {"reason": "I would rather not"}, follow=True))
    assert "Only someone in the group engineer can start runs." in page


def test_traffic_pages_show_counts_and_never_text(house: House, as_: Callable[[str], Client]) -> None:
    from loadtests.demo import SUPPORT_ASSISTANT
    from loadtests.traffic.rows import read_rows

    page = text(as_("auditor").get(reverse("traffic-set", args=[house.in_review.traffic_set_id])))
    assert "held-out" in page
    assert not any(row.messages[-1].content in page for row in read_rows(SUPPORT_ASSISTANT))
