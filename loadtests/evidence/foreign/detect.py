"""Which tool wrote a file, from the names in it."""

from typing import Any, Literal

from loadtests.evidence.foreign import aiperf, guidellm, vllm_bench
from loadtests.evidence.foreign.reading import EvidenceRefused
from loadtests.evidence.foreign.values import clean

Tool = Literal["vllm-bench", "aiperf", "guidellm"]
AUTO = "auto"
FORMATS = (AUTO, "vllm-bench", "aiperf", "guidellm")
SHOWN_NAMES = 12
KNOWN = (
    "known are results of vllm bench serve (vllm-bench), profile_export.jsonl and profile_export_aiperf.json of "
    "AIPerf (aiperf), and JSON reports of GuideLLM (guidellm)"
)


def tool_of(document: Any) -> Tool | None:
    if aiperf.is_record(document) or aiperf.is_summary(document):
        return "aiperf"
    if guidellm.is_report(document):
        return "guidellm"
    return "vllm-bench" if isinstance(document, dict) and document.keys() >= vllm_bench.NAMES else None


def chosen(document: Any, wanted: str) -> Tool:
    """The tool that wrote the document; raises EvidenceRefused where that is unknown or not the tool wanted."""
    found = tool_of(document)
    if found is None:
        raise EvidenceRefused(f"no result file that is known: {looks_like(document)}; {KNOWN}")
    if wanted not in (AUTO, found):
        raise EvidenceRefused(f"this is a file of {found}, not of {wanted}: give --format {found} or leave it out")
    return found


def looks_like(document: Any) -> str:
    if not isinstance(document, dict):
        return "it holds no JSON object"
    names = [clean(name, 40) for name in list(document)[:SHOWN_NAMES]]
    more = ", …" if len(document) > SHOWN_NAMES else ""
    return f"its fields are {', '.join(map(repr, names))}{more}" if names else "its object is empty"
