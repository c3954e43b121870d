"""A result file brought to a brief in Chromium: refused without losing the file, sent again, compared in a picture."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from config.demo import brief_document
from decisions.models import Account, BriefRevision, ImportedTrial, Route
from decisions.services.create_brief import create_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.services.import_traffic import import_traffic
from tests.browser.test_pages_in_chromium import CHROMIUM, OVERFLOWING, Scheme, chromium
from tests.support.bench import bench, written
from tests.support.play import TARGET

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture
def draft(transactional_db: None, route: Route, engineer: Account) -> BriefRevision:
    slug = route.service.slug
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=slug, seed=7)
    return create_brief(route=route, source=json.dumps(brief_document(TARGET, traffic)), by=engineer)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
async def test_a_file_with_several_runs_is_asked_about_and_kept_in_the_form(
    draft: BriefRevision, live_server: Any, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    path = written(tmp_path / "results.json", bench(), bench(first_s=0.05))
    tab_address = f"/briefs/{draft.brief_id}/1/imported/"
    async with chromium(live_server.url, width=width, scheme=scheme) as watched:
        tab = watched.tab
        await watched.sign_in("engineer")
        await watched.open(tab_address)
        await tab.click("text=Bring a result file")
        await tab.set_input_files("#file", path)
        await tab.click(".go .button")
        await tab.wait_for_selector("text=the file holds 2 runs")
        assert await tab.evaluate("document.activeElement.id") == "refused"
        assert await tab.evaluate("document.getElementById('file').files.length") == 1
        # The refusal itself is an answer of 422, which Chromium reports.
        watched.complaints.clear()
        await tab.click("text=How the file is read")
        for run, arm in (("1", "baseline"), ("2", "ngram-k4")):
            await tab.set_input_files("#file", path)
            await tab.fill("#run", run)
            await tab.select_option("#arm", arm)
            await tab.click(".go .button")
            await tab.wait_for_url(live_server.url + tab_address)
            await watched.drawn()
            if run == "1":
                await watched.open(f"{tab_address}new/")
                await tab.click("text=How the file is read")
        assert await tab.locator("[data-chart] .main-svg").count() >= 1
        assert await tab.evaluate(OVERFLOWING) == 0
        assert await asyncio.to_thread(ImportedTrial.objects.count) == 2
        assert watched.complaints == []
