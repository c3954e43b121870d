"""What an import says of a file: what it is, what was left aside, and what to do where it can't be read."""

import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from loadtests.commands.import_traffic import import_traffic
from loadtests.traffic.importers import ImportRefused, Rules, Wanted, import_file, read_mapping

Import = Callable[..., dict[str, Any]]
TREE = {
    "tree_state": "ready",
    "prompt": {"text": "Why?", "role": "prompter", "replies": [{"text": "Because."}], "more": {"a": 1}},
}


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    def run(content: bytes | str, *mapping: str, **options: Any) -> dict[str, Any]:
        (tmp_path / "traffic").write_bytes(content.encode() if isinstance(content, str) else content)
        return import_file(Wanted(tmp_path / "traffic", mapping=read_mapping(mapping), **options), tmp_path / "set")

    return run


def lines(*documents: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in documents)


# The summary


def test_rates_lengths_and_what_was_left_out(imported: Import) -> None:
    rows = [
        {"prompt_tokens": tokens, "max_tokens": 10 * tokens, "arrival_s": at} for at, tokens in enumerate([1, 2, 9])
    ]
    document = imported(lines(*rows, {"prompt_tokens": 5, "max_tokens": 0, "arrival_s": 9}))
    assert document["requests_per_s"] == 1.5
    assert document["prompt_tokens"] == {"p50": 2, "p90": 9, "max": 9}
    assert document["max_tokens"] == {"p50": 20, "p90": 90, "max": 90}
    assert document["left_out"] == {"rows": 1, "share": 0.25}
    assert document["acceptance"]["caution"] is None


def test_a_file_without_times_has_no_rate(imported: Import) -> None:
    document = imported(lines({"prompt": "a" * 9}))
    assert (document["requests_per_s"], document["times"]["read_as"]) == (None, "nothing: the file has no times")
    assert document["prompt_tokens"] == {"p50": 3, "p90": 3, "max": 3}


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("2024-01-01T00:00:00", "dates without a zone, taken for UTC"),
        ("2024-01-01T00:00:00Z", "dates with a zone"),
    ],
)
def test_dates_are_told_from_numbers(imported: Import, time: str, said: str) -> None:
    document = imported(lines({"at": time, "text": "x"}), "at=arrival_at", "text=prompt")
    assert document["times"]["read_as"] == said


def test_much_that_was_left_out_is_a_caution(imported: Import) -> None:
    rows = [{"prompt": "x" * 4, "max_tokens": 5}] * 9 + [{"prompt": "x" * 400, "max_tokens": 5}]
    document = imported(lines(*rows), rules=Rules(max_context=50))
    assert document["acceptance"]["caution"] == (
        "1 of 10 requests (10%) were left out: the load is that of the others alone."
    )


# What was left aside


def test_fields_beside_a_mapped_one_are_counted(imported: Import) -> None:
    document = imported(lines(TREE, TREE), "prompt.text=prompt")
    assert document["unread_fields"] == {"prompt.more": 2, "prompt.replies": 2, "prompt.role": 2, "tree_state": 2}


def test_further_elements_of_a_list_are_counted(imported: Import) -> None:
    task = {"instances": [{"input": "a", "output": "b"}, {"input": "c"}, {"input": "d"}], "name": "n"}
    alone = {"instances": [{"input": "a"}], "name": "n"}
    document = imported(lines(task, alone), "instances.0.input=prompt", "name=id")
    assert document["unread_fields"] == {"instances.*": 1, "instances.0.output": 1}


def test_a_field_of_a_mapping_that_no_record_has_is_refused_with_those_there_are(imported: Import) -> None:
    with pytest.raises(ImportRefused, match="traffic: no record has a field 'quesion'; they have 'question', 'answer'"):
        imported(lines({"question": "a", "answer": "b"}), "quesion=prompt")
    with pytest.raises(ImportRefused, match=r"a field 'prompt\.txt'; they have 'tree_state', 'prompt\.text'"):
        imported(lines(TREE), "prompt.txt=prompt")
    with pytest.raises(ImportRefused, match="no record has a field 'kind'"):
        imported(lines({"q": "a"}), "q=prompt", "kind=class")


def test_a_field_that_is_null_is_there(imported: Import) -> None:
    assert imported(lines({"q": "a", "kind": None}), "q=prompt", "kind=class")["classes"] == {"default": 1}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (TREE["prompt"], "an object with the fields 'text', 'role', 'replies', 'more'; a text in it is 'prompt.text'"),
        ({}, "an object without fields"),
        (["a", "b"], "a list of 2"),
        (3.5, "a number"),
        (False, "false"),
    ],
)
def test_what_is_no_text_is_called_what_it_is(imported: Import, tmp_path: Path, value: Any, said: str) -> None:
    imported(lines({"prompt": value}, {"prompt": "x"}), "prompt=prompt")
    found = json.loads((tmp_path / "set" / "problems.jsonl").read_text())
    assert (found["reason"], found["detail"]) == ("not text", said)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("PIN 4711 of me", "14 characters"),
        ("+49 151 2345678", "15 characters"),
        ("4111 1111 1111 1111", "19 characters"),
        ("9999999999", "9999999999"),
        ("-1.5e3", "-1.5e3"),
        ("2023-02-30 25:00:00+01:00", "2023-02-30 25:00:00+01:00"),
        ("n/a", "n/a"),
        (True, "True"),
    ],
)
def test_a_value_is_quoted_where_it_can_only_be_a_number_or_a_date(
    imported: Import, tmp_path: Path, value: Any, said: str
) -> None:
    imported(lines({"prompt": "x"}, {"prompt": "y", "max_tokens": value}), format="own")
    assert json.loads((tmp_path / "set" / "problems.jsonl").read_text())["detail"] == said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("请求时间", "请求时间"),
        ("请帮我写一封辞职信", "a name of 9 characters"),
        ("สวัสดีครับ", "a name of 10 characters"),
        ("request time (ms)", "request time (ms)"),
    ],
)
def test_a_sentence_without_spaces_is_no_name(imported: Import, name: str, said: str) -> None:
    assert imported(lines({"prompt": "x", "output_tokens": 1, name: 1}))["unread_fields"] == {said: 1}


def test_a_table_of_very_many_columns_is_refused_at_once(imported: Import) -> None:
    header = ",".join(f"c{at}" for at in range(60_000))
    for mapping in (["c1=prompt"], []):
        with pytest.raises(ImportRefused, match="its first line has 60,000 columns, 2,000 are the most"):
            imported(f"{header}\n1\n", *mapping)


# Files of another kind


def test_files_that_are_no_text_are_called_what_they_are(imported: Import, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("t.jsonl", lines({"prompt": "a"}))
    parquet.write_table(pyarrow.table({"prompt": ["a"]}), tmp_path / "parquet")
    with sqlite3.connect(tmp_path / "sqlite") as database:
        database.execute("create table t (a)")
    database.close()
    subprocess.run(["tar", "cf", tmp_path / "tar", "-C", tmp_path, "zip"], check=True)
    said = {
        "zip": "this looks like a zip archive or a spreadsheet: unpack it",
        "parquet": "this looks like a Parquet file: export it as JSON Lines or CSV",
        "sqlite": "this looks like an SQLite database: export it",
        "tar": "this looks like a tar archive: unpack it",
    }
    for name, words in said.items():
        for format_ in ("auto", "azure"):
            with pytest.raises(ImportRefused, match=words):
                imported((tmp_path / name).read_bytes(), format=format_)
    with pytest.raises(ImportRefused, match="no text in UTF-8: if it is text in another encoding, save it as UTF-8"):
        imported(bytes(range(256)) * 10)
    with pytest.raises(ImportRefused, match="no text in UTF-8"):
        imported("Вопрос о посылке".encode("cp1251") + b",5\n", "a=prompt")


def test_json_under_the_name_of_a_table_is_called_json(imported: Import) -> None:
    with pytest.raises(ImportRefused, match="its first line looks like JSON, not like the header of a table"):
        imported(lines({"question": 1, "answer": 2}), format="azure")


def test_a_first_line_of_text_is_not_listed_as_columns(imported: Import) -> None:
    with pytest.raises(ImportRefused, match="its first line is no header: 2 columns, too long for names"):
        imported("My name is Ada and I have a question, about it\n", format="azure")


def test_a_class_that_no_row_can_have_is_refused(imported: Import) -> None:
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,1,2\n"
    with pytest.raises(ImportRefused, match="no row can have this class: 61 characters, the limit is 60"):
        imported(azure, rules=Rules(class_="c" * 61))


def test_a_class_for_each_user_is_refused(imported: Import) -> None:
    rows = [{"prompt": "a", "class": f"user {at}"} for at in range(201)]
    with pytest.raises(ImportRefused, match="more than 200 classes: a class is a kind of request"):
        imported(lines(*rows))
    assert len(imported(lines(*rows[:200]))["classes"]) == 200


def test_the_standard_input_is_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "config.cli", "import", "-", "--out", str(tmp_path / "set")]
    content = lines({"prompt": "a", "output_tokens": 1}).encode()
    done = subprocess.run(command, input=content, capture_output=True, check=True)
    assert json.loads(done.stdout)["source"] | {"sha256": ""} == {
        "file": "stdin",
        "bytes": len(content),
        "sha256": "",
        "compression": None,
    }


def test_a_file_that_is_not_there_is_said_so() -> None:
    result = CliRunner().invoke(import_traffic, ["nowhere", "--out", "set"])
    assert (result.exit_code, "'nowhere' does not exist" in result.output) == (2, True)
