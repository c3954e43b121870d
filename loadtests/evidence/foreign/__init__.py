"""Result files of other load generators as imported evidence: what they tell, and what they lack."""

from loadtests.evidence.foreign.detect import FORMATS
from loadtests.evidence.foreign.importing import import_evidence
from loadtests.evidence.foreign.manifest import ImportedManifest
from loadtests.evidence.foreign.reading import EvidenceRefused

__all__ = ["FORMATS", "EvidenceRefused", "ImportedManifest", "import_evidence"]
