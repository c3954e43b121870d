import json

from decisions.models import BriefRevision, Verdict
from decisions.rules.verdict import VERDICT_CODE, verdict_content
from decisions.selectors.evidence import evidence_of
from decisions.services.move_revision import move_revision
from loadtests.canonical import digest, digest_of
from loadtests.journal import act
from loadtests.models import Boot
from loadtests.models.campaign import counted_boots


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
        move_revision(
            revision=revision,
            act="judge",
            actor="draftproof",
            details={"verdict": created.result, "digest": created.digest, "evidence": created.evidence_digest},
        )
    return created


def content_by(*, revision: BriefRevision, code: str = VERDICT_CODE) -> bytes:
    """The bytes of the verdict by a version of the rules: those of an old verdict, by the version that it names."""
    if revision.content is None:
        raise ValueError(f"{revision} isn't frozen")
    nominee, evidence = revision.nominee or None, evidence_digests(revision)
    return verdict_content(bytes(revision.content), nominee, evidence_of(revision), evidence, code=code)


def evidence_digests(revision: BriefRevision) -> list[str]:
    """The manifest digests of the trials the verdict rests on; a manifest names records, plan and log in turn."""
    boots = Boot.objects.filter(campaign__brief_campaign__revision=revision, campaign__state="done").prefetch_related(
        "trials"
    )
    return sorted(trial.manifest_digest for boot in counted_boots(boots) for trial in boot.trials.all())
