"""The pages in Chromium: every page at two widths, light and dark, with nothing refused by the policy, no error and
no request to another host; then the owner's way from the inbox to a signature and back to the baseline."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache
from django.urls import reverse

from decisions.models import BriefRevision, Release, Signature
from decisions.selectors.pictures import drawn_from_evidence
from tests.conftest import PASSWORD
from tests.support.house import House, build_house
from tests.support.tokens import secret_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
HEIGHTS = {1280: 900, 390: 844}
Scheme = Literal["light", "dark"]
# Every page wide and light, and narrow and dark; the pages that people decide on in the other two ways as well.
DECISIVE = ("inbox", "reviewed-sign-off", "measuring-held-out", "history")
WATCH = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error(`policy: ${event.violatedDirective} refused ${event.blockedURI} of ${event.sourceFile}`));
"""
OVERFLOWING = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
TABS_HIDDEN = "[...document.querySelectorAll('.tabs ul')].some((one) => one.scrollWidth > one.clientWidth)"


@dataclass
class Watched:
    """A tab, and everything it complained about or asked of another host."""

    tab: Any
    base: str
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.tab.on("console", self.said)
        self.tab.on("pageerror", lambda error: self.complain(str(error)))
        self.tab.on("request", self.asked)
        self.tab.on("response", self.got)

    def said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complain(message.text)

    def got(self, response: Any) -> None:
        if response.status >= 400:
            self.complain(f"{response.status} for {response.url}")

    def asked(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:")):
            self.complain(f"asked another host: {request.url}")

    def complain(self, words: str) -> None:
        self.complaints.append(f"{self.tab.url}: {words}")

    async def open(self, path: str) -> None:
        await self.tab.goto(self.base + path)
        await self.drawn()

    async def drawn(self) -> None:
        """Every chart of the page has its picture."""
        await self.tab.wait_for_function(
            "() => [...document.querySelectorAll('[data-chart]')].every((one) => one.querySelector('.main-svg'))"
        )

    async def sign_in(self, who: str) -> None:
        await self.open("/sign-in/")
        await self.tab.fill("#id_username", who)
        await self.tab.fill("#id_password", PASSWORD)
        await self.tab.keyboard.press("Enter")
        await self.tab.wait_for_url(self.base + "/")


@asynccontextmanager
async def chromium(
    base: str, *, width: int = 1280, scheme: Scheme = "light", zone: str = "UTC"
) -> AsyncIterator[Watched]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = await browser.new_context(
            viewport={"width": width, "height": HEIGHTS[width]},
            color_scheme=scheme,
            reduced_motion="reduce",
            timezone_id=zone,
        )
        await context.add_init_script(WATCH)
        watched = Watched(await context.new_page(), base)
        watched.listen()
        yield watched
        await browser.close()


@pytest.fixture
def house(transactional_db: None) -> House:
    cache.clear()
    drawn_from_evidence.cache_clear()
    return build_house(PASSWORD)


@pytest.fixture
def pages(house: House) -> dict[str, str]:
    """What is photographed, by name."""
    secret_of(house.people["owner"])
    names = ("tuning", "held-out", "health", "sign-off")
    tabs = {"brief": "brief", **{name: f"brief-{name}" for name in names}}
    return {
        "inbox": "/",
        "services": "/services/",
        "service": "/services/support-assistant/",
        "policy": "/services/support-assistant/settings/policy/production/",
        "messages": "/services/support-assistant/settings/messages/",
        "route": "/services/support-assistant/chat/",
        "briefs": "/briefs/",
        **{f"reviewed-{name}": tab(house.in_review, page) for name, page in tabs.items()},
        "reviewed-history": tab(house.in_review, "brief-history"),
        **{f"measuring-{name}": tab(house.measuring, page) for name, page in tabs.items()},
        "draft": tab(house.draft, "brief"),
        "runs": "/runs/",
        "boot": reverse("boot", args=[house.live_boot.pk]),
        "traffic": "/traffic/",
        "traffic-set": reverse("traffic-set", args=[house.in_review.traffic_set_id]),
        "history": "/history/",
        "tokens": "/account/tokens/",
        "notifications": "/account/notifications/",
    }


def tab(revision: BriefRevision, page: str) -> str:
    return reverse(page, args=[revision.brief_id, revision.number])


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = Path(django_settings.VAR) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def test_every_page_at_two_widths_in_light_and_dark(
    pages: dict[str, str], live_server: Any, screenshots: Path
) -> None:
    decisive = {name: pages[name] for name in DECISIVE}
    found = await asyncio.gather(
        photographed(live_server.url, pages, screenshots, 1280, "light"),
        photographed(live_server.url, pages, screenshots, 390, "dark"),
        photographed(live_server.url, decisive, screenshots, 1280, "dark"),
        photographed(live_server.url, decisive, screenshots, 390, "light"),
    )
    assert [complaint for complaints in found for complaint in complaints] == []


async def photographed(base: str, pages: dict[str, str], folder: Path, width: int, scheme: Scheme) -> list[str]:
    async with chromium(base, width=width, scheme=scheme) as watched:
        await watched.sign_in("owner")
        for name, path in pages.items():
            await watched.open(path)
            await watched.tab.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
            if await watched.tab.evaluate(OVERFLOWING) > 0:
                watched.complain(f"wider than {width} px")
            if await watched.tab.evaluate(TABS_HIDDEN):
                watched.complain("some of its tabs lie behind an edge")
            if await watched.tab.locator("h1").count() != 1:
                watched.complain("does not have one heading of the first rank")
        return watched.complaints


async def test_the_owner_reads_signs_and_falls_back(house: House, live_server: Any) -> None:
    async with chromium(live_server.url) as watched:
        await watched.sign_in("owner")
        await watched.tab.click("text=Review and sign")
        await watched.drawn()
        await watched.tab.check("input[value=approve]")
        await watched.tab.type("#sign-reason", "The evidence settles it.", delay=5)
        await watched.tab.wait_for_selector("text=Reason: The evidence settles it.")
        await watched.tab.fill("#sign-password", PASSWORD)
        await watched.tab.keyboard.press("Enter")
        await watched.tab.wait_for_selector("#review .signature")
        await watched.open("/services/support-assistant/chat/")
        await watched.tab.fill("#revoke-reason", "An incident was reported")
        await watched.tab.fill("#revoke-password", PASSWORD)
        await watched.tab.click("#revoke button")
        await watched.tab.wait_for_selector("text=answers with the baseline from now on")
    signature, release = await asyncio.to_thread(lambda: (Signature.objects.get(), Release.objects.get()))
    assert (signature.meaning, release.revoked_by, watched.complaints) == ("approve", "owner", [])


TIMES = "[...new Set([...document.querySelectorAll('main time')].map((one) => one.textContent.slice(-3)))]"


async def test_times_are_shown_in_the_reader_s_own_zone_by_touch_or_key(house: House, live_server: Any) -> None:
    async with chromium(live_server.url, width=390, zone="America/New_York") as watched:
        await watched.sign_in("owner")
        await watched.open("/history/")
        assert await watched.tab.evaluate(TIMES) == ["UTC"]
        await watched.tab.focus("text=Show them in America/New_York")
        await watched.tab.keyboard.press("Enter")
        assert "UTC" not in await watched.tab.evaluate(TIMES)
        assert "All times are America/New_York." in await watched.tab.inner_text("footer")
        # The choice stays, until it is taken back.
        await watched.open("/runs/")
        assert "All times are America/New_York." in await watched.tab.inner_text("footer")
        await watched.tab.click("text=Show them in UTC")
        assert "All times are UTC." in await watched.tab.inner_text("footer")
        assert watched.complaints == []


FOCUS = """() => {
  const {top, bottom} = document.activeElement.getBoundingClientRect();
  return [document.activeElement.id, 0 <= top && bottom <= innerHeight];
}"""


async def test_a_refusal_far_down_the_page_is_in_view_and_has_the_focus(house: House, live_server: Any) -> None:
    async with chromium(live_server.url, width=390) as watched:
        await watched.sign_in("owner")
        await watched.open(tab(house.in_review, "brief-sign-off"))
        await watched.tab.check("input[value=reject]")
        await watched.tab.fill("#sign-reason", "The evidence settles nothing.")
        await watched.tab.fill("#sign-password", "a guess")
        await watched.tab.keyboard.press("Enter")
        await watched.tab.wait_for_selector("#refused")
        await watched.drawn()
        assert await watched.tab.evaluate(FOCUS) == ["refused", True]


async def test_a_running_boot_is_followed_by_keyboard_and_refreshes_itself(house: House, live_server: Any) -> None:
    async with chromium(live_server.url) as watched:
        await watched.sign_in("auditor")
        await watched.tab.keyboard.press("Tab")
        assert await watched.tab.evaluate("document.activeElement.className") == "skip"
        await watched.open(reverse("boot", args=[house.live_boot.pk]))
        async with watched.tab.expect_response(lambda got: got.url.endswith("/live/")):
            pass
        await asyncio.to_thread(end, house)
        await watched.tab.wait_for_selector("text=never how long they took")
        assert watched.complaints == []


def end(house: House) -> None:
    type(house.live_boot).objects.filter(pk=house.live_boot.pk).update(state="finished")
