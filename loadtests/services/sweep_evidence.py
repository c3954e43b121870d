from loadtests.evidence.stores import evidence_store

# Longer than anything takes to be written.
OLD_S = 3600


def sweep_evidence() -> None:
    """Removes temporary files of the evidence store whose process was killed over them."""
    evidence_store().sweep(older_than_s=OLD_S)
