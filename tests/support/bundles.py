"""The bundle of a decision that was played through and signed, and what a forger can make of it."""

from __future__ import annotations

import io
import json
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from decisions import verify as verifier
from decisions.bundle import Wanted, export_bundle
from decisions.models import Account, BriefRevision, Signature
from decisions.services.reauthenticate import Credentials
from decisions.services.sign_decision import sign_decision
from decisions.signing import PrivateKey, configured_signer
from loadtests.canonical import canonical, digest

REASON = "The evidence settles it."
Members = dict[str, bytes]


@dataclass(frozen=True)
class Made:
    content: bytes
    signer: PrivateKey

    @property
    def key_id(self) -> str:
        return self.signer.key_id

    @property
    def members(self) -> Members:
        return members_of(self.content)

    def resigned(self, change: Callable[[Members], None], *, signer: PrivateKey | None = None) -> bytes:
        """As whoever holds the key could make it: members changed at will, and everything that names them too."""
        members = self.members
        change(members)
        return sealed(members, signer or self.signer)


def sign(revision: BriefRevision, by: Account, password: str, meaning: str = "approve") -> Signature:
    verdict = revision.verdicts.last()
    assert verdict is not None
    signature = sign_decision(verdict=verdict, by=by, credentials=Credentials(password), meaning=meaning, reason=REASON)
    revision.refresh_from_db()
    return signature


def made(revision: BriefRevision, wanted: Wanted | None = None) -> Made:
    sink = io.BytesIO()
    export_bundle(revision=revision, sink=sink, wanted=wanted)
    signer = configured_signer()
    assert isinstance(signer, PrivateKey)
    return Made(sink.getvalue(), signer)


def members_of(content: bytes) -> Members:
    archive = verifier.Archive(io.BytesIO(content))
    return {name: archive.read(name) for name in archive.members}


def packed(members: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    verifier.write_archive(sink, sorted(members.items()))
    return sink.getvalue()


def sealed(members: Members, signer: PrivateKey) -> bytes:
    """A statement that names the members as they are now."""
    statement = json.loads(b64decode(json.loads(members.pop(verifier.ATTESTATION))["payload"]))
    statement["subject"] = [{"name": name, "digest": {"sha256": digest(members[name])}} for name in sorted(members)]
    own = {name: digest(members[f"{name}.json"]) for name in ("brief", "verdict", "configuration")}
    statement["predicate"] |= own | {"checkpoint": checkpoint_over(members[verifier.LEDGER])}
    payload = canonical(statement)
    signature = signer.sign(verifier.pae(verifier.IN_TOTO, payload))
    content = verifier.envelope_content(verifier.IN_TOTO, payload, [(signer.key_id, signature)])
    return packed(members | {verifier.ATTESTATION: content})


def checkpoint_over(ledger: bytes) -> dict[str, Any]:
    last = ledger.split(b"\n")[-2]
    with suppress(ValueError):
        return {"size": json.loads(last)["sequence"], "head": digest(last)}
    return {}


def flipped(content: bytes, name: str, index: int, mask: int, *, mended: bool) -> bytes:
    """One byte of a member's content is another; ``mended``: the archive's checksum of it is right again."""
    member = verifier.Archive(io.BytesIO(content)).members[name]
    if mended:
        members = members_of(content)
        changed = bytearray(members[name])
        changed[index % member.size] ^= mask
        return packed(members | {name: bytes(changed)})
    whole = bytearray(content)
    whole[member.at + index % member.size] ^= mask
    assert zlib.crc32(bytes(whole[member.at : member.at + member.size])) != member.crc
    return bytes(whole)


def outcome(content: bytes, fingerprint: str | None = None, **more: Any) -> verifier.Outcome:
    return verifier.verify(io.BytesIO(content), verifier.Outside(fingerprint=fingerprint, **more))
