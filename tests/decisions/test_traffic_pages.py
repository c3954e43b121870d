"""The pages of traffic sets over small files that were really imported: counts, pictures and reasons, never text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from decisions.models import Account, BriefRevision, Event, Route, Service
from decisions.selectors.seal import Use
from decisions.services.create_brief import create_brief
from decisions.services.delete_text import delete_text
from decisions.services.freeze_brief import freeze_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficSet
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.importers import Wanted
from loadtests.traffic.rows import read_rows

pytestmark = pytest.mark.django_db

SECRET = "my neighbour's bank account"


def rows(count: int) -> list[dict[str, Any]]:
    """A request every 5 s, in two classes; every prompt is another one."""
    return [
        {"arrival_s": 5 * place, "prompt": f"{SECRET} {place} {'word ' * (place % 40)}", "max_tokens": 1 + place % 7}
        | {"class": "chat" if place % 3 else "code"}
        for place in range(count)
    ]


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., TrafficSet]:
    def bring(lines: list[Any], **options: Any) -> TrafficSet:
        path = tmp_path / "gateway.jsonl"
        path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
        given: dict[str, Any] = {"name": "Gateway", "by": "engineer", "block_s": 60, "similarity": 1.0}
        return import_traffic(path=path, **(given | options))

    return bring


@pytest.fixture
def traffic(imported: Callable[..., TrafficSet]) -> TrafficSet:
    return imported(rows(240))


@pytest.fixture
def lengths(tmp_path: Path) -> TrafficSet:
    """A trace in bursts: twenty requests at once, every two minutes."""
    path = tmp_path / "trace.csv"
    times = [120 * burst + place / 100 for burst in range(30) for place in range(20)]
    lines = [f"2023-11-16 {18 + int(at // 3600)}:{int(at // 60) % 60:02d}:{at % 60:09.6f},500,40" for at in times]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    return import_traffic(path=path, name="Trace", by="engineer")


@pytest.fixture
def broken(imported: Callable[..., TrafficSet]) -> TrafficSet:
    """Of 370 lines, 120 can't be read and 10 have an empty prompt."""
    return imported([*rows(240), *["{" for _ in range(120)], *[{"arrival_s": 1, "prompt": ""} for _ in range(10)]])


@pytest.fixture
def for_a_service(imported: Callable[..., TrafficSet], service: Service) -> TrafficSet:
    return imported(rows(240), service=service.slug)


def page_of(found: TrafficSet, name: str = "traffic-set") -> str:
    return reverse(name, args=[found.pk])


def text(response: Any) -> str:
    assert response.status_code in (200, 422), response.status_code
    return str(response.content.decode())


def plain(response: Any) -> str:
    """What one reads: without tags, spaces as one."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text(response))).replace("\u202f", " ").replace("\xa0", " ")


@pytest.fixture
def as_engineer(client: Client, engineer: Account) -> Client:
    client.force_login(engineer)
    return client


@pytest.fixture
def as_owner(owner: Account) -> Client:
    client = Client()
    client.force_login(owner)
    return client


class TestTheList:
    def test_it_says_of_every_set_what_it_is_and_what_was_left_out(
        self, as_engineer: Client, broken: TrafficSet, lengths: TrafficSet
    ) -> None:
        page = plain(as_engineer.get(reverse("traffic")))
        assert "real text" in page
        assert "lengths without text" in page
        assert "no it holds lengths without text" in page
        assert "130 of 370 requests (35 %) were left out" in page
        assert "20 min, 0.201/s" in page
        assert f'<a href="{page_of(broken, "traffic-problems")}">130</a>' in text(as_engineer.get(reverse("traffic")))

    def test_whoever_may_import_finds_the_button(
        self, as_engineer: Client, auditor: Account, traffic: TrafficSet
    ) -> None:
        assert reverse("traffic-import") in text(as_engineer.get(reverse("traffic")))
        as_engineer.force_login(auditor)
        assert reverse("traffic-import") not in text(as_engineer.get(reverse("traffic")))

    def test_without_a_set_it_leads_to_the_import(self, as_engineer: Client) -> None:
        page = text(as_engineer.get(reverse("traffic")))
        assert reverse("traffic-import") in page
        assert "draftproof import FILE --out DIR" in page

    def test_its_queries_do_not_grow_with_the_sets(
        self, as_engineer: Client, imported: Callable[..., TrafficSet], django_assert_max_num_queries: Any
    ) -> None:
        for seed in range(5):
            imported(rows(240), seed=seed)
        # A session's first page notes the session.
        as_engineer.get(reverse("traffic"))
        with django_assert_max_num_queries(14):
            as_engineer.get(reverse("traffic"))


class TestASet:
    def test_begins_with_one_sentence(self, as_engineer: Client, traffic: TrafficSet, lengths: TrafficSet) -> None:
        assert (
            "240 requests over 20 min, steadier than chance (index of dispersion 0 in 10 s), 2 classes, real text."
            in plain(as_engineer.get(page_of(traffic)))
        )
        assert "bursty (index of dispersion 18.4 in 10 s), lengths without text." in plain(
            as_engineer.get(page_of(lengths))
        )

    def test_says_first_whether_it_may_carry_a_decision(
        self, as_engineer: Client, broken: TrafficSet, lengths: TrafficSet
    ) -> None:
        page = plain(as_engineer.get(page_of(lengths)))
        assert "May carry a decision: no, because it holds lengths without text." in page
        assert "choose a file of real text under “Text for a trace of lengths”" in page
        assert "New brief on this set" not in page
        page = plain(as_engineer.get(page_of(broken)))
        assert "240 of 370 requests over" in page
        assert "May carry a decision: yes, but 130 of 370 requests (35 %) were left out" in page

    def test_draws_arrivals_lengths_and_both_sides(self, as_engineer: Client, traffic: TrafficSet) -> None:
        page = text(as_engineer.get(page_of(traffic)))
        assert page.count("data-chart") == 7
        for heading in ("Prompt length", "Output limit", "Inter-arrival time", "Class"):
            assert f"<h3>{heading}" in page
        assert "Kolmogorov–Smirnov" in page
        assert "total variation" in page

    def test_warns_where_held_out_does_not_resemble_tuning(self, as_engineer: Client, traffic: TrafficSet) -> None:
        compared = traffic.statistics["comparison"] | {"resembles": False, "warning": "Held-out is another world."}
        traffic.statistics |= {"comparison": compared}
        traffic.save()
        assert "Held-out is another world." in plain(as_engineer.get(page_of(traffic)))

    def test_never_calls_alike_what_too_few_blocks_can_tell(
        self, as_engineer: Client, imported: Callable[..., TrafficSet]
    ) -> None:
        address = page_of(imported(rows(240), block_s=240))
        page = plain(as_engineer.get(address))
        assert "parts have too few time blocks to tell whether held-out resembles tuning" in page
        assert "together, too few to tell whether held-out resembles tuning: choose shorter blocks" in page
        assert "too few to tell whether they are alike (Kolmogorov–Smirnov, distance 0." in page
        # One output limit, and classes that take turns: between the two sides lies nothing to be too few for.
        alike = re.findall(r"(?<!whether )they are alike \((.*?)\)", page)
        assert alike == ["Kolmogorov–Smirnov, distance 0.000, p = 1", "total variation, distance 0.000, p = 1"]
        assert text(as_engineer.get(address)).replace("</svg>", ">").count(">alike<") == 2

    def test_without_times_says_what_a_level_needs(
        self, as_engineer: Client, imported: Callable[..., TrafficSet]
    ) -> None:
        untimed = imported([{"prompt": one["prompt"], "max_tokens": 5} for one in rows(40)])
        page = plain(as_engineer.get(page_of(untimed)))
        assert "40 requests without times of arrival, real text." in page
        assert "draw them from an arrival process" in page

    def test_imported_before_there_was_so_much_to_say_still_opens(
        self, as_engineer: Client, traffic: TrafficSet
    ) -> None:
        known = ("count", "classes", "conversations", "duration_s", "dispersion_10s", "bucket_s", "arrivals")
        old = {name: traffic.statistics[name] for name in known}
        traffic.parts.update(statistics=old, stretches=[])
        TrafficSet.objects.filter(pk=traffic.pk).update(statistics=old, imported={}, split={"shares": {}, "seed": 1})
        assert as_engineer.get(page_of(traffic)).status_code == 200

    def test_asks_for_few_queries(
        self, as_engineer: Client, traffic: TrafficSet, django_assert_max_num_queries: Any
    ) -> None:
        as_engineer.get(page_of(traffic))
        with django_assert_max_num_queries(24):
            as_engineer.get(page_of(traffic))

    def test_no_page_of_it_holds_text_or_an_inline_style(
        self, as_engineer: Client, broken: TrafficSet, for_a_service: TrafficSet
    ) -> None:
        names = ("traffic-set", "traffic-problems")
        pages = [reverse("traffic"), *(page_of(one, name) for one in (broken, for_a_service) for name in names)]
        for page in pages:
            found = text(as_engineer.get(page))
            assert SECRET not in found.replace("&#x27;", "'"), page
            assert not re.search(r"\sstyle=|<style|\son[a-z]+=", found), page

    @pytest.mark.parametrize("name", ["traffic-set", "traffic-problems", "traffic-problems-file"])
    def test_is_for_those_with_a_role(self, client: Client, traffic: TrafficSet, stranger: Account, name: str) -> None:
        assert client.get(page_of(traffic, name)).status_code == 302
        client.force_login(stranger)
        assert client.get(page_of(traffic, name)).status_code == 403

    def test_shows_the_most_frequent_of_many_classes(
        self, as_engineer: Client, imported: Callable[..., TrafficSet]
    ) -> None:
        many = imported([one | {"class": f"user {place % 80}"} for place, one in enumerate(rows(240))])
        page = plain(as_engineer.get(page_of(many)))
        assert "and 30 more classes with" in page
        assert "user 0" in page

    def test_gives_the_words_that_name_it_in_a_brief(self, as_engineer: Client, traffic: TrafficSet) -> None:
        page = text(as_engineer.get(page_of(traffic)))
        assert f"traffic:\n  name: Gateway\n  set: {traffic.digest}\n  tuning: " in page
        assert 'data-copy="traffic-block" hidden' in page


class TestANewBriefOnASet:
    def test_begins_with_its_digests(
        self, as_engineer: Client, route: Route, for_a_service: TrafficSet, lengths: TrafficSet
    ) -> None:
        traffic = for_a_service
        assert f"{reverse('brief-new')}?traffic={traffic.pk}" in text(as_engineer.get(page_of(traffic)))
        page = as_engineer.get(reverse("brief-new"), {"traffic": str(traffic.pk), "route": route.slug})
        assert f"set: {traffic.digest}" in text(page)
        assert "The traffic block names Gateway" in plain(page)

    def test_is_not_offered_before_the_set_is_given_to_a_service(
        self, as_engineer: Client, route: Route, traffic: TrafficSet
    ) -> None:
        page = as_engineer.get(page_of(traffic))
        assert f"{reverse('brief-new')}?traffic={traffic.pk}" not in text(page)
        assert "None can be frozen on it until it is given to a service." in plain(page)

    def test_is_for_a_route_of_its_own_service(
        self, as_engineer: Client, route: Route, for_a_service: TrafficSet
    ) -> None:
        other = Service.objects.create(slug="search", name="Search", purpose="Finds", target="m", pool="cpu")
        Route.objects.create(service=other, slug="find", name="find")
        page = as_engineer.get(reverse("brief-new"), {"traffic": for_a_service.pk})
        assert page.context["route"] == route

    def test_asks_for_the_route_first_where_there_are_several(
        self, as_engineer: Client, route: Route, traffic: TrafficSet
    ) -> None:
        Route.objects.create(service=route.service, slug="another", name="another")
        page = text(as_engineer.get(reverse("brief-new"), {"traffic": traffic.pk}))
        assert "For which route?" in page
        assert f"?traffic={traffic.pk}&amp;route={route.slug}" in page

    @pytest.mark.parametrize("key", ["0", "x", "-1", "²", "9" * 30])
    def test_on_a_set_that_is_not_there_is_no_page(self, as_engineer: Client, route: Route, key: str) -> None:
        assert as_engineer.get(reverse("brief-new"), {"traffic": key}).status_code == 404


class TestTheTrafficOfAnExample:
    """What a first brief begins with where nobody chose a set."""

    def page(self, client: Client) -> str:
        return text(client.get(reverse("brief-new")))

    def test_is_the_newest_set_of_the_service(
        self, as_engineer: Client, route: Route, for_a_service: TrafficSet, imported: Callable[..., TrafficSet]
    ) -> None:
        imported(rows(250))
        page = self.page(as_engineer)
        assert f"set: {for_a_service.digest}" in page
        assert "the newest set of Support assistant whose text is kept" in page

    def test_is_none_where_all_were_read_or_deleted_or_hold_lengths(
        self,
        as_engineer: Client,
        route: Route,
        owner: Account,
        imported: Callable[..., TrafficSet],
        lengths: TrafficSet,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        read, gone = (imported(rows(count), service=route.service.slug) for count in (240, 250))
        TrafficSet.objects.filter(pk=lengths.pk).update(service=route.service.slug)
        delete_text(traffic_set=gone, by=owner, reason="Asked for by the customer")
        use = Use(1, 1, "First", "support-assistant/chat", read.created_at, 8)
        monkeypatch.setattr(
            "decisions.selectors.traffic.uses_of", lambda traffic_set: [use] if traffic_set == read else []
        )
        page = self.page(as_engineer)
        assert "name: import traffic first" in page
        assert "Support assistant has no traffic set whose text is kept" in page

    def test_is_offered_beside_that_of_the_last_brief(
        self,
        as_engineer: Client,
        route: Route,
        engineer: Account,
        for_a_service: TrafficSet,
        imported: Callable[..., TrafficSet],
    ) -> None:
        from config.demo import brief_document
        from tests.support.play import TARGET

        document = brief_document(TARGET, for_a_service) | {"route": route.slug}
        create_brief(route=route, source=json.dumps(document), by=engineer)
        assert "The traffic block names Gateway" in plain(as_engineer.get(reverse("brief-new")))
        newer = imported(rows(250), name="Newer", service=route.service.slug)
        page = as_engineer.get(reverse("brief-new"))
        assert page.context["source"] == json.dumps(document)
        assert f'?traffic={newer.pk}&amp;route={route.slug}">Begin on Newer instead' in text(page)


class TestRowsLeftOut:
    def test_are_counted_by_reason(self, as_engineer: Client, broken: TrafficSet) -> None:
        page = plain(as_engineer.get(page_of(broken)))
        assert "130 rows could not be used" in page
        assert "not JSON120zero-length prompt10" in page

    def test_are_listed_as_many_at_a_time_as_a_phone_can_scroll(self, as_engineer: Client, broken: TrafficSet) -> None:
        address = page_of(broken, "traffic-problems")
        first, second, last = (text(as_engineer.get(address, {"page": page})) for page in ("", "2", "6"))
        assert [page.count('data-label="reason"') for page in (first, second, last)] == [25, 25, 5]
        assert "Page 6 of 6, 130 rows" in last
        assert "gateway.jsonl" in first
        lines = [int(line) for line in re.findall(r'<tr><th scope="row">(\d+)</th>', first + second + last)]
        assert lines == sorted(lines)

    def test_can_be_those_of_one_reason(self, as_engineer: Client, broken: TrafficSet) -> None:
        page = text(as_engineer.get(page_of(broken, "traffic-problems"), {"reason": "not JSON", "page": "5"}))
        assert page.count('data-label="reason">not JSON</td>') == page.count('data-label="reason"') == 20

    @pytest.mark.parametrize("page", ["0", "99999999999999999999", "-1", "x", "²"])
    def test_a_page_that_is_not_there_is_the_nearest(self, as_engineer: Client, broken: TrafficSet, page: str) -> None:
        assert "Page " in text(as_engineer.get(page_of(broken, "traffic-problems"), {"page": page}))

    def test_a_reason_that_nothing_was_left_out_for_has_no_rows(self, as_engineer: Client, broken: TrafficSet) -> None:
        page = text(as_engineer.get(page_of(broken, "traffic-problems"), {"reason": '"}<script>'}))
        assert "No row was left out for this reason." in page
        assert "<script>" not in page

    def test_can_be_downloaded_as_they_were_kept(self, as_engineer: Client, broken: TrafficSet) -> None:
        response = as_engineer.get(page_of(broken, "traffic-problems-file"))
        lines = b"".join(response.streaming_content).splitlines()  # type: ignore[attr-defined]
        assert len(lines) == 130
        assert json.loads(lines[0]).keys() == {"file", "line", "field", "reason", "detail"}
        assert "attachment" in response["Content-Disposition"]

    def test_none_is_said_in_words(self, as_engineer: Client, traffic: TrafficSet) -> None:
        assert "every row of the file was kept" in plain(as_engineer.get(page_of(traffic)))
        assert "Every row of the file was kept" in plain(as_engineer.get(page_of(traffic, "traffic-problems")))
        assert as_engineer.get(page_of(traffic, "traffic-problems-file")).status_code == 404

    def test_a_file_that_is_gone_is_said_in_words(
        self, as_engineer: Client, broken: TrafficSet, settings: Any, tmp_path: Path
    ) -> None:
        settings.EVIDENCE_DIR = tmp_path / "elsewhere"
        assert "The rows can’t be listed: no evidence" in text(as_engineer.get(page_of(broken, "traffic-problems")))
        assert as_engineer.get(page_of(broken, "traffic-problems-file")).status_code == 404


class TestTheSeal:
    def test_says_that_nobody_has_read_it(self, as_engineer: Client, traffic: TrafficSet) -> None:
        held_out = traffic.parts.get(kind="held-out")
        assert f"Held-out: {held_out.rows} requests, sealed. Not read yet." in plain(as_engineer.get(page_of(traffic)))

    def test_names_who_read_it_and_flags_a_second_use_for_the_same_route(
        self, as_engineer: Client, traffic: TrafficSet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at = traffic.created_at
        uses = [
            Use(1, 1, "First", "support-assistant/chat", at, 8),
            Use(2, 1, "Other route", "support-assistant/batch", at, 1),
            Use(3, 2, "Second", "support-assistant/chat", at, 4),
        ]
        monkeypatch.setattr("decisions.selectors.traffic.uses_of", lambda traffic_set: uses)
        page = plain(as_engineer.get(page_of(traffic)))
        assert page.count("second use for this route") == 1
        assert page.index("Second brief 3, revision 2") < page.index("second use for this route")


class TestPrivacyOfASet:
    def delete(self, client: Client, found: TrafficSet, **changes: str) -> Any:
        said = {"reason": "Asked for by the customer", "sure": "yes"} | changes
        return client.post(page_of(found, "traffic-delete-text"), said, follow=True)

    def test_says_when_the_text_goes(self, as_engineer: Client, for_a_service: TrafficSet, service: Service) -> None:
        assert "keeps text until someone deletes it" in plain(as_engineer.get(page_of(for_a_service)))
        Service.objects.filter(pk=service.pk).update(retention_days=30)
        day = for_a_service.created_at + timedelta(days=30)
        assert f"The text is deleted on {day.day} {day:%b %Y}." in plain(as_engineer.get(page_of(for_a_service)))

    def test_its_owner_deletes_it_and_everything_else_stays(self, as_owner: Client, for_a_service: TrafficSet) -> None:
        before = text(as_owner.get(page_of(for_a_service)))
        assert "Hashes, lengths, times, this page and all evidence stay." in before
        page = self.delete(as_owner, for_a_service)
        assert "The text of this set was deleted" in plain(page)
        assert "by owner. No trial can send it again" in plain(page)
        assert text(page).count("data-chart") == before.count("data-chart")
        assert "Delete text now" not in text(page)
        assert "its text was deleted" in text(as_owner.get(reverse("traffic")))

    @pytest.mark.parametrize(
        ("changes", "said"), [({"reason": "no"}, "at least 10 characters"), ({"sure": ""}, "can&#x27;t be undone")]
    )
    def test_nothing_is_deleted_without_reason_and_tick(
        self, as_owner: Client, for_a_service: TrafficSet, changes: dict[str, str], said: str
    ) -> None:
        response = self.delete(as_owner, for_a_service, **changes)
        assert response.status_code == 422
        assert said in text(response)
        assert '<details class="after" open><summary>Delete text now' in text(response)
        for_a_service.refresh_from_db()
        assert for_a_service.text_deleted_at is None

    def test_who_may_not_is_told_why(self, as_engineer: Client, for_a_service: TrafficSet) -> None:
        assert "delete-reason" not in text(as_engineer.get(page_of(for_a_service)))
        response = self.delete(as_engineer, for_a_service)
        assert response.status_code == 422
        assert Event.objects.get(kind="traffic-text-delete-refused").actor == "engineer"

    def test_lengths_alone_have_nothing_to_delete(self, as_owner: Client, lengths: TrafficSet) -> None:
        assert "there is nothing to delete" in plain(as_owner.get(page_of(lengths)))


class TestPrivacyOfAService:
    RULES = "[\\w.]+@[\\w.]+ => [mail]\n\n\\d{4,} =>\nMeier"

    def keep(self, client: Client, days: str, lines: str) -> Any:
        return client.post("/services/support-assistant/", {"retention_days": days, "redactions": lines}, follow=True)

    def test_an_owner_sets_it(self, as_owner: Client, service: Service) -> None:
        page = self.keep(as_owner, "30", self.RULES.replace("\n", "\r\n"))
        assert "These rules hold from now on." in text(page)
        service.refresh_from_db()
        assert service.retention_days == 30
        assert service.redactions == [
            {"pattern": "[\\w.]+@[\\w.]+", "replacement": "[mail]"},
            {"pattern": "\\d{4,}", "replacement": ""},
            {"pattern": "Meier", "replacement": "[redacted]"},
        ]

    def test_what_is_kept_can_be_sent_again_unchanged(self, as_owner: Client, service: Service) -> None:
        self.keep(as_owner, "", self.RULES)
        service.refresh_from_db()
        kept = service.redactions
        shown = as_owner.get("/services/support-assistant/").context["privacy"]
        self.keep(as_owner, shown.days, shown.lines)
        service.refresh_from_db()
        assert (service.retention_days, service.redactions) == (None, kept)

    def test_a_bad_expression_is_named_by_its_line_and_nothing_is_lost(
        self, as_owner: Client, service: Service
    ) -> None:
        response = self.keep(as_owner, "30", "good => x\n\n(bad => y")
        assert response.status_code == 422
        assert "line 3: &#x27;(bad&#x27; is no regular expression: missing )" in text(response)
        assert "(bad =&gt; y" in text(response)
        service.refresh_from_db()
        assert (service.retention_days, service.redactions) == (None, [])

    @pytest.mark.parametrize("days", ["0", "-1", "ten", "1.5", "99999", "²"])
    def test_days_are_a_whole_number_or_none(self, as_owner: Client, service: Service, days: str) -> None:
        response = self.keep(as_owner, days, "")
        assert response.status_code == 422
        assert "A whole number of days" in text(response)

    def test_others_read_it_and_are_refused(self, as_engineer: Client, service: Service) -> None:
        page = plain(as_engineer.get("/services/support-assistant/"))
        assert "until someone deletes it" in page
        assert "Only an owner of this service" in page
        assert self.keep(as_engineer, "1", "").status_code == 422
        assert Event.objects.get(kind="privacy-refused").actor == "engineer"


class TestTheLevelsOfABrief:
    LEVELS = [
        {"name": "quiet", "arrival": {"process": "constant", "rate": 0.2}, "duration_s": 20, "warm_up_s": 5},
        {"name": "ordinary", "arrival": {"process": "replay"}, "duration_s": 30},
        {
            "name": "peak",
            "arrival": {"process": "on-off", "rate": 1, "on_s": 5, "off_s": 5},
            "duration_s": 20,
            "max_concurrency": 8,
            "patience": {"share": 0.3, "after_s": 9, "spread": "exponential"},
            "deadlines": {"default": {"first_token_s": 3, "completion_s": 9}},
        },
    ]

    @pytest.fixture
    def draft(self, route: Route, engineer: Account) -> BriefRevision:
        from config.demo import brief_document
        from tests.support.play import TARGET

        slug = route.service.slug
        traffic = import_traffic(path=SUPPORT_ASSISTANT, name="Two hours", by="engineer", service=slug, seed=7)
        document = brief_document(TARGET, traffic) | {"route": route.slug, "levels": self.LEVELS}
        document["rule"] = document["rule"] | {"pairs": 4}
        return create_brief(route=route, source=json.dumps(document), by=engineer)

    def test_are_drawn_for_a_draft_that_can_be_read(self, as_engineer: Client, draft: BriefRevision) -> None:
        page = as_engineer.get(reverse("brief", args=[draft.brief_id, draft.number]))
        assert text(page).count("data-chart") == 1
        assert "warm-up, not counted" in text(page)
        said = plain(page)
        assert "on–off: 1 requests/s for 5 s, then none for 5 s" in said
        assert "30 % give up 9 s after their planned arrival, on average" in said
        assert "at most 8" in said
        assert "default: 3 s and 9 s" in said
        assert "replayed as recorded" in said

    def test_a_level_that_can_not_be_drawn_says_why(self, as_engineer: Client, draft: BriefRevision) -> None:
        document = json.loads(draft.source)
        document["traffic"]["set"] = "0" * 64
        BriefRevision.objects.filter(pk=draft.pk).update(source=json.dumps(document))
        page = plain(as_engineer.get(reverse("brief", args=[draft.brief_id, draft.number])))
        assert "ordinary is not drawn: the traffic set that it replays is not here." in page

    def test_stand_on_the_page_of_the_set_once_the_brief_is_frozen(
        self, as_engineer: Client, draft: BriefRevision
    ) -> None:
        traffic = TrafficSet.objects.get()
        assert "no load level is planned for it" in plain(as_engineer.get(page_of(traffic)))
        freeze_brief(revision=draft, by=draft.author)
        page = as_engineer.get(page_of(traffic))
        assert "the newest frozen brief on this set" in plain(page)
        assert "warm-up, not counted" in text(page)

    def test_a_frozen_brief_whose_text_is_gone_is_not_started(
        self, as_engineer: Client, draft: BriefRevision, owner: Account
    ) -> None:
        freeze_brief(revision=draft, by=draft.author)
        address = reverse("brief", args=[draft.brief_id, draft.number])
        start = reverse("brief-act", args=[draft.brief_id, draft.number, "start"])
        assert f'action="{start}"' in text(as_engineer.get(address))
        delete_text(traffic_set=TrafficSet.objects.get(), by=owner, reason="Asked for by the customer")
        page = as_engineer.get(address)
        assert f'action="{start}"' not in text(page)
        said = "by owner, so there is nothing to send. Withdraw this brief, or write a new revision on another set."
        assert "This brief can’t be started. The text of Two hours was deleted on" in plain(page)
        assert said in plain(page)
        assert said in plain(as_engineer.post(start, follow=True))
        assert said in plain(as_engineer.get(reverse("inbox")))
        draft.refresh_from_db()
        assert (draft.state, draft.halted) == ("frozen", "")

    def test_a_held_out_part_that_was_read_before_is_named(
        self, as_engineer: Client, draft: BriefRevision, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        earlier = Use(7, 2, "An earlier one", "support-assistant/chat", draft.created_at, 8, same_route=True)
        monkeypatch.setattr("decisions.pages.brief_tabs.used_before", lambda revision, traffic_set: [earlier])
        page = plain(as_engineer.get(reverse("brief", args=[draft.brief_id, draft.number])))
        assert "Only unused traffic can carry an approval." in page
        assert "An earlier one, brief 7, revision 2" in page
        assert ": the same route" in page


def test_a_trace_with_donated_text_says_so_everywhere(as_engineer: Client, lengths: TrafficSet, tmp_path: Path) -> None:
    joined = import_traffic(
        path=tmp_path / "trace.csv",
        name="Joined",
        by="engineer",
        reading=Wanted(tmp_path, donor=donor(tmp_path)),
        shares={"tuning": 0.5, "held-out": 0.5},
    )
    for page in (reverse("traffic"), page_of(joined)):
        assert "text joined from donor.jsonl" in text(as_engineer.get(page))
    said = plain(as_engineer.get(page_of(joined)))
    assert "How a row gets its text" in said
    assert "One donor's words" not in said
    assert "Donors of each part" in said
    assert "Left out for want of a texttuning 0, held-out 0" in said


def test_what_a_donor_lacks_is_no_request_left_out_and_its_set_is_linked(
    as_engineer: Client, lengths: TrafficSet, tmp_path: Path, settings: Any
) -> None:
    with donor(tmp_path).open("a") as lines:
        lines.write("{\n" * 3)
    giver = import_traffic(path=tmp_path / "donor.jsonl", name="Giver", by="engineer", similarity=1.0)
    tuning = tmp_path / "tuning part of Giver"
    tuning.write_bytes(EvidenceStore(settings.EVIDENCE_DIR).get(giver.parts.get(kind="tuning").digest))
    with (tmp_path / "trace.csv").open("a") as lines:
        lines.write("never,1,1\n")

    def joined(name: str, text_file: Path) -> TrafficSet:
        reading = Wanted(tmp_path, donor=text_file)
        shares = {"tuning": 0.5, "held-out": 0.5}
        return import_traffic(path=tmp_path / "trace.csv", name=name, by="e", reading=reading, shares=shares)

    from_file = joined("From a file", tmp_path / "donor.jsonl")
    page = plain(as_engineer.get(page_of(from_file)))
    assert "1 row could not be used." in page
    assert "3 rows of donor.jsonl could not be used as text; no request is missing for it." in page
    assert f'<a href="{page_of(from_file, "traffic-problems")}">1</a>' in text(as_engineer.get(reverse("traffic")))
    own = text(as_engineer.get(page_of(from_file, "traffic-problems")))
    theirs = text(as_engineer.get(page_of(from_file, "traffic-problems"), {"of": "donor", "reason": "not JSON"}))
    assert (own.count('data-label="file">trace.csv'), own.count('data-label="file">donor.jsonl')) == (1, 0)
    assert (theirs.count('data-label="file">trace.csv'), theirs.count('data-label="file">donor.jsonl')) == (0, 3)
    page = text(as_engineer.get(page_of(joined("From a set", tuning))))
    assert f'<a href="{page_of(giver)}">text joined from tuning part of Giver</a>' in page


def donor(folder: Path) -> Path:
    """Prompts of some 500 tokens that no two share."""
    path = folder / "donor.jsonl"
    prompts = [f"One donor's words {' '.join(f'w{place}x{word}' for word in range(230))}" for place in range(700)]
    path.write_text("".join(json.dumps({"prompt": prompt, "max_tokens": 9}) + "\n" for prompt in prompts))
    return path


def test_the_demo_shows_no_prompt(as_engineer: Client) -> None:
    demo = import_traffic(path=SUPPORT_ASSISTANT, name="Two hours", by="engineer", seed=7)
    page = text(as_engineer.get(page_of(demo)))
    assert not any(row.messages[-1].content in page for row in read_rows(SUPPORT_ASSISTANT))
