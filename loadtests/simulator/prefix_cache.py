"""Blocks of prompts that the engine has seen: least recently used first out, within the room that sequences leave."""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """A simplification: a hit saves the computing of a block, not its memory, so a shared block counts once for each
    sequence that uses it."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.blocks: OrderedDict[bytes, None] = OrderedDict()
        self.queries = 0
        self.hits = 0

    def cached_tokens(self, prefix: Sequence[bytes], prompt_tokens: int, free_blocks: int) -> int:
        """Tokens of the prompt's start that need no computing. At least one token is always computed."""
        self._shrink(free_blocks)
        found = 0
        for block in prefix:
            if block not in self.blocks:
                break
            self.blocks.move_to_end(block)
            found += 1
        hits = min(found * self.block_size, (prompt_tokens - 1) // self.block_size * self.block_size)
        self.queries += prompt_tokens
        self.hits += hits
        return hits

    def keep(self, prefix: Sequence[bytes], free_blocks: int) -> None:
        for block in prefix:
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        self._shrink(free_blocks)

    def _shrink(self, free_blocks: int) -> None:
        while len(self.blocks) > max(0, free_blocks):
            self.blocks.popitem(last=False)
