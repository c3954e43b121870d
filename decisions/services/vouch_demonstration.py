from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from django.utils import timezone

from decisions import ledger
from decisions.models import Account, BehaviourResult, Demonstration
from decisions.rules.demonstrations import MODES, Implementation, Mode, summary_of, why_not
from decisions.rules.identity import why_not_after_reset
from decisions.rules.who_may import may_vouch
from decisions.selectors.demonstrations import implementation_of
from decisions.selectors.identity import recent_reset
from decisions.services.move_revision import subject
from decisions.services.people import person
from decisions.services.reauthenticate import Credentials, reauthenticate
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests import uploads
from loadtests.behaviour.result import SuiteResult, read_result
from loadtests.canonical import canonical, digest
from loadtests.configurations import METHODS
from loadtests.credentials import beginning_without_credentials
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act
from loadtests.naming import Held
from loadtests.services.import_traffic import kept, name_files, naming

LONGEST_NOTE = 1_000
LONGEST_NAME = 120
MOST_CASES = 1_000
# A suite of two hundred cases with every difference shown is a few MB.
LONGEST_RESULT = 10_000_000  # bytes
# A page waits so long for files that are being removed.
NAMING_PATIENCE_S = 30.0
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """A result.json that ``draftproof behaviour`` wrote, and what it was asked of: the file itself doesn't tell."""

    content: bytes
    about: Implementation


def vouch_demonstration(
    *, source: BehaviourResult | File, mode: Mode, by: Account, credentials: Credentials, note: str = ""
) -> Demonstration:
    """Records that somebody answers for it: this engine, with this method, preserves behaviour in this sampling mode.
    It rests on what the suite found for a brief, or on a file of what it found elsewhere, which is kept as evidence.

    Raises Refused where the result demonstrates nothing of the kind; nothing is kept then.
    """
    refusal = may_vouch(person(by)) or why_not_after_reset(recent_reset(by), timezone.now())
    if refusal:
        refuse("demonstration-vouch", refusal, subject="demonstrations", actor=by.username)
    content, about = content_of(source), about_of(source)
    result = result_in(content)
    check_words(about, mode)
    reason = why_not(result, about, mode)
    if reason:
        raise Refused(f"it can't be vouched for: {reason}")
    proof = reauthenticate(by, credentials)
    if proof.refusal:
        refuse("demonstration-vouch", proof.refusal, subject="demonstrations", actor=by.username)
    one = Demonstration(
        engine=about.engine,
        distribution=about.distribution,
        version=about.version,
        method=about.method,
        mode=mode,
        result_digest=digest(content),
        evidence={server: asked.answers_sha256 for server, asked in sorted(result.asked.items())},
        summary=summary_of(result),
        result=source if isinstance(source, BehaviourResult) else None,
        note=beginning_without_credentials(note.strip(), LONGEST_NOTE),
        vouched_by=by.username,
    )
    with uploads.workplace("demonstration-") as place:
        file = place / "result.json"
        file.write_bytes(content)
        files = {one.result_digest: file}
        with kept(files, place), naming(files, patience_s=NAMING_PATIENCE_S) as lock:
            record(one, by, files, lock)
    return one


def content_of(source: BehaviourResult | File) -> bytes:
    return source.content if isinstance(source, File) else evidence_store().get(source.digest)


def about_of(source: BehaviourResult | File) -> Implementation:
    if isinstance(source, File):
        return source.about
    about = implementation_of(source.revision)
    if about is None:
        raise Refused(f"{source.revision} nominated no speculation, so its suite asked none")
    return about


def result_in(content: bytes) -> SuiteResult:
    if len(content) > LONGEST_RESULT:
        raise Refused(f"the file is larger than the {LONGEST_RESULT / 1e6:g} MB that a result has at most")
    try:
        result = read_result(content)
    except ValueError as error:
        raise Refused(f"this is no result.json of draftproof behaviour: {first_problem(error)}") from None
    if foreign := foreign_words(result):
        raise Refused(f"{foreign}: this file is not as draftproof behaviour wrote it")
    return result


def foreign_words(result: SuiteResult) -> str | None:
    """What of a file that anybody may have written can't be kept or shown."""
    if "candidate" not in result.asked:
        return "it says nothing of a candidate"
    digests = [result.plan_sha256, *(asked.answers_sha256 for asked in result.asked.values())]
    if not all(DIGEST.fullmatch(one) for one in digests):
        return "it names its evidence by what is no digest"
    if len(result.cases) > MOST_CASES:
        return f"it has {len(result.cases):,} cases"
    versions = [asked.version for asked in result.asked.values() if asked.version is not None]
    if not all(
        one.isprintable() and len(one) <= LONGEST_NAME for one in (*versions, *(case.id for case in result.cases))
    ):
        return "it names a case or a version by what is no name"
    try:
        canonical(summary_of(result))
    except (ValueError, OverflowError) as error:
        return f"its numbers can't be kept: {error}"
    return None


def first_problem(error: ValueError) -> str:
    """Of the many lines that pydantic writes: the first field, and what is wrong with it."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)[:300]
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])[:100]
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def check_words(about: Implementation, mode: str) -> None:
    problems = []
    if mode not in MODES:
        problems.append(f"sampling: choose one of {', '.join(MODES)}")
    if about.method not in METHODS:
        problems.append(f"method: choose one of {', '.join(METHODS)}")
    if about.engine not in ("vllm", "remote", "simulated"):
        problems.append("engine: choose vllm, remote or simulated")
    for name, value in (("distribution", about.distribution), ("version", about.version)):
        if not value or len(value) > LONGEST_NAME or not value.isprintable():
            problems.append(f"{name}: 1 to {LONGEST_NAME} characters")
    if problems:
        raise Refused("; ".join(problems))


def record(one: Demonstration, by: Account, files: Collection[str], lock: Held) -> None:
    with act():
        same = {name: getattr(one, name) for name in ("engine", "distribution", "version", "method", "mode")}
        known = Demonstration.objects.filter(**same, result_digest=one.result_digest, withdrawn_at=None).first()
        if known:
            raise Refused(f"{known.vouched_by} vouches for this very result already: demonstration {known.pk}")
        name_files(files, lock)
        one.save(force_insert=True)
        ledger.append(
            "demonstration-vouched",
            subject=f"demonstration {one.pk}",
            actor=by.username,
            details={
                **same,
                "result": one.result_digest,
                "evidence": one.evidence,
                "brief": subject(one.result.revision) if one.result else "",
                "note": one.note,
            },
        )
