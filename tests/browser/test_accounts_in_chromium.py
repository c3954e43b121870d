"""A person's own pages in Chromium, with the browser's own passkeys: added, signed in with, signed a decision with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.conf import settings as django_settings
from django.core.cache import cache
from django.urls import reverse

from decisions.models import Account, Signature
from decisions.selectors.pictures import drawn_from_evidence
from tests.browser.test_pages_in_chromium import CHROMIUM, OVERFLOWING, Watched, chromium, tab
from tests.conftest import PASSWORD
from tests.support.house import person, support_assistant
from tests.support.reviewed import Reviewed, build_reviewed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

# As a laptop has one: it knows its person by a finger, which here is always there.
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


CAST = {"owner": ("owner",), "engineer": ("engineer",), "operator": ("operator",), "superuser": ()}


@pytest.fixture
def people(transactional_db: None) -> dict[str, Account]:
    cache.clear()
    found = {name: person(name, PASSWORD, groups) for name, groups in CAST.items()}
    support_assistant([found["owner"]])
    return found


@pytest.fixture
def case(transactional_db: None) -> Reviewed:
    cache.clear()
    drawn_from_evidence.cache_clear()
    return build_reviewed(PASSWORD)


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = Path(django_settings.VAR) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def with_authenticator(watched: Watched) -> None:
    session = await watched.tab.context.new_cdp_session(watched.tab)
    await session.send("WebAuthn.enable")
    await session.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})


async def photograph(watched: Watched, name: str, folder: Path) -> None:
    """The page as it is, at both widths."""
    scheme = "dark" if await watched.tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    for width in (1280, 390):
        await watched.tab.set_viewport_size({"width": width, "height": 900})
        await watched.tab.screenshot(path=folder / f"account-{name}-{scheme}-{width}.png", full_page=True)
        if await watched.tab.evaluate(OVERFLOWING) > 0:
            watched.complain(f"{name}: wider than {width} px")
    await watched.tab.set_viewport_size({"width": 1280, "height": 900})


async def add_passkey(watched: Watched) -> None:
    await watched.open(reverse("passkey-new"))
    await watched.tab.fill("#passkey-name", "work laptop")
    await watched.tab.fill("#passkey-password", PASSWORD)
    await watched.tab.click("text=Make the passkey")
    await watched.tab.wait_for_selector("#codes")


async def test_a_persons_own_pages(people: dict[str, Account], live_server: Any, screenshots: Path) -> None:
    async with chromium(live_server.url) as watched:
        await with_authenticator(watched)
        await watched.sign_in("owner")
        await watched.open(reverse("account"))
        await photograph(watched, "without-a-factor", screenshots)
        await add_passkey(watched)
        await photograph(watched, "new-codes", screenshots)
        await watched.tab.click("text=I have kept them")
        await photograph(watched, "index", screenshots)
        for name in ("authenticator-app", "passkey-new", "password", "sessions", "recovery-codes", "tokens"):
            await watched.open(reverse(name))
            await photograph(watched, name, screenshots)
        await watched.tab.click("text=Sign out")
        await photograph(watched, "sign-in", screenshots)
        await watched.tab.click("text=Sign in with a passkey")
        await watched.tab.wait_for_url(watched.base + "/")
        assert watched.complaints == []


async def test_a_decision_is_signed_with_a_passkey(case: Reviewed, live_server: Any, screenshots: Path) -> None:
    async with chromium(live_server.url, scheme="dark") as watched:
        await with_authenticator(watched)
        await watched.sign_in("owner")
        await add_passkey(watched)
        await watched.open(await asyncio.to_thread(lambda: tab(case.revision, "brief-sign-off")))
        await watched.tab.check("input[value=approve]")
        await watched.tab.type("#sign-reason", "The evidence settles it.", delay=5)
        await watched.tab.wait_for_selector("text=Reason: The evidence settles it.")
        await watched.tab.fill("#sign-password", PASSWORD)
        await watched.tab.click("text=Confirm with a passkey")
        await watched.tab.wait_for_selector("text=Passkey confirmed")
        for width in (1280, 390):
            await watched.tab.set_viewport_size({"width": width, "height": 900})
            await watched.tab.locator("#sign").screenshot(path=screenshots / f"account-sign-{width}.png")
        await watched.tab.click("#sign-form button.button:not([type])")
        await watched.tab.wait_for_selector("#review .signature")
        signature = await asyncio.to_thread(Signature.objects.get)
        assert (signature.authentication, watched.complaints) == ("password + passkey", [])


async def test_a_password_and_then_the_passkey(people: dict[str, Account], live_server: Any, screenshots: Path) -> None:
    async with chromium(live_server.url, width=390, scheme="dark") as watched:
        await with_authenticator(watched)
        await watched.sign_in("owner")
        await add_passkey(watched)
        await watched.tab.click("text=Sign out")
        await watched.tab.fill("#id_username", "owner")
        await watched.tab.fill("#id_password", PASSWORD)
        await watched.tab.keyboard.press("Enter")
        await watched.tab.wait_for_selector("text=One step more")
        await photograph(watched, "second-factor", screenshots)
        await watched.tab.click("text=Use your passkey")
        await watched.tab.wait_for_url(watched.base + "/")
        factor = await asyncio.to_thread(lambda: Authenticator.objects.get(type="webauthn"))
        await watched.open(reverse("factor-remove", args=[factor.pk]))
        await photograph(watched, "remove", screenshots)
        await watched.tab.fill("#remove-password", PASSWORD)
        await watched.tab.click("text=Confirm with a passkey")
        await watched.tab.wait_for_selector("text=Passkey confirmed")
        await watched.tab.click("text=Remove it")
        await watched.tab.wait_for_selector("text=Removed: passkey work laptop")
        assert watched.complaints == []


async def test_an_operator_makes_an_account_and_sets_roles(
    people: dict[str, Account], live_server: Any, screenshots: Path
) -> None:
    async with chromium(live_server.url, scheme="dark") as watched:
        await watched.sign_in("operator")
        await watched.open(reverse("people"))
        await photograph(watched, "people", screenshots)
        await watched.tab.click("text=Make an account")
        await watched.tab.fill("#username", "olga")
        await watched.tab.fill("#name", "Olga Ivanova")
        await watched.tab.check("input[value=owner]")
        await photograph(watched, "new", screenshots)
        await watched.tab.click("form button:has-text('Make the account')")
        await watched.tab.wait_for_selector("#new-password")
        await photograph(watched, "person", screenshots)
        await watched.tab.check("input[value=support-assistant]")
        await watched.tab.click("text=Set roles and services")
        await watched.tab.wait_for_selector("text=The roles of olga are set.")
        await watched.tab.click("summary:has-text('Deactivate')")
        await watched.tab.fill("#reason-deactivate", "She never came to us")
        await watched.tab.click("button:has-text('Deactivate')")
        await watched.tab.wait_for_selector("text=olga is deactivated")
        await photograph(watched, "deactivated", screenshots)
    olga = await asyncio.to_thread(lambda: Account.objects.get(username="olga"))
    assert (olga.is_active, watched.complaints) == (False, [])
