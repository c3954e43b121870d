import json

from decisions.models import BriefRevision, Verdict
from decisions.rules.verdict import VERDICT_CODE, verdict_content
from decisions.selectors.behaviour import behaviour_of
from decisions.selectors.evidence import evidence_digests, evidence_of
from decisions.services.move_revision import move_revision
from decisions.services.open_request import open_request
from loadtests.canonical import digest, digest_of
from loadtests.journal import act


def compute_verdict(*, revision: BriefRevision) -> Verdict:
    """Applies the rules to the frozen brief and its evidence, and puts the verdict before the owner."""
    content = content_by(revision=revision)
    document, manifests = json.loads(content), evidence_digests(revision)
    with act():
        created = Verdict.objects.create(
            revision=revision,
            result=document["verdict"],
            sentence=document["sentence"],
            content=content,
            digest=digest(content),
            evidence_digest=digest_of(manifests),
        )
        request = open_request(verdict=created, by="draftproof")
        move_revision(
            revision=revision,
            act="judge",
            actor="draftproof",
            details={
                "verdict": created.result,
                "digest": created.digest,
                "evidence": created.evidence_digest,
                "request": request.told,
            },
        )
    return created


def content_by(*, revision: BriefRevision, code: str = VERDICT_CODE, pairs: int | None = None) -> bytes:
    """The bytes of the verdict by a version of the rules: those of an old verdict, by the version that it names; or of
    a look after so many ``pairs``."""
    if revision.content is None:
        raise ValueError(f"{revision} isn't frozen")
    nominee, evidence = revision.nominee or None, evidence_digests(revision, pairs=pairs)
    trials = evidence_of(revision, pairs=pairs)
    on_the_way = pairs is not None
    return verdict_content(
        bytes(revision.content),
        nominee,
        trials,
        evidence,
        behaviour=None if on_the_way else behaviour_of(revision),
        suite_to_come=on_the_way,
        code=code,
    )
