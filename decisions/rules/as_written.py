"""Speculative settings that can't even be read: which of their words are at fault, as rules of the preflight.

A setting is read by its model (``loadtests.configurations.Speculative``); these rules look at the errors of that, so
that whoever reads a brief, a candidate's whole configuration or a bare setting says the same.
"""

import difflib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from decisions.rules.findings import FACTS_VERSION, Finding, Rule
from loadtests.behaviour.declared import is_lossy, is_synthetic, is_threshold
from loadtests.configurations import Speculative

# One error as pydantic lists it: type, loc, msg and input.
Slip = Mapping[str, Any]
SETTING = "speculative"

# Every key of vLLM 0.32's speculative config that a user may write (vllm/config/speculative.py, SpeculativeConfig).
ENGINE_KEYS = (
    *("method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size", "enforce_eager"),
    *("draft_tensor_parallel_size", "tensor_parallel_size", "quantization", "moe_backend", "attention_backend"),
    *("kv_cache_dtype", "max_model_len", "revision", "code_revision", "index_share_for_mtp_iteration"),
    *("disable_padded_drafter_batch", "disable_eagle_block_drop", "use_local_argmax_reduction"),
    *("use_heterogeneous_vocab", "prompt_lookup_max", "prompt_lookup_min", "parallel_drafting"),
    *("suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests"),
    *("suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "draft_load_config"),
    *("rejection_sample_method", "synthetic_acceptance_rates", "synthetic_acceptance_length"),
    *("enable_adaptive_verification", "draft_sample_method", "dspark_draft_topk"),
)
# Acceptance that keeps what the target would have rejected, by the names that engines give it.
LOSSY = ("fly", "typical", "typical_acceptance", "typical_acceptance_sampler", "relaxed")
LONGEST_KEY = 60


def foreign_key(slip: Slip) -> str | None:
    """A key of a speculative setting that its model doesn't have."""
    loc = slip["loc"]
    if slip["type"] != "extra_forbidden" or len(loc) < 2 or loc[-2] != SETTING:
        return None
    return str(loc[-1])


def is_of(slip: Slip, kind: str, field: str) -> bool:
    return bool(slip["type"] == kind and slip["loc"][-2:] == (SETTING, field))


def unknown_key(slip: Slip) -> Iterator[str]:
    key = foreign_key(slip)
    if key is None or key in ENGINE_KEYS or is_synthetic(key) or is_lossy(key) or is_threshold(key):
        return
    yield f"vLLM {FACTS_VERSION} has no key {key[:LONGEST_KEY]} in its speculative config and wouldn't start{near(key)}"


def near(key: str) -> str:
    known = difflib.get_close_matches(key, ENGINE_KEYS, n=1) if len(key) <= LONGEST_KEY else []
    return f": did you mean {known[0]}?" if known else ": leave it out"


def key_outside_brief(slip: Slip) -> Iterator[str]:
    key = foreign_key(slip)
    if key is None or key not in ENGINE_KEYS or key in Speculative.model_fields or is_synthetic(key):
        return
    if key == "model":
        yield "a brief names its drafter by digests: write drafter, with the lines that manage.py add_checkpoint prints"
    else:
        yield f"a configuration doesn't hold vLLM's {key}: leave it out"


def synthetic_acceptance(slip: Slip) -> Iterator[str]:
    key = foreign_key(slip)
    if slip["type"] == "synthetic-acceptance":
        yield str(slip["msg"])
    elif key is not None and is_synthetic(key):
        yield f"{key} fabricates acceptance, and with it the output: it is never admissible"


def lossy_verification(slip: Slip) -> Iterator[str]:
    key = foreign_key(slip)
    named = slip["input"] if is_of(slip, "literal_error", "rejection_sample_method") else None
    if named in LOSSY or (key is not None and is_lossy(key)):
        yield (
            f"{named if named in LOSSY else key} keeps tokens that the target would have rejected: a lossy acceptance "
            "needs the word lossy in the brief, and a brief has no field for it yet"
        )


def confidence_threshold(slip: Slip) -> Iterator[str]:
    key = foreign_key(slip)
    if key is not None and is_threshold(key):
        yield f"{key[:LONGEST_KEY]} accepts drafts by confidence instead of verifying them: another model would answer"


def above_stated_block(slip: Slip) -> Iterator[str]:
    if slip["type"] == "above-trained-block":
        yield str(slip["msg"])


def zero_draft_length(slip: Slip) -> Iterator[str]:
    if is_of(slip, "greater_than_equal", "num_speculative_tokens") and slip["input"] == 0:
        yield "vLLM refuses num_speculative_tokens 0: no speculation is a server started without a speculative setting"


def method_missing(slip: Slip) -> Iterator[str]:
    if is_of(slip, "missing", "method"):
        yield "method is missing: vLLM would guess it from the drafter's name"


WRITTEN: tuple[Rule[Slip], ...] = (
    Rule("unknown-key", "refused", unknown_key),
    Rule("key-outside-brief", "refused", key_outside_brief),
    Rule("synthetic-acceptance", "refused", synthetic_acceptance, engine=None),
    Rule("lossy-verification", "refused", lossy_verification, engine=None),
    Rule("confidence-threshold", "refused", confidence_threshold, engine=None),
    Rule("above-trained-block", "refused", above_stated_block),
    Rule("zero-draft-length", "refused", zero_draft_length),
    Rule("method-missing", "refused", method_missing),
)


def finding_of(slip: Slip) -> Finding | None:
    """What rule an error breaks, at its field; None where it is a plain slip of the pen."""
    where = ".".join(str(step) for step in slip["loc"])
    return next(chain.from_iterable(rule.findings(slip, where=where) for rule in WRITTEN), None)


# A candidate's name, and what its configuration changes besides the speculative setting.
Changed = tuple[str, Mapping[str, tuple[Any, Any]]]


def foreign_difference(changed: Changed) -> Iterator[str]:
    name, foreign = changed
    if foreign:
        changes = ", ".join(f"{key}: {left!r} → {right!r}" for key, (left, right) in foreign.items())
        yield f"candidate {name} differs from the baseline in more than the speculative setting: {changes}"


FOREIGN_DIFFERENCE: Rule[Changed] = Rule("foreign-difference", "refused", foreign_difference, engine=None)
