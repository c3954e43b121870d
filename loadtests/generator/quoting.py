"""Where a text repeats another one, as it stands or in another writing: other letters, escapes, entities. Pure."""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from html import unescape

Span = tuple[int, int]

# Writings of one character by others: of addresses, of JSON and reprs, of HTML. A run of bytes is one match, for it
# takes several of them to make a character. What each begins with stands first: a text without is passed over at once.
ESCAPED = re.compile(
    r"[%\\&](?:"
    r"(?<=%)[0-9a-f]{2}(?:%[0-9a-f]{2})*"
    r"|(?<=\\)\\*(?:u[0-9a-f]{4}(?:\\+u[0-9a-f]{4})*|x[0-9a-f]{2}(?:\\+x[0-9a-f]{2})*|[bfnrtv]?)"
    r"|(?<=&)(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z]{2,8});)"
)
# And spaces that are no single one.
ESCAPED_OR_SPACES = re.compile(rf"{ESCAPED.pattern}|\s{{2,}}|[^\S ]")
BYTE, UNIT = re.compile(r"(?:%|\\x)([0-9a-f]{2})"), re.compile(r"\\u([0-9a-f]{4})")
# Nothing in it is another writing of anything.
WORD = re.compile(r"[\w.:/-]*+")
# As often may a text have been written in another way; each time it is read once more.
TIMES = 5


def decoded(found: re.Match[str]) -> str:
    text = found[0]
    if units := UNIT.findall(text):
        said = bytes.fromhex("".join(units)).decode("utf-16-be", "replace")
    elif octets := BYTE.findall(text):
        said = bytes.fromhex("".join(octets)).decode("utf-8", "replace")
    elif text[0] == "\\":
        # However often it was escaped: before a letter it may stand for a space, else for nothing.
        return "" if text[-1] == "\\" else " "
    else:
        said = unescape(text) if text[0] == "&" else " "
    return re.sub(r"\s+", " ", said)


def folded(text: str) -> str:
    """In small letters, as many as there were: one capital has two of them, and one letter another form at a word's
    end. A plus is a space in an address."""
    if text.isascii():
        return text.lower().replace("+", " ")
    return text.replace("İ", "i").lower().replace("ς", "σ").replace("+", " ")


def as_read(text: str) -> str:
    """The text in the one writing that all its writings become."""
    text = on_one_line(text)
    for _ in range(TIMES):
        # Most texts have none of them, and prompts are long.
        if not any(one in text for one in "%\\&"):
            break
        read, found = ESCAPED.subn(decoded, text)
        if not found:
            break
        text = on_one_line(read)
    return text


def on_one_line(text: str) -> str:
    return " ".join(folded(text).split())


def as_read_with_places(text: str) -> tuple[str, list[Span]]:
    """And for each of its characters the place in the text that it was read from."""
    text, places = folded(text), [(at, at + 1) for at in range(len(text))]
    for _ in range(TIMES):
        if not ESCAPED_OR_SPACES.search(text):
            break
        text, inner = read_once(text)
        places = [(places[begin][0], places[end - 1][1]) for begin, end in inner]
    return text, places


def read_once(text: str) -> tuple[str, list[Span]]:
    read, places, at = list[str](), list[Span](), 0
    for found in ESCAPED_OR_SPACES.finditer(text):
        said = decoded(found)
        read += [text[at : found.start()], said]
        places += [(one, one + 1) for one in range(at, found.start())]
        places += [found.span()] * len(said)
        at = found.end()
    places += [(one, one + 1) for one in range(at, len(text))]
    return folded("".join([*read, text[at:]])), places


def repeats(text: str, others: Iterable[str], run: int) -> list[Span]:
    """Where ``run`` characters or more of ``text`` stand in one of the others, in order."""
    others = [one for one in others if len(one) >= run]
    # A prompt is a thousand times as long as what is said of it, an answer as long as it is to a key.
    pieces = pieces_of(text, run) if sum(map(len, others)) > len(text) else text
    near = [part for one in others for part in parts_near(one, pieces, run)]
    return list(repeated(text, near, run)) if near else []


def pieces_of(text: str, run: int) -> set[str]:
    size = run // 2
    return {text[at : at + size] for at in range(len(text) - size + 1)}


def parts_near(other: str, pieces: Container[str], run: int) -> Iterator[str]:
    """What of the other text can share a run with the one of these pieces, in one go through it: whoever shares a run
    shares one of the blocks that the other is cut into. Each run is whole in one of the parts."""
    size, begin, end = run // 2, 0, 0
    for at in range(0, len(other) - size + 1, size):
        if other[at : at + size] not in pieces:
            continue
        if at - run > end:
            if end:
                yield other[begin:end]
            begin = at - run
        end = at + size + run
    if end:
        yield other[begin:end]


def repeated(text: str, others: Sequence[str], run: int) -> Iterator[Span]:
    at = 0
    while at + run <= len(text):
        length = max(length_in(other, text, at, run) for other in others)
        if length:
            yield at, at + length
        at += length or 1


def length_in(other: str, text: str, at: int, run: int) -> int:
    """How many characters from here on stand in the other text, if they are a run; else 0."""
    end = at + run
    if text[at:end] not in other:
        return 0
    while end < len(text) and text[at : end + 1] in other:
        end += 1
    return end - at


def without(text: str, spans: Iterable[Span], mark: str, *, end: int | None = None) -> str:
    """The text up to ``end`` with the mark for what the spans hold."""
    spans = sorted(spans)
    if not spans:
        return text[:end]
    end, at, left = len(text) if end is None else end, 0, list[str]()
    for begin, stop in spans:
        if begin >= end:
            break
        # Spans of several writings may lie over each other, and are one then.
        if begin >= at:
            left += [text[at:begin], mark]
        at = max(at, stop)
    return "".join([*left, text[at:end]])
