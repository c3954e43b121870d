"""The key that this installation signs checkpoints and bundles with: from a file, the environment, or an object that
asks a key-management service."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from django.conf import settings

from decisions.verify import Key, envelope_content, pae

logger = logging.getLogger(__name__)


class NoSigningKey(RuntimeError):
    """Nothing can be signed now; the text says why and what to do."""


class Signer(Protocol):
    """What a key-management service gives: an Ed25519 key that never leaves it."""

    @property
    def key_id(self) -> str:
        """SHA-256 of ``public_key()``, as 64 hexadecimal digits."""

    def public_key(self) -> bytes:
        """SubjectPublicKeyInfo in DER."""

    def sign(self, content: bytes) -> bytes:
        """The 64 bytes of the signature, over the content itself and not over its hash."""


class PrivateKey:
    """A key that this process holds."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def key_id(self) -> str:
        return Key(self.public_key()).id

    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(content)

    @property
    def pem(self) -> bytes:
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_key() -> PrivateKey:
    return PrivateKey(Ed25519PrivateKey.generate())


def key_in(content: bytes, where: str) -> PrivateKey:
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise NoSigningKey(f"{where} holds no private key in PEM without a password: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise NoSigningKey(
            f"{where} holds a private key of another kind than Ed25519: make one with manage.py make_key"
        )
    return PrivateKey(key)


def key_in_file(path: Path) -> PrivateKey:
    try:
        if path.stat().st_mode & 0o077:
            logger.warning("the signing key %s can be read by others than its owner: chmod 600", path)
        return key_in(path.read_bytes(), str(path))
    except OSError as error:
        raise NoSigningKey(f"the signing key {path} can't be read: {error.strerror}") from None


def key_of_service(name: str) -> Signer:
    """The object that ``package.module:object`` names."""
    module, _, attribute = name.partition(":")
    try:
        found: Signer = getattr(import_module(module), attribute)
        public_key, key_id = found.public_key(), found.key_id
    except Exception as error:
        raise NoSigningKey(f"the signing key {name} can't be had: {type(error).__name__}: {error}") from error
    if Key(public_key).id != key_id:
        raise NoSigningKey(f"the signing key {name} has the id {key_id}, which isn't the SHA-256 of its public key")
    return found


def configured_signer() -> Signer:
    """As the settings name it; in the embedded default a key of this installation's own, made when first needed."""
    if settings.SIGNER:
        return key_of_service(settings.SIGNER)
    if settings.SIGNING_KEY:
        return key_in(settings.SIGNING_KEY.replace("\\n", "\n").encode(), "DRAFTPROOF_SIGNING_KEY")
    path = key_file()
    if not path.exists() and not settings.SIGNING_KEY_FILE:
        write_key(path, new_key())
        logger.warning("made a signing key of this installation's own: %s. Keep a copy of it in a safe place", path)
    return key_in_file(path)


def key_file() -> Path:
    return Path(settings.SIGNING_KEY_FILE or settings.OWN_SIGNING_KEY_FILE)


def write_key(path: Path, key: PrivateKey) -> None:
    """For its owner alone, under its name when it is whole. A file that is there stays: of two processes that begin at
    once the first one's key counts."""
    with NamedTemporaryFile("wb", dir=path.parent) as draft:
        os.fchmod(draft.fileno(), 0o600)
        draft.write(key.pem)
        draft.flush()
        os.fsync(draft.fileno())
        with suppress(FileExistsError):
            os.link(draft.name, path)


def signed(payload_type: str, payload: bytes, signers: list[Signer]) -> bytes:
    """The envelope. What comes back from elsewhere is checked: a signature that doesn't hold is kept nowhere."""
    message = pae(payload_type, payload)
    signatures = []
    for signer in signers:
        signature = signer.sign(message)
        if not Key(signer.public_key()).holds(signature, message):
            raise NoSigningKey(f"the key {signer.key_id} gave a signature that its own public key doesn't hold")
        signatures.append((signer.key_id, signature))
    return envelope_content(payload_type, payload, signatures)
