"""Traffic files of other people, and our own, into a set: real times, real text where there is any, nothing hidden."""

from loadtests.traffic.importers.detect import TO_MAP
from loadtests.traffic.importers.entries import LengthRow, Rules
from loadtests.traffic.importers.importing import FORMAT_NAMES, LINE_LIMIT, Wanted, import_file
from loadtests.traffic.importers.mapped import TARGETS, read_mapping
from loadtests.traffic.importers.problems import ImportRefused, Problem, Reason
from loadtests.traffic.importers.redaction import Redaction, read_pattern
from loadtests.traffic.importers.source import UNPACKED_LIMIT

__all__ = [
    "FORMAT_NAMES",
    "LINE_LIMIT",
    "TARGETS",
    "TO_MAP",
    "UNPACKED_LIMIT",
    "ImportRefused",
    "LengthRow",
    "Problem",
    "Reason",
    "Redaction",
    "Rules",
    "Wanted",
    "import_file",
    "read_mapping",
    "read_pattern",
]
