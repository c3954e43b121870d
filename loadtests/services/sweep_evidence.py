from loadtests.evidence.stores import evidence_store
from loadtests.services.remove_unwanted import remove_unwanted

# Longer than anything takes to be written.
OLD_S = 3600


def sweep_evidence() -> None:
    """Removes what was to be removed and could not be, and temporary files of the evidence store whose process was
    killed over them."""
    remove_unwanted()
    evidence_store().sweep(older_than_s=OLD_S)
