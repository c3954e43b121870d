"""One way to turn a document into bytes, and bytes into a digest (RFC 8785, SHA-256)."""

import hashlib
from typing import Any

import rfc8785


def canonical(document: Any) -> bytes:
    """The document's RFC 8785 bytes: equal documents give equal bytes on every machine."""
    return rfc8785.dumps(document)


def digest(content: bytes) -> str:
    """SHA-256 of the bytes as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_of(document: Any) -> str:
    return digest(canonical(document))
