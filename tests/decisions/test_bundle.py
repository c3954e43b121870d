"""The bundle of a decision: what is in it, and that nothing in it can be changed unnoticed."""

from __future__ import annotations

import ast
import io
import json
import random
import re
import struct
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given
from hypothesis import settings as property_settings
from hypothesis import strategies as st

from config.cli import main
from decisions import ledger
from decisions import verify as verifier
from decisions.bundle import Wanted, export_bundle
from decisions.models import Account, BriefRevision, Checkpoint, Release, SigningKey
from decisions.services.make_checkpoint import make_checkpoint
from decisions.services.reauthenticate import Credentials
from decisions.services.recorded_signer import recorded_signer
from decisions.services.refused import Refused
from decisions.services.revoke_release import revoke_release
from decisions.services.rotate_key import rotate_key
from decisions.signing import PrivateKey, new_key
from loadtests.canonical import canonical, digest
from loadtests.demo import SUPPORT_ASSISTANT
from tests.conftest import PASSWORD
from tests.support.bundles import (
    REASON,
    Made,
    Members,
    flipped,
    made,
    outcome,
    packed,
    sign,
)
from tests.support.reviewed import Reviewed, build_reviewed

MEMBERS = (
    *("attestation.json", "brief.json", "checkpoint.json", "configuration.json", "decision.json", "evidence.json"),
    *("keys.json", "ledger.jsonl", "public-key.pem", "readme.txt", "report.html", "verdict.json", "verify.py"),
)
_kept: list[Made] = []


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[Reviewed, Path]:
    """Built once; every test's changes are rolled back."""
    return build_reviewed(PASSWORD), module_evidence


@pytest.fixture
def in_review(built: tuple[Reviewed, Path], db: None, settings: Any) -> Reviewed:
    settings.EVIDENCE_DIR = built[1]
    cache.clear()
    return built[0]


@pytest.fixture
def people(in_review: Reviewed) -> dict[str, Account]:
    return in_review.people


@pytest.fixture
def revision(in_review: Reviewed) -> BriefRevision:
    return signed(in_review, "approve")


def signed(case: Reviewed, meaning: str) -> BriefRevision:
    revision = BriefRevision.objects.get(pk=case.revision.pk)
    sign(revision, case.people["owner"], PASSWORD, meaning)
    return revision


@pytest.fixture
def bundle(request: pytest.FixtureRequest) -> Made:
    """Made once: what is done with it afterwards asks no database."""
    if not _kept:
        _kept.append(made(request.getfixturevalue("revision")))
    return _kept[0]


def test_a_bundle_verifies_and_says_first_what_was_decided_by_whom_and_when(bundle: Made) -> None:
    found = outcome(bundle.content, bundle.key_id)
    assert (found.faults, found.status) == ([], verifier.VERIFIED)
    lines = verifier.told(found).splitlines()
    decision = json.loads(bundle.members["decision.json"])
    at = decision["signatures"][0]["at"]
    assert lines[:6] == [
        "VERIFIED: this is the decision as it was signed, with the evidence and the history that it names.",
        "",
        "Decision: approved for support-assistant/chat, nominee ngram-k2",
        "Brief: Prompt lookup for chat, revision 1",
        f"Signed: owner (owner) at {at[:10]} {at[11:19]} UTC: Approve: this configuration may run on the route",
        f"  Reason: {REASON}",
    ]
    assert lines[6].startswith("Verdict: PASS. On held-out traffic ngram K=2 brings completion p50")
    assert f"Signed with the key {bundle.key_id}, which is the one you named." in lines


def test_its_members_are_these(bundle: Made) -> None:
    names = list(bundle.members)
    assert names == sorted(names)
    assert {name for name in names if not name.startswith("evidence/")} == set(MEMBERS)
    verdict = json.loads(bundle.members["verdict.json"])
    manifests = {name.partition("/")[2] for name in names if name.startswith("evidence/")}
    assert manifests == set(verdict["evidence"])
    assert bundle.members["verify.py"] == Path(verifier.__file__).read_bytes()


def test_the_statement_is_in_toto_in_a_dsse_envelope(bundle: Made) -> None:
    envelope = verifier.read_envelope(bundle.members["attestation.json"], "application/vnd.in-toto+json")
    statement = envelope.document
    assert (statement["_type"], sorted(statement)) == (
        "https://in-toto.io/Statement/v1",
        ["_type", "predicate", "predicateType", "subject"],
    )
    assert [one["name"] for one in statement["subject"]] == [one for one in bundle.members if one != "attestation.json"]
    ((keyid, signature),) = envelope.signatures
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(envelope.payload), envelope.payload)
    assert keyid == bundle.key_id
    assert bundle.signer.sign(signed) == signature


def test_the_encoding_is_that_of_the_dsse_specification() -> None:
    assert verifier.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_other_programs_read_the_archive(bundle: Made) -> None:
    with zipfile.ZipFile(io.BytesIO(bundle.content)) as archive:
        assert archive.testzip() is None
        assert {one.filename: archive.read(one) for one in archive.infolist()} == bundle.members
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_same_decision_gives_the_same_bytes(revision: BriefRevision) -> None:
    assert made(revision).content == made(revision).content


def test_nobody_is_told_verified_without_a_key_from_outside(bundle: Made) -> None:
    found = outcome(bundle.content)
    assert (found.faults, found.status) == ([], verifier.NOT_VERIFIED)
    said = verifier.told(found)
    assert said.startswith("NOT VERIFIED: everything in the bundle fits together, but the key that signed it is the")
    assert f"Signed with the key {bundle.key_id}: the bundle's own word." in said
    assert "Decision (as the bundle claims): approved" in said


# Nothing can be changed


@pytest.mark.parametrize("mended", [False, True])
def test_a_flipped_byte_is_noticed_in_every_member(bundle: Made, mended: bool) -> None:
    draw = random.Random(5)
    for name, content in bundle.members.items():
        for index in (0, len(content) - 1, draw.randrange(len(content))):
            changed = flipped(bundle.content, name, index, draw.randrange(1, 256), mended=mended)
            assert_named(outcome(changed, bundle.key_id), name)


@given(data=st.data())
@property_settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_byte_of_any_member_is_noticed_and_the_member_named(bundle: Made, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(bundle.members)))
    index = data.draw(st.integers(0, len(bundle.members[name]) - 1))
    mask, mended = data.draw(st.integers(1, 255)), data.draw(st.booleans())
    assert_named(outcome(flipped(bundle.content, name, index, mask, mended=mended), bundle.key_id), name)


def assert_named(found: verifier.Outcome, name: str) -> None:
    assert found.status == verifier.NOT_VERIFIED
    assert [one for one in found.faults if one.startswith(f"{name}: ")], found.faults


@given(data=st.data())
@property_settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_byte_of_the_file_is_noticed(bundle: Made, data: st.DataObject) -> None:
    whole = bytearray(bundle.content)
    # Half of them behind the members, where the archive's own directory is.
    start = data.draw(st.sampled_from([0, whole.rindex(b"PK\x01\x02attestation"[:4]) - 4000]))
    whole[data.draw(st.integers(start, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = outcome(bytes(whole), bundle.key_id)
    except verifier.Unreadable:
        return
    assert found.status == verifier.NOT_VERIFIED
    assert found.faults


def without(name: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        del members[name]

    return change


def test_a_missing_member_is_named(bundle: Made) -> None:
    for name in bundle.members:
        members = bundle.members
        del members[name]
        assert f"{name}: it is missing" in outcome(packed(members), bundle.key_id).faults


def test_a_surplus_member_is_named(bundle: Made) -> None:
    surplus = packed(bundle.members | {"zz-more.txt": b"more"})
    assert outcome(surplus, bundle.key_id).faults[0] == "zz-more.txt: the signed statement doesn't name it"


@pytest.mark.parametrize("name", [one for one in MEMBERS if one != "attestation.json"])
def test_a_member_of_another_bundle_is_noticed(bundle: Made, name: str) -> None:
    swapped = packed(bundle.members | {name: b"{}"})
    assert_named(outcome(swapped, bundle.key_id), name)


def test_a_forger_with_a_key_of_their_own_is_not_believed(bundle: Made) -> None:
    forger = new_key()

    def change(members: Members) -> None:
        keys = json.loads(members["keys.json"])
        keys["keys"].append({"key_id": forger.key_id, "public_key": b64encode(forger.public_key()).decode()})
        members["keys.json"] = canonical(keys)
        members["report.html"] = b"<p>Everything was approved.</p>"

    forged = bundle.resigned(change, signer=forger)
    assert outcome(forged).faults == [], "by its own word it fits together"
    (fault,) = outcome(forged, bundle.key_id).faults
    assert fault.startswith(f"attestation.json: it is signed with the key {forger.key_id}. You trust {bundle.key_id}")


def edited(name: str, **changes: Any) -> Callable[[Members], None]:
    """``changes``: by dotted path, with __ for the dots."""

    def change(members: Members) -> None:
        document = json.loads(members[name])
        for path, value in changes.items():
            *way, last = path.split("__")
            place = document
            for step in way:
                place = place[int(step) if step.isdigit() else step]
            place[int(last) if last.isdigit() else last] = value
        members[name] = canonical(document)

    return change


def ledger_without(position: int) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        lines = members["ledger.jsonl"].splitlines(keepends=True)
        del lines[position]
        members["ledger.jsonl"] = b"".join(lines)

    return change


def ledger_edited(members: Members) -> None:
    lines = members["ledger.jsonl"].splitlines()
    lines[4] = canonical(json.loads(lines[4]) | {"actor": "nobody"})
    members["ledger.jsonl"] = b"".join(one + b"\n" for one in lines)


def other_file(members: Members) -> None:
    members["evidence/" + digest(b"other")] = b"other"


def misnamed_file(members: Members) -> None:
    members["evidence/" + "0" * 64] = b"other"


def other_files_of_a_trial(members: Members) -> None:
    evidence = json.loads(members["evidence.json"])
    evidence["trials"][0]["files"]["records"] = "0" * 64
    members["evidence.json"] = canonical(evidence)


CONTRADICTIONS: dict[str, tuple[Callable[[Members], None], str]] = {
    "another actor in an event": (ledger_edited, r"ledger\.jsonl: event \d+ doesn't follow event \d+: the chain is"),
    "an event is left out": (ledger_without(3), r"ledger\.jsonl: event \d+ doesn't follow event \d+"),
    "the end of the ledger is left out": (ledger_without(-1), r"checkpoint\.json: it isn't over the last event"),
    "no ledger": (lambda members: members.update({"ledger.jsonl": b"no json\n"}), r"ledger\.jsonl: it isn't written"),
    "another signer": (edited("decision.json", signatures__0__username="olga"), r"somebody else signed"),
    "another time": (edited("decision.json", signatures__0__at="2020-01-01T00:00:00.000000Z"), r"at another time"),
    "another reason": (edited("decision.json", signatures__0__reason="None"), r"tells another signature"),
    "another statement": (edited("decision.json", signatures__0__statement="I agree"), r"tells another signature"),
    "another meaning": (edited("decision.json", signatures__0__meaning="reject"), r"had another meaning than 'reject'"),
    "another verdict signed": (edited("decision.json", signatures__0__binds__verdict="0" * 64), r"another signature"),
    "nobody signed": (edited("decision.json", signatures=[]), r"or nobody who signed"),
    "another state": (edited("decision.json", state="rejected"), r"the revision is approved, not rejected"),
    "another nominee": (edited("decision.json", nominee="ngram-k8"), r"it names another nominee"),
    "another title": (edited("decision.json", brief__title="Other"), r"decision\.json: it is about another brief"),
    "another result": (edited("decision.json", verdict__result="FAIL"), r"decision\.json: it tells another verdict"),
    "another release": (edited("decision.json", releases__0__expires="2099-01-01"), r"tells another release"),
    "another end of a release": (edited("decision.json", releases__0__ended_by_event=3), r"decision\.json: "),
    "another verdict": (
        edited("verdict.json", sentence="All is well."),
        r"attestation\.json: it names another|decision",
    ),
    "another brief": (edited("brief.json", title="Other"), r"brief\.json: it isn't the brief that the verdict names"),
    "another configuration": (
        edited("configuration.json", speculative=None),
        r"configuration\.json: it isn't the conf",
    ),
    "evidence is left out": (edited("verdict.json", evidence=[]), r"aren't the pieces of evidence that the verdict"),
    "a file that no trial names": (other_file, r"evidence/[0-9a-f]{64}: no trial of the verdict names it"),
    "a file under another name": (misnamed_file, r"evidence/0{64}: its name isn't its digest"),
    "other files of a trial": (other_files_of_a_trial, r"evidence\.json: the manifest of trial \d+ names other files"),
    "no evidence": (lambda members: members.update({"evidence.json": b"[]"}), r"evidence\.json: it isn't written"),
    "no decision": (lambda members: members.update({"decision.json": b"[]"}), r"decision\.json: it isn't written"),
    "nested without end": (
        lambda members: members.update({"decision.json": b"[" * 99999}),
        r"decision\.json: it isn't",
    ),
    "no keys": (lambda members: members.update({"keys.json": b"{}"}), r"keys\.json: it isn't written"),
    "an id of another key": (edited("keys.json", keys__0__key_id="0" * 64), r"keys\.json: a public key doesn't give"),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_what_contradicts_itself_is_refused_though_the_key_signed_it(bundle: Made, kind: str) -> None:
    change, why = CONTRADICTIONS[kind]
    found = outcome(bundle.resigned(change), bundle.key_id)
    assert found.status == verifier.NOT_VERIFIED
    assert any(re.search(why, one) for one in found.faults), found.faults
    assert verifier.told(found).startswith("NOT VERIFIED: don't rely on this bundle.\n  - ")


def test_a_checkpoint_that_a_stranger_signed_is_refused(bundle: Made) -> None:
    stranger = new_key()

    def change(members: Members) -> None:
        said = verifier.read_envelope(members["checkpoint.json"], verifier.CHECKPOINT)
        signature = stranger.sign(verifier.pae(verifier.CHECKPOINT, said.payload))
        content = verifier.envelope_content(verifier.CHECKPOINT, said.payload, [(stranger.key_id, signature)])
        members["checkpoint.json"] = content

    assert outcome(bundle.resigned(change), bundle.key_id).faults == [
        "checkpoint.json: it isn't signed with a key that can be trusted here"
    ]


def test_what_it_tells_moves_no_cursor(bundle: Made) -> None:
    forged = bundle.resigned(edited("decision.json", signatures__0__name="\x1b[2J\x1b[1;1HVERIFIED\nAll is well"))
    said = verifier.told(outcome(forged, bundle.key_id))
    assert "\x1b" not in said
    assert "\ufffd[2J\ufffd[1;1HVERIFIED All is well (owner)" in said


# What a zip can hide


def rezipped(bundle: Made, write: Callable[[zipfile.ZipFile], None] = lambda _: None, **how: Any) -> bytes:
    """The members as Python's own module packs them in the same way, and something more."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", **how) as archive:
        for name, content in bundle.members.items():
            archive.writestr(plain_entry(name), content, compress_type=how.get("compression"))
        write(archive)
    return sink.getvalue()


def plain_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_version = entry.extract_version = 10
    entry.external_attr = 0o100644 << 16
    return entry


def link(archive: zipfile.ZipFile) -> None:
    entry = plain_entry("zz-link")
    entry.external_attr = 0o120777 << 16
    archive.writestr(entry, "/etc/passwd")


def named(name: str) -> Callable[[zipfile.ZipFile], None]:
    return lambda archive: archive.writestr(plain_entry(name), b"more")


def commented(archive: zipfile.ZipFile) -> None:
    archive.comment = b"This bundle was verified by nobody in particular."


def with_extra(archive: zipfile.ZipFile) -> None:
    entry = plain_entry("zz-more")
    entry.extra = struct.pack("<HH4s", 0xCAFE, 4, b"more")
    archive.writestr(entry, b"more")


def dated(archive: zipfile.ZipFile) -> None:
    entry = plain_entry("zz-more")
    entry.date_time = (2026, 1, 1, 0, 0, 0)
    archive.writestr(entry, b"more")


ENTRIES = {
    "a path out of it": (named("../../zz-evil"), "no member of a bundle has such a name, and it may lead out"),
    "a path from the root": (named("/zz-evil"), "no member of a bundle has such a name, and it may lead out"),
    "a path of another system": (named("zz\\..\\evil"), "no member of a bundle has such a name"),
    "a directory": (named("zz-directory/"), "no member of a bundle has such a name"),
    "a symbolic link": (link, "zz-link: it is a symbolic link"),
    "out of order": (named("aa-first"), "aa-first: the members aren't in the order of their names"),
    "a comment": (commented, "the archive has a comment, or something behind its end"),
    "a field of its own": (with_extra, "zz-more: the archive says more, or something else, about it"),
    "a time": (dated, "zz-more: the archive says more, or something else, about it"),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_what_a_zip_could_hide_is_refused_with_a_sentence(bundle: Made, kind: str) -> None:
    write, why = ENTRIES[kind]
    (fault,) = outcome(rezipped(bundle, write), bundle.key_id).faults
    assert why in fault


def test_python_s_own_archive_of_the_members_is_the_same_bytes(bundle: Made) -> None:
    """So that the tests above differ from a bundle in what they say and in nothing else."""
    assert rezipped(bundle) == bundle.content


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(bundle: Made) -> None:
    twice = rezipped(bundle, named("verify.py"))
    assert outcome(twice, bundle.key_id).faults == ["verify.py: it is there twice"]


def test_compressed_members_are_refused_unread(bundle: Made) -> None:
    bomb = rezipped(bundle, compression=zipfile.ZIP_DEFLATED)
    (fault,) = outcome(bomb, bundle.key_id).faults
    assert fault == "attestation.json: it is compressed; a bundle's members are stored as they are"


def directory_field(content: bytes, name: bytes, offset: int, value: bytes) -> bytes:
    """A field of a member's entry in the archive's directory is another."""
    place = content.rindex(name) - verifier.CENTRAL.size
    return content[: place + offset] + value + content[place + offset + len(value) :]


def test_encrypted_and_enormous_members_are_refused_unread(bundle: Made) -> None:
    encrypted = directory_field(bundle.content, b"verify.py", 8, b"\x01\x00")
    assert outcome(encrypted, bundle.key_id).faults == ["verify.py: it is encrypted, which no member of a bundle is"]
    enormous = directory_field(bundle.content, b"verify.py", 20, struct.pack("<II", 1 << 31, 1 << 31))
    (fault,) = outcome(enormous, bundle.key_id).faults
    assert fault.startswith("verify.py: it is larger than ")


def test_a_name_that_differs_from_the_directory_s_is_refused(bundle: Made) -> None:
    at = verifier.Archive(io.BytesIO(bundle.content)).members["verify.py"].at
    renamed = bundle.content[: at - len("verify.py")] + b"verifz.py" + bundle.content[at:]
    (fault,) = outcome(renamed, bundle.key_id).faults
    assert fault == "verify.py: the archive says more, or something else, about it than a bundle does"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: b"#!/bin/sh\n" + content, "the archive begins with something else than its first member"),
        (lambda content: content + b"\n", "the archive has a comment, or something behind its end"),
        (
            lambda content: content[:-22] + b"more" + content[-22:],
            "the archive's directory isn't where a bundle has it",
        ),
    ],
)
def test_bytes_around_the_members_are_refused(bundle: Made, change: Callable[[bytes], bytes], why: str) -> None:
    assert outcome(change(bundle.content), bundle.key_id).faults == [why]


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip at all" * 99, b"PK\x03\x04" + b"\0" * 999])
def test_what_is_no_archive_could_not_be_read(content: bytes) -> None:
    with pytest.raises(verifier.Unreadable, match="it is no zip archive"):
        outcome(content)


def test_an_archive_that_was_cut_off_could_not_be_read(bundle: Made) -> None:
    with pytest.raises(verifier.Unreadable, match="or one that was cut off"):
        outcome(bundle.content[: len(bundle.content) // 2])


@given(content=st.binary(max_size=400))
@property_settings(max_examples=300)
def test_no_bytes_at_all_end_it_otherwise(content: bytes) -> None:
    for tail in (b"", verifier.end_record(1, 60, max(0, len(content) - 60))):
        try:
            assert outcome(b"PK\x03\x04" + content + tail).status == verifier.NOT_VERIFIED
        except verifier.Unreadable:
            continue


def test_a_bundle_is_written_with_good_names_alone() -> None:
    for name in ("../up", "Upper", "", "a//b", "a/", "x" * 101):
        with pytest.raises(ValueError, match="can't be the name of a member"):
            verifier.write_archive(io.BytesIO(), [(name, b"")])


# The program


def run_alone(*arguments: str, program: Path) -> subprocess.CompletedProcess[str]:
    """As a file on a machine that has Python and cryptography: whatever else was imported would be named."""
    watch = (
        "import runpy, sys\n"
        "sys.argv[:] = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n"
        "    tops = {one.partition('.')[0] for one in sys.modules} - set(sys.stdlib_module_names)\n"
        "    print('besides:', *sorted(one for one in tops if not one.startswith('_')), file=sys.stderr)\n"
    )
    command = [sys.executable, "-I", "-c", watch, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_verifier_in_the_bundle_needs_python_and_cryptography_alone(bundle: Made, tmp_path: Path) -> None:
    program, path = tmp_path / "verify.py", tmp_path / "bundle.zip"
    program.write_bytes(bundle.members["verify.py"])
    path.write_bytes(bundle.content)
    ran = run_alone(str(path), "--fingerprint", bundle.key_id, program=program)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, "VERIFIED"), ran.stderr
    besides = set(ran.stderr.splitlines()[-1].split()[1:])
    assert {"django", "decisions", "rfc8785"} & besides == set()
    assert besides <= {"cryptography", "cffi", "distutils-precedence"}, besides
    ran = run_alone(str(path), program=program)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (1, "NOT VERIFIED")


def test_the_verifier_is_written_for_python_3_9() -> None:
    ast.parse(Path(verifier.__file__).read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.fixture
def path(bundle: Made, tmp_path: Path) -> Path:
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.content)
    return path


def test_the_command_is_the_same_program(bundle: Made, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, status in (([str(path), "--fingerprint", bundle.key_id], 0), ([str(path)], 1), (["nowhere.zip"], 2)):
        ran = CliRunner().invoke(main, ["verify", *arguments])
        assert (ran.exit_code, verifier.main(arguments)) == (status, status)
        assert ran.stdout == capsys.readouterr().out


def test_the_key_may_be_given_as_a_file(bundle: Made, path: Path, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(bundle.members["public-key.pem"])
    assert verifier.run(str(path), key=str(key))[0] == verifier.VERIFIED
    status, said = verifier.run(str(path), key=str(key), fingerprint="0" * 64)
    assert (status, said) == (2, "COULD NOT BE READ: the key and the fingerprint that you gave aren't of one key\n")
    key.write_bytes(b"no key")
    assert verifier.run(str(path), key=str(key))[1].startswith(
        "COULD NOT BE READ: the file given as --key holds no public key in PEM"
    )


def test_a_fingerprint_is_read_as_people_write_it(bundle: Made, path: Path) -> None:
    grouped = ":".join(bundle.key_id.upper()[at : at + 2] for at in range(0, 64, 2))
    for written in (grouped, f"SHA256:{bundle.key_id}", f" {bundle.key_id[:32]} {bundle.key_id[32:]}\n"):
        assert verifier.run(str(path), fingerprint=written)[0] == verifier.VERIFIED
    status, said = verifier.run(str(path), fingerprint=bundle.key_id[:40])
    assert status == verifier.UNREADABLE
    assert "a key's fingerprint has 64 hexadecimal digits" in said


def test_the_result_as_json(bundle: Made, path: Path) -> None:
    status, said = verifier.run(str(path), fingerprint=bundle.key_id, json_wanted=True)
    document = json.loads(said)
    assert (status, document["verified"], document["key"], document["faults"]) == (0, True, bundle.key_id, [])
    assert document["decision"]["signatures"][0]["username"] == "owner"
    status, said = verifier.run("nowhere.zip", json_wanted=True)
    assert (status, json.loads(said)["unreadable"]) == (2, "nowhere.zip: No such file or directory")


def test_without_cryptography_it_says_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "find_spec", lambda name: None)
    assert verifier.run(str(path)) == (
        2,
        "COULD NOT BE READ: this needs the package cryptography: python -m pip install cryptography\n",
    )


# What people read


def test_the_report_is_one_page_without_script_or_anything_of_elsewhere(bundle: Made) -> None:
    page = bundle.members["report.html"].decode()
    assert "@page { size: A4" in page
    assert re.search(r"<script|<link|<img|\bsrc=|\bhref=|url\(|https?:", page) is None
    decision = json.loads(bundle.members["decision.json"])
    for part in (REASON, "owner", "ngram-k2", decision["brief"]["digest"], bundle.key_id):
        assert part in page
    at = decision["signatures"][0]["at"]
    assert f"{at[:10]} {at[11:19]} UTC" in page


def test_prompts_and_answers_are_not_in_it(bundle: Made) -> None:
    said = [
        message["content"]
        for line in SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()
        for message in json.loads(line)["messages"]
    ]
    assert len(said) > 100
    whole = bundle.content.decode("utf-8", "replace")
    assert [one for one in said if one in whole or json.dumps(one)[1:-1] in whole] == []


def test_evidence_that_is_asked_for_is_hashes_without_text(revision: BriefRevision) -> None:
    told = made(revision, Wanted(files=True))
    assert outcome(told.content, told.key_id).verified
    verdict = json.loads(told.members["verdict.json"])
    trials = json.loads(told.members["evidence.json"])["trials"]
    assert len(trials) == len(verdict["evidence"])
    named = {f"evidence/{one}" for trial in trials for one in (trial["manifest"], *trial["files"].values()) if one}
    assert {name for name in told.members if name.startswith("evidence/")} == named
    records = [told.members[f"evidence/{trial['files']['records']}"] for trial in trials]
    texts = {field.name for field in pq.read_schema(io.BytesIO(records[0])) if str(field.type) == "string"}
    assert texts == {
        *("request_id", "class", "level", "prompt_sha256", "output_sha256"),
        *("status", "finish_reason", "error", "fingerprint"),
    }


def test_a_manifest_that_repeats_what_a_server_said_is_left_out(
    revision: BriefRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decisions.bundle.repeats_a_server", lambda manifest: True)
    assert not [name for name in made(revision).members if name.startswith("evidence/")]


# Which decisions there is a bundle of


def test_an_unsigned_brief_has_no_bundle(in_review: Reviewed) -> None:
    with pytest.raises(Refused, match="nobody has signed this brief yet"):
        export_bundle(revision=in_review.revision, sink=io.BytesIO())
    assert not Checkpoint.objects.exists()


def test_a_refusal_has_a_bundle_too(in_review: Reviewed) -> None:
    told = verifier.told(outcome(*both(made(signed(in_review, "request-changes")))))
    assert "Decision: changes-requested for support-assistant/chat" in told
    assert "Release" not in told


def both(bundle: Made) -> tuple[bytes, str]:
    return bundle.content, bundle.key_id


def test_a_revoked_release_is_told(revision: BriefRevision, people: dict[str, Account]) -> None:
    before = made(revision)
    revoke_release(
        release=Release.objects.get(),
        by=people["owner"],
        credentials=Credentials(PASSWORD),
        reason="An incident was reported",
    )
    after = made(revision)
    release = json.loads(after.members["decision.json"])["releases"][0]
    assert release["word"] == "revoked"
    assert "Release: 1, revoked" in verifier.told(outcome(*both(after))).replace(f" {release['release']},", " 1,")
    assert after.content != before.content
    assert after.members["ledger.jsonl"].startswith(before.members["ledger.jsonl"])


def test_missing_evidence_is_said_and_nothing_is_written(
    revision: BriefRevision, settings: Any, tmp_path: Path
) -> None:
    settings.EVIDENCE_DIR = tmp_path / "empty"
    with pytest.raises(Refused, match="evidence that the verdict rests on can't be read: no evidence"):
        made(revision)


def test_what_no_longer_holds_is_not_exported(revision: BriefRevision) -> None:
    BriefRevision.objects.filter(pk=revision.pk).update(state="rejected")
    revision.refresh_from_db()
    with pytest.raises(Refused, match=r"what is stored doesn't hold.*by the ledger the revision is approved"):
        made(revision)


# Checkpoints and keys


def test_it_reaches_the_first_checkpoint_that_was_kept(revision: BriefRevision) -> None:
    kept = make_checkpoint()
    recorded_signer()
    call_command("add_account", "later", "--role", "auditor", stdout=io.StringIO())
    told = made(revision)
    assert told.members["checkpoint.json"] == bytes(kept.content)
    assert Checkpoint.objects.count() == 1


def test_a_checkpoint_that_was_kept_is_held_against_it(revision: BriefRevision) -> None:
    near = made(revision)
    first = json.loads(near.members["ledger.jsonl"].split(b"\n")[0])["sequence"]
    before_it = bytes(make_checkpoint(size=first - 1).content)
    assert outcome(*both(near), checkpoint=before_it).verified, "the first event names the hash of the one before"
    with transaction.atomic():
        later = ledger.append("tested", subject="something else", actor="engineer", details={})
    kept = bytes(make_checkpoint().content)
    (fault,) = outcome(*both(near), checkpoint=kept).faults
    assert fault.startswith(
        f"the checkpoint that you gave is over event {later.sequence}, and this bundle holds {first}"
    )
    far = made(revision, Wanted(reaching=kept))
    found = outcome(*both(far), checkpoint=kept)
    assert found.verified
    assert any(
        f"the history is the one of your checkpoint over event {later.sequence}," in one for one in found.checked
    )


def test_a_checkpoint_that_contradicts_the_ledger_is_refused(revision: BriefRevision) -> None:
    told = made(revision)
    said = verifier.read_envelope(told.members["checkpoint.json"], verifier.CHECKPOINT)
    payload = canonical(said.document | {"head": "0" * 64})
    signature = told.signer.sign(verifier.pae(verifier.CHECKPOINT, payload))
    other = verifier.envelope_content(verifier.CHECKPOINT, payload, [(told.key_id, signature)])
    (fault,) = outcome(*both(told), checkpoint=other).faults
    assert "the checkpoint that you gave has another hash for event" in fault
    assert outcome(*both(told), checkpoint=told.members["checkpoint.json"] + b"\n").verified


def test_a_checkpoint_of_another_ledger_cannot_be_reached(revision: BriefRevision) -> None:
    told = made(revision)
    said = verifier.read_envelope(told.members["checkpoint.json"], verifier.CHECKPOINT)
    payload = canonical(said.document | {"size": 99_999})
    far = verifier.envelope_content(verifier.CHECKPOINT, payload, [(told.key_id, b"0" * 64)])
    with pytest.raises(Refused, match="over event 99999, which this ledger doesn't have"):
        made(revision, Wanted(reaching=far))


def rotated(settings: Any, *, lost: bool = False) -> PrivateKey:
    new = new_key()
    old = None if lost else recorded_signer()
    rotate_key(new=new, old=old, by="operator", reason="The yearly change of keys")
    settings.SIGNING_KEY = new.pem.decode()
    return new


def test_whoever_trusts_an_old_key_is_led_to_the_new_one(revision: BriefRevision, settings: Any) -> None:
    before = made(revision)
    size = Checkpoint.objects.get().size
    rotated(settings)
    newest = rotated(settings)
    after = made(revision)
    assert (after.key_id, SigningKey.objects.count()) == (newest.key_id, 3)
    for fingerprint in (before.key_id, newest.key_id):
        assert outcome(after.content, fingerprint).faults == []
    said = verifier.told(outcome(after.content, before.key_id))
    assert f"Signed with the key {newest.key_id}, to which your key {before.key_id} was rotated." in said
    assert outcome(before.content, before.key_id).verified, "what the old key signed goes on to hold"
    assert not outcome(before.content, newest.key_id).verified, "a key leads to those after it alone"
    checkpoint = Checkpoint.objects.get(size=size, key_id=newest.key_id)
    assert after.members["checkpoint.json"] == bytes(checkpoint.content), "the same state, signed again"
    assert after.members["ledger.jsonl"] == before.members["ledger.jsonl"]


def test_nobody_is_led_on_from_a_key_that_was_lost(revision: BriefRevision, settings: Any) -> None:
    before = made(revision)
    rotated(settings, lost=True)
    after = made(revision)
    assert outcome(after.content, after.key_id).verified
    (fault,) = [one for one in outcome(after.content, before.key_id).faults if one.startswith("attestation.json")]
    assert "no rotation leads from your key to that one" in fault


# The command and the page


def test_the_command_writes_a_bundle(revision: BriefRevision, tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("export_bundle", str(revision.brief_id), "--to", str(tmp_path), stdout=out)
    path = tmp_path / f"draftproof-brief-{revision.brief_id}-revision-1.zip"
    key = recorded_signer().key_id
    assert out.getvalue() == f"{path}\nsigned with the key {key}\n"
    assert list(tmp_path.glob(".bundle-*")) == []
    assert verifier.run(str(path), fingerprint=key)[0] == verifier.VERIFIED
    whole = tmp_path / "whole.zip"
    call_command("export_bundle", str(revision.brief_id), "--to", str(whole), "--with-evidence", stdout=out)
    assert whole.stat().st_size > 2 * path.stat().st_size
    with pytest.raises(CommandError, match="nowhere"):
        call_command("export_bundle", str(revision.brief_id), "--to", str(tmp_path / "nowhere" / "b.zip"))


def test_the_command_says_why_there_is_none(in_review: Reviewed, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nobody has signed this brief yet"):
        call_command("export_bundle", str(in_review.revision.brief_id), "--to", str(tmp_path / "b.zip"))
    assert not (tmp_path / "b.zip").exists()


def address(revision: BriefRevision, name: str = "brief-bundle") -> str:
    return reverse(name, args=(revision.brief_id, revision.number))


def test_the_page_gives_it_to_whoever_may_read_the_history(
    revision: BriefRevision, client: Client, people: dict[str, Account]
) -> None:
    assert client.post(address(revision)).headers["Location"].startswith("/sign-in/")
    client.force_login(people["stranger"])
    assert client.post(address(revision)).status_code == 403
    client.force_login(people["auditor"])
    page = client.get(address(revision, "brief-sign-off")).content.decode()
    assert f'action="{address(revision)}"' in page
    assert client.get(address(revision)).headers["Location"] == address(revision, "brief-sign-off")
    response = client.post(address(revision))
    assert response.status_code == 200
    assert response["Content-Type"] == "application/zip"
    assert response["Content-Disposition"] == (
        f'attachment; filename="draftproof-brief-{revision.brief_id}-revision-1.zip"'
    )
    content = b"".join(response.streaming_content)  # type: ignore[attr-defined]
    assert outcome(content, recorded_signer().key_id).verified
    page = client.get(address(revision, "brief-sign-off")).content.decode()
    assert recorded_signer().key_id in page


def test_the_page_says_why_there_is_none(in_review: Reviewed, client: Client) -> None:
    client.force_login(in_review.people["engineer"])
    page = client.post(address(in_review.revision), follow=True).content.decode()
    assert "No bundle was made: nobody has signed this brief yet" in page
