"""The evidence store of this installation, as the settings name it."""

import os
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from loadtests.evidence.store import EvidenceStore


def evidence_store() -> EvidenceStore:
    """In the bucket of EVIDENCE_URL, else in EVIDENCE_DIR; raises ImproperlyConfigured."""
    if not settings.EVIDENCE_URL:
        return in_directory(Path(settings.EVIDENCE_DIR))
    return in_bucket(
        settings.EVIDENCE_URL, settings.EVIDENCE_ENDPOINT, settings.EVIDENCE_REGION, Path(settings.EVIDENCE_COPIES_DIR)
    )


# One store for the same settings: what was read from it is held by it.
@lru_cache(maxsize=4)
def in_directory(root: Path) -> EvidenceStore:
    return EvidenceStore(root)


# Each takes a moment to set up, and holds its connections.
@lru_cache(maxsize=4)
def in_bucket(url: str, endpoint: str, region: str, copies: Path) -> EvidenceStore:
    # Loaded where there is a bucket alone: it brings the whole of boto3.
    from loadtests.evidence.bucket import BucketStore, read_address

    try:
        return BucketStore(read_address(url, endpoint=endpoint, region=region), copies)
    except ValueError as error:
        raise ImproperlyConfigured(f"DRAFTPROOF_EVIDENCE: {error}") from None


# A connection can't be used on both sides of a fork.
os.register_at_fork(after_in_child=in_bucket.cache_clear)
