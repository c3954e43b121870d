from __future__ import annotations

from base64 import b64encode

from django.utils import timezone

from decisions import ledger
from decisions.models import SigningKey
from decisions.signing import NoSigningKey, Signer, configured_signer
from loadtests.journal import act

SUBJECT = "signing key"


def recorded_signer() -> Signer:
    """The configured key. The first one is recorded when it is first needed; another one than the ledger names signs
    nothing."""
    found = configured_signer()
    last = SigningKey.objects.last() or record_first(found)
    if last.key_id != found.key_id:
        raise NoSigningKey(
            f"the configured signing key is {found.key_id}, and by the ledger it is {last.key_id}: configure that one, "
            "or record the change with manage.py rotate_key"
        )
    return found


def record_first(signer: Signer) -> SigningKey:
    with act():
        # Another process may have been first.
        return SigningKey.objects.last() or record_key(signer, None, "signing-key-added", "draftproof", {})


def record_key(signer: Signer, rotation: bytes | None, kind: str, actor: str, details: dict[str, object]) -> SigningKey:
    """Within an act."""
    public_key = signer.public_key()
    named = {"key": signer.key_id, "public_key": b64encode(public_key).decode()}
    ledger.append(kind, subject=SUBJECT, actor=actor, details=named | details)
    return SigningKey.objects.create(
        key_id=signer.key_id, public_key=public_key, rotation=rotation, added_at=timezone.now()
    )
