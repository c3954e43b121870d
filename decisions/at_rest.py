"""Text that the database keeps encrypted, under a key derived from the installation's secret key.

It protects what leaves the house in a copy of the database. Who has the secret key too can read it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.utils.encoding import force_bytes

PURPOSE = b"draftproof at rest, version 1"


class Unreadable(ValueError):
    """It was encrypted under another secret key."""


def encrypted(text: str) -> str:
    return key().encrypt(text.encode()).decode()


def decrypted(text: str) -> str:
    try:
        return key().decrypt(text.encode()).decode()
    except InvalidToken:
        raise Unreadable("it was encrypted under another DRAFTPROOF_SECRET_KEY than this one") from None


def key() -> MultiFernet:
    return MultiFernet([derived(one) for one in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def derived(secret: str | bytes) -> Fernet:
    material = HKDF(SHA256(), length=32, salt=None, info=PURPOSE).derive(force_bytes(secret))
    return Fernet(urlsafe_b64encode(material))
