"""What each format's rows become, and what is said of those that become none."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import click
import pyarrow
import pytest
from click.testing import CliRunner

from config.cli import main
from loadtests.commands.import_traffic import import_traffic
from loadtests.traffic.importers import (
    FORMAT_NAMES,
    TARGETS,
    ImportRefused,
    Reason,
    Rules,
    Wanted,
    import_file,
    read_mapping,
)
from loadtests.traffic.importers.formats import OWN
from loadtests.traffic.importers.importing import LINE_LIMIT
from loadtests.traffic.importers.proposed import look
from loadtests.traffic.rows import Row, read_rows, rows_of
from tests.support.bench import without_details

AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


class Imported:
    """One import: its document, its rows as JSON and its problems as (line, field, reason)."""

    def __init__(self, content: bytes | str, tmp_path: Path, name: str = "traffic", **options: Any) -> None:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        out = tmp_path / "set"
        mapping = read_mapping(options.pop("mapping", ()))
        self.document = import_file(Wanted(path, mapping=mapping, **options), out)
        self.rows = [json.loads(line) for line in (out / "rows.jsonl").read_bytes().splitlines()]
        found = [json.loads(line) for line in (out / "problems.jsonl").read_bytes().splitlines()]
        self.problems = [(one["line"], one["field"], one["reason"]) for one in found]

    def each(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.rows]


Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    def run(content: bytes | str, **options: Any) -> Imported:
        return Imported(content, tmp_path, **options)

    return run


def lines(*documents: object) -> str:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in documents)


# Formats


def test_own_rows_come_out_as_they_went_in(imported: Import, tmp_path: Path) -> None:
    first = {
        "id": "a",
        "conversation": "c",
        "turn": 2,
        "arrival_s": 10.5,
        "class": "chat",
        "tenant": "t",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße \u2028 😀 \r\n"}],
        "max_tokens": 7,
        "sampling": {"temperature": 0.7, "top_p": 0.9, "seed": 3, "stop": ["x"]},
    }
    one = imported(lines(first, {"prompt": "Hello", "arrival_s": 12}))
    assert one.document["format"] == "own"
    rows = list(read_rows(tmp_path / "set" / "rows.jsonl"))
    assert rows[0] == Row.model_validate({**first, "arrival_s": 0})
    assert rows[1].model_dump(mode="json", by_alias=True) == {
        "id": "r0000002",
        "conversation": "r0000002",
        "turn": 1,
        "arrival_s": 1.5,
        "class": "default",
        "tenant": "",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1024,
        "sampling": {"temperature": 0.0, "top_p": 1.0, "seed": None, "stop": []},
    }
    assert rows_of((tmp_path / "set" / "rows.jsonl").read_bytes()) == rows
    assert one.document["output_limit"] == {"default": 1024, "rows": 1}
    assert one.document["label"] == "real text"


def test_an_import_of_an_import_is_the_same_set(imported: Import, tmp_path: Path) -> None:
    first = imported(
        lines({"prompt": "b", "arrival_s": 5}, {"prompt": "a", "arrival_s": 5}, {"prompt": "c", "arrival_s": 9})
    )
    again = import_file(Wanted(tmp_path / "set" / "rows.jsonl"), tmp_path / "again")
    assert again["digest"] == first.document["digest"]
    assert again["format"] == "own"


def test_an_openai_batch(imported: Import) -> None:
    def request(id_: str, url: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
        return {"custom_id": id_, "method": "POST", "url": url, "body": {"model": "m", **body}}

    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    one = imported(
        lines(
            request("a", messages=[{"role": "user", "content": "Hi"}], max_completion_tokens=5, max_tokens=9),
            request("b", messages=[{"role": "user", "content": parts}], temperature=0, stop="END", tools=[]),
            request("c", url="/v1/completions", prompt="Once", max_tokens=3, top_p=0.5, seed=1),
            request("d", url="/v1/embeddings", input="x"),
            request("e", messages=[{"role": "user", "content": picture}]),
            request("a", messages=[{"role": "user", "content": "Again"}]),
            request("f", messages=[{"role": "user", "content": "Hot"}], temperature=9),
        )
    )
    assert one.document["format"] == "openai-batch"
    assert one.each("id", "max_tokens") == [("a", 5), ("b", 1024), ("c", 3)]
    assert [row["messages"][0]["content"] for row in one.rows] == ["Hi", "one two", "Once"]
    assert [row["sampling"] for row in one.rows] == [
        {"temperature": 1, "top_p": 1, "seed": None, "stop": []},
        {"temperature": 0, "top_p": 1, "seed": None, "stop": ["END"]},
        {"temperature": 1, "top_p": 0.5, "seed": 1, "stop": []},
    ]
    assert one.problems == [
        (4, "url", "not a request for text"),
        (5, "body.messages.0.content", "not text"),
        (6, "id", "id used twice"),
        (7, "sampling.temperature", "not allowed"),
    ]
    assert one.document["unread_fields"] == {"body.input": 1, "body.tools": 1}


def test_vllm_custom(imported: Import) -> None:
    one = imported(lines({"prompt": "A", "output_tokens": 5}, {"prompt": "B"}, {"prompt": ""}, {"prompt": 3}, {"x": 1}))
    assert one.document["format"] == "vllm-custom"
    assert one.each("id", "max_tokens") == [("r0000001", 5), ("r0000002", 1024)]
    assert one.problems == [
        (3, "prompt", "zero-length prompt"),
        (4, "prompt", "not text"),
        (5, "prompt", "missing"),
    ]
    assert one.document["needs_arrival_process"] is True
    assert one.document["duration_s"] is None


def test_sharegpt_becomes_turns_with_recorded_history(imported: Import) -> None:
    talk = [("system", "S"), ("human", "q1"), ("gpt", "a1"), ("human", "q2"), ("gpt", "a2"), ("human", "q3")]
    elements = [
        {"id": "x", "conversations": [{"from": role, "value": text} for role, text in talk]},
        {"id": "y", "conversations": [{"from": "gpt", "value": "only an answer"}]},
        {"id": "z", "conversations": []},
        {"id": "w", "conversations": [{"from": "alien", "value": "?"}]},
    ]
    one = imported(json.dumps(elements, indent=1))
    assert one.document["format"] == "sharegpt"
    assert one.each("id", "conversation", "turn") == [("x.1", "x", 1), ("x.2", "x", 2), ("x.3", "x", 3)]
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    said = [{"role": role, "content": text} for role, (_, text) in zip(roles, talk, strict=True)]
    assert [row["messages"] for row in one.rows] == [said[:2], said[:4], said]
    assert one.document["conversations"] == 1
    assert [(field, reason) for _, field, reason in one.problems] == [
        ("conversations", "missing"),
        ("conversations.0.role", "not allowed"),
    ]


def test_spec_bench_keeps_categories_and_reports_turns_that_need_an_answer(imported: Import) -> None:
    one = imported(lines({"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": ["r"]}))
    assert one.document["format"] == "spec-bench"
    assert one.each("id", "conversation", "class") == [("81.1", "81", "writing")]
    assert one.problems == [(1, "turns.1", "the turn before has no recorded answer")]
    assert one.document["unread_fields"] == {"reference": 1}


def test_azure_2023_and_2024(imported: Import, tmp_path: Path) -> None:
    one = imported(AZURE + b"2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109")
    assert one.each("arrival_s", "prompt_tokens", "max_tokens") == [(0, 374, 44), (4.314579, 396, 109)]
    assert one.document["times"]["zone"] == "none"
    later = tmp_path / "2024.csv"
    later.write_bytes(AZURE + b"2024-05-10 00:00:00.009930+00:00,1,2\n2024-05-10 02:00:01.000000+02:00,3,4\n")
    document = import_file(Wanted(later), tmp_path / "later")
    assert (document["duration_s"], document["times"]["zone"]) == (0.99007, "given")


def test_burstgpt_versions_by_their_column_names(imported: Import, tmp_path: Path) -> None:
    one = imported(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "19440110,s1,0,ChatGPT,10,20,30,Conversation log\n"
        "19440112,,3,GPT-4,11,21,32,API log\n"
        "19440115,s1,9,ChatGPT,50,20,70,Conversation log\n"
    )
    assert one.each("arrival_s", "class", "conversation", "turn", "prompt_tokens", "max_tokens") == [
        (0, "Conversation log", "s1", 1, 10, 20),
        (2, "API log", "r0000002", 1, 11, 21),
        (5, "Conversation log", "s1", 2, 50, 20),
    ]
    assert one.document["unread_fields"] == {"Elapsed time": 3, "Model": 3, "Total tokens": 3}
    assert one.document["acceptance"]["usable"] is False
    assert "--donor" in one.document["acceptance"]["why"]


def test_the_page_on_traffic_names_everything() -> None:
    page = (Path(__file__).parents[2] / "docs" / "traffic.md").read_text(encoding="utf-8")
    options = [name for one in import_traffic.params if isinstance(one, click.Option) for name in one.opts]
    named = [*FORMAT_NAMES, *TARGETS, *options, *OWN]
    assert [name for name in named if f"`{name}" not in page and f", {name}" not in page] == []
    assert [str(reason) for reason in Reason if str(reason) not in page] == []


# A mapping


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [
        ("arrival_s", "1700000000.000000001", "1700000001.5"),
        ("arrival_ms", "0.000001", "1500"),
        ("arrival_us", "-1500000", "-0.001"),
        ("arrival_ns", "1700000000000000001", "1700000001500000000"),
        ("arrival_at", "2023-01-01T00:00:00.000000001Z", "2023-01-01 01:00:01.5+01:00"),
    ],
)
@pytest.mark.parametrize("table", [True, False])
def test_times_are_exact_in_every_unit(imported: Import, unit: str, first: str, second: str, table: bool) -> None:
    if table:
        content = f"when,in,out\n{first},1,2\n{second},3,4\n"
    else:
        values = [json.dumps(one) if unit == "arrival_at" else one for one in (first, second)]
        content = "".join(f'{{"when": {value}, "in": 1, "out": 2}}\n' for value in values)
    one = imported(content, mapping=[f"when={unit}", "in=prompt_tokens", "out=max_tokens"])
    assert one.document["duration_s"] == 1.499999999
    assert one.each("arrival_s") == [(0,), (1.499999999,)]


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (["a"], "write COLUMN=FIELD"),
        (["a=when"], "one of arrival_s"),
        (["=prompt"], "write COLUMN=FIELD"),
        (["a=prompt", "b=dialogue"], "at once"),
        (["a=id", "b=id", "c=prompt"], "two columns are mapped to id"),
        (["a=arrival_s", "b=arrival_ms", "c=prompt"], "give one"),
        (["a=prompt_tokens"], "prompt_tokens and max_tokens"),
    ],
)
def test_a_mapping_that_says_nothing_is_refused(pairs: list[str], sentence: str) -> None:
    with pytest.raises(ImportRefused, match=sentence):
        read_mapping(pairs)


def test_a_column_with_an_equals_sign_and_text_from_two_columns(imported: Import) -> None:
    one = imported('a=b,c\n"one, ""two""\r\nthree",\n,\nx,y\n', mapping=["a=b=prompt", "c=prompt"])
    assert [row["messages"][0]["content"] for row in one.rows] == ['one, "two"\r\nthree', "x\n\ny"]
    assert one.problems == [(4, "a=b + c", "zero-length prompt")]


def test_a_column_that_is_not_there_is_refused(imported: Import) -> None:
    with pytest.raises(ImportRefused, match=r"no column 'q'.*the columns are 'a', 'b'"):
        imported("a,b\n1,2\n", mapping=["q=prompt"])


def test_a_mapping_does_not_go_with_a_format_that_has_its_names(imported: Import) -> None:
    with pytest.raises(ImportRefused, match="azure has its names"):
        imported(AZURE, mapping=["a=prompt"], format="azure")


# Oddities


def test_times_out_of_order_are_sorted_and_equal_ones_keep_their_order(imported: Import) -> None:
    one = imported(lines(*({"prompt": name, "arrival_s": at} for name, at in [("a", 3), ("b", 1), ("c", 3), ("d", 1)])))
    assert [(row["arrival_s"], row["messages"][0]["content"]) for row in one.rows] == [
        (0, "b"),
        (0, "d"),
        (2, "a"),
        (2, "c"),
    ]
    assert one.document["times"] == {
        "zone": None,
        "read_as": "numbers on a clock of the file's own",
        "unsorted_rows": 2,
        "repeated": 2,
    }


BROKEN_LINES: list[tuple[bytes, tuple[str, str]]] = [
    (b"\xff\xfe", ("(whole line)", "not UTF-8")),
    (b"{", ("(whole line)", "not JSON")),
    (b"[1]", ("(whole line)", "not a JSON object")),
    (b'{"prompt": "x", "arrival_s": NaN}', ("(whole line)", "not JSON")),
    (b'{"prompt": "x", "prompt": "y"}', ("(whole line)", "not JSON")),
    (b'{"prompt": "x", "arrival_s": 1e999999999999999999999}', ("(whole line)", "not JSON")),
    (b'{"a":' * 100_000, ("(whole line)", "not JSON")),
    (b'{"prompt": "x", "arrival_s": 1e40}', ("arrival_s", "not a time")),
    (b'{"prompt": "x", "arrival_s": "soon"}', ("arrival_s", "not a time")),
    (b'{"prompt": "x", "arrival_s": true}', ("arrival_s", "not a time")),
    (b'{"prompt": "x"}', ("arrival_s", "no time where other rows have one")),
    (b'{"prompt": "\\ud800", "arrival_s": 1}', ("messages.0.content", "not UTF-8")),
    (b'{"prompt": "x", "arrival_s": 1, "tenant": "\\ud800"}', ("tenant", "not UTF-8")),
    (b'{"prompt": "x", "arrival_s": 1, "max_tokens": 0}', ("max_tokens", "zero-length output")),
    (b'{"prompt": "x", "arrival_s": 1, "max_tokens": 1.5}', ("max_tokens", "not a count")),
    (b'{"prompt": "x", "arrival_s": 1, "max_tokens": -1}', ("max_tokens", "not a count")),
    (b'{"prompt": "x", "arrival_s": 1, "max_token": 1}', ("max_token", "unknown field")),
    (b'{"prompt": "x", "arrival_s": 1, "turn": 0}', ("turn", "not allowed")),
    (b'{"prompt": "x", "arrival_s": 1, "sampling": {"seed": 99999999999999999999}}', ("sampling", "not allowed")),
    (b'{"prompt": "x", "arrival_s": 1, "class": "%s"}' % (b"c" * 61), ("class", "not allowed")),
    (b'{"messages": [], "arrival_s": 1}', ("messages", "missing")),
    (b'{"messages": [{"role": "user"}], "arrival_s": 1}', ("messages.0.content", "not text")),
    (b'{"messages": [{"role": "user", "content": ""}], "arrival_s": 1}', ("messages", "zero-length prompt")),
    (b'{"arrival_s": 1}', ("messages", "missing")),
    (b'{"prompt_tokens": 5, "max_tokens": 5, "arrival_s": 1}', ("prompt", "text and bare lengths in one file")),
    (b'{"prompt": "%s", "arrival_s": 1}' % (b"x" * LINE_LIMIT), ("(whole line)", "line too long")),
]


def test_each_row_that_cannot_be_used_is_named_and_the_rest_kept(imported: Import) -> None:
    good = b'{"prompt": "good", "arrival_s": %d}\n'
    content = b"".join(broken + b"\r\n" + good % at for at, (broken, _) in enumerate(BROKEN_LINES))
    one = imported(b"\xef\xbb\xbf" + good % 0 + content)
    assert sorted(one.problems) == [(2 * at + 2, field, reason) for at, (_, (field, reason)) in enumerate(BROKEN_LINES)]
    assert one.document["rows"] == len(BROKEN_LINES) + 1
    assert sum(one.document["skipped"].values()) == len(BROKEN_LINES)


def test_problems_never_quote_a_prompt(imported: Import, tmp_path: Path) -> None:
    secret = "My name is Ada"
    imported(
        lines(
            {"prompt": "fine"},
            {"prompt": {"text": secret}},
            {"prompt": secret, "output_tokens": 0},
        )
        + f'{{"prompt": "{secret}'
    )
    assert secret not in (tmp_path / "set" / "problems.jsonl").read_text()


def test_a_prompt_that_was_taken_for_a_time_is_not_quoted(imported: Import, tmp_path: Path) -> None:
    one = imported("a,b\nMy name is Ada,1\n12,2\n", mapping=["a=arrival_s", "b=prompt"])
    assert one.problems == [(2, "a", "not a time")]
    assert "Ada" not in (tmp_path / "set" / "problems.jsonl").read_text()


def test_prompts_that_stand_where_names_should_are_not_quoted(imported: Import) -> None:
    with pytest.raises(ImportRefused, match="2 columns, too long for names"):
        imported("My name is Ada and I have a question about it,1\n")


BROKEN_CELLS = [
    ("soon,1,2", ("TIMESTAMP", "not a time")),
    ("2023-02-30 00:00:00,1,2", ("TIMESTAMP", "not a time")),
    ("2023-11-16 24:00:00,1,2", ("TIMESTAMP", "not a time")),
    ("2023-11-16 18:00:00.1234567890,1,2", ("TIMESTAMP", "not a time")),
    ("1500-01-01 00:00:00,1,2", ("TIMESTAMP", "not a time")),
    ("2023-11-16 18:00:00Z,1,2", ("arrival", "times with and without a zone in one file")),
    (",1,2", ("TIMESTAMP", "missing")),
    ("2023-11-16 18:00:00,,2", ("ContextTokens", "missing")),
    ("2023-11-16 18:00:00,0,2", ("ContextTokens", "zero-length prompt")),
    ("2023-11-16 18:00:00,1,0", ("GeneratedTokens", "zero-length output")),
    ("2023-11-16 18:00:00,1,many", ("GeneratedTokens", "not a count")),
    ("2023-11-16 18:00:00,1,9999999999", ("GeneratedTokens", "not a count")),
    ("2023-11-16 18:00:00,1", ("(whole line)", "wrong number of columns")),
    ("2023-11-16 18:00:00,1,2,3", ("(whole line)", "wrong number of columns")),
    ('2023-11-16 18:00:00,"1"x,2', ("(whole line)", "not CSV")),
]


def test_each_line_of_a_table_that_cannot_be_used_is_named(imported: Import) -> None:
    text = "".join(f"{line}\r\n" for line, _ in BROKEN_CELLS)
    good = b"2023-11-16 18:00:00,1,21073.0\r\n"
    one = imported(b"\xef\xbb\xbf" + AZURE + good + text.encode() + b"\r\n2023-11-16 18:00:00,\xff,2\r\n" + good)
    expected = [(at, *problem) for at, (_, problem) in enumerate(BROKEN_CELLS, start=3)]
    assert one.problems == [*expected, (len(expected) + 4, "(whole line)", "not UTF-8")]
    assert one.each("max_tokens") == [(21073,), (21073,)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (AZURE + b"2023-11-16 18:00:00,1,2\r\n2023-11-16 18:0", 3),
        (AZURE + b'2023-11-16 18:00:00,1,2\r\n2023-11-16 18:00:00,"1,', 3),
        (b'{"prompt": "a", "output_tokens": 2}\n{"prompt": "b"', 2),
        (b'[{"conversations": [{"from": "human", "value": "a"}]},\n {"conversations": [{"from": "hum', 2),
        (b'[{"conversations": [{"from": "human", "value": "a"}]}\n', 2),
    ],
)
def test_a_file_cut_short_keeps_what_is_whole(imported: Import, content: bytes, line: int) -> None:
    one = imported(content)
    assert one.document["rows"] == 1
    assert one.problems == [(line, "(whole line)", "cut short at the end of the file")]


def test_a_broken_element_of_a_list_spoils_no_other(imported: Import) -> None:
    good = '{"prompt": "x]}, \\" [{", "output_tokens": 1}'
    broken = [
        '{"prompt": NaN, "a": "],"}',
        '{"prompt": "],", "prompt": "y"}',
        '{"prompt" "x"}',
        '"text"',
        '{"prompt": "' + "y" * 3000 + '"}',
        "nul",
        good,
    ]
    content = f"[{good},\n" + ",\n".join(broken) + "]\n trailing"
    one = imported(content, line_limit=2000)
    assert one.document["rows"] == 2
    assert one.problems == [
        (2, "(whole line)", "not JSON"),
        (3, "(whole line)", "not JSON"),
        (4, "(whole line)", "not JSON"),
        (5, "(whole line)", "not a JSON object"),
        (6, "(whole line)", "line too long"),
        (7, "(whole line)", "not JSON"),
        (9, "(whole line)", "not JSON"),
    ]


def test_bytes_that_are_no_utf8_spoil_one_element_of_a_list(imported: Import) -> None:
    one = imported(b'[{"prompt": "a", "max_tokens": 1}, {"prompt": "\xff"}, {"prompt": "b"}]')
    assert one.document["rows"] == 2
    assert one.problems == [(1, "(whole line)", "not UTF-8")]


@pytest.mark.parametrize("compress", [gzip.compress, lambda content: pyarrow.compress(content, "zstd", asbytes=True)])
def test_compressed_files_are_read_as_they_are(
    imported: Import, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    content = AZURE + b"".join(b"2023-11-16 18:%02d:%02d,%d,2\n" % (at // 60, at % 60, at + 1) for at in range(3600))
    one = imported(compress(content))
    assert (one.document["rows"], one.document["skipped"]) == (3600, {})
    halves = tmp_path / "halves"
    halves.write_bytes(compress(content[:5000]) + compress(content[5000:]))
    assert import_file(Wanted(halves), tmp_path / "again")["digest"] == one.document["digest"]


@pytest.mark.parametrize("compress", [gzip.compress, lambda content: pyarrow.compress(content, "zstd", asbytes=True)])
def test_a_damaged_compressed_file_is_reported(
    imported: Import, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    numbers = Random(1)
    content = AZURE + b"".join(b"2023-11-16 18:00:00,%d,2\n" % numbers.randrange(1, 9999) for _ in range(20_000))
    whole = compress(content)
    one = imported(whole[: len(whole) // 2])
    assert 5_000 < one.document["rows"] < 15_000
    assert one.document["skipped"]["compressed file damaged or cut short"] == 1
    assert one.document["source"]["bytes"] == len(whole) // 2


# The choice, and nothing half-written


def test_refusing_names_the_first_row_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(lines({"prompt": "a", "max_tokens": 1}, {"prompt": ""}))
    with pytest.raises(ImportRefused, match=r"^t.jsonl, line 2, field prompt: zero-length prompt; the rest can"):
        import_file(Wanted(path, refuse=True), tmp_path / "deep" / "set")
    assert [one.name for one in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_file_without_a_usable_row_is_refused_with_the_count(imported: Import) -> None:
    with pytest.raises(ImportRefused, match="no request that can be used: 2 × zero-length output; the first is"):
        imported(AZURE + b"2023-11-16 18:00:00,1,0\n" * 2)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf", b"\xff\xfea\x00", AZURE, b"[]", b"[", b"{}"])
def test_a_file_of_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(ImportRefused):
        import_file(Wanted(path), tmp_path / "set")
    assert [one.name for one in tmp_path.iterdir()] == ["t"]


def test_a_set_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(lines({"prompt": "a", "max_tokens": 1}))
    (tmp_path / "set").mkdir()
    result = CliRunner().invoke(main, ["import", str(path), "--out", str(tmp_path / "set")])
    assert result.exit_code == 0, result.output
    again = CliRunner().invoke(main, ["import", str(path), "--out", str(tmp_path / "set")])
    assert (again.exit_code, again.stdout) == (2, "")
    assert "never written over" in again.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["set", "t.jsonl"]


def test_rules_of_the_engineer(imported: Import) -> None:
    one = imported(
        lines({"prompt": "x" * 40, "output_tokens": 10}, {"prompt": "x" * 41}),
        rules=Rules(class_="code", max_tokens=10, max_context=20),
    )
    assert one.each("class", "max_tokens") == [("code", 10)]
    assert one.problems == [(2, "prompt", "longer than the context")]
    assert one.document["context"] == {"max": 20, "prompt_tokens": "estimated as characters ÷ 4"}


def test_one_character_of_one_prompt_changes_the_digest_and_nothing_else(imported: Import, tmp_path: Path) -> None:
    first = imported(lines({"prompt": "a", "arrival_s": 1}, {"prompt": "b", "arrival_s": 2})).document
    path = tmp_path / "traffic"
    path.write_text(lines({"prompt": "a", "arrival_s": 1}, {"prompt": "c", "arrival_s": 2}))
    second = import_file(Wanted(path), tmp_path / "second")
    assert {name for name in first if first[name] != second[name]} == {"digest", "source"}


def test_another_hash_seed_locale_and_time_zone_give_the_same_bytes(tmp_path: Path) -> None:
    trace, donor = tmp_path / "trace.csv", tmp_path / "donor.jsonl"
    trace.write_bytes(AZURE + b"".join(b"2023-03-26 02:%02d:00,%d,%d\n" % (at, 1 + at % 9, 3) for at in range(60)))
    donor.write_text(lines(*({"prompt": "é" * (at % 40 + 1)} for at in range(90))), encoding="utf-8")
    printed = set()
    for number, (seed, zone, locale) in enumerate([("1", "UTC", "C.UTF-8"), ("2", "America/New_York", "C")]):
        out = tmp_path / f"set{number}"
        ran = subprocess.run(
            [sys.executable, "-m", "config.cli", "import", str(trace), "--donor", str(donor), "--out", str(out)],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale, "PYTHONUTF8": "0"},
            capture_output=True,
            check=True,
        )
        assert json.loads(ran.stdout)["rows"] == 60
        printed.add(tuple((out / name).read_bytes() for name in ("rows.jsonl", "problems.jsonl", "import.json")))
    assert len(printed) == 1


AIPERF = {"metadata": {"x_request_id": "a", "timestamp_ns": 1}, "metrics": {"request_latency": {"value": 1}}}


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("GuideLLM", json.dumps({"metadata": {"guidellm_version": "0.8.0"}, "benchmarks": []}, indent=1)),
        ("AIPerf", json.dumps(AIPERF) + "\n"),
        ("AIPerf", json.dumps({"records": {"error_request_count": {"unit": "requests"}}}, indent=2)),
        ("vllm bench serve", json.dumps(without_details())),
    ],
)
def test_a_result_is_no_traffic_and_told_where_it_goes(tmp_path: Path, tool: str, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    sentence = f"this looks like a result of {tool}, which is no traffic: bring it to a brief, on its tab Imported"
    with pytest.raises(ImportRefused, match=sentence):
        import_file(Wanted(path), tmp_path / "set")
    assert look(content.encode()).trouble.startswith(sentence)


def test_a_prompt_about_results_is_traffic(tmp_path: Path) -> None:
    prompt = 'What do "model_id", "num_prompts", "request_rate" and "guidellm_version" mean?'
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": prompt, "output_tokens": 5}) + "\n")
    assert import_file(Wanted(path), tmp_path / "set")["rows"] == 1
