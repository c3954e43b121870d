"""What a revision's validity checks and noise floor rest on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from decisions.models import BriefRevision, Verdict
from decisions.rules.health import Basis, bases
from decisions.rules.looks import judged_by
from decisions.rules.noise_floor import noise_floor
from decisions.rules.saturation import baseline_saturated
from decisions.selectors.evidence import evidence_of
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.models import Campaign, Trial

FLOOR = Campaign.Purpose.NOISE_FLOOR


def basis_of(verdict: Verdict) -> tuple[Mapping[str, Basis], str]:
    """(by check what it rests on, why that can't be told). Read once per verdict, whose digest names its evidence."""
    try:
        return read_basis(verdict.digest), ""
    except (EvidenceMissing, EvidenceDamaged) as error:
        return {}, str(error)


@lru_cache(maxsize=64)
def read_basis(digest: str) -> Mapping[str, Basis]:
    verdict = Verdict.objects.select_related("revision").get(digest=digest)
    revision = verdict.revision
    return bases(revision.document, verdict.document["nominee"], evidence_of(revision))


def floor_of(revision: BriefRevision, verdict: Verdict | None) -> tuple[Mapping[str, Any] | None, str]:
    """The verdict's noise floor, or before there is one what the finished A/A pairs say: theirs is tuning traffic; and
    why that can't be told."""
    if verdict is not None:
        found: Mapping[str, Any] = verdict.document["noise_floor"]
        return found, ""
    campaign = {"boot__campaign__brief_campaign__revision": revision, "boot__campaign__purpose": FLOOR}
    done = Trial.objects.filter(**campaign, boot__campaign__state=Campaign.State.DONE)
    manifests = tuple(done.order_by("pk").values_list("manifest_digest", flat=True))
    if not manifests:
        return None, ""
    try:
        return read_floor(revision.pk, manifests), ""
    except (EvidenceMissing, EvidenceDamaged) as error:
        return None, str(error)


@lru_cache(maxsize=64)
def read_floor(revision: int, manifests: tuple[str, ...]) -> Mapping[str, Any]:
    """Anew whenever a pair was run again, which the trials' manifests tell."""
    found = BriefRevision.objects.get(pk=revision)
    brief, trials = found.document, evidence_of(found, purposes=[FLOOR])
    known = noise_floor(judged_by(brief, brief.rule.planned_looks[-1]), trials)
    return known | {"saturated": baseline_saturated(brief, trials)}
