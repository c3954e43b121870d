"""The bundle: a decision with everything it rests on, in one zip that anybody can verify without this server.

``decisions/verify.py`` says what is in it and checks it; it is packed into every bundle as it is.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from decisions import history
from decisions import verify as verifier
from decisions.bundle_texts import public_key_in_pem, readme, report
from decisions.models import BehaviourResult, BriefRevision, Checkpoint, Event, Release, Signature, SigningKey, Verdict
from decisions.selectors.events import events_of_revision
from decisions.services.make_checkpoint import make_checkpoint
from decisions.services.recorded_signer import recorded_signer
from decisions.services.refused import Refused
from decisions.signing import Signer, signed
from loadtests.canonical import canonical, digest
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act
from loadtests.models import Trial

RELEASE_ENDS = ("release-revoked", "brief-supersede")
# What a manifest names and holds no text of anybody; the log and the suite's answers may.
PLAIN_FILES = ("plan", "records", "timeline")


@dataclass(frozen=True)
class Wanted:
    """``files``: plans, records, timelines and every manifest, in which an engine's error may repeat what it was
    asked. ``text``: its logs and the answers of the preserved-behaviour suite too. ``reaching``: a checkpoint that
    somebody kept; the part of the ledger reaches as far as that."""

    files: bool = False
    text: bool = False
    reaching: bytes | None = None


@dataclass(frozen=True)
class Taken:
    """What the database says, all at one moment."""

    events: list[Event]
    checkpoint: Checkpoint
    decision: dict[str, Any]
    keys: list[SigningKey]


def export_bundle(*, revision: BriefRevision, sink: BinaryIO, wanted: Wanted | None = None) -> str:
    """Writes the bundle of a signed decision; returns the id of the key that signed it. What is written was verified.
    Raises Refused where there is none to write, NoSigningKey."""
    asked, signer, verdict = wanted or Wanted(), recorded_signer(), signed_verdict(revision)
    with act():
        taken = take(revision, verdict, signer, asked.reaching)
    try:
        evidence, files = evidence_of_bundle(revision, verdict, asked)
        members = members_of(revision, verdict, taken, evidence, signer)
        write(sink, members, files, statement_of(members, files, verdict, taken), signer)
    except (EvidenceMissing, EvidenceDamaged) as error:
        raise Refused(f"evidence that the verdict rests on can't be read: {error}") from None
    except ValueError as error:
        raise Refused(str(error)) from None
    outcome = verifier.verify(sink, verifier.Outside(fingerprint=signer.key_id))
    if not outcome.verified:
        raise Refused(f"what is stored doesn't hold, so no bundle is made of it: {'; '.join(outcome.faults)}")
    sink.seek(0)
    return signer.key_id


def file_name(revision: BriefRevision) -> str:
    return f"draftproof-brief-{revision.brief_id}-revision-{revision.number}.zip"


def signed_verdict(revision: BriefRevision) -> Verdict:
    verdict = revision.verdicts.last()
    if verdict is None or not revision.signatures.exists():
        raise Refused("nobody has signed this brief yet: there is no decision to make a bundle of")
    return verdict


# What the database says


def take(revision: BriefRevision, verdict: Verdict, signer: Signer, reaching: bytes | None) -> Taken:
    own = list(events_of_revision(revision).order_by("sequence"))
    releases = list(Release.objects.filter(revision=revision).select_related("route").order_by("pk"))
    about = sorted([*own, *(one for release in releases for one in events_of(release))], key=lambda one: one.sequence)
    first, last = about[0].sequence, about[-1].sequence
    if reaching is not None:
        size = size_to_reach(reaching)
        first, last = min(first, max(size, 1)), max(last, size)
    checkpoint = covering(last, signer)
    segment = Event.objects.filter(sequence__gte=first, sequence__lte=checkpoint.size).order_by("sequence")
    decision = decision_of(revision, verdict, own, releases)
    return Taken(list(segment), checkpoint, decision, list(SigningKey.objects.all()))


def size_to_reach(content: bytes) -> int:
    try:
        size = history.size_of(content)
    except ValueError as error:
        raise Refused(str(error)) from None
    if not Event.objects.filter(sequence=size).exists():
        raise Refused(f"that checkpoint is over event {size}, which this ledger doesn't have")
    return size


def covering(last: int, signer: Signer) -> Checkpoint:
    """The first one kept that is over the event, signed with the key in use: if it was with another, the same state is
    signed again, so that one key is enough to verify a bundle."""
    kept = Checkpoint.objects.filter(size__gte=last).order_by("size", "pk").first()
    return make_checkpoint(signer=signer, size=kept.size if kept else None)


def events_of(release: Release) -> Iterator[Event]:
    on_route = Event.objects.filter(subject=f"route {release.route.slug}", kind__startswith="release-")
    return (one for one in on_route.order_by("sequence") if one.details.get("release") == release.pk)


def decision_of(revision: BriefRevision, verdict: Verdict, own: list[Event], releases: list[Release]) -> dict[str, Any]:
    service, signatures = revision.brief.route.service, revision.signatures.select_related("verdict", "request")
    request = list(signatures)[-1].request
    return {
        "schema": "draftproof.decision/1",
        "service": service.slug,
        "route": revision.brief.route.slug,
        "state": revision.state,
        "nominee": revision.nominee,
        "brief": {
            "number": revision.brief_id,
            "revision": revision.number,
            "title": revision.title,
            "digest": revision.digest,
        },
        "verdict": {"result": verdict.result, "sentence": verdict.sentence, "digest": verdict.digest},
        "policy": request.policy_document if request else None,
        "signatures": [signature_document(one, verdict, own) for one in signatures],
        "releases": [release_document(one, own) for one in releases],
    }


def signature_document(signature: Signature, verdict: Verdict, own: list[Event]) -> dict[str, Any]:
    event = next((one for one in own if one.details.get("statement") == signature.digest), None)
    if event is None:
        raise Refused(f"the ledger has no event of the signature {signature.digest}: run manage.py verify_ledger")
    return {
        "event": event.sequence,
        "at": json.loads(bytes(event.content))["at"],
        "name": signature.signer_name,
        "username": signature.signer_username,
        "meaning": signature.meaning,
        "meaning_said": signature.get_meaning_display(),
        "reason": signature.reason,
        "statement": bytes(signature.statement).decode(),
        "binds": {
            "brief": signature.revision.digest,
            "verdict": signature.verdict.digest,
            "evidence": signature.verdict.evidence_digest,
        },
        "current": signature.verdict_id == verdict.pk,
    }


def release_document(release: Release, own: list[Event]) -> dict[str, Any]:
    about = [*events_of(release), *(one for one in own if one.details.get("release") == release.pk)]
    began = next((one for one in about if one.kind == "release-in-force"), None)
    if began is None:
        raise Refused(f"the ledger has no event of release {release.pk}: run manage.py verify_ledger")
    ended = next((one for one in about if one.kind in RELEASE_ENDS), None)
    word = "revoked" if release.revoked_at else "replaced" if release.superseded_at else "put in force"
    named = {name: began.details[name] for name in ("release", "configuration", "expires")}
    return {**named, "event": began.sequence, "ended_by_event": ended.sequence if ended else None, "word": word}


# Evidence


def evidence_of_bundle(revision: BriefRevision, verdict: Verdict, wanted: Wanted) -> tuple[dict[str, Any], set[str]]:
    """(the list of all evidence that the verdict rests on, the digests of what is packed)"""
    named = verdict.document["evidence"]
    trials = Trial.objects.filter(
        boot__campaign__brief_campaign__revision=revision, manifest_digest__in=named
    ).select_related("boot__campaign")
    suite = BehaviourResult.objects.filter(revision=revision, digest__in=named).last()
    files: set[str] = set()
    listed = [trial_document(one, wanted, files) for one in trials.order_by("pk")]
    if suite and wanted.text:
        files |= {suite.digest, *suite.answers.values()}
    told = {"digest": suite.digest, "outcome": suite.outcome, "answers": suite.answers} if suite else None
    return {"schema": "draftproof.bundle-evidence/1", "trials": listed, "behaviour": told}, files


def trial_document(trial: Trial, wanted: Wanted, files: set[str]) -> dict[str, Any]:
    manifest = manifest_document(trial.manifest_digest)
    digests = manifest["digests"] if manifest else {"plan": trial.plan_digest, "records": trial.records_digest}
    own = {name: digests.get(name) for name in (*PLAIN_FILES, "log")}
    if wanted.files or (manifest and not repeats_a_server(manifest)):
        files.add(trial.manifest_digest)
    kinds = (*PLAIN_FILES, "log") if wanted.text else PLAIN_FILES if wanted.files else ()
    files |= {one for name in kinds if (one := own[name])}
    boot = trial.boot
    return {
        "trial": trial.pk,
        "purpose": boot.campaign.purpose,
        "pair": boot.pair,
        "arm": boot.arm,
        "candidate": boot.candidate,
        "level": trial.level,
        "manifest": trial.manifest_digest,
        "files": own,
    }


def manifest_document(wanted: str) -> dict[str, Any] | None:
    try:
        found = json.loads(evidence_store().get(wanted))
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("digests"), dict) else None


def repeats_a_server(manifest: Mapping[str, Any]) -> bool:
    """A server's error may repeat what it was asked, and prompts are personal data."""
    return bool(manifest.get("died") or (manifest.get("warm_up") or {}).get("errors"))


# The archive


def members_of(
    revision: BriefRevision, verdict: Verdict, taken: Taken, evidence: dict[str, Any], signer: Signer
) -> dict[str, bytes]:
    """By name, without evidence and the signed statement."""
    return {
        verifier.BRIEF: bytes(revision.content or b""),
        verifier.VERDICT: bytes(verdict.content),
        verifier.CONFIGURATION: revision.document.configuration(revision.nominee or "baseline").content,
        verifier.DECISION: canonical(taken.decision),
        verifier.EVIDENCE: canonical(evidence),
        verifier.LEDGER: b"".join(bytes(one.content) + b"\n" for one in taken.events),
        verifier.CHECKPOINT_FILE: bytes(taken.checkpoint.content),
        verifier.KEYS: canonical(
            {
                "schema": "draftproof.keys/1",
                "keys": [
                    {"key_id": one.key_id, "public_key": b64encode(bytes(one.public_key)).decode()}
                    for one in taken.keys
                ],
                "rotations": history.rotations(),
            }
        ),
        "public-key.pem": public_key_in_pem(signer.public_key()),
        "readme.txt": readme(signer.key_id),
        "report.html": report(taken.decision, verdict.document, evidence, taken.checkpoint),
        "verify.py": Path(verifier.__file__).read_bytes(),
    }


def statement_of(members: Mapping[str, bytes], files: set[str], verdict: Verdict, taken: Taken) -> bytes:
    digests = {name: digest(content) for name, content in members.items()}
    digests |= {verifier.FILES + one: one for one in files}
    return canonical(
        {
            "_type": verifier.STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)],
            "predicateType": verifier.PREDICATE,
            "predicate": {
                "schema": verifier.SCHEMA,
                "brief": digests[verifier.BRIEF],
                "verdict": digests[verifier.VERDICT],
                "configuration": digests[verifier.CONFIGURATION],
                "evidence": verdict.evidence_digest,
                "checkpoint": {"size": taken.checkpoint.size, "head": taken.checkpoint.head},
            },
        }
    )


def write(sink: BinaryIO, members: Mapping[str, bytes], files: set[str], statement: bytes, signer: Signer) -> None:
    """Evidence is read piece by piece, when its turn comes."""
    store = evidence_store()
    reading: dict[str, Callable[[], bytes]] = {verifier.FILES + one: partial(store.get, one) for one in files}
    reading |= {name: partial(bytes, content) for name, content in members.items()}
    reading[verifier.ATTESTATION] = partial(signed, verifier.IN_TOTO, statement, [signer])
    verifier.write_archive(sink, ((name, reading[name]()) for name in sorted(reading)))
