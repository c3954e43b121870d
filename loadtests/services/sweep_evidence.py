from django.conf import settings

from loadtests.evidence.store import EvidenceStore

# Longer than anything takes to be written.
OLD_S = 3600


def sweep_evidence() -> None:
    """Removes temporary files of the evidence store whose process was killed over them."""
    EvidenceStore(settings.EVIDENCE_DIR).sweep(older_than_s=OLD_S)
