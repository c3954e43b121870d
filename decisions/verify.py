#!/usr/bin/env python3
"""Verifies a Draftproof bundle: who decided what on which evidence, without trusting the server that made it.

    python verify.py BUNDLE.zip --fingerprint KEY_ID

Needs Python 3.9 or later and the package ``cryptography``. Nothing is extracted and nothing is sent anywhere. Take
this file and the key's fingerprint from somewhere else than the bundle that you verify. Exit status: 0 verified,
1 not verified, 2 could not be read.

The server packs and signs with the same functions; ``draftproof verify`` is this file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO

SCHEMA = "draftproof.bundle/1"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://draftproof.example/decision/v1"
IN_TOTO = "application/vnd.in-toto+json"
CHECKPOINT = "application/vnd.draftproof.checkpoint+json"
ROTATION = "application/vnd.draftproof.key-rotation+json"
CHECKPOINT_SCHEMA = "draftproof.checkpoint/1"
ROTATION_SCHEMA = "draftproof.key-rotation/1"
EVENT_SCHEMA = "draftproof.event/1"
GENESIS = "0" * 64
SHA256 = re.compile(r"[0-9a-f]{64}")

ATTESTATION, CHECKPOINT_FILE, LEDGER, KEYS = "attestation.json", "checkpoint.json", "ledger.jsonl", "keys.json"
BRIEF, VERDICT, DECISION, EVIDENCE = "brief.json", "verdict.json", "decision.json", "evidence.json"
CONFIGURATION = "configuration.json"
ALWAYS = (BRIEF, CHECKPOINT_FILE, CONFIGURATION, DECISION, EVIDENCE, KEYS, LEDGER, VERDICT)
FILES = "evidence/"

VERIFIED, NOT_VERIFIED, UNREADABLE = 0, 1, 2

Document = dict[str, Any]


class Unreadable(Exception):
    """There is nothing that could be verified."""


class Fault(Exception):
    """What is wrong, beginning with the member that it is in, where it is in one."""


# Bytes and signatures


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def canonical(document: Any) -> bytes:
    """RFC 8785 for documents of texts, whole numbers, lists and objects with plain keys: all that is written here."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def read_json(content: bytes) -> Any:
    """Raises ValueError, for a name that stands twice in one object too."""

    def object_of(pairs: list[tuple[str, Any]]) -> Document:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice in one object")
        return found

    return json.loads(content.decode("utf-8"), object_pairs_hook=object_of)


def unbase64(text: str) -> bytes:
    """Raises ValueError where it isn't the one way to write its bytes."""
    content = base64.b64decode(text, validate=True)
    if base64.b64encode(content).decode() != text:
        raise ValueError("there are other ways to write these bytes in Base64")
    return content


def pae(payload_type: str, payload: bytes) -> bytes:
    """What a signature of a DSSE envelope is over."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope_content(payload_type: str, payload: bytes, signatures: Sequence[tuple[str, bytes]]) -> bytes:
    """A DSSE envelope in the one way it is written; ``signatures`` are (key id, signature)."""
    return canonical(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [{"keyid": one, "sig": base64.b64encode(by).decode()} for one, by in signatures],
        }
    )


@dataclass(frozen=True)
class Envelope:
    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def document(self) -> Document:
        found = read_json(self.payload)
        if not isinstance(found, dict):
            raise ValueError("the payload is no object")
        return found

    def signed_by(self, key: Key) -> bool:
        signed = pae(self.payload_type, self.payload)
        return any(one == key.id and key.holds(signature, signed) for one, signature in self.signatures)


def read_envelope(content: bytes, payload_type: str) -> Envelope:
    """Raises ValueError, also where the envelope is written in another way than it always is."""
    document = read_json(content)
    signatures = tuple((one["keyid"], unbase64(one["sig"])) for one in document["signatures"])
    found = Envelope(document["payloadType"], unbase64(document["payload"]), signatures)
    if found.payload_type != payload_type:
        raise ValueError(f"it is of the type {found.payload_type!r}, not {payload_type}")
    if envelope_content(found.payload_type, found.payload, signatures) != content:
        raise ValueError("it isn't written as an envelope always is")
    return found


@dataclass(frozen=True)
class Key:
    """A public key of Ed25519 as DER (SubjectPublicKeyInfo); its id, and fingerprint, is the SHA-256 of that."""

    der: bytes

    @property
    def id(self) -> str:
        return digest(self.der)

    def holds(self, signature: bytes, signed: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        key = load_der_public_key(self.der)
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("it is no key of Ed25519")
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


def key_in_pem(content: bytes) -> Key:
    """The public key that a PEM file holds. Raises Unreadable."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    try:
        found = load_pem_public_key(content)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"the file given as --key holds no public key in PEM: {error}") from None
    if not isinstance(found, Ed25519PublicKey):
        raise Unreadable("the file given as --key holds a public key of another kind than Ed25519")
    return Key(found.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def key_id_of(text: str) -> str:
    """A fingerprint as people write it: capitals, colons, blanks and the prefix sha256: are let pass."""
    found = re.sub(r"[\s:]", "", re.sub(r"^\s*sha-?256\s*:", "", text.lower()))
    if not SHA256.fullmatch(found):
        raise Unreadable(f"a key's fingerprint has 64 hexadecimal digits, and {text!r} isn't one")
    return found


# The archive. Members are stored as they are, sorted, with fixed times and no field beyond what a zip needs: the same
# members give the same bytes on every machine, and whatever a zip could hide is a difference.

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
NEEDED, MADE_BY, DATE = 10, (3 << 8) | 10, (1 << 5) | 1
REGULAR_FILE = (stat.S_IFREG | 0o644) << 16
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(?:/[a-z0-9][a-z0-9.-]*)*")
LONGEST_NAME = 100
MOST_MEMBERS = 50_000
# No more than fits a zip without its later extensions, and memory: members other than evidence are read whole.
LARGEST_ARCHIVE = (1 << 32) - (1 << 20)
LARGEST_READ = 1 << 29


def local_header(name: bytes, crc: int, size: int) -> bytes:
    return LOCAL.pack(LOCAL_MARK, NEEDED, 0, 0, 0, DATE, crc, size, size, len(name), 0) + name


def central_header(name: bytes, crc: int, size: int, at: int) -> bytes:
    sizes = (crc, size, size, len(name), 0, 0, 0, 0, REGULAR_FILE, at)
    return CENTRAL.pack(CENTRAL_MARK, MADE_BY, NEEDED, 0, 0, 0, DATE, *sizes) + name


def end_record(count: int, size: int, at: int) -> bytes:
    return END.pack(END_MARK, 0, 0, count, count, size, at, 0)


def write_archive(sink: BinaryIO, members: Iterable[tuple[str, bytes]]) -> None:
    """``members`` in the order of their names. Raises ValueError where a bundle can't hold them."""
    directory, at, last = [], 0, ""
    for name, content in members:
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or name <= last:
            raise ValueError(f"{name!r} can't be the name of a member here")
        header = local_header(name.encode(), zlib.crc32(content), len(content))
        directory.append(central_header(name.encode(), zlib.crc32(content), len(content), at))
        sink.write(header)
        sink.write(content)
        at, last = at + len(header) + len(content), name
        if at > LARGEST_ARCHIVE - (1 << 24) or len(directory) > MOST_MEMBERS:
            raise ValueError("a bundle can't hold so much: leave the evidence out")
    sink.write(b"".join(directory) + end_record(len(directory), sum(map(len, directory)), at))


@dataclass(frozen=True)
class Member:
    at: int
    size: int
    crc: int


class Archive:
    """The members of a bundle by name. Raises Unreadable where it is no zip archive, Fault where it is another one than
    ``write_archive`` makes."""

    def __init__(self, source: BinaryIO) -> None:
        self.source = source
        self.members: dict[str, Member] = {}
        size = source.seek(0, os.SEEK_END)
        count, directory_size, directory_at = self.end(size)
        directory = self.bytes_at(directory_at, directory_size)
        at, place = 0, 0
        for _ in range(count):
            name, member = self.entry(directory, place, at)
            place += CENTRAL.size + len(name)
            at = member.at + member.size
            self.members[name] = member
        if place != directory_size or at != directory_at:
            raise Fault("the archive holds bytes that belong to no member")

    def bytes_at(self, at: int, size: int) -> bytes:
        self.source.seek(at)
        return self.source.read(size)

    def end(self, size: int) -> tuple[int, int, int]:
        """(members, size of the directory, its place)"""
        if size > LARGEST_ARCHIVE:
            raise Fault(f"the archive is larger than {LARGEST_ARCHIVE:,} bytes, which no bundle is")
        start, tail = self.bytes_at(0, 4), self.bytes_at(max(0, size - (1 << 16) - END.size), 1 << 17)
        if END_MARK not in tail:
            raise Unreadable("it is no zip archive, or one that was cut off")
        if start != LOCAL_MARK:
            raise Fault("the archive begins with something else than its first member")
        if tail[-END.size :][:4] != END_MARK or tail[-2:] != b"\0\0":
            raise Fault("the archive has a comment, or something behind its end")
        _, _, _, here, count, directory_size, directory_at, _ = END.unpack(tail[-END.size :])
        expected = end_record(count, directory_size, size - END.size - directory_size)
        if here != count or tail[-END.size :] != expected or count > MOST_MEMBERS:
            raise Fault("the archive's directory isn't where a bundle has it")
        return count, directory_size, directory_at

    def entry(self, directory: bytes, place: int, at: int) -> tuple[str, Member]:
        fixed = directory[place : place + CENTRAL.size]
        if len(fixed) < CENTRAL.size or fixed[:4] != CENTRAL_MARK:
            raise Fault("the archive's directory isn't written as a bundle's is")
        values = CENTRAL.unpack(fixed)
        flags, method, crc, packed, size, length = values[3], values[4], *values[7:11]
        raw = directory[place + CENTRAL.size : place + CENTRAL.size + length]
        name = self.name(raw)
        if flags & 1:
            raise Fault(f"{name}: it is encrypted, which no member of a bundle is")
        if stat.S_ISLNK(values[15] >> 16):
            raise Fault(f"{name}: it is a symbolic link, which no member of a bundle is")
        if method or packed != size:
            raise Fault(f"{name}: it is compressed; a bundle's members are stored as they are")
        if size > LARGEST_READ:
            raise Fault(f"{name}: it is larger than {LARGEST_READ:,} bytes, which no member of a bundle is")
        header = local_header(raw, crc, size)
        if fixed + raw != central_header(raw, crc, size, at) or self.bytes_at(at, len(header)) != header:
            raise Fault(f"{name}: the archive says more, or something else, about it than a bundle does")
        return name, Member(at + len(header), size, crc)

    def name(self, raw: bytes) -> str:
        name = raw.decode("ascii", "replace")
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or raw != name.encode():
            raise Fault(f"{name!r}: no member of a bundle has such a name, and it may lead out of the archive")
        if name in self.members:
            raise Fault(f"{name}: it is there twice")
        if self.members and name < next(reversed(self.members)):
            raise Fault(f"{name}: the members aren't in the order of their names")
        return name

    def read(self, name: str) -> bytes:
        member = self.members[name]
        return self.bytes_at(member.at, member.size)

    def digest(self, name: str) -> str:
        found, member = hashlib.sha256(), self.members[name]
        self.source.seek(member.at)
        left, crc = member.size, 0
        while left:
            block = self.source.read(min(left, 1 << 20))
            if not block:
                raise Fault(f"{name}: the file ends within it")
            found.update(block)
            crc, left = zlib.crc32(block, crc), left - len(block)
        if crc != member.crc:
            raise Fault(f"{name}: its bytes were changed; they don't give the checksum of the archive")
        return found.hexdigest()


# What is checked


@dataclass
class Outside:
    """What whoever verifies has from somewhere else than the bundle."""

    fingerprint: str | None = None
    key: Key | None = None
    checkpoint: bytes | None = None


@dataclass
class Outcome:
    faults: list[str] = field(default_factory=list)
    vouched: bool = False
    key: str = ""
    # The key that the outside named, where a rotation leads from it to the one that signed.
    rotated_from: str = ""
    told: Document = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        return not self.faults and self.vouched

    @property
    def status(self) -> int:
        return VERIFIED if self.verified else NOT_VERIFIED


class Bundle:
    """The members of a bundle, held against each other."""

    def __init__(self, archive: Archive, outside: Outside) -> None:
        self.archive, self.outside, self.outcome = archive, outside, Outcome()
        self.keys: dict[str, Key] = {}
        self.trusted: set[str] = set()
        self.predicate: Document = {}
        self.events: dict[int, Document] = {}
        self.hashes: dict[int, str] = {}

    def attempt(self, member: str, check: Callable[[], None]) -> bool:
        """A member that isn't written as it should be is a fault like any other, never the end of the verification."""
        try:
            check()
        except Fault as fault:
            self.outcome.faults.append(str(fault))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            said = " ".join(str(error).split())[:200]
            self.outcome.faults.append(f"{member}: it isn't written as a bundle's {member} is ({said})")
        else:
            return True
        return False

    def verify(self) -> Outcome:
        for name in (*ALWAYS, ATTESTATION):
            if name not in self.archive.members:
                self.outcome.faults.append(f"{name}: it is missing")
        if ATTESTATION in self.archive.members and KEYS in self.archive.members:
            self.attempt(KEYS, self.read_keys)
            self.attempt(ATTESTATION, self.check_attestation)
        if not self.outcome.faults:
            self.attempt(LEDGER, self.check_ledger)
            self.attempt(CHECKPOINT_FILE, self.check_checkpoint)
            self.attempt(EVIDENCE, self.check_evidence)
            self.attempt(DECISION, self.check_decision)
            if self.outside.checkpoint is not None:
                self.attempt("the checkpoint that you gave", self.check_outside)
        if DECISION in self.archive.members:
            self.tell()
        return self.outcome

    def json(self, name: str) -> Document:
        found = read_json(self.archive.read(name))
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        return found

    # Keys

    def read_keys(self) -> None:
        document = self.json(KEYS)
        for one in document["keys"]:
            key = Key(unbase64(one["public_key"]))
            if key.id != one["key_id"]:
                raise Fault(f"{KEYS}: a public key doesn't give its key id {one['key_id']}")
            self.keys[key.id] = key
        given = self.outside.key
        if given is not None:
            self.keys[given.id] = given
        start = given.id if given else self.outside.fingerprint
        self.outcome.vouched = start is not None
        self.trusted = {start} if start else set(self.keys)
        if start:
            for envelope in document["rotations"]:
                self.follow(read_envelope(canonical(envelope), ROTATION))

    def follow(self, rotation: Envelope) -> None:
        """A trusted key that says which key comes after it is believed. Rotations stand in their order."""
        said = rotation.document
        old, new = self.keys.get(said["old"]), self.keys.get(said["new"])
        if said["schema"] != ROTATION_SCHEMA or old is None or new is None or old.id not in self.trusted:
            return
        if rotation.signed_by(old) and rotation.signed_by(new):
            self.trusted.add(new.id)

    # The signed statement and the members that it names

    def check_attestation(self) -> None:
        envelope = read_envelope(self.archive.read(ATTESTATION), IN_TOTO)
        statement = envelope.document
        if statement["_type"] != STATEMENT or statement["predicateType"] != PREDICATE:
            raise Fault(f"{ATTESTATION}: it is a statement of another kind")
        self.predicate = statement["predicate"]
        if self.predicate["schema"] != SCHEMA:
            raise Fault(f"{ATTESTATION}: it is of the form {self.predicate['schema']!r}; this program knows {SCHEMA}")
        self.attempt(ATTESTATION, lambda: self.check_signature(envelope))
        self.check_members({one["name"]: one["digest"]["sha256"] for one in statement["subject"]})
        if len(statement["subject"]) != len(self.archive.members) - 1:
            raise Fault(f"{ATTESTATION}: it doesn't name every member once")

    def check_signature(self, envelope: Envelope) -> None:
        if len(envelope.signatures) != 1:
            raise Fault(f"{ATTESTATION}: it has {len(envelope.signatures)} signatures, not one")
        self.outcome.key = named = envelope.signatures[0][0]
        key = self.keys.get(named)
        if key is None:
            raise Fault(f"{ATTESTATION}: it is signed with the key {named}, which is not among the bundle's keys")
        if not envelope.signed_by(key):
            raise Fault(f"{ATTESTATION}: the signature doesn't hold: changed, or not signed with the key {named}")
        if named not in self.trusted:
            raise Fault(
                f"{ATTESTATION}: it is signed with the key {named}. You trust {self.start}, and no rotation leads "
                "from your key to that one"
            )
        if self.outcome.vouched and named != self.start:
            self.outcome.rotated_from = self.start

    @property
    def start(self) -> str:
        return self.outside.key.id if self.outside.key else self.outside.fingerprint or ""

    def check_members(self, wanted: dict[str, str]) -> None:
        there = set(self.archive.members) - {ATTESTATION}
        faults = self.outcome.faults
        faults += [f"{name}: it is missing" for name in sorted(set(wanted) - there) if name not in ALWAYS]
        faults += [f"{name}: the signed statement doesn't name it" for name in sorted(there - set(wanted))]
        for name in sorted(there & set(wanted)):
            self.attempt(name, partial(self.check_member, name, wanted[name]))
        self.outcome.checked.append(f"{len(there)} members have the digests that were signed")

    def check_member(self, name: str, wanted: str) -> None:
        found = self.archive.digest(name)
        if found != wanted:
            raise Fault(f"{name}: it was changed; its SHA-256 is {found}, and signed was {wanted}")
        if name.startswith(FILES) and name != FILES + found:
            raise Fault(f"{name}: its name isn't its digest, which is {found}")

    # The ledger

    def check_ledger(self) -> None:
        lines = self.archive.read(LEDGER).split(b"\n")
        if lines.pop() != b"" or not lines:
            raise Fault(f"{LEDGER}: its last line isn't ended, or there is none")
        before: tuple[int, str] | None = None
        for line in lines:
            event = read_json(line)
            sequence, previous = event["sequence"], event["previous"]
            if event["schema"] != EVENT_SCHEMA or (before is None and sequence == 1 and previous != GENESIS):
                raise Fault(f"{LEDGER}: event {sequence} is no event of a ledger")
            if before and (sequence, previous) != (before[0] + 1, before[1]):
                raise Fault(f"{LEDGER}: event {sequence} doesn't follow event {before[0]}: the chain is broken there")
            before = sequence, digest(line)
            self.events[sequence], self.hashes[sequence] = event, before[1]
            self.hashes.setdefault(sequence - 1, previous)
        self.outcome.checked.append(f"ledger events {min(self.events)} to {max(self.events)} form one chain")

    def check_checkpoint(self) -> None:
        envelope = read_envelope(self.archive.read(CHECKPOINT_FILE), CHECKPOINT)
        said = self.checkpoint_of(envelope, CHECKPOINT_FILE)
        if said["size"] != max(self.events) or said["head"] != self.hashes[said["size"]]:
            raise Fault(f"{CHECKPOINT_FILE}: it isn't over the last event of {LEDGER}")
        if self.predicate["checkpoint"] != {"head": said["head"], "size": said["size"]}:
            raise Fault(f"{CHECKPOINT_FILE}: the signed statement names another checkpoint")
        self.outcome.told["checkpoint"] = said
        self.outcome.checked.append(f"that chain ends at the checkpoint of {said['at']} over event {said['size']}")

    def checkpoint_of(self, envelope: Envelope, name: str) -> Document:
        said = envelope.document
        if said["schema"] != CHECKPOINT_SCHEMA:
            raise Fault(f"{name}: it is of the form {said['schema']!r}; this program knows {CHECKPOINT_SCHEMA}")
        if not any(envelope.signed_by(self.keys[one]) for one in self.trusted if one in self.keys):
            raise Fault(f"{name}: it isn't signed with a key that can be trusted here")
        return said

    def check_outside(self) -> None:
        """A checkpoint that somebody kept. Its signature is for whoever kept it to judge: what counts is the hash."""
        said = read_envelope((self.outside.checkpoint or b"").strip(), CHECKPOINT).document
        size, head = said["size"], said["head"]
        if size not in self.hashes:
            first, last = min(self.hashes), max(self.hashes)
            raise Fault(
                f"the checkpoint that you gave is over event {size}, and this bundle holds {first + 1} to {last}: have "
                "the bundle made again for your checkpoint, or ask for `manage.py verify_ledger --checkpoint FILE`"
            )
        if self.hashes[size] != head:
            raise Fault(
                f"{LEDGER}: the checkpoint that you gave has another hash for event {size}. The history before it was "
                "written anew since, or one of the two is of another installation"
            )
        self.outcome.checked.append(f"the history is the one of your checkpoint over event {size}, of {said['at']}")

    # What was decided, and what it rests on

    def check_evidence(self) -> None:
        """From the owner's signature to every file: the verdict's inputs, by their digests computed again."""
        document, verdict = self.json(EVIDENCE), self.json(VERDICT)
        trials, suite = document["trials"], document["behaviour"]
        inputs = sorted([one["manifest"] for one in trials] + ([suite["digest"]] if suite else []))
        if inputs != verdict["evidence"]:
            raise Fault(f"{EVIDENCE}: these aren't the pieces of evidence that the verdict names")
        found = {
            "brief": digest(self.archive.read(BRIEF)),
            "verdict": digest(self.archive.read(VERDICT)),
            "evidence": digest(canonical(inputs)),
            "configuration": digest(self.archive.read(CONFIGURATION)),
        }
        for name, stated in (("brief", verdict["brief"]), ("configuration", verdict["configuration"])):
            if found[name] != stated:
                raise Fault(f"{name}.json: it isn't the {name} that the verdict names")
        if {name: self.predicate[name] for name in found} != found:
            raise Fault(f"{ATTESTATION}: it names another brief, verdict, configuration or evidence")
        held = self.check_manifests(trials)
        self.outcome.checked.append(
            f"the verdict's inputs give the digests it names: brief, configuration and {len(inputs)} pieces of "
            f"evidence ({held} files of evidence are in this bundle)"
        )

    def check_manifests(self, trials: Sequence[Document]) -> int:
        files = {name[len(FILES) :] for name in self.archive.members if name.startswith(FILES)}
        suite = self.json(EVIDENCE)["behaviour"]
        named = {*suite["answers"].values(), suite["digest"]} if suite else set()
        for trial in trials:
            own = {one for one in trial["files"].values() if one}
            named |= {trial["manifest"], *own}
            if trial["manifest"] in files:
                stated = read_json(self.archive.read(FILES + trial["manifest"]))["digests"]
                if any(stated.get(name) != one for name, one in trial["files"].items()):
                    raise Fault(f"{EVIDENCE}: the manifest of trial {trial['trial']} names other files")
        if files - named:
            raise Fault(f"{FILES}{min(files - named)}: no trial of the verdict names it")
        return len(files)

    def check_decision(self) -> None:
        decision = self.json(DECISION)
        brief, own = read_json(self.archive.read(BRIEF)), decision["brief"]
        if (own["digest"], own["title"]) != (self.predicate["brief"], brief["title"]):
            raise Fault(f"{DECISION}: it is about another brief")
        verdict, stated = self.json(VERDICT), decision["verdict"]
        if any(stated[name] != verdict[name if name != "result" else "verdict"] for name in ("result", "sentence")):
            raise Fault(f"{DECISION}: it tells another verdict")
        if decision["nominee"] != (verdict["nominee"] or "") or not decision["signatures"]:
            raise Fault(f"{DECISION}: it names another nominee, or nobody who signed")
        for signature in decision["signatures"]:
            self.check_owner_signature(signature)
        for release in decision["releases"]:
            self.check_release(release)
        subject = f"brief {own['number']} revision {own['revision']}"
        states = [one["details"]["state"] for one in self.of_subject(subject) if "state" in one["details"]]
        if states[-1] != decision["state"]:
            raise Fault(f"{DECISION}: by the ledger the revision is {states[-1]}, not {decision['state']}")
        self.outcome.checked.append("every signature and its statement stand in that chain, and bind these digests")

    def of_subject(self, subject: str) -> Iterator[Document]:
        return (self.events[one] for one in sorted(self.events) if self.events[one]["subject"] == subject)

    def check_owner_signature(self, signature: Document) -> None:
        event = self.events[signature["event"]]
        wanted = {
            "statement": digest(signature["statement"].encode()),
            "reason": signature["reason"],
            **{name: signature["binds"][name] for name in ("brief", "verdict", "evidence")},
        }
        if {name: event["details"].get(name) for name in wanted} != wanted:
            raise Fault(f"{DECISION}: event {signature['event']} of the ledger tells another signature")
        if (event["actor"], event["at"]) != (signature["username"], signature["at"]):
            raise Fault(f"{DECISION}: by the ledger somebody else signed, or at another time")
        if signature["meaning"] not in (event["kind"].split("-", 1)[-1], event["details"].get("meaning")):
            raise Fault(f"{DECISION}: by the ledger the signature had another meaning than {signature['meaning']!r}")
        unnamed = [one for one in signature["binds"].values() if one not in signature["statement"]]
        if unnamed:
            raise Fault(f"{DECISION}: the statement that was signed doesn't name the digest {unnamed[0]}")
        if signature["current"] and any(signature["binds"][one] != self.predicate[one] for one in signature["binds"]):
            raise Fault(f"{DECISION}: a signature is bound to another brief, verdict or evidence")

    def check_release(self, release: Document) -> None:
        event = self.events[release["event"]]
        wanted = {name: release[name] for name in ("release", "configuration", "expires")}
        if event["kind"] != "release-in-force" or {one: event["details"][one] for one in wanted} != wanted:
            raise Fault(f"{DECISION}: event {release['event']} of the ledger tells another release")
        ended = release["ended_by_event"]
        if ended is not None and self.events[ended]["details"]["release"] != release["release"]:
            raise Fault(f"{DECISION}: event {ended} of the ledger is about another release")

    def tell(self) -> None:
        try:
            self.outcome.told["decision"] = self.json(DECISION)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return


def verify(source: BinaryIO, outside: Outside) -> Outcome:
    """Raises Unreadable where it is no archive at all."""
    try:
        archive = Archive(source)
    except Fault as fault:
        return Outcome([str(fault)])
    except struct.error as error:
        raise Unreadable(f"it is no zip archive: {error}") from None
    return Bundle(archive, outside).verify()


# What is told


def plain(text: object) -> str:
    """On one line, and without what would move a terminal's cursor: anybody may have written it."""
    joined = " ".join(str(text).split())
    return "".join(one if one.isprintable() else "\ufffd" for one in joined)


def told(outcome: Outcome) -> str:
    lines = [headline(outcome)]
    lines += [f"  - {plain(one)}" for one in outcome.faults]
    try:
        lines += decision_lines(outcome)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        lines.append("What was decided can't be told: decision.json isn't written as it should be.")
    if outcome.key:
        lines += ["", key_line(outcome)]
    if outcome.checked and not outcome.faults:
        lines += ["", "Checked:", *(f"  - {plain(one)}" for one in outcome.checked)]
    lines += ["", LIMITS]
    return "\n".join(lines) + "\n"


LIMITS = (
    "Not shown by this: that the measurements were honest, that the people were who their accounts say, or that the\n"
    "configuration is still in force. docs/bundle.md says what else."
)


def headline(outcome: Outcome) -> str:
    if outcome.verified:
        return "VERIFIED: this is the decision as it was signed, with the evidence and the history that it names."
    if outcome.faults:
        return "NOT VERIFIED: don't rely on this bundle."
    return (
        "NOT VERIFIED: everything in the bundle fits together, but the key that signed it is the bundle's own word.\n"
        "Anybody can make such a bundle with a key of their own. Get the fingerprint of the installation's key from\n"
        "somewhere else, compare it with the one below, and verify again with --fingerprint."
    )


def decision_lines(outcome: Outcome) -> Iterator[str]:
    decision = outcome.told.get("decision")
    if decision is None:
        return
    brief, verdict = decision["brief"], decision["verdict"]
    claims = "" if outcome.verified else " (as the bundle claims)"
    what, nominee = plain(f"{decision['service']}/{decision['route']}"), plain(decision["nominee"] or "none")
    yield ""
    state = "none yet, in review" if decision["state"] == "in-review" else plain(decision["state"])
    yield f"Decision{claims}: {state} for {what}, nominee {nominee}"
    yield f"Brief: {plain(brief['title'])}, revision {plain(brief['revision'])}"
    for one in decision["signatures"]:
        what = plain(one["meaning_said"])
        yield f"Signed: {plain(one['name'])} ({plain(one['username'])}) at {utc(one['at'])}: {what}"
        yield f"  Reason: {plain(one['reason'])}"
        if not one["current"]:
            yield "  It was bound to another verdict and counts for nothing now."
    yield f"Verdict: {plain(verdict['result'])}. {plain(verdict['sentence'])}"
    for one in decision["releases"]:
        yield f"Release: {plain(one['release'])}, {plain(one['word'])}; expires {utc(one['expires'])}"


def utc(text: object) -> str:
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", str(text))
    return f"{found.group(1)} {found.group(2)} UTC" if found else plain(text)


def key_line(outcome: Outcome) -> str:
    key = plain(outcome.key)
    if not outcome.vouched:
        return f"Signed with the key {key}: the bundle's own word."
    if outcome.rotated_from:
        return f"Signed with the key {key}, to which your key {plain(outcome.rotated_from)} was rotated."
    return f"It names the key {key}." if outcome.faults else f"Signed with the key {key}, which is the one you named."


def as_json(outcome: Outcome, unreadable: str = "") -> str:
    document = {
        "verified": outcome.verified,
        "unreadable": unreadable or None,
        "key": outcome.key or None,
        "key_named_from_outside": outcome.vouched,
        "rotated_from": outcome.rotated_from or None,
        "faults": outcome.faults,
        "checked": outcome.checked,
        "decision": outcome.told.get("decision"),
        "checkpoint": outcome.told.get("checkpoint"),
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def content_of(path: str) -> bytes:
    if os.path.getsize(path) > 1 << 20:
        raise Unreadable(f"{path} is too large for a key or a checkpoint")
    with open(path, "rb") as opened:
        return opened.read()


def run(
    path: str,
    *,
    fingerprint: str | None = None,
    key: str | None = None,
    checkpoint: str | None = None,
    json_wanted: bool = False,
) -> tuple[int, str]:
    """(exit status, what is said)"""
    try:
        if find_spec("cryptography") is None:
            raise Unreadable("this needs the package cryptography: python -m pip install cryptography")
        outside = Outside(
            key_id_of(fingerprint) if fingerprint else None,
            key_in_pem(content_of(key)) if key else None,
            content_of(checkpoint) if checkpoint else None,
        )
        if outside.key and outside.fingerprint and outside.key.id != outside.fingerprint:
            raise Unreadable("the key and the fingerprint that you gave aren't of one key")
        with open(path, "rb") as source:
            outcome = verify(source, outside)
    except (OSError, Unreadable) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        if json_wanted:
            return UNREADABLE, as_json(Outcome(), said)
        return UNREADABLE, f"COULD NOT BE READ: {plain(said)}\n"
    return outcome.status, as_json(outcome) if json_wanted else told(outcome)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verifies a Draftproof bundle. Nothing is extracted.")
    parser.add_argument("bundle", help="the zip file")
    parser.add_argument("--fingerprint", metavar="KEY_ID", help="of the installation's key, from outside the bundle")
    parser.add_argument("--key", metavar="FILE", help="the installation's public key in PEM, from outside the bundle")
    parser.add_argument("--checkpoint", metavar="FILE", help="of the ledger, that you kept")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    asked = parser.parse_args(arguments)
    status, said = run(
        asked.bundle,
        fingerprint=asked.fingerprint,
        key=asked.key,
        checkpoint=asked.checkpoint,
        json_wanted=asked.json,
    )
    sys.stdout.buffer.write(said.encode("utf-8", "backslashreplace"))
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
