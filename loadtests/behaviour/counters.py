"""The engine's counters of drafts, from the text of ``/metrics``. Pure."""

import re
from dataclasses import dataclass

PROPOSED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
# An engine that tells this, and no counter of drafts, was started without speculation: it proposed none.
GENERATED = "vllm:generation_tokens_total"
NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?")
SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)(?:\s+\S+)?$", re.MULTILINE)


@dataclass(frozen=True)
class Counters:
    """Draft tokens since the engine's start, summed over its engines and models."""

    proposed: int
    accepted: int


def counters_of(text: str) -> Counters | None:
    """None where the text is no engine's."""
    sums = dict.fromkeys((PROPOSED, ACCEPTED, GENERATED), 0.0)
    told = set()
    for name, value in SAMPLE.findall(text):
        if name in sums and NUMBER.fullmatch(value):
            sums[name] += float(value)
            told.add(name)
    if GENERATED not in told and PROPOSED not in told:
        return None
    return Counters(round(sums[PROPOSED]), round(sums[ACCEPTED]))
