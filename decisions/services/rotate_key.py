from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from decisions.ledger import timestamp
from decisions.models import SigningKey
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.services.make_checkpoint import make_checkpoint
from decisions.services.recorded_signer import record_key
from decisions.services.refused import Refused
from decisions.signing import Signer, signed
from decisions.verify import ROTATION, ROTATION_SCHEMA
from loadtests.canonical import canonical, digest
from loadtests.journal import act


def rotate_key(*, new: Signer, old: Signer | None, by: str, reason: str) -> SigningKey:
    """From now on the new key signs. The old one says so itself, so that whoever trusts it can follow; ``old`` None:
    it is lost, or somebody else may have it, and nothing leads from it to the new one."""
    if is_too_short(reason):
        raise Refused(f"give a reason of at least {SHORTEST_REASON} characters")
    with act():
        last = SigningKey.objects.last()
        if last is None:
            raise Refused(
                "nothing was signed yet: configure the key that you want, and it is recorded when it first signs"
            )
        if old is not None and old.key_id != last.key_id:
            raise Refused(f"the configured key is {old.key_id}, and by the ledger the key in use is {last.key_id}")
        if SigningKey.objects.filter(key_id=new.key_id).exists():
            raise Refused(f"the key {new.key_id} is or was in use here: make a new one with manage.py make_key")
        rotation = signed(ROTATION, statement(last, new), [*([old] if old else []), new])
        added = record_key(
            new,
            rotation,
            "signing-key-rotated",
            by,
            {
                "old": last.key_id,
                "by_the_old_key": old is not None,
                "reason": reason.strip(),
                "rotation": digest(rotation),
            },
        )
        make_checkpoint(signer=new)
    return added


def statement(last: SigningKey, new: Signer) -> bytes:
    return canonical(
        {
            "schema": ROTATION_SCHEMA,
            "origin": settings.ORIGIN,
            "at": timestamp(timezone.now()),
            "old": last.key_id,
            "new": new.key_id,
        }
    )
