"""A traffic file brought in Chromium: chosen, looked at, confirmed, sent with a bar, followed to its set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from decisions.models import Account
from loadtests import queue, uploads
from loadtests.models import TrafficImport, TrafficSet
from loadtests.services.run_import import run_import
from tests.browser.test_pages_in_chromium import CHROMIUM, OVERFLOWING, chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "vidur.csv"
    rows = "".join(f"{n * 9},{n + 1},9\n" for n in range(400))
    path.write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    return path


@pytest.fixture
def waiting(transactional_db: None, monkeypatch: pytest.MonkeyPatch, account: Callable[..., Account]) -> Account:
    """Nobody is there to take up work until the test does."""
    monkeypatch.setattr(queue, "send_import", lambda: None)
    return account("engineer", "engineer")


async def test_a_file_is_looked_at_confirmed_sent_and_followed_to_its_set(
    waiting: Account, trace: Path, live_server: Any
) -> None:
    async with chromium(live_server.url) as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await watched.open("/traffic/import/")
        await tab.set_input_files("#file", trace)
        await tab.wait_for_selector("text=What do the columns mean?")
        assert await tab.input_value("select[name=looked_field] >> nth=0") == "arrival_s"
        await tab.check("input[name=confirmed]")
        await tab.click(".go .button")
        await tab.wait_for_selector("text=Waits for a worker")
        await asyncio.to_thread(take_up)
        await tab.wait_for_url(live_server.url + await asyncio.to_thread(address))
        assert watched.complaints == []


async def test_the_title_tells_how_far_it_is_while_one_looks_elsewhere(waiting: Account, live_server: Any) -> None:
    await asyncio.to_thread(kept, state="queued")
    async with chromium(live_server.url) as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await watched.open("/traffic/imports/1/")
        assert (await tab.title()).startswith("Queued · Import of day.jsonl")
        progress = {"stage": "looking for near-duplicates", "done": 7, "of": 25}
        await asyncio.to_thread(TrafficImport.objects.update, state="running", progress=progress)
        await tab.wait_for_function("() => document.title.startsWith('Looking for near-duplicates 28')")
        await tab.wait_for_selector("text=7 of 25 passes")
        assert watched.complaints == []


async def test_what_an_earlier_try_was_told_goes_when_the_next_is_refused(waiting: Account, live_server: Any) -> None:
    await asyncio.to_thread(kept, state="refused", reason="line 3 is not JSON")
    async with chromium(live_server.url, width=390) as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await watched.open("/traffic/imports/1/")
        await tab.wait_for_selector("text=line 3 is not JSON")
        await tab.fill("#tuning", "60")
        await tab.click(".go .button >> nth=0")
        await tab.wait_for_selector("text=The shares must add up to 100")
        assert await tab.locator("[data-before]").count() == 0
        assert await tab.evaluate("document.activeElement.id") == "refused"


def kept(state: str, reason: str = "") -> None:
    """An import whose file is still here."""
    uploads.directory().mkdir(parents=True, exist_ok=True)
    (uploads.directory() / "kept").write_text("{}")
    options: dict[str, Any] = {"format": "auto", "mapping": [], "header": True, "on_bad_row": "skip", "class": ""}
    options |= {"max_tokens": 1024, "max_context": None, "donor": None, "seed": 0, "block_s": 120, "similarity": 0.8}
    TrafficImport.objects.create(
        pk=1,
        name="A day",
        file_name="day.jsonl",
        file_bytes=2,
        upload="kept",
        options=options | {"shares": {"tuning": 0.4, "held-out": 0.6}, "redactions": []},
        requested_by="engineer",
        state=state,
        reason=reason,
        ended_at=timezone.now() if state == "refused" else None,
    )


def take_up() -> None:
    run_import(wanted=TrafficImport.objects.get(), worker="worker-1")


def address() -> str:
    return f"/traffic/{TrafficSet.objects.get().pk}/"


async def test_a_slip_is_shown_without_losing_the_file(waiting: Account, trace: Path, live_server: Any) -> None:
    async with chromium(live_server.url, width=390, scheme="dark") as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await watched.open("/traffic/import/")
        await tab.set_input_files("#file", trace)
        await tab.check("input[name=confirmed]")
        await tab.click("text=How it is split")
        await tab.fill("#tuning", "60")
        await tab.click(".go .button")
        await tab.wait_for_selector("text=The shares must add up to 100")
        assert await tab.evaluate("document.activeElement.id") == "refused"
        assert await tab.evaluate("document.getElementById('file').files.length") == 1
        assert await tab.evaluate(OVERFLOWING) == 0


async def test_the_whole_box_takes_the_keyboard_and_a_file_that_is_too_large_is_not_sent(
    waiting: Account, trace: Path, live_server: Any, settings: Any
) -> None:
    settings.UPLOAD_LIMIT_BYTES = 100
    async with chromium(live_server.url) as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await watched.open("/traffic/import/")
        await tab.focus("#file")
        box, drop = [await tab.locator(one).bounding_box() for one in ("#file", ".drop")]
        assert all(0 <= drop[side] - box[side] < 5 for side in ("width", "height"))
        await tab.set_input_files("#file", trace)
        await tab.wait_for_selector("text=Compress it with gzip or zstd")
        await tab.click(".go .button")
        assert (await asyncio.to_thread(TrafficImport.objects.count), watched.complaints) == (0, [])
