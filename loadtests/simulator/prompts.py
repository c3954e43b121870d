"""Prompts as the simulated engine reads them: pieces instead of tokens, and a length for the answer that is theirs."""

import math
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from loadtests.simulator.acceptance import standard_normal
from loadtests.simulator.model import Lengths

# Words in pieces of up to six letters come near to what tokenisers of real models make of English.
PIECE = re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s+")


def pieces(text: str) -> list[str]:
    return PIECE.findall(text)


def rendered(messages: Iterable[tuple[str, str]]) -> str:
    """The chat, as (role, text), in one text: the template of the simulated target."""
    said = "".join(f"<{role}>{text}\n" for role, text in messages)
    return f"{said}<assistant>"


def prefix_blocks(prompt: Sequence[str], block_size: int) -> tuple[bytes, ...]:
    """A name for each full block of the prompt, which also stands for everything before it."""
    names: list[bytes] = []
    name = b""
    for start in range(0, len(prompt) - block_size + 1, block_size):
        block = "".join(prompt[start : start + block_size])
        name = blake2b(name + block.encode("utf-8", "replace"), digest_size=16).digest()
        names.append(name)
    return tuple(names)


def natural_length(lengths: Lengths, class_: str, *labels: str | int) -> int:
    """Tokens of the whole answer if no limit cuts it, from the log-normal of the class; the labels name the text."""
    length = lengths.of(class_)
    return max(1, round(length.median * math.exp(length.sigma * standard_normal("length", *labels))))


def too_long(limit: int, prompt_tokens: int, max_tokens: int) -> str | None:
    """What the engine says to a request that doesn't fit into its context; None where it does."""
    if prompt_tokens + max_tokens <= limit:
        return None
    return (
        f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the messages, {max_tokens} in the completion). "
        "Please reduce the length of the messages or completion."
    )
