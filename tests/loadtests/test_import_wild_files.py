"""Whatever the bytes are: a set or a refusal, and never half of one."""

import gzip
import json
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.canonical import canonical
from loadtests.traffic.importers import FORMAT_NAMES, ImportRefused, LengthRow, Rules, Wanted, import_file, read_mapping
from loadtests.traffic.importers.blocks import Block, Columns, table_blocks
from loadtests.traffic.importers.drafts import Draft
from loadtests.traffic.importers.entries import entry_of, line_of_row, middle, seconds
from loadtests.traffic.importers.formats import FORMATS
from loadtests.traffic.importers.lines import split_lines
from loadtests.traffic.importers.records import Record, json_list
from loadtests.traffic.importers.values import instant_ns
from loadtests.traffic.rows import NANOSECONDS, Row

EPOCH = datetime.fromisoformat("1970-01-01")
OWN = (
    b'{"id":"a","arrival_s":1.5,"messages":[{"role":"user","content":"\xc3\xa9\\u00e9"}],"max_tokens":3}\n'
    b'{"prompt":"b","arrival_s":0}\n'
)
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
VALID: dict[str, bytes] = {
    "own": b"\xef\xbb\xbf" + OWN,
    "openai-batch": b'{"custom_id":"a","url":"/v1/completions","body":{"prompt":"x","temperature":1,"stop":["a"]}}\n'
    * 2,
    "vllm-custom": b'{"prompt":"a","output_tokens":5}\r\n{"prompt":"b"}',
    "sharegpt": b'[{"id":"x","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]},\n {"id":1}]',
    "spec-bench": b'{"question_id":81,"category":"w","turns":["a","b"]}\n',
    "azure": AZURE + b'2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:46+01:00,"1",2',
    "mooncake": b'{"timestamp":0,"input_length":6758,"output_length":500,"hash_ids":[0]}\n' * 3,
    "burstgpt": b"Timestamp,Session ID,Request tokens,Response tokens,Log Type\n5,s,472,18,C\n5.25,,1,2,A\n",
    "csv": b'when,text\n1e3,"a ""b"""\n2,c\n',
    "tsv": b"when\ttext\n-1\tx\n",
    "jsonl": b'{"when":1e3,"text":"x"}\n{"when":"2","text":"y"}\n',
    "json": b'[{"when":1,"text":"x"},["y"],{"when":-2.5,"text":"y"}]',
}
MAPPED = ("csv", "tsv", "jsonl", "json")
SIGNS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff",
    b"\t",
    b"9" * 400,
    b"-",
    b"1e99",
    b"null",
]


def check(content: bytes, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path, out = Path(directory) / "traffic", Path(directory) / "set"
        path.write_bytes(content)
        document = None
        with suppress(ImportRefused):
            document = import_file(Wanted(path, line_limit=5_000, **options), out)
        if document is None:
            assert [one.name for one in Path(directory).iterdir()] == ["traffic"]
            return
        assert sorted(one.name for one in Path(directory).iterdir()) == ["set", "traffic"]
        assert sorted(one.name for one in out.iterdir()) == ["import.json", "problems.jsonl", "rows.jsonl"]
        lines = (out / "rows.jsonl").read_bytes().split(b"\n")[:-1]
        model = Row if document["acceptance"]["usable"] else LengthRow
        rows = [model.model_validate_json(line) for line in lines]
        assert [row.content for row in rows] == lines
        assert len(rows) == document["rows"] > 0
        assert rows[0].arrival_s == 0
        assert [row.arrival_s for row in rows] == sorted(row.arrival_s for row in rows)
        problems = (out / "problems.jsonl").read_bytes().split(b"\n")[:-1]
        assert len(problems) == sum(document["skipped"].values())
        assert all(json.loads(problem)["line"] >= 1 for problem in problems)


def options_of(name: str) -> dict[str, Any]:
    return {"format": name, "mapping": read_mapping(["when=arrival_s", "text=prompt"]) if name in MAPPED else ()}


@st.composite
def mutated(draw: st.DrawFn, content: bytes) -> bytes:
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from([0, 0, 1, 1, 2, 7, 40])))
        content = content[:start] + draw(st.one_of(st.sampled_from(SIGNS), st.binary(max_size=3))) + content[end:]
    return draw(st.sampled_from([content, content, content, content[: len(content) // 2], content * 3]))


@pytest.mark.parametrize("name", VALID)
@settings(max_examples=20)
@given(st.data())
def test_a_damaged_file_is_a_set_or_a_refusal(name: str, data: st.DataObject) -> None:
    content = data.draw(mutated(VALID[name]))
    forced = data.draw(st.booleans())
    refuse = data.draw(st.booleans())
    check(content, refuse=refuse, **(options_of(name) if forced or name in MAPPED else {}))


@pytest.mark.parametrize("name", FORMAT_NAMES)
@settings(max_examples=15)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)))
def test_arbitrary_bytes_are_a_set_or_a_refusal(name: str, content: bytes) -> None:
    check(content, **options_of(name))


@settings(max_examples=20)
@given(st.data())
def test_a_damaged_compressed_file_is_a_set_or_a_refusal(data: st.DataObject) -> None:
    whole = VALID["mooncake"] * data.draw(st.sampled_from([1, 400]))
    packed = data.draw(st.sampled_from([gzip.compress(whole), bytes(pyarrow.compress(whole, "zstd", asbytes=True))]))
    check(data.draw(mutated(packed)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = {
    "own": "id conversation turn arrival_s class tenant messages prompt prompt_tokens max_tokens sampling",
    "openai-batch": "custom_id url body",
    "vllm-custom": "prompt output_tokens",
    "sharegpt": "id conversations",
    "spec-bench": "question_id category turns",
    "mooncake": "timestamp input_length output_length session_id",
    "json": "when text",
}


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=20)
@given(st.data())
def test_any_value_under_any_field_is_a_row_or_a_problem(name: str, data: st.DataObject) -> None:
    message = st.dictionaries(
        st.sampled_from(["role", "from", "content", "value"]), st.sampled_from(["user", "gpt"]) | JSON
    )
    value = JSON | st.lists(message | st.text(max_size=3) | st.lists(message, max_size=2), max_size=3)
    fields = st.sampled_from(FIELDS[name].split())
    records = data.draw(st.lists(st.dictionaries(fields, value), min_size=1, max_size=4))
    check("\n".join(map(json.dumps, records)).encode(), **options_of(name))


# A name with the character NUL is a bad row.
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
NAMES = st.text(LETTERS, min_size=1, max_size=20)
INSTANTS = st.integers(0, 2**62) | st.integers(0, 10**7) | st.integers(0, 10**9).map(lambda whole: whole * NANOSECONDS)


@given(
    ns=INSTANTS,
    id_=NAMES,
    class_=NAMES,
    text=st.text(min_size=1),
    tenant=st.text(LETTERS, max_size=5),
    limit=st.integers(1, 2**31 - 1),
)
def test_lines_are_canonical_whatever_stands_in_them(
    ns: int, id_: str, class_: str, text: str, tenant: str, limit: int
) -> None:
    draft = Draft(1, 1, id=id_, conversation=class_, class_=class_, tenant=tenant, max_tokens=limit, turn=3)
    talk = draft._replace(messages=[{"role": "user", "content": text}])
    models: list[tuple[Draft, type[Row] | type[LengthRow]]] = [
        (draft._replace(prompt_tokens=limit), LengthRow),
        (talk, Row),
    ]
    for one, model in models:
        line = line_of_row(ns, middle(entry_of(one, Rules())), 3)
        row = model.model_validate_json(line)
        assert row.content + b"\n" == line
        assert (row.id, row.class_, row.tenant, row.max_tokens, row.turn) == (id_, class_, tenant, limit, 3)


@given(INSTANTS)
def test_seconds_are_canonical_and_give_the_nanoseconds_back_for_a_month(ns: int) -> None:
    assert seconds(ns) == canonical(ns / NANOSECONDS)
    if ns < 2**51:
        assert round(float(seconds(ns)) * NANOSECONDS) == ns


@given(st.datetimes(min_value=EPOCH.replace(year=1900), max_value=EPOCH.replace(year=2100)), st.integers(0, 999))
def test_instants_are_exact(moment: datetime, nanoseconds: int) -> None:
    since = moment - EPOCH
    expected = (since.days * 86_400 + since.seconds) * NANOSECONDS + since.microseconds * 1_000 + nanoseconds
    text = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d}{nanoseconds:03d}"
    assert instant_ns(text, "t") == (expected, False)
    assert instant_ns(f"{text}+05:30", "t") == (expected - 19_800 * NANOSECONDS, True)
    assert instant_ns(f"{text} -0100", "t") == (expected + 3_600 * NANOSECONDS, True)


def cut(content: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({0, len(content), *(place % (len(content) + 1) for place in places)})
    return [content[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.binary(max_size=12)), st.lists(st.integers(0, 200)), st.integers(0, 8))
def test_lines_do_not_depend_on_the_chunks(parts: list[bytes], places: list[int], limit: int) -> None:
    content = b"\n".join(parts)
    found = list(split_lines(cut(content, places), limit=limit))
    expected = content.split(b"\n")
    expected = expected if expected[-1] else expected[:-1]
    assert [line.size for line in found] == [len(one) for one in expected]
    whole = [b"" if len(one) > limit else one for one in expected]
    assert [line.content for line in found] == [
        one.removeprefix(b"\xef\xbb\xbf") if not at else one for at, one in enumerate(whole)
    ]


@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), max_size=5),
    st.lists(st.integers(0, 500)),
    st.booleans(),
)
def test_a_list_does_not_depend_on_the_chunks(values: list[Any], places: list[int], indent: bool) -> None:
    values = json.loads(json.dumps(values).replace("NaN", "1").replace("Infinity", "2"))
    content = json.dumps(values, indent=1 if indent else None, ensure_ascii=False).encode(errors="replace")
    found = list(json_list(cut(content, places), limit=10_000))
    whole = json.loads(content)
    assert [json.loads(json.dumps(one.fields, default=float)) for one in found if isinstance(one, Record)] == whole
    assert len(found) == len(whole)


def test_a_clean_table_is_read_in_blocks() -> None:
    lines = b"1970-01-02 00:00:00.0000001+01:00,5,6\n1970-01-01 23:59:59.9999999+01:00,7,8\n"
    columns = Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    found = list(table_blocks([AZURE + lines], columns, limit=100, check=lambda names: None))
    block = found[0]
    assert isinstance(block, Block)
    hour = 3_600 * NANOSECONDS
    assert (len(found), block.line, block.number, block.zoned, block.names) == (1, 2, 1, True, columns)
    assert block.times_ns.tolist() == [23 * hour + 100, 23 * hour - 100]
    assert (block.prompts.tolist(), block.outputs.tolist()) == ([5, 7], [6, 8])


TIMES = [
    *("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:47.6805900", "2023-11-16 18:15:46", "2024-05-10T01:00:00Z"),
    *("2023-02-30 00:00:00.0000000", "2023-11-16 18:15:46+01:00", "2024-02-29 23:59:60", "9999-01-01 00:00:00", ""),
]
LINES = st.lists(
    st.tuples(
        st.sampled_from(TIMES),
        st.sampled_from(["1", "374", "0", "-1", "+5", "007", " 7", "99999999999", "1.0", "1e3", ""]),
        st.sampled_from(["44", "1", "0", '"3"', "5,6", "\r", "5\r\n"]),
    ).map(",".join),
    max_size=8,
)
CLEAN = "2023-11-16 18:15:46.6805900,374,44"


@settings(max_examples=60)
@given(
    lines=LINES, clean=st.sampled_from([0, 3]), end=st.sampled_from(["\r\n", "\n"]), context=st.none() | st.just(400)
)
def test_blocks_say_what_the_row_reader_says(lines: list[str], clean: int, end: str, context: int | None) -> None:
    """The file is cut so that clean lines, odd lines and mixtures all come in blocks of their own."""
    content = AZURE + end.join([CLEAN] * clean + lines + [CLEAN] * clean).encode()
    by_rows = replace(FORMATS["azure"], blocks=None)
    found = []
    for format_ in (FORMATS["azure"], by_rows):
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
            patch.setitem(FORMATS, "azure", format_)
            patch.setattr("loadtests.traffic.importers.source.CHUNK", 64)
            path, out = Path(directory) / "traffic", Path(directory) / "set"
            path.write_bytes(content)
            try:
                document = import_file(Wanted(path, format="azure", rules=Rules(max_context=context)), out)
                found.append((document, *((out / name).read_bytes() for name in ("rows.jsonl", "problems.jsonl"))))
            except ImportRefused as refused:
                found.append((str(refused),))
    assert found[0] == found[1]
