"""Prompts that are nearly equal are found, in any script, and others aren't taken for such."""

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from unicodedata import category, normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.traffic.columns import read_columns
from loadtests.traffic.groups import groups_of
from loadtests.traffic.near_duplicates import (
    CHARACTERS_AT_ONCE,
    UNSEEN,
    WORD,
    as_seen,
    compared_text,
    jaccards,
    read_prompts,
    shingle_hashes,
    words_of,
)
from loadtests.traffic.rows import Message, Row, part_content


def row(number: int, *texts: str, system: str = "", conversation: str = "") -> Row:
    spoken = [Message(role="user", content=text) for text in texts]
    return Row(
        id=f"r{number}",
        conversation=conversation or f"c{number}",
        arrival_s=number,
        class_="chat",
        messages=(*([Message(role="system", content=system)] if system else []), *spoken),
        max_tokens=8,
    )


def pairs(
    rows: list[Row], threshold: float = 0.8, tell: Callable[[int], None] = lambda done: None
) -> set[frozenset[int]]:
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as scratch:
        path = Path(directory) / "rows.jsonl"
        path.write_bytes(part_content(rows))
        found = read_prompts(path, read_columns(path), threshold=threshold, scratch=scratch, tell=tell)
    assert found.characters.tolist() == [sum(len(one.content) for one in row.messages) for row in rows]
    return {frozenset(pair) for pair in found.pairs.tolist()}


def words(rng: random.Random, count: int) -> list[str]:
    return ["".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(count)]


def characters(rng: random.Random, count: int) -> list[str]:
    return [chr(rng.randrange(0x4E00, 0x9FA0)) for _ in range(count)]


@pytest.mark.parametrize("chinese", [False, True])
@pytest.mark.parametrize("length", [30, 60, 300])
def test_one_word_in_thirty_changed_is_found_among_others(length: int, chinese: bool) -> None:
    """The candidates are drawn by MinHash, which may miss one pair in a thousand this near the threshold; never is a
    stranger taken for near."""
    found = [changed_pairs(random.Random(seed), length, chinese) for seed in range(40)]
    assert all(one <= {frozenset({3, 20})} for one in found)
    assert sum(bool(one) for one in found) >= 39


def changed_pairs(rng: random.Random, length: int, chinese: bool) -> set[frozenset[int]]:
    drawn, between = (characters, "") if chinese else (words, " ")
    texts = [drawn(rng, length) for _ in range(20)]
    near = list(texts[3])
    for start in range(0, length, 30):
        near[start + rng.randrange(30)] = drawn(rng, 1)[0]
    return pairs([row(number, between.join(text)) for number, text in enumerate([*texts, near])])


def test_a_prompt_that_differs_in_case_marks_and_system_prompt_alone_is_the_same() -> None:
    rows = [
        row(0, "Why is my parcel still in Graz?", system="You are kind."),
        row(1, "why is my parcel, STILL in graz", system="You are curt."),
        row(2, "Why is my parcel not in Graz?"),
    ]
    assert pairs(rows) == {frozenset({0, 1})}


def test_equal_messages_alone_where_that_is_asked() -> None:
    rows = [row(0, "thanks"), row(1, "Thanks"), row(2, "thanks"), row(3, "thanks", system="Be kind.")]
    assert pairs(rows, 1) == {frozenset({0, 2})}
    assert pairs(rows) == {frozenset({0, other}) for other in (1, 2, 3)}


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_found_as_any_others(text: str) -> None:
    assert words_of(text) == [word.encode() for word in WORD.findall(text)]


def test_texts_without_words_are_compared_as_they_are() -> None:
    rows = [row(0, "🙂"), row(1, "🙃"), row(2, "???"), row(3, "🙂")]
    assert pairs(rows) == {frozenset({0, 3})}


def test_system_prompts_are_compared_where_nothing_else_was_said() -> None:
    assert compared_text([{"role": "system", "content": "Be Kind"}]) == "be kind"
    assert compared_text([{"role": "system", "content": "Be"}, {"role": "user", "content": ""}]) == "be\n"
    assert compared_text([{"role": "system", "content": "Be"}, {"role": "user", "content": "So?"}]) == "so?"


def test_a_prompt_that_is_only_encoded_in_another_way_is_the_same() -> None:
    said = "Où est ma commande numéro 4711 du café ?"
    other = "Will the package reach Graz on Friday?"
    rows = [
        row(0, normalize("NFC", said)),
        row(1, normalize("NFD", said)),
        row(2, "".join(f"{letter}\u200b" for letter in said)),
        row(3, "\ufeff" + said.replace("commande", "com\u00admande")),
        row(4, other),
        row(5, "".join(chr(ord(one) + 0xFEE0) if one != " " else "\u3000" for one in other)),
        row(6, "Bring it to the ﬁrst ﬂoor, please"),
        row(7, "bring it to the FIRST floor, please"),
    ]
    assert pairs(rows) == {
        frozenset({0, 1}),
        frozenset({0, 2}),
        frozenset({0, 3}),
        frozenset({4, 5}),
        frozenset({6, 7}),
    }
    assert pairs(rows, 1) == set()


def test_prompts_of_nothing_that_one_sees_are_compared_as_they_are() -> None:
    assert pairs([row(0, "\u200b"), row(1, "\u200d"), row(2, "\u200b")]) == {frozenset({0, 2})}


@given(st.text(), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_every_encoding_of_a_text_is_compared_as_one(text: str, form: Literal["NFC", "NFD", "NFKC", "NFKD"]) -> None:
    assert as_seen(normalize(form, text)) == as_seen(text)


@pytest.mark.parametrize("unseen", ["\u034f", "\u115f", "\u180b", "\u3164", "\ufe0f", "\uffa0", "\U000e0101"])
def test_a_mark_that_nobody_sees_makes_no_other_prompt(unseen: str) -> None:
    text = "What does the contract say about notice"
    assert as_seen(unseen.join(text)) == as_seen(text)


def test_what_nobody_sees_is_what_unicode_says() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert {one for one in every if category(one) == "Cf"} <= set(UNSEEN.findall(every))
    assert {category(one) for one in UNSEEN.findall(every)} == {"Cf", "Mn", "Lo", "Cn"}


def test_a_crowd_that_is_alike_hangs_together_through_few_pairs() -> None:
    rng = random.Random(5)
    template = words(rng, 200)
    rows = [row(number, " ".join([*template, f"number{number}"])) for number in range(400)]
    found = pairs(rows)
    joined = np.array([sorted(pair) for pair in found], dtype=np.int32)
    assert set(groups_of(400, joined).tolist()) == {0}
    assert len(found) < 400 * 10


def test_a_near_duplicate_is_found_in_a_crowd_that_shares_a_template() -> None:
    rng = random.Random(6)
    template = words(rng, 60)
    own = [words(rng, 40) for _ in range(1_000)]
    near = [*own[17][:20], "changed", *own[17][21:]]
    rows = [row(number, " ".join([*template, *one])) for number, one in enumerate([*own, near])]
    assert frozenset({17, 1_000}) in pairs(rows)


@pytest.mark.parametrize(("threshold", "joined"), [(0.3, True), (0.6, True), (0.9, False)])
def test_the_threshold_is_a_jaccard_similarity(threshold: float, joined: bool) -> None:
    rng = random.Random(7)
    shared = words(rng, 80)
    rows = [row(number, " ".join([*shared, *words(rng, 15)])) for number in range(2)]
    sets = [shingle_hashes(row.messages[0].content) for row in rows]
    assert jaccards(sets, np.array([[0, 1], [1, 1]])) == pytest.approx([78 / (78 + 15 + 15), 1])
    assert bool(pairs(rows, threshold)) == joined


def test_a_prompt_of_megabytes_is_compared_in_pieces() -> None:
    rng = random.Random(8)
    long = " ".join(words(rng, 400_000))
    assert len(long) > 2 * CHARACTERS_AT_ONCE
    assert pairs([row(0, long), row(1, f"{long} end"), row(2, "short")]) == {frozenset({0, 1})}


def test_what_tell_raises_ends_the_search() -> None:
    def stop(done: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        pairs([row(0, "one"), row(1, "two")], tell=stop)


@pytest.mark.parametrize("threshold", [0, -1, 1.1, float("nan")])
def test_a_similarity_that_can_not_be_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="similarity must be above 0 and at most 1, not"):
        pairs([row(0, "one")], threshold)
