"""The behaviour tab: every state of the suite, both answers beside each other, and who sees which texts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from decisions.models import BehaviourResult, BriefRevision
from decisions.pages.behaviour_words import OUTCOMES, WORDS, figures, power_words, rule_words
from decisions.pages.gates import Gate, behaviour_gates
from decisions.pages.rows import requirement_row
from decisions.rules.brief import Guardrail, Suite, read_brief
from decisions.selectors.behaviour_page import Text, apart_of, counts_of, lines_of, stage_of, whole_texts
from loadtests.behaviour.case import EVERY_MANNER, apart
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import STATES, Declared, Difference, Outcome, read_result
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.models import Boot, Campaign, SuiteRun
from tests.conftest import PASSWORD
from tests.support import suite_results as suites
from tests.support.suite_results import Suites, build_suites, judged_suite, run_page, suite_campaign, tab

ROOT = Path(__file__).parents[2]
NOTHING_SHOWN = ("unsupported", "not exercised")


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[Suites, Path]:
    return build_suites(PASSWORD), module_evidence


@pytest.fixture
def house(built: tuple[Suites, Path], db: None, settings: Any) -> Suites:
    settings.EVIDENCE_DIR = built[1]
    return built[0]


@pytest.fixture
def as_(house: Suites) -> Callable[[str], Client]:
    def sign_in(who: str) -> Client:
        client = Client()
        client.force_login(house.people[who])
        return client

    return sign_in


@pytest.fixture
def page(as_: Callable[[str], Client]) -> Callable[[BriefRevision], str]:
    return lambda revision: plain(as_("engineer").get(tab(revision)))


def plain(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return html.unescape(response.content.decode()).replace("\u202f", " ").replace("\u00a0", " ")


def words(part: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", part)).strip()


def section(page: str, heading: str) -> str:
    found = [one for one in page.split("<section") if f"<h2>{heading}" in one]
    assert len(found) == 1, heading
    return found[0]


def matrix_rows(page: str) -> dict[str, list[str]]:
    """{case: what stands in all, and in each manner}"""
    rows = re.findall(r'<tr id="case-([^"]+)">(.*?)</tr>', page, re.DOTALL)
    return {case: [words(one) for one in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for case, row in rows}


def decide(revision: BriefRevision, state: str = "approved") -> None:
    BriefRevision.objects.filter(pk=revision.pk).update(state=state)


class TestAResult:
    def test_begins_with_its_sentence_its_outcome_and_its_drafts(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(house.broken.revision)
        card = section(found.replace('<section class="verdict', "<section><h2>card</h2>", 1), "card")
        assert house.broken.result.sentence in card
        assert "BROKEN" in card
        assert "Exercised: drafts were both accepted and rejected." in card
        assert "960 proposed, 400 accepted, 560 rejected, by the server’s counters" in words(card)
        assert found.index(house.broken.result.sentence) < found.index("What broke") < found.index('class="matrix"')

    def test_names_what_broke_with_the_run_that_shows_it(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        part = section(page(house.broken.revision), "What broke")
        assert run_page(house.broken, "greedy-parity", "concurrent-stream") in part
        assert "Concurrent, streamed: 9 divergences that no tie excuses" in part
        assert "What broke" not in page(house.held.revision)
        assert "it refuses min_p" in section(page(house.held.revision), "What changed openly")

    def test_says_apart_what_was_not_shown_and_why(self, house: Suites, page: Callable[[BriefRevision], str]) -> None:
        part = section(page(house.held.revision), "What was not shown")
        said = words(part)
        assert "None of these passed" in said
        found = [said.index(one) for one in ("the control differs too", "no draft was proposed", "HTTP 400")]
        assert found == sorted(found)
        for state in ("cannot tell", "not exercised", "unsupported"):
            assert state in said
        assert "max-tokens" not in part
        assert run_page(house.held, "sampled-parity", "concurrent") in part

    def test_has_a_word_for_every_case_in_every_manner(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        rows = matrix_rows(page(house.broken.revision))
        assert list(rows) == [one.id for one in house.broken.result.cases]
        dash = "– not asked"
        assert rows["greedy-parity"] == [
            "broken",
            "greedy-parity, serial: held",
            dash,
            dash,
            "greedy-parity, concurrent, streamed: broken",
            "greedy-parity, cached: held",
            dash,
        ]
        assert [row[0] for row in rows.values()] == [
            "broken",
            "held",
            "changed",
            "unsupported",
            "not exercised",
            "cannot tell",
        ]

    def test_says_what_was_asked_how_it_was_judged_and_who_declared_the_rule(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(house.broken.revision)
        asked = words(section(found, "What was asked"))
        for said in (
            "Cases 6",
            "baseline 1,200, control 900, candidate 1,200",
            "Concurrency 8 requests at once",
            "Sampling temperature 0.7, top_p 0.95, top_k no limit",
            "Tie threshold 0.125 nats",
            "at most 1.0 % for the whole suite, divided evenly over 6 statistical tests",
            "The service uses logprobs",
            "Left out tool-choice",
        ):
            assert said in asked
        rule = words(section(found, "How drafts are accepted"))
        assert "Rule declared : exact: by this rule the output is distributed as the target’s own" in rule
        assert "The candidate's configuration." in rule

    def test_says_what_every_statistical_case_would_have_noticed(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        part = words(section(page(house.broken.revision), "What would have been noticed"))
        assert "flips of 2.0 % of the drafted positions would have been noticed with a chance of 93.0 %" in part
        assert "a shift of 8.0 % of the probability" in part

    def test_problems_stand_in_the_card(self, house: Suites, as_: Callable[[str], Client]) -> None:
        problems = ("the candidate stopped answering: it can't be reached any more",)
        more: dict[str, Any] = {"problems": problems, "exercised": False, "outcome": "failed", "sentence": "No end."}
        failed = judged_suite(house.ahead, broken=False, **more)
        found = plain(as_("auditor").get(tab(failed.revision)))
        assert "CAME TO NO END" in found
        assert "The candidate stopped answering: it can't be reached any more." in found
        assert "Not exercised: the suite proves nothing" in found

    def test_a_rule_that_is_not_exact_is_said_above_everything(
        self, house: Suites, as_: Callable[[str], Client]
    ) -> None:
        declared = Declared(rule="lossy", source="the candidate's configuration")
        lossy = judged_suite(house.ahead, broken=False, declared=declared)
        found = plain(as_("auditor").get(tab(lossy.revision)))
        said = "Declared to be lossy: by this rule the output is not the target’s own."
        assert found.index(said) < found.index('class="matrix"')
        assert "Declared to be" not in plain(as_("auditor").get(tab(house.held.revision)))

    def test_may_be_seen_while_the_brief_still_measures_and_nothing_else_of_held_out_is(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(house.broken.revision)
        assert house.broken.revision.state == "measuring"
        assert "HELD" in page(house.held.revision)
        assert "data-chart" not in found
        assert not re.search(r"\bp50\b|\bp99\b|within deadline|\d ms\b", found)

    def test_tells_the_servers_with_the_digests_of_their_answers(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        part = section(page(house.broken.revision), "The servers")
        for arm in ("baseline", "candidate", "control"):
            boot = house.broken.boot(arm)
            assert reverse("boot", args=[boot.pk]) in part
            assert boot.suite_run.answers_digest in part
        assert "2 of 96 requests got no answer." in part
        assert "hx-get" not in part


def test_what_shows_nothing_never_looks_like_what_was_shown(
    house: Suites, page: Callable[[BriefRevision], str]
) -> None:
    found = page(house.held.revision)
    chips = re.findall(r'<span class="state([^"]*)"><svg[^>]*>(<path[^>]*>)</svg>([^<]+)</span>', found)
    looks = {word: {(kind.strip(), icon) for kind, icon, said in chips if said == word} for _, _, word in chips}
    assert {"held", "changed", "cannot tell", *NOTHING_SHOWN} <= set(looks)
    shown = {kind for kind, _ in looks["held"]}
    for word in NOTHING_SHOWN:
        assert {kind for kind, _ in looks[word]} == {"state-none"}
        assert shown.isdisjoint(kind for kind, _ in looks[word])
        # And by its icon.
        assert {icon for _, icon in looks[word]}.isdisjoint(icon for _, icon in looks["held"])


class TestACaseInOneManner:
    @pytest.fixture
    def found(self, house: Suites, as_: Callable[[str], Client]) -> str:
        return plain(as_("engineer").get(run_page(house.broken, "greedy-parity", "concurrent-stream")))

    def test_says_what_it_checks_and_from_which_public_faults_it_descends(self, found: str) -> None:
        said = words(section(found, "What it checks"))
        assert "Greedy text is the baseline's, but where its two likeliest tokens tie" in found
        assert "vllm-project/vllm #54506, #41758" in said
        assert "Greedy tokens against the baseline’s" in said
        assert "9 divergences that no tie excuses, in 9 of 32 prompts." in found

    def test_tells_the_numbers_and_the_drafts(self, found: str) -> None:
        said = words(section(found, "What it rests on"))
        assert "120 proposed, 60 accepted, 60 rejected, by the answers’ own metrics" in said
        assert "p-value 0.00195" in said
        assert "candidate: positions 900" in said
        assert "control: unexcused 0" in said

    def test_marks_where_the_two_answers_part(self, found: str) -> None:
        part = section(found, "The answers that show it")
        left, right = re.findall(r'<pre class="said" tabindex="0">(.*?)</pre>', part, re.DOTALL)
        assert "baseline" in part.split(left)[0]
        common = suites.BASELINE_TEXT[: suites.PARTS_AT]
        for shown, text in ((left, suites.BASELINE_TEXT), (right, suites.CANDIDATE_TEXT)):
            assert f'<span class="same">{common}</span>' in shown
            mark = re.findall(r"<mark>(.*?)</mark>", shown)
            assert [words(one) for one in mark] == [f"First difference: {text[suites.PARTS_AT]}"]
            assert words(shown).endswith(text[suites.PARTS_AT + 1 :])
        assert f"apart from character {suites.PARTS_AT + 1} on" in part

    def test_lists_every_request_and_shows_one_whole(
        self, house: Suites, as_: Callable[[str], Client], found: str
    ) -> None:
        part = words(section(found, "Every request"))
        assert "00-0 the same text 17 17 12" in part
        assert f"00-1 apart from character {suites.PARTS_AT + 1} on 17 17 12" in part
        assert 'id="whole"' not in found
        address = run_page(house.broken, "greedy-parity", "concurrent-stream")
        whole = plain(as_("engineer").get(address, {"answer": "00-1"}))
        part = whole.split('<section id="whole">')[1]
        assert "Say the rhyme three times." in part
        assert '"max_tokens": 40' in part
        assert '"id": "greedy-parity/concurrent-stream/00-1"' in part
        assert suites.CANDIDATE_TEXT in words(part).replace("First difference: ", "").replace(" c oat", " coat")

    def test_leads_to_its_other_manners_and_back(self, house: Suites, found: str) -> None:
        nav = found.split('<nav aria-label="Manners of this case">')[1].split("</nav>")[0]
        assert run_page(house.broken, "greedy-parity", "cached") in nav
        assert nav.count('aria-current="page"') == 1
        assert f'{tab(house.broken.revision)}#case-greedy-parity"' in found

    def test_a_rule_is_told_of_either_server_alone(self, house: Suites, as_: Callable[[str], Client]) -> None:
        found = plain(as_("engineer").get(run_page(house.broken, "max-tokens", "serial")))
        said = words(section(found, "What it rests on"))
        assert "The baseline alone held it keeps the rule The candidate alone held" in said

    @pytest.mark.parametrize(
        ("case", "manner", "asked"),
        [("greedy-parity", "serial-stream", ""), ("none", "serial", ""), ("greedy-parity", "serial", "none")],
    )
    def test_what_was_not_asked_has_no_page(
        self, house: Suites, as_: Callable[[str], Client], case: str, manner: str, asked: str
    ) -> None:
        address = run_page(house.broken, case, manner)
        assert as_("engineer").get(address, {"answer": asked} if asked else {}).status_code == 404


class TestBeforeThereIsAResult:
    def test_a_brief_without_the_guardrail_is_told_how_to_ask(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(house.unasked)
        assert "This brief asks for no suite" in found
        rail = re.findall(r"- \{ id: behaviour.*?\}, limit: 0 \}", found)[0]
        document = house.unasked.document.model_dump(mode="json", by_alias=True)
        source = json.dumps(document | {"guardrails": []}).replace('"guardrails": []', f'"guardrails": [{rail[2:]}]')
        assert read_brief(source).suite is not None
        assert "hx-get" not in found.split("This brief asks")[1]

    def test_before_its_stage_it_says_what_comes_and_how_it_is_asked(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        found = page(house.ahead)
        assert "The suite follows the held-out pairs" in found
        said = words(section(found, "How it is asked"))
        assert "temperature 0.7, top_p 1, top_k no limit" in said
        assert "Tie threshold 0.125 nats" in said

    def test_nobody_nominated_is_nobody_to_ask(self, house: Suites, page: Callable[[BriefRevision], str]) -> None:
        BriefRevision.objects.filter(pk=house.ahead.pk).update(nominee="")
        assert "There is nobody to ask" in page(house.ahead)

    def test_while_it_runs_it_brings_itself_up_to_date(
        self, house: Suites, page: Callable[[BriefRevision], str], as_: Callable[[str], Client]
    ) -> None:
        part = section(page(house.running), "The servers")
        assert f'hx-get="{tab(house.running, "brief-behaviour-live")}" hx-trigger="every 3s"' in part
        # What has answered is whole, whenever its last beat came.
        assert "96 of 96" in words(part)
        assert "41 of 96, last max-tokens serial" in words(part)
        assert "41 of 96" in plain(as_("auditor").get(tab(house.running, "brief-behaviour-live")))

    def test_the_part_asks_for_the_whole_page_once_it_says_something_else(
        self, house: Suites, as_: Callable[[str], Client]
    ) -> None:
        client = as_("auditor")
        for revision in (house.broken.revision, house.unasked, house.ahead):
            assert client.get(tab(revision, "brief-behaviour-live"))["HX-Refresh"] == "true"

    def test_answers_that_are_being_judged_are_waited_for(
        self, house: Suites, page: Callable[[BriefRevision], str]
    ) -> None:
        suites.answered_campaign(house.ahead, suites.registry_cases(broken=False), own=False)
        part = section(page(house.ahead), "Every server has answered: the answers are being judged")
        assert 'hx-trigger="every 3s"' in part
        decide(house.ahead, "cancelled")
        found = page(house.ahead)
        assert "This revision ended before the answers were judged." in found
        assert "hx-get" not in section(found, "The servers")

    @pytest.mark.parametrize(
        ("state", "said"),
        [("stopped", "was stopped and needs a person"), ("cancelled", "was cancelled")],
    )
    def test_a_campaign_that_came_to_no_end_says_why(
        self, house: Suites, page: Callable[[BriefRevision], str], state: str, said: str
    ) -> None:
        campaign = suite_campaign(house.ahead)
        Campaign.objects.filter(pk=campaign.pk).update(state=state, reason="the budget of engine time is used up")
        found = page(house.ahead)
        assert said in found
        assert "The budget of engine time is used up." in found
        assert "Nothing is judged from the answers" in found
        assert "hx-get" not in section(found, "The servers")

    def test_a_draft_that_can_t_be_read_has_a_page_all_the_same(
        self, house: Suites, as_: Callable[[str], Client]
    ) -> None:
        draft = BriefRevision.objects.create(
            brief=house.ahead.brief, number=2, source="title: [", author=house.people["engineer"]
        )
        assert "The draft can’t be read yet" in plain(as_("engineer").get(tab(draft)))
        assert as_("engineer").get(tab(draft, "brief-behaviour-live"))["HX-Refresh"] == "true"

    def test_other_answers_than_those_judged_are_judged_again(self, house: Suites) -> None:
        revision = house.broken.revision
        document, campaign = revision.document, house.broken.campaign
        assert stage_of(revision, document, campaign, judged=False) == "judging"
        assert stage_of(revision, document, campaign, judged=True) == "judged"


class TestEvidence:
    def test_that_is_away_is_asked_for_later(
        self, house: Suites, as_: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(self: EvidenceStore, wanted: str) -> bytes:
            raise EvidenceUnreachable("the bucket does not answer")

        decide(house.broken.revision)
        monkeypatch.setattr(EvidenceStore, "get", away)
        client, revision = as_("owner"), house.broken.revision
        for address in (
            tab(revision),
            run_page(house.broken, "greedy-parity", "serial"),
            tab(revision, "brief-behaviour-file"),
            reverse("suite-answers", args=[house.broken.boot("control").pk]),
        ):
            response = client.get(address)
            assert (response.status_code, response["Retry-After"]) == (503, "60"), address
            assert "The bucket does not answer." in response.content.decode()

    def test_that_is_damaged_leaves_the_sentence_and_says_so(
        self, house: Suites, as_: Callable[[str], Client], page: Callable[[BriefRevision], str]
    ) -> None:
        path = evidence_store().path(house.broken.row.digest)
        content = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(content[:-1] + b" ")
        try:
            found = page(house.broken.revision)
            assert "The cases can’t be shown: evidence" in found
            assert "broken: greedy-parity" in found
            assert house.broken.row.sentence in found
            assert 'class="matrix"' not in found
            response = as_("owner").get(run_page(house.broken, "greedy-parity", "serial"))
            assert response.status_code == 500
            assert "This evidence is damaged" in response.content.decode()
        finally:
            path.write_bytes(content)

    def test_of_another_form_is_said_to_be_unreadable(
        self, house: Suites, as_: Callable[[str], Client], page: Callable[[BriefRevision], str]
    ) -> None:
        BehaviourResult.objects.filter(pk=house.broken.row.pk).update(digest=evidence_store().put(b'{"schema": 9}'))
        assert "is no result of the suite that this version can read" in page(house.broken.revision)
        assert as_("owner").get(run_page(house.broken, "greedy-parity", "serial")).status_code == 404

    def test_of_the_answers_that_is_gone_leaves_the_finding(self, house: Suites, as_: Callable[[str], Client]) -> None:
        BehaviourResult.objects.filter(pk=house.broken.row.pk).update(
            answers=house.broken.row.answers | {"candidate": "0" * 64}
        )
        SuiteRun.objects.filter(boot=house.broken.boot("candidate")).update(answers_digest="0" * 64)
        found = plain(as_("owner").get(run_page(house.broken, "greedy-parity", "concurrent-stream")))
        assert "The requests and whole answers can’t be shown: no evidence" in found
        assert "<mark>" in found


class TestWhoSeesTexts:
    def pages(self, house: Suites) -> list[str]:
        revision, own = house.own.revision, house.own
        return [
            tab(revision),
            run_page(own, "refund-form", "serial"),
            f"{run_page(own, 'refund-form', 'serial')}?answer=asked",
            tab(revision, "brief-behaviour-file"),
            *(reverse(name, args=[own.boot("candidate").pk]) for name in ("boot", "suite-answers")),
            reverse("runs"),
            tab(revision, "brief-history"),
        ]

    def test_an_auditor_sees_no_text_of_the_service_s_own_cases(
        self, house: Suites, as_: Callable[[str], Client]
    ) -> None:
        decide(house.own.revision)
        client = as_("auditor")
        answers = {address: client.get(address) for address in self.pages(house)}
        for address, response in answers.items():
            shown = html.unescape(response.content.decode())
            assert [one for one in suites.SECRETS if one in shown] == [], address
        assert [one.status_code for one in answers.values()] == [200, 200, 200, 403, 200, 403, 200, 200]
        found = plain(answers[tab(house.own.revision)])
        assert matrix_rows(found)["refund-form"][1] == "refund-form, serial: broken"
        assert "One of the service’s own cases" in found
        assert "are personal data" in found
        run = plain(answers[run_page(house.own, "refund-form", "serial")])
        assert "answers 1" in words(section(run, "What it rests on"))

    def test_an_auditor_sees_the_suite_s_own_prompts(self, house: Suites, as_: Callable[[str], Client]) -> None:
        address = run_page(house.own, "greedy-parity", "concurrent-stream")
        found = plain(as_("auditor").get(address, {"answer": "00-1"}))
        assert "Say the rhyme three times." in found
        assert "personal data" not in found

    @pytest.mark.parametrize("who", ["engineer", "owner"])
    def test_engineers_and_the_service_s_owners_see_everything(
        self, house: Suites, as_: Callable[[str], Client], who: str
    ) -> None:
        decide(house.own.revision)
        client = as_(who)
        found = plain(client.get(f"{run_page(house.own, 'refund-form', 'serial')}?answer=asked"))
        assert [one for one in suites.SECRETS if one not in found] == []
        assert "personal data" not in plain(client.get(tab(house.own.revision)))

    def test_an_owner_of_another_service_does_not(self, house: Suites, as_: Callable[[str], Client]) -> None:
        found = plain(as_("second_owner").get(run_page(house.own, "refund-form", "serial")))
        assert [one for one in suites.SECRETS if one in found] == []

    def test_pages_are_for_people_with_a_role(self, house: Suites, client: Client) -> None:
        pages = [
            tab(house.broken.revision),
            tab(house.broken.revision, "brief-behaviour-live"),
            tab(house.broken.revision, "brief-behaviour-file"),
            run_page(house.broken, "greedy-parity", "serial"),
            reverse("suite-answers", args=[house.broken.boot("baseline").pk]),
        ]
        for page in pages:
            assert client.get(page)["Location"].startswith("/sign-in/"), page
        client.force_login(house.people["stranger"])
        assert {client.get(page).status_code for page in pages} == {403}


class TestDownloads:
    def test_come_once_the_brief_is_decided_as_they_were_digested(
        self, house: Suites, as_: Callable[[str], Client]
    ) -> None:
        client, judged = as_("auditor"), house.broken
        result = tab(judged.revision, "brief-behaviour-file")
        answers = reverse("suite-answers", args=[judged.boot("candidate").pk])
        assert {client.get(one).status_code for one in (result, answers)} == {404}
        assert result not in plain(client.get(tab(judged.revision)))
        decide(judged.revision)
        got = client.get(result)
        assert read_result(got.content) == judged.result
        name = f"behaviour-{judged.revision.brief_id}-1-{judged.row.digest[:12]}.json"
        assert got["Content-Disposition"] == f'attachment; filename="{name}"'
        lines = client.get(answers)
        assert lines.content == evidence_store().get(judged.row.answers["candidate"])
        assert "attachment" in lines["Content-Disposition"]
        assert result in plain(client.get(tab(judged.revision)))

    def test_of_a_simulated_engine_there_are_none(
        self, house: Suites, as_: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decide(house.broken.revision)
        monkeypatch.setattr("loadtests.configurations.Runtime.evidence_class", "simulated")
        client = as_("auditor")
        assert client.get(tab(house.broken.revision, "brief-behaviour-file")).status_code == 404
        assert client.get(reverse("suite-answers", args=[house.broken.boot("baseline").pk])).status_code == 404

    def test_a_boot_with_trials_has_no_answers(self, house: Suites, as_: Callable[[str], Client]) -> None:
        boot = Boot.objects.exclude(campaign__purpose="behaviour").first()
        if boot is not None:
            assert as_("auditor").get(reverse("suite-answers", args=[boot.pk])).status_code == 404


class TestABoot:
    def test_has_the_suite_in_the_place_of_trials(self, house: Suites, as_: Callable[[str], Client]) -> None:
        client = as_("engineer")
        running = Boot.objects.get(campaign__brief_campaign__revision=house.running, state="running")
        for address in (reverse("boot", args=[running.pk]), reverse("boot-live", args=[running.pk]), reverse("runs")):
            found = words(plain(client.get(address)))
            assert "41 of 96 case runs" in found
            assert "last max-tokens serial" in found
            assert "No trial is planned" not in found
        progress = plain(client.get(tab(house.running, "brief-progress")))
        assert "41 of 96 case runs" in words(progress)

    def test_that_is_over_shows_its_findings_and_its_files(self, house: Suites, as_: Callable[[str], Client]) -> None:
        boot = house.broken.boot("candidate")
        address = reverse("boot", args=[boot.pk])
        found = plain(as_("engineer").get(address))
        assert "2 of 96 requests got no answer." in section(found, "Findings")
        evidence = section(found, "Evidence")
        assert boot.suite_run.answers_digest in evidence
        assert house.broken.row.digest in evidence
        assert "after the decision" in evidence
        assert "<h2>Figures" not in found
        decide(house.broken.revision)
        evidence = section(plain(as_("engineer").get(address)), "Evidence")
        assert reverse("suite-answers", args=[boot.pk]) in evidence
        assert tab(house.broken.revision, "brief-behaviour-file") in evidence


def test_the_suite_s_stage_says_when_it_is_not_asked_and_when_nobody_was_nominated(
    house: Suites, as_: Callable[[str], Client]
) -> None:
    client = as_("engineer")
    assert "Behaviour : left-out not asked" in words(plain(client.get(tab(house.unasked, "brief-progress"))))
    BriefRevision.objects.filter(pk=house.ahead.pk).update(nominee="")
    assert "Behaviour : left-out nobody nominated" in words(plain(client.get(tab(house.ahead, "brief-progress"))))


def test_no_page_asks_for_more_queries_than_its_budget(
    house: Suites, as_: Callable[[str], Client], django_assert_max_num_queries: Any
) -> None:
    client = as_("owner")
    for page in (
        *(tab(one.revision) for one in (house.broken, house.own)),
        tab(house.running),
        tab(house.running, "brief-behaviour-live"),
        run_page(house.own, "refund-form", "serial"),
        reverse("boot", args=[house.own.boot("candidate").pk]),
    ):
        with django_assert_max_num_queries(32, info=page):
            client.get(page)


def test_no_page_holds_an_inline_style_or_script(house: Suites, as_: Callable[[str], Client]) -> None:
    client = as_("owner")
    for page in (tab(house.broken.revision), run_page(house.broken, "greedy-parity", "concurrent-stream")):
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=", client.get(page).content.decode()), page


# Pure


def text_whole(one: Text) -> str:
    return one.before + one.mark + one.after


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_two_texts_are_marked_at_the_first_character_that_differs(common: str, left: str, right: str) -> None:
    old, new = common + left, common + right
    shown = apart_of(apart("case/serial/label", old, new))
    assert shown.left is not None
    assert (text_whole(shown.left), text_whole(shown.right)) == (old, new)
    if old == new:
        assert (shown.at, shown.left.mark, shown.left.ends) == (None, "", False)
        return
    assert shown.at is not None
    assert shown.left.before == shown.right.before == old[: shown.at]
    assert shown.left.mark != shown.right.mark
    assert shown.left.ends == (shown.at == len(old))


def test_an_excerpt_says_how_much_stands_before_it() -> None:
    shown = apart_of(
        Difference(answer="c/serial/a/b", at=600, begins=100, baseline="x" * 500 + "y", candidate="x" * 500)
    )
    assert (shown.label, shown.at) == ("a/b", 600)
    assert shown.left == Text("x" * 500, "y", "", left_out=100)
    assert shown.right == Text("x" * 500, "", "", ends=True, left_out=100)


def test_what_was_expected_stands_in_the_place_of_the_baseline() -> None:
    shown = apart_of(Difference(answer="c/serial/a", at=0, baseline="their own", candidate="no", expected="now"))
    assert (shown.left_is, shown.at) == ("expected", 2)
    alone = apart_of(Difference(answer="c/serial/a", at=0, baseline=None, candidate="said"))
    assert (alone.left, text_whole(alone.right)) == (None, "said")


def test_a_long_text_is_shown_around_its_first_difference() -> None:
    before = "a" * 30_000
    one, other = (Reply("answered", (Choice(0, (before, said, "z" * 30_000)),)) for said in ("b", "c"))
    (shown,) = whole_texts("label", one, other)
    assert shown.at == 30_000
    assert (len(shown.right.before), shown.right.mark, shown.right.left_out) == (2_000, "c", 28_000)
    assert shown.right.cut == 60_001 - 28_000 - 20_000


def test_every_choice_is_compared_and_one_that_is_missing_too() -> None:
    one = Reply("answered", (Choice(0, ("a",)), Choice(1, ("b",))))
    other = Reply("answered", (Choice(0, ("a",)),))
    assert [(shown.choice, shown.at) for shown in whole_texts("label", one, other)] == [(0, None), (1, 0)]
    assert [shown.at for shown in whole_texts("label", None, other)] == [0]


@given(st.text(max_size=20))
def test_the_lines_of_one_case_are_found_whatever_its_labels_are(label: str) -> None:
    cases = suites.registry_cases(broken=False)
    answers = suites.answers_of("candidate", cases, own=True)
    named = suites.line("max-tokens", "serial", label, 'say "id":"max-tokens/serial/x"', "no", drafts=None)
    other = suites.line("max-tokens-2", "serial", "asked", "x", "y", drafts=None)
    content = type(answers)("candidate", "", "", (*answers.lines[:2], named, other)).content
    assert list(lines_of(content, "max-tokens", "serial")) == [label]


def test_invisible_characters_are_marked_by_signs() -> None:
    assert [Text("", one, "").shown_mark for one in ("\n", " ", "\t", "x")] == ["↵\n", "␣", "⇥", "x"]


def test_a_tier_counts_its_states_with_the_worst_first() -> None:
    assert counts_of(suites.registry_cases(broken=True)) == [
        ("broken", 1),
        ("changed", 1),
        ("held", 1),
        ("cannot_tell", 1),
        ("not_exercised", 1),
        ("unsupported", 1),
    ]


def test_a_rule_that_nobody_told_is_unknown() -> None:
    assert rule_words(Declared()).label == "unknown"
    assert rule_words(Declared(rule="lossy", source="its configuration")).label == "declared"


def test_numbers_of_any_shape_become_rows() -> None:
    numbers = {
        "p": 0.25,
        "prompts": [{"prompt": "0", "samples": [128, 127], "p": 1.0}],
        "largest": {"position": 3, "shift": -0.02},
        "not_exercised": [],
        "p_control": None,
    }
    assert figures(numbers) == [
        ("p-value", "0.25"),
        ("prompts, 1", "prompt 0; samples 128, 127; p-value 1"),
        ("largest shift: position", "3"),
        ("largest shift: shift", "−0.02"),
        ("prompts without drafts", "none"),
    ]
    assert power_words({}) == power_words({"p": 0.5}) == ""


def behaviour_fields(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "metric": "behaviour",
        "label": "Preserved behaviour",
        "role": "guardrail",
        "shown": "shown",
        "unit": "cases",
        "scale": "absolute",
        "baseline": None,
        "candidate": 0,
        "difference": None,
        "low": None,
        "high": None,
        "required": 0,
        "share_limit": 0,
        "required_text": "no case broken",
        "over": 0,
        "requests": 40,
        "cases": [],
    }
    return fields | changes


def test_the_guardrail_s_row_names_the_broken_cases_and_has_no_interval() -> None:
    broken = requirement_row(behaviour_fields(shown="broken", over=2, candidate=2, cases=["a", "b"]))
    assert (broken.suite, broken.broken, broken.difference, broken.picture) == (True, ("a", "b"), "2 of 40", None)
    assert requirement_row(behaviour_fields()).shown == "holds"


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({}, "yes", "Behaviour preserved in 40 cases"),
        ({"over": 1, "cases": ["a"], "shown": "broken"}, "no", "Behaviour broken in 1 of 40 cases: a"),
        ({"over": 4, "cases": list("abcd"), "shown": "broken"}, "no", "Behaviour broken in 4 of 40 cases: a, b, c …"),
        ({"shown": "broken"}, "no", "Behaviour broken: the server itself"),
        ({"shown": "open"}, "open", "Preserved behaviour not shown"),
    ],
)
def test_the_gate_says_what_became_of_the_suite(changes: dict[str, Any], state: str, said: str) -> None:
    assert behaviour_gates([{"metric": "failed_share"}, behaviour_fields(**changes)]) == [
        Gate(state, said, "brief-behaviour")
    ]


def test_without_a_result_the_gate_is_open_and_without_the_guardrail_there_is_none() -> None:
    fields = {name: one for name, one in behaviour_fields(shown="open").items() if name not in ("over", "requests")}
    assert behaviour_gates([fields]) == [Gate("open", "Preserved behaviour: no result", "brief-behaviour")]
    assert behaviour_gates([{"metric": "failed_share"}]) == []


def test_the_example_s_commented_lines_are_a_guardrail_and_its_section() -> None:
    words = (ROOT / "templates" / "briefs" / "example.yaml").read_text(encoding="utf-8")
    (rail,) = re.findall(r"^  # - (\{ id: behaviour.*\})$", words, re.MULTILINE)
    assert Guardrail.model_validate(yaml.safe_load(rail)).metric == "behaviour"
    written = words.split("# behaviour:\n")[1].split("\n\n")[0]
    section = yaml.safe_load("\n".join(one.removeprefix("# ") for one in written.splitlines()))
    # What it says is what holds where it is left out.
    assert Suite.model_validate(section) == Suite()
    assert set(section) == set(Suite.model_fields) - {"cases"}


def test_the_documentation_knows_every_field_of_the_section_and_every_state() -> None:
    fields = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8").split("### The preserved-behaviour suite")[1]
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", fields.split("## ")[0], re.MULTILINE)
    assert {one for row in named for one in re.findall(r"\w+", row)} == set(Suite.model_fields)
    states = (ROOT / "docs" / "behaviour-tab.md").read_text(encoding="utf-8").split("## States")[1].split("## ")[0]
    assert re.findall(r"^\| ([a-z ]+) \| ", states, re.MULTILINE)[1:] == [one.replace("_", " ") for one in WORDS]
    assert set(WORDS) == set(STATES)
    assert set(OUTCOMES) == set(get_args(Outcome))


def test_the_matrix_knows_every_manner() -> None:
    assert [one.id for one in EVERY_MANNER] == [
        "serial",
        "serial-stream",
        "concurrent",
        "concurrent-stream",
        "cached",
        "cached-stream",
    ]
