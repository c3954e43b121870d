"""Where the preflight speaks: on the form, at the freeze, before a campaign and on a brief's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Route
from decisions.rules.brief import BadBrief
from decisions.rules.flagged import EVERY_RULE
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.start_brief import start_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot
from loadtests.services.import_traffic import import_traffic
from tests.support.play import TARGET

pytestmark = pytest.mark.django_db

DRAFTER = {"name": "block drafter", "weights_sha256": "e" * 64, "tokenizer_sha256": "f" * 64}
BLOCK = {"method": "dflash", "num_speculative_tokens": 8, "drafter": DRAFTER}
REFUSAL = "K = 8 is above the block of 4 that the drafter was trained for: lower K"


@pytest.fixture(autouse=True)
def models(settings: Any, tmp_path: Path) -> Path:
    settings.MODELS_DIR = tmp_path / "models"
    return tmp_path / "models"


def source(route: Route, *speculative: dict[str, Any]) -> str:
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service=route.service.slug, seed=7)
    candidates = [{"name": f"one-{number}", "speculative": one} for number, one in enumerate(speculative)]
    return json.dumps(brief_document(TARGET, traffic) | {"candidates": candidates})


def record_drafter(models: Path) -> None:
    """A checkpoint that says its block."""
    directory = models / "block-drafter"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"dflash_config": {"block_size": 4}}), encoding="utf-8")
    record = {"schema": "draftproof.checkpoint/1", **DRAFTER}
    (directory / "draftproof.json").write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture
def draft(route: Route, engineer: Account) -> BriefRevision:
    return create_brief(route=route, source=source(route, BLOCK), by=engineer)


def test_a_draft_that_its_drafters_checkpoint_speaks_against_is_not_frozen(
    draft: BriefRevision, engineer: Account, models: Path
) -> None:
    record_drafter(models)
    with pytest.raises(BadBrief) as refusal:
        freeze_brief(revision=draft, by=engineer)
    assert refusal.value.problems == [f"candidates.0.speculative: {REFUSAL}"]
    draft.refresh_from_db()
    assert draft.state == "draft"


def test_a_checkpoint_that_comes_after_the_freeze_stops_the_first_campaign(
    draft: BriefRevision, engineer: Account, models: Path
) -> None:
    freeze_brief(revision=draft, by=engineer)
    record_drafter(models)
    start_brief(revision=draft, by=engineer)
    draft.refresh_from_db()
    assert (draft.state, draft.halted) == (
        "measuring",
        f"the preflight refuses candidate one-0: {REFUSAL} (docs/preflight.md#above-trained-block): write a revision "
        "without it",
    )
    assert not Boot.objects.exists()


def test_what_nothing_speaks_against_begins(draft: BriefRevision, engineer: Account) -> None:
    freeze_brief(revision=draft, by=engineer)
    start_brief(revision=draft, by=engineer)
    draft.refresh_from_db()
    assert (draft.state, draft.halted) == ("measuring", "")
    assert Boot.objects.exists()


def test_the_page_of_a_brief_has_every_finding_with_its_link(
    draft: BriefRevision, engineer: Account, client: Client, models: Path
) -> None:
    client.force_login(engineer)
    address = reverse("brief", args=[draft.brief_id, draft.number])
    page = client.get(address).content.decode()
    for rule in ("drafter-not-checked", "dflash-cpu-norm"):
        assert f'<a href="{reverse("preflight")}#{rule}">{rule}</a><br><span class="fine">flagged</span>' in page
    assert "candidate one-0" in page
    assert "The preflight refuses this brief." not in page
    record_drafter(models)
    page = client.get(address).content.decode()
    assert "The preflight refuses this brief." in page
    assert f'{REFUSAL} (<a href="{reverse("preflight")}#above-trained-block">above-trained-block</a>)' in page
    BriefRevision.objects.filter(pk=draft.pk).update(state="withdrawn")
    assert "The preflight refuses this brief." not in client.get(address).content.decode()


def test_a_refused_word_leads_from_the_form_to_its_rule(route: Route, engineer: Account, client: Client) -> None:
    client.force_login(engineer)
    lossy = {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "fly"}
    page = client.post(reverse("brief-new"), {"route": route.slug, "source": source(route, lossy)})
    assert page.status_code == 422
    assert f'(<a href="{reverse("preflight")}#lossy-verification">lossy-verification</a>)' in page.content.decode()
    assert not BriefRevision.objects.exists()


def test_a_slip_that_breaks_no_rule_has_no_link(route: Route, engineer: Account, client: Client) -> None:
    client.force_login(engineer)
    page = client.post(reverse("brief-new"), {"route": route.slug, "source": "title: 1"}).content.decode()
    assert f"{reverse('preflight')}#" not in page


class TestTheRulesPage:
    def test_anonymous_signs_in_first(self, client: Client) -> None:
        assert client.get(reverse("preflight")).status_code == 302

    def test_a_stranger_is_told_who_can(self, stranger: Account, client: Client) -> None:
        client.force_login(stranger)
        assert client.get(reverse("preflight")).status_code == 403

    def test_it_has_a_paragraph_for_every_rule(self, auditor: Account, client: Client) -> None:
        client.force_login(auditor)
        page = client.get(reverse("preflight")).content.decode()
        for rule in EVERY_RULE:
            assert page.count(f'<section id="{rule.id}">') == 1
        assert "<code>num_speculative_tokens: 0</code>" in page
        assert "`" not in page

    def test_an_installation_without_the_page_says_so(
        self, auditor: Account, client: Client, settings: Any, tmp_path: Path
    ) -> None:
        settings.BASE_DIR = tmp_path
        client.force_login(auditor)
        assert client.get(reverse("preflight")).status_code == 404
