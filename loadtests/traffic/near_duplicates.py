"""Prompts that are equal or nearly so: conversations that hold them must not stand on two sides of a split.

Texts are compared as sets of three-word shingles. MinHash signatures (datasketch) find the pairs worth a look, and the
shingles themselves decide. The pairs are found by sorting bands of the signatures, all rows at once: an index of
dictionaries and sets, such as datasketch's own, takes 0.7 GB for 100,000 prompts.
"""

import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from unicodedata import normalize
from zlib import crc32

import numpy as np
from datasketch import MinHash
from numpy.typing import NDArray
from scipy.sparse import csr_array

from loadtests.traffic.columns import Columns, Int64
from loadtests.traffic.groups import Int32, Pairs, groups_of
from loadtests.traffic.importers.gathered import Spool

UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]
Floats = NDArray[np.float64]
Tell = Callable[[int], None]
# How many of the bands have been searched.
TellBands = Callable[[int, int], None]

# Scripts without spaces between words: a character counts as a word.
CHARACTERS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{CHARACTERS}]|[^\W{CHARACTERS}]+")
# The same for bytes of ASCII, where it takes a quarter of the time: what stands in no word is a space.
ASCII_WORDS = bytes(at if re.match(rb"\w", bytes([at])) else ord(" ") for at in range(256))
# What nobody sees: Unicode's category Cf, such as soft hyphens, joiners and marks of direction, and what else has its
# property Default_Ignorable_Code_Point (DerivedCoreProperties.txt), such as variation selectors and Hangul's fillers.
UNSEEN = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
SHINGLE = 3
VALUES = 128
MINHASH_SEED = 1
WIDEST_BAND = 5
# The chance that a pair of exactly the threshold's similarity comes up in no band.
MOST_MISSED = 1e-3
NEIGHBOURS = 3
STANDARD_ERRORS = 3.5
# Odd, with about as many ones as zeros (the golden ratio, and SplitMix64's): products spread over 64 bits.
FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)
HALF = np.uint64(32)
HASH_BYTES = 4
CHARACTERS_AT_ONCE = 1 << 20
HASHES_AT_ONCE = 8_192
PAIRS_AT_ONCE = 16_384
SHINGLES_AT_ONCE = 1 << 20
TELL_EVERY = 1_000


@dataclass(frozen=True)
class Prompts:
    """``characters`` per row; ``pairs`` of conversation numbers that hold an equal or nearly equal prompt."""

    characters: Int64
    pairs: Pairs
    method: str


def check_similarity(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise ValueError(f"similarity must be above 0 and at most 1, not {threshold:g}")


def tell_nobody(done: int, of: int) -> None:
    """Nobody waits for news."""


def read_prompts(
    rows: Path,
    columns: Columns,
    *,
    threshold: float,
    scratch: BinaryIO,
    tell: Tell = lambda done: None,
    tell_bands: TellBands = tell_nobody,
) -> Prompts:
    """The prompts of a file of rows with text. ``threshold`` is a Jaccard similarity; 1 looks for equal prompts alone.
    ``scratch`` is an empty file; ``tell`` gets the rows read so far, then ``tell_bands`` how far the search is."""
    with rows.open("rb") as lines:
        return prompts_of(
            lines, columns.conversations, threshold=threshold, scratch=scratch, tell=tell, tell_bands=tell_bands
        )


def prompts_of(
    lines: Iterable[bytes],
    conversations: Int32,
    *,
    threshold: float,
    scratch: BinaryIO,
    tell: Tell = lambda done: None,
    tell_bands: TellBands = tell_nobody,
) -> Prompts:
    """As ``read_prompts``, of canonical lines and the number of each one's conversation."""
    check_similarity(threshold)
    reading = Reading(Spool(scratch), conversations, near=threshold < 1)
    for row, line in enumerate(lines):
        if row % TELL_EVERY == 0:
            tell(row)
        reading.take(row, line)
    tell(len(conversations))
    pairs = reading.pairs()
    if threshold < 1:
        pairs = reading.with_near(pairs, threshold, tell_bands)
    return Prompts(np.frombuffer(reading.characters, dtype=np.int64), pairs, method(threshold))


def method(threshold: float) -> str:
    if threshold == 1:
        return "equal messages"
    width = band_width(threshold)
    return (
        "equal messages, or three-word shingles of the text in NFKC, of a Jaccard similarity of at least "
        f"{threshold:g}; candidates by MinHash (datasketch), {VALUES} values in {VALUES // width} bands of {width}"
    )


class Reading:
    """One pass over the rows. A text that came before, exactly, needs no signature of its own."""

    def __init__(self, shingles: Spool, conversations: Int32, *, near: bool) -> None:
        self.characters = array("q")
        self._conversations, self._count, self._near = conversations, int(conversations.max()) + 1, near
        self._shingles = shingles
        self._first_with: dict[bytes, int] = {}
        self._equal = array("i")
        self._compared = array("i")
        self._signatures = array("I")
        # The hashes come as numbers.
        self._sketch = MinHash(VALUES, seed=MINHASH_SEED, hashfunc=int)

    def take(self, row: int, line: bytes) -> None:
        said = messages_in(line)
        first = self._first(b"messages", said, row)
        if first != row:
            self.characters.append(self.characters[first])
            return
        messages = json.loads(said)
        self.characters.append(sum(len(message["content"]) for message in messages))
        if self._near:
            text = compared_text(messages)
            if self._first(b"text", text.encode(), row) == row:
                self._compare(row, shingle_hashes(text))

    def _first(self, kind: bytes, content: bytes, row: int) -> int:
        """The first row with this content. Where it isn't this one, the two conversations belong together."""
        first = self._first_with.setdefault(blake2b(content, digest_size=16, person=kind).digest(), row)
        if first != row:
            self._equal.extend((self._conversations[first], self._conversations[row]))
        return first

    def _compare(self, row: int, hashes: UInt32) -> None:
        self._compared.append(row)
        self._shingles.add(hashes.tobytes())
        self._signatures.frombytes(signature(hashes, self._sketch).tobytes())

    def pairs(self) -> Pairs:
        return np.array(self._equal, dtype=np.int32).reshape(-1, 2)

    def with_near(self, pairs: Pairs, threshold: float, tell: TellBands) -> Pairs:
        self._shingles.flush()
        signatures = np.frombuffer(self._signatures, dtype=np.uint32).reshape(-1, VALUES)
        holders = self._conversations[np.frombuffer(self._compared, dtype=np.int32)]
        refused = np.empty(0, dtype=np.int64)
        width = band_width(threshold)
        for band, candidates in enumerate(bands(signatures, width)):
            told = partial(tell, band, VALUES // width)
            told()
            groups = groups_of(self._count, pairs)[holders]
            apart = candidates[groups[candidates[:, 0]] != groups[candidates[:, 1]]]
            # No pair comes twice in a band. Looking for that, numpy would hash the names, which collide.
            unknown = apart[~np.isin(names_of(apart), refused, assume_unique=True)]
            likely = likely_pairs(signatures, unknown, threshold)
            near = self._similarities(likely, told) >= threshold
            pairs = np.concatenate([pairs, holders[likely[near]]])
            refused = np.append(refused, names_of(likely[~near]))
        return pairs

    def _similarities(self, pairs: Int64, tell: Callable[[], None]) -> Floats:
        """In a crowd that is almost alike there are millions of them: as many at once as memory allows."""
        found = [np.empty(0)]
        for part in shingle_pieces(pairs, self._shingles.sizes // HASH_BYTES):
            tell()
            rows, places = np.unique(part, return_inverse=True)
            sets = [np.frombuffer(self._shingles.read(row), dtype=np.uint32) for row in rows.tolist()]
            found.append(jaccards(sets, places.reshape(-1, 2)))
        return np.concatenate(found)


def names_of(pairs: Int64) -> Int64:
    """One number for a pair, since millions of them may be refused in a crowd that is almost alike."""
    names: Int64 = pairs[:, 0] << 32 | pairs[:, 1]
    return names


def messages_in(line: bytes) -> bytes:
    """The messages of a canonical line. A quote inside a text is escaped, so these names stand where they seem to."""
    start = line.index(b',"messages":[') + len(b',"messages":')
    return line[start : line.rindex(b',"sampling":{')]


def compared_text(messages: list[dict[str, Any]]) -> str:
    """What is compared: a system prompt is the service's own and would make all of its requests alike."""
    said = [message["content"] for message in messages if message["role"] != "system"]
    text = "\n".join(said if any(said) else [message["content"] for message in messages])
    return as_seen(text) or text


def as_seen(text: str) -> str:
    """The same for texts that differ in their encoding, in case, in width or in what nobody sees alone."""
    if text.isascii():
        return text.casefold()
    # And once more, since folding takes some letters apart.
    return normalize("NFKC", normalize("NFKC", UNSEEN.sub("", text)).casefold())


def shingle_hashes(text: str) -> UInt32:
    """The set of a text's shingles, runs of three words, as sorted hashes; a text of fewer words is one shingle."""
    words = np.concatenate([word_hashes(piece) for piece in text_pieces(text)])
    if len(words) < SHINGLE:
        return np.array([crc32(words.tobytes() or text.encode())], dtype=np.uint32)
    key = words.astype(np.uint64)
    mixed = ((key[:-2] * FACTORS[0] + key[1:-1]) * FACTORS[1] + key[2:]) * FACTORS[0]
    runs: UInt32 = np.sort((mixed >> HALF).astype(np.uint32))
    distinct: UInt32 = runs[np.append(True, runs[1:] != runs[:-1])]
    return distinct


def text_pieces(text: str) -> Iterator[str]:
    """A long text a megabyte at a time: its words as objects would take many times its size."""
    return (text[start : start + CHARACTERS_AT_ONCE] for start in range(0, len(text), CHARACTERS_AT_ONCE))


def word_hashes(text: str) -> UInt32:
    return np.fromiter(map(crc32, words_of(text)), dtype=np.uint32)


def words_of(text: str) -> list[bytes]:
    if text.isascii():
        return text.encode().translate(ASCII_WORDS).split()
    words = WORD.findall(text)
    return "\n".join(words).encode().split(b"\n") if words else []


def signature(hashes: UInt32, sketch: MinHash) -> UInt32:
    sketch.clear()
    for start in range(0, len(hashes), HASHES_AT_ONCE):
        sketch.update_batch(hashes[start : start + HASHES_AT_ONCE].tolist())
    values: UInt32 = sketch.hashvalues
    return values


def jaccards(sets: list[UInt32], pairs: Int64) -> Floats:
    """Shared ÷ all of the two sets of each pair; ``pairs``, shape (n, 2), are places in ``sets``."""
    sizes = np.array([len(one) for one in sets])
    ends = np.append(0, np.cumsum(sizes))
    columns = np.concatenate(sets).astype(np.int64)
    table = csr_array((np.ones(len(columns), dtype=np.int32), columns, ends), shape=(len(sets), 1 << 32))
    table.has_canonical_format = True
    common = table[pairs[:, 0]].multiply(table[pairs[:, 1]]).sum(axis=1)
    shared: Floats = common / (sizes[pairs].sum(axis=1) - common)
    return shared


def shingle_pieces(pairs: Int64, sizes: Int64) -> Iterator[Int64]:
    """The pairs, few enough at a time that their shingles can be held; at least one."""
    number = np.cumsum(sizes[pairs].sum(axis=1)) // SHINGLES_AT_ONCE
    return (part for part in np.split(pairs, np.flatnonzero(np.diff(number)) + 1) if len(part))


def band_width(threshold: float) -> int:
    """Values per band: the more there are, the fewer pairs come up by chance, and the more of those wanted are lost."""
    widths = range(WIDEST_BAND, 1, -1)
    return next((one for one in widths if (1 - threshold**one) ** (VALUES // one) <= MOST_MISSED), 1)


def bands(signatures: UInt32, width: int) -> Iterator[Int64]:
    """For each band, pairs of prompts that agree in it, shape (n, 2), the earlier first."""
    count = VALUES // width
    keys = [band_key(signatures[:, width * band : width * (band + 1)]) for band in range(count)]
    for band in range(count):
        # Where many agree, those that agree in the next band too stand side by side.
        yield neighbours(keys[band], keys[(band + 1) % count])


def band_key(values: UInt32) -> UInt64:
    """One number for the values. That different values share one is rare, and then the shingles decide."""
    key = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        key = (key ^ (key >> HALF) ^ column) * FACTORS[0]
    return key


def neighbours(key: UInt64, then: UInt64) -> Int64:
    """Pairs with equal keys: each prompt with the few before it and with the first. All pairs of a large bucket would
    be its size squared, and what is near to the first is joined through it."""
    order = np.lexsort((then, key))
    sorted_ = key[order]
    begins = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))
    place = np.arange(len(order))
    first = begins[np.searchsorted(begins, place, side="right") - 1]
    befores = [place - step for step in range(1, NEIGHBOURS + 1)]
    pairs = [np.stack([before, place], axis=1)[before >= first] for before in befores]
    pairs.append(np.stack([first, place], axis=1)[place - first > NEIGHBOURS])
    return np.sort(order[np.concatenate(pairs)], axis=1)


def likely_pairs(signatures: UInt32, pairs: Int64, threshold: float) -> Int64:
    """Those whose share of equal values, an estimate of the similarity, isn't clearly below the threshold."""
    lowest = threshold - STANDARD_ERRORS * math.sqrt(threshold * (1 - threshold) / VALUES)
    kept = [part[estimates(signatures, part) >= lowest] for part in pair_pieces(pairs)]
    return np.concatenate([pairs[:0], *kept])


def estimates(signatures: UInt32, pairs: Int64) -> NDArray[np.float64]:
    equal: NDArray[np.float64] = (signatures[pairs[:, 0]] == signatures[pairs[:, 1]]).mean(axis=1)
    return equal


def pair_pieces(pairs: Int64) -> Iterator[Int64]:
    return (pairs[start : start + PAIRS_AT_ONCE] for start in range(0, len(pairs), PAIRS_AT_ONCE))
