"""A brief for each verdict there is, one with a ladder and two looks, and one that is judged by the first rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from django.db import connection

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Route, Service
from decisions.rules.verdict import FIRST_CODE, verdict_content
from decisions.selectors.evidence import evidence_of
from decisions.services.create_brief import create_brief
from loadtests.canonical import canonical
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot
from loadtests.services.import_traffic import import_traffic
from tests.support.house import CAST, person, start
from tests.support.play import TARGET, harms_at_peak, helps_when_quiet, play

LADDER = {
    "capacity": {"levels": ["quiet", "ordinary", "peak"], "target": 0.5},
    "rule": {
        "confidence": 0.95,
        "pairs": 6,
        "looks": 2,
        "interim": [{"pairs": 4, "alpha": 0.01}],
        "noise_floor_pairs": 4,
        "seed": 186,
        "max_reattempts": 3,
        "nomination": "best-candidate",
    },
}


# More requests than four pairs have would have to show so little.
STRICT = {
    "guardrails": [
        {"id": "failed", "metric": "failed_share", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0.01}
    ]
}


def hardly_helps(boot: Boot, level: str) -> float:
    return 0.93 if boot.candidate and level == "quiet" else 1.0


@dataclass(frozen=True)
class Judged:
    people: dict[str, Account]
    briefs: dict[str, BriefRevision]


def judged_briefs(password: str) -> Judged:
    """By verdict; "ladder" has a ladder and two looks, and "first" a verdict of the first rules."""
    people = {name: person(name, password, groups) for name, groups in CAST.items()}
    engineer = people["engineer"]
    service = Service.objects.create(slug="support-assistant", name="Support assistant", target=TARGET.name, pool="cpu")
    service.owners.add(people["owner"])
    route = Route.objects.create(service=service, slug="chat", name="Chat")
    found = {
        "PASS": measured(route, engineer, "It passes", spread=0.002),
        "FAIL": measured(route, engineer, "It harms at peak", harms_at_peak),
        "INCONCLUSIVE": measured(route, engineer, "It may help", hardly_helps, changes=STRICT, spread=0.04),
        "INVALID": measured(route, engineer, "It was disturbed", neighbours=0.33),
        "ladder": measured(route, engineer, "It climbs", changes=LADDER),
        "first": measured(route, engineer, "It was judged long ago", spread=0.002),
    }
    judge_by_first_rules(found["first"])
    return Judged(people, found)


def measured(
    route: Route, engineer: Account, title: str, speed: Any = helps_when_quiet, *, changes: Any = None, **more: Any
) -> BriefRevision:
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="Two hours", by=engineer.username, service=route.service.slug, seed=7
    )
    document = brief_document(TARGET, traffic) | {"title": title, "route": route.slug} | (changes or {})
    source = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    revision = create_brief(route=route, source=source, by=engineer)
    start(revision, engineer)
    play(revision, speed, **more)
    revision.refresh_from_db()
    return revision


def judge_by_first_rules(revision: BriefRevision) -> None:
    """As it would stand in the database since then."""
    verdict = revision.verdicts.get()
    evidence = verdict.document["evidence"]
    brief = canonical(revision.document.model_dump(mode="json", by_alias=True))
    content = verdict_content(brief, revision.nominee, evidence_of(revision), evidence, code=FIRST_CODE)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE decisions_verdict SET content = %s WHERE id = %s", [content, verdict.pk])
