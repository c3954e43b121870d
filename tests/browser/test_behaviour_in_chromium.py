"""The behaviour tab in Chromium: the matrix, two answers side by side, and the servers while they are asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from tests.browser.test_pages_in_chromium import CHROMIUM, chromium, photographed
from tests.conftest import PASSWORD
from tests.support.suite_results import Suites, build_suites, run_page, tab

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
BOXES = """[...document.querySelectorAll('.sides > div')].map((one) => {
  const {x, y} = one.getBoundingClientRect();
  return [x, y];
})"""
SEEN = """() => {
  const {left, right} = document.activeElement.getBoundingClientRect();
  return 0 <= left && right <= innerWidth;
}"""


@pytest.fixture
def suites(transactional_db: None) -> Suites:
    return build_suites(PASSWORD)


@pytest.fixture
def folder() -> Path:
    found = Path(django_settings.VAR) / "screenshots"
    found.mkdir(parents=True, exist_ok=True)
    return found


async def test_its_pages_at_two_widths_in_light_and_dark(suites: Suites, live_server: Any, folder: Path) -> None:
    compared = run_page(suites.broken, "greedy-parity", "concurrent-stream")
    pages = {
        "behaviour-broken": tab(suites.broken.revision),
        "behaviour-held": tab(suites.held.revision),
        "behaviour-running": tab(suites.running),
        "behaviour-ahead": tab(suites.ahead),
        "behaviour-unasked": tab(suites.unasked),
        "behaviour-case": compared,
        "behaviour-whole": f"{compared}?answer=00-1",
        "behaviour-boot": f"/runs/boots/{await asyncio.to_thread(lambda: suites.broken.boot('candidate').pk)}/",
    }
    found = await asyncio.gather(
        photographed(live_server.url, pages, folder, 1280, "light"),
        photographed(live_server.url, pages, folder, 390, "dark"),
        photographed(live_server.url, pages, folder, 1280, "dark"),
        photographed(live_server.url, pages, folder, 390, "light"),
    )
    assert [complaint for complaints in found for complaint in complaints] == []


async def test_two_answers_stand_beside_each_other_and_below_on_a_phone(suites: Suites, live_server: Any) -> None:
    address = run_page(suites.broken, "greedy-parity", "concurrent-stream")
    for width in (1280, 390):
        async with chromium(live_server.url, width=width) as watched:
            await watched.sign_in("owner")
            await watched.open(address)
            (left, top), (right, bottom) = await watched.tab.evaluate(BOXES)
            assert (left < right, top == bottom) == ((True, True) if width == 1280 else (False, False))
            assert watched.complaints == []


async def test_a_case_is_reached_by_keyboard_from_the_matrix(suites: Suites, live_server: Any) -> None:
    async with chromium(live_server.url, width=390) as watched:
        await watched.sign_in("auditor")
        await watched.open(tab(suites.broken.revision))
        await watched.tab.focus(".matrix a[href*='greedy-parity/concurrent-stream']")
        # The matrix scrolls in its own box until the focus can be seen.
        assert await watched.tab.evaluate(SEEN)
        await watched.tab.keyboard.press("Enter")
        await watched.tab.wait_for_selector("mark")
        assert watched.complaints == []


async def test_the_servers_are_followed_while_they_are_asked(suites: Suites, live_server: Any) -> None:
    async with chromium(live_server.url) as watched:
        await watched.sign_in("auditor")
        await watched.open(tab(suites.running))
        async with watched.tab.expect_response(lambda got: got.url.endswith("/behaviour/live/")):
            pass
        await watched.tab.wait_for_selector("text=41 of 96")
        assert watched.complaints == []
