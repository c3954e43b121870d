"""A look at a file: the format where it is known, else what its columns may be, and never a word of what is in them."""

import gzip
import json
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.traffic.importers import FORMAT_NAMES, TARGETS, read_mapping
from loadtests.traffic.importers.proposed import LOOK_BYTES, Doubt, Look, look

VIDUR = b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,374,44\n1.5,396,109\n"


def rows(*records: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in records)


def test_a_known_format_needs_nothing_said() -> None:
    assert look(b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,1,2\n") == Look("azure", "csv")


def test_columns_of_another_tool_are_proposed_by_their_names() -> None:
    assert look(VIDUR).proposed == (
        ("arrived_at", "arrival_s"),
        ("num_prefill_tokens", "prompt_tokens"),
        ("num_decode_tokens", "max_tokens"),
    )


@pytest.mark.parametrize(
    ("column", "value", "field"),
    [
        ("time", "12.5", "arrival_s"),
        ("time_ms", "12.5", "arrival_ms"),
        ("timestamp", "1700000000", "arrival_s"),
        ("timestamp", "1700000000000", "arrival_ms"),
        ("timestamp", "1700000000000000", "arrival_us"),
        ("timestamp", "1700000000000000000", "arrival_ns"),
        ("created_at", "2024-05-01T10:00:00Z", "arrival_at"),
    ],
)
def test_the_unit_of_a_time_is_read_off_its_name_or_its_size(column: str, value: str, field: str) -> None:
    assert (column, field) in look(f"{column},question\n{value},Why is that so?\n".encode()).proposed


def test_two_columns_that_could_be_the_same_field_are_a_doubt_and_neither_is_proposed() -> None:
    found = look(b"prompt_tokens,input_tokens,output_tokens\n1,2,3\n")
    assert found.doubts == (Doubt("prompt_tokens", ("prompt_tokens", "input_tokens")),)
    assert found.proposed == (("output_tokens", "max_tokens"),)


def test_recorded_messages_win_over_a_prompt_beside_them() -> None:
    found = look(rows({"uid": "x", "messages": [{"role": "user", "content": "Hello"}], "question": "Hello"}))
    assert found.proposed == (("messages", "messages"),)


def test_a_text_inside_an_object_is_reached_by_its_path() -> None:
    assert ("prompt.text", "prompt") in look(
        rows({"tree": "x", "prompt": {"text": "Why?", "role": "prompter"}})
    ).proposed


def test_a_file_of_lines_is_proposed_as_one_prompt_a_line() -> None:
    found = look(b"From fairest creatures we desire increase,\nBut as the riper should by time decease\n")
    assert (found.shape, found.header, found.proposed) == ("tsv", False, (("1", "prompt"),))


def test_a_list_of_texts_is_proposed_by_number() -> None:
    found = look(b'["one prompt", "another one"]')
    assert (found.shape, found.header, found.proposed) == ("json", False, (("1", "prompt"),))


def test_compressed_files_are_looked_into() -> None:
    zstd = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(zstd, "zstd") as sink:
        sink.write(VIDUR)
    packed = [gzip.compress(VIDUR), zstd.getvalue().to_pybytes()]
    assert [look(one).proposed for one in packed] == [look(VIDUR).proposed] * 2


SECRET = "My password is hunter2, what should I do?"


@pytest.mark.parametrize(
    "head",
    [
        f"{SECRET}\n".encode(),
        f'"{SECRET}",12\n"{SECRET}",14\n'.encode(),
        f"{SECRET}\t12\n".encode(),
        rows({SECRET: 1, "question": SECRET}),
        rows([SECRET]),
        rows({"question": SECRET, "deep": {SECRET: {SECRET: SECRET}}}),
    ],
)
def test_no_text_of_the_file_stands_where_a_page_would_show_it(head: bytes) -> None:
    found = look(head)
    shown = [one.name for one in found.columns if one.shown]
    said = [*shown, found.format, found.trouble, *(name for doubt in found.doubts for name in doubt.columns)]
    assert "hunter2" not in " ".join(said)


@given(st.binary(max_size=400) | st.binary(max_size=60).map(lambda more: VIDUR + more))
def test_whatever_the_bytes_are_a_look_answers(head: bytes) -> None:
    found = look(head)
    assert found.format in (*FORMAT_NAMES, "")
    assert {field for _, field in found.proposed} <= set(TARGETS)
    assert not (found.trouble and found.columns)


NAMES = st.sampled_from(
    ["arrived_at", "prompt", "messages", "turns", "time_ms", "ts", "input_tokens", "max_tokens", "user"]
)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.text(max_size=3))


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=4))
def test_a_proposal_never_contradicts_itself(records: list[dict[str, object]]) -> None:
    targets = [field for _, field in look(rows(*records)).proposed]
    assert len(targets) == len(set(targets))
    assert sum(field.startswith("arrival_") for field in targets) <= 1


@pytest.mark.parametrize("folder", ["traces", "prompts"])
def test_every_shared_file_is_known_or_has_a_proposal_that_can_be_confirmed(shared_data: Path, folder: str) -> None:
    for path in sorted((shared_data / folder).iterdir()):
        with path.open("rb") as opened:
            found = look(opened.read(LOOK_BYTES))
        assert found.format or found.proposed, path.name
        named = {field for _, field in found.proposed}
        if named & {"prompt", "messages", "dialogue"} or {"prompt_tokens", "max_tokens"} <= named:
            read_mapping([f"{column}={field}" for column, field in found.proposed])
