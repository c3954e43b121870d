"""A passkey in software: what a browser and an authenticator make of the options that the site gives them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from django.test import Client
from fido2 import cbor
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestedCredentialData, AuthenticatorData

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def a_browser() -> Client:
    """At an address that passkeys can be of."""
    return Client(SERVER_NAME="localhost", HTTP_USER_AGENT="a test's browser")


class SoftwarePasskey:
    def __init__(self, origin: str = "http://localhost") -> None:
        self.origin, self.key = origin, ec.generate_private_key(ec.SECP256R1())
        self.id, self.owner, self.verifies = os.urandom(32), "", True

    def make(self, options: Mapping[str, Any]) -> str:
        asked = options["publicKey"]
        self.owner = asked["user"]["id"]
        key = ES256.from_cryptography_key(self.key.public_key())  # type: ignore[no-untyped-call]
        data = AuthenticatorData.create(
            sha256(asked["rp"]["id"].encode()).digest(),
            AuthenticatorData.FLAG(PRESENT | ATTESTED | (VERIFIED if self.verifies else 0)),
            0,
            AttestedCredentialData.create(b"\0" * 16, self.id, key),
        )
        attestation = cbor.encode({"fmt": "none", "attStmt": {}, "authData": bytes(data)})
        said = self.client_data("webauthn.create", asked["challenge"])
        response = {"clientDataJSON": websafe_encode(said), "attestationObject": websafe_encode(attestation)}
        return self.sent(response)

    def answer(self, options: Mapping[str, Any]) -> str:
        asked = options["publicKey"]
        flags = AuthenticatorData.FLAG(PRESENT | (VERIFIED if self.verifies else 0))
        data = bytes(AuthenticatorData.create(sha256(asked["rpId"].encode()).digest(), flags, 0))
        said = self.client_data("webauthn.get", asked["challenge"])
        signature = self.key.sign(data + sha256(said).digest(), ec.ECDSA(SHA256()))
        return self.sent(
            {
                "clientDataJSON": websafe_encode(said),
                "authenticatorData": websafe_encode(data),
                "signature": websafe_encode(signature),
                "userHandle": self.owner,
            }
        )

    def client_data(self, kind: str, challenge: str) -> bytes:
        assert websafe_decode(challenge)
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def sent(self, response: dict[str, str]) -> str:
        name = websafe_encode(self.id)
        extensions = {"credProps": {"rk": True}}
        return json.dumps(
            {
                "id": name,
                "rawId": name,
                "type": "public-key",
                "response": response,
                "clientExtensionResults": extensions,
            }
        )
