"""Events come out the same, however the bytes come in."""

import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.generator.sse import Event, EventParser, EventTooLong

LINES = st.sampled_from(
    ["data: a", "data:b", "data", "data:  two spaces", ": comment", "event: error", "event:", "id: 1", "é🙂: x", "", ""]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30).map(
    lambda pairs: "".join(line + end for line, end in pairs).encode()
)


def events_of(packets: Iterable[bytes]) -> list[Event]:
    parser = EventParser()
    return [event for packet in packets for event in parser.feed(packet)]


def split(content: bytes, cuts: list[int]) -> list[bytes]:
    points = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return [content[left:right] for left, right in pairwise(points)]


@given(st.one_of(STREAMS, st.binary(max_size=200)), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_gives_the_same_events(content: bytes, cuts: list[int]) -> None:
    whole = events_of([content])
    assert events_of(split(content, cuts)) == whole
    assert events_of(content[index : index + 1] for index in range(len(content))) == whole


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1))
def test_what_is_sent_is_what_is_heard(texts: list[str]) -> None:
    content = "".join(f"data: {text}\r\n\r\n" for text in texts).encode()
    assert events_of(split(content, [7, 50])) == [Event(text) for text in texts]


@pytest.mark.parametrize(
    ("content", "events"),
    [
        (b"data: a\n\n", [Event("a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
        (b"data: a\r\rdata: b\r\n\r\n", [Event("a"), Event("b")]),
        (b"data: a\ndata: b\n\n", [Event("a\nb")]),
        (b"data:a\ndata\n\n", [Event("a\n")]),
        (b": nothing\n\n\n\n", []),
        (b"event: error\ndata: x\n\ndata: y\n\n", [Event("x", "error"), Event("y")]),
        (b"event: lost\n\ndata: y\n\n", [Event("y")]),
        (b"data: not ended\n", []),
        (b"data: \xf0\x9f\x99\n\n", [Event("\ufffd")]),
    ],
)
def test_the_standard_by_example(content: bytes, events: list[Event]) -> None:
    assert events_of([content]) == events


@pytest.mark.parametrize("packet", [b"x" * 100_000, b"data: " + b"x" * 100_000 + b"\n"])
def test_an_event_that_never_ends_is_given_up(packet: bytes) -> None:
    with pytest.raises(EventTooLong):
        events_of([packet] * 100)


def test_a_line_in_many_pieces_takes_a_time_that_grows_with_it() -> None:
    """As where a server sends every byte as a chunk of its own: the loop has other requests to hear."""
    content, began = b"data: " + b"x" * 200_000 + b"\n\n", time.perf_counter()
    assert events_of(content[at : at + 1] for at in range(len(content))) == [Event("x" * 200_000)]
    assert time.perf_counter() - began < 10
