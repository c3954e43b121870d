from decisions.models import BriefRevision, Verdict
from decisions.rules.verdict import verdict
from decisions.selectors.evidence import evidence_of
from decisions.services.move_revision import move_revision
from loadtests.canonical import canonical, digest, digest_of
from loadtests.journal import act
from loadtests.models import Boot
from loadtests.models.campaign import counted_boots


def compute_verdict(*, revision: BriefRevision) -> Verdict:
    """Applies the rules to the frozen brief and its evidence, and puts the verdict before the owner."""
    document = verdict(revision.document, revision.nominee or None, evidence_of(revision))
    manifests = evidence_digests(revision)
    document |= {"brief": revision.digest, "evidence": manifests}
    content = canonical(document)
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


def evidence_digests(revision: BriefRevision) -> list[str]:
    """The manifest digests of the trials the verdict rests on; a manifest names records, plan and log in turn."""
    boots = Boot.objects.filter(campaign__brief_campaign__revision=revision, campaign__state="done").prefetch_related(
        "trials"
    )
    return sorted(trial.manifest_digest for boot in counted_boots(boots) for trial in boot.trials.all())
