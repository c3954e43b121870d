"""The audit pages in Chromium: every state at two widths, light and dark, and the way from a filter to a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache
from django.db import connection, transaction

from decisions import ledger
from decisions.models import Account, Brief, BriefRevision, ChainCheck, Event, FeedToken, Route
from decisions.rules.policy import DEFAULT
from decisions.services import check_chain
from tests.browser.test_pages_in_chromium import CHROMIUM, OVERFLOWING, Scheme, Watched, chromium
from tests.conftest import without_triggers

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
WAYS: list[tuple[int, Scheme]] = [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")]
EVENTS = 130


@pytest.fixture
def screenshots() -> Path:
    folder = Path(django_settings.VAR) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    cache.clear()
    return folder


@pytest.fixture
def revision(transactional_db: None, route: Route, engineer: Account) -> BriefRevision:
    """In review, with a history of three pages."""
    brief = Brief.objects.create(route=route, title="Prompt lookup for chat")
    revision = BriefRevision.objects.create(brief=brief, number=2, source="", author=engineer, state="in-review")
    subject, request = f"brief {brief.pk} revision 2", {"policy": DEFAULT.document, "expires": "2099-01-01T00:00+00:00"}
    owning: dict[str, object] = {"roles": ["owner"], "services": ["support-assistant"]}
    with transaction.atomic():
        for number in range(EVENTS):
            ledger.append("trial-finished", subject="route chat", actor="worker-1", details={"number": number})
        ledger.append("roles-set", subject="account owner", actor="operator", details={"before": {}, "after": owning})
        ledger.append("brief-created", subject=subject, actor="engineer", details={"title": brief.title})
        judged: dict[str, object] = {"verdict": "PASS", "digest": "ab" * 32, "request": request, "state": "in-review"}
        ledger.append("brief-judge", subject=subject, actor="draftproof", details=judged)
        ledger.append("sign-refused", subject=subject, actor="engineer", details={"reason": "Only an owner signs."})
    return revision


async def looked_at(watched: Watched, folder: Path, name: str, path: str | None, width: int, scheme: str) -> None:
    """``path`` None: the page as it stands."""
    if path is not None:
        await watched.open(path)
    await watched.tab.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
    if await watched.tab.evaluate(OVERFLOWING) > 0:
        watched.complain(f"wider than {width} px")
    if await watched.tab.locator("h1").count() != 1:
        watched.complain("does not have one heading of the first rank")


def rename(sequence: int) -> None:
    with without_triggers(), connection.cursor() as cursor:
        cursor.execute("UPDATE decisions_event SET actor = 'nobody' WHERE sequence = %s", [sequence])
    ChainCheck.objects.all().delete()


@pytest.mark.parametrize(("width", "scheme"), WAYS)
async def test_the_history_is_filtered_verified_taken_away_and_found_broken(
    revision: BriefRevision,
    auditor: Account,
    live_server: Any,
    screenshots: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    scheme: Scheme,
) -> None:
    judged = await asyncio.to_thread(Event.objects.get, kind="brief-judge")
    brief = f"/briefs/{revision.brief_id}/2/"
    async with chromium(live_server.url, width=width, scheme=scheme) as watched:
        tab = watched.tab
        await watched.sign_in("auditor")
        await looked_at(watched, screenshots, "ledger", "/history/", width, scheme)
        await tab.select_option("#f-state", "in-review")
        await tab.select_option("#f-service", "support-assistant")
        await tab.press("#f-subject", "Enter")
        await tab.wait_for_selector("text=1 event")
        await looked_at(watched, screenshots, "ledger-filtered", None, width, scheme)
        async with tab.expect_download() as started:
            await tab.click("text=Export as CSV")
        download = await started.value
        rows = (await asyncio.to_thread(Path(await download.path()).read_text)).splitlines()
        assert (len(rows), rows[1].split(",")[2]) == (2, "brief-judge")
        # The page is still there, and its button works again.
        async with tab.expect_download():
            await tab.click("text=Export as CSV")
        await looked_at(watched, screenshots, "ledger-nothing", "/history/?actor=nobody", width, scheme)
        await watched.open("/history/")
        await tab.click("text=older")
        await tab.wait_for_selector("text=newer")
        await looked_at(watched, screenshots, "event", f"/history/{judged.pk}/", width, scheme)
        await tab.click("text=Who could sign at that time")
        await looked_at(watched, screenshots, "could-sign", None, width, scheme)
        await looked_at(watched, screenshots, "feeds-none", "/history/feeds/", width, scheme)
        await tab.click("text=Make my addresses")
        await tab.wait_for_selector("text=Your addresses are made")
        await looked_at(watched, screenshots, "feeds", None, width, scheme)
        assert await asyncio.to_thread(FeedToken.objects.count) == 1
        monkeypatch.setattr(check_chain, "EVENTS_A_TURN", 20)
        monkeypatch.setattr("decisions.pages.ledger.TURN_S", 0)
        await watched.open("/history/verify/")
        await tab.click("text=Verify the whole chain now")
        await looked_at(watched, screenshots, "walk", None, width, scheme)
        await tab.wait_for_selector("#walk .note-good")
        await looked_at(watched, screenshots, "walked", None, width, scheme)
        monkeypatch.setattr(check_chain, "EVENTS_A_TURN", 5_000)
        await asyncio.to_thread(rename, 7)
        await looked_at(watched, screenshots, "ledger-broken", "/history/", width, scheme)
        assert await tab.locator("text=The history is broken at event 7").count() == 1
        await looked_at(watched, screenshots, "event-broken", "/history/7/", width, scheme)
        await looked_at(watched, screenshots, "brief-history-broken", f"{brief}history/", width, scheme)
        assert await tab.locator("text=The history is broken at event 7").count() == 1
        await tab.emulate_media(media="print")
        await looked_at(watched, screenshots, "event-print", f"/history/{judged.pk}/", width, scheme)
        assert watched.complaints == []
