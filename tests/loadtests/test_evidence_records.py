"""Records keep everything, nulls included, and a summary says only what they say."""

from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.evidence.records import (
    FIRST_SCHEMA,
    ROWS_A_GROUP,
    ROWS_A_TABLE,
    SCHEMA,
    STATUSES,
    BadRecords,
    RequestRecord,
    Status,
    read_records,
    records_content,
    records_of,
    records_table,
    status_counts,
)
from loadtests.evidence.summary import percentiles, summarise
from loadtests.traffic.levels import Deadline

MS = 1_000_000
IDENTITY = ["request_id", "row", "class", "level", "prompt_sha256", "prompt_tokens"]
TIMES = ["planned_ns", "sent_ns", "first_token_ns", "last_token_ns", "ended_ns"]
SERVER = ["server_queue_ms", "server_prefill_ms", "server_decode_ms"]
RESULT = ["status", "finish_reason", "output_tokens", "chunks"]
SPECULATION = ["rounds", "draft_tokens", "accepted_tokens", "accepted_histogram"]
FIRST_COLUMNS = [*IDENTITY, *TIMES, *SERVER, *RESULT, *SPECULATION, "output_sha256", "error", "fingerprint"]
COLUMNS = [*FIRST_COLUMNS, "due_ns", "give_up_ns", "warm_up"]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**62)
RECORDS = st.builds(
    RequestRecord,
    request_id=TEXT,
    row=INT32,
    class_=TEXT,
    level=TEXT,
    prompt_sha256=TEXT,
    prompt_tokens=st.none() | INT32,
    planned_ns=INT64,
    sent_ns=st.none() | INT64,
    first_token_ns=st.none() | INT64,
    last_token_ns=st.none() | INT64,
    ended_ns=st.none() | INT64,
    server_queue_ms=st.none() | st.floats(allow_nan=False),
    server_prefill_ms=st.none() | st.floats(allow_nan=False),
    server_decode_ms=st.none() | st.floats(allow_nan=False),
    status=st.sampled_from(STATUSES),
    finish_reason=st.none() | TEXT,
    output_tokens=st.none() | INT32,
    chunks=INT32,
    rounds=st.none() | INT32,
    draft_tokens=st.none() | INT32,
    accepted_tokens=st.none() | INT32,
    accepted_histogram=st.none() | st.lists(INT32, max_size=4),
    output_sha256=st.none() | TEXT,
    error=st.none() | TEXT,
    fingerprint=st.none() | TEXT,
    due_ns=st.none() | INT64,
    give_up_ns=st.none() | INT64,
    warm_up=st.booleans(),
)


def record(**fields: Any) -> RequestRecord:
    empty: dict[str, Any] = dict.fromkeys(name for name in COLUMNS if name != "class")
    filled = {"request_id": "r-0", "row": 0, "class_": "chat", "level": "quiet", "prompt_sha256": "0" * 64}
    counted = {"planned_ns": 0, "status": "completed", "chunks": 0, "warm_up": False}
    return RequestRecord(**{**empty, **filled, **counted, **fields})


@settings(max_examples=40)
@given(st.lists(RECORDS, max_size=4))
def test_records_come_back_as_they_went(records: list[RequestRecord]) -> None:
    assert records_of(read_records(records_content(records))) == records


@pytest.mark.parametrize("count", [ROWS_A_TABLE - 1, ROWS_A_TABLE + 1, ROWS_A_GROUP + ROWS_A_TABLE + 1])
def test_columns_of_one_value_change_where_they_change(count: int) -> None:
    """One value over a whole table of the file is told otherwise than values that differ."""
    edge = record(class_="code", error="late", warm_up=True, accepted_histogram=[1], output_tokens=3, fingerprint="f")
    for place in (0, count - 1, min(ROWS_A_TABLE, count - 1)):
        records = [record()] * count
        records[place] = edge
        content = records_content(records)
        assert records_of(read_records(content)) == records
        groups = pq.ParquetFile(BytesIO(content)).metadata
        assert groups.num_row_groups == -(-count // ROWS_A_GROUP)


def test_the_columns_are_those_of_the_design() -> None:
    assert SCHEMA.names == COLUMNS
    assert records_table([record()]).num_rows == 1


def test_the_same_records_are_the_same_bytes() -> None:
    assert records_content([record()]) == records_content([record()])


def test_a_path_reads_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    path.write_bytes(records_content([record(error="é")]))
    assert records_of(read_records(path)) == [record(error="é")]


def test_missing_is_null_and_not_zero() -> None:
    table = read_records(records_content([record(), record(output_tokens=0, accepted_histogram=[])]))
    assert table["output_tokens"].to_pylist() == [None, 0]
    assert table["accepted_histogram"].to_pylist() == [None, []]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match="not a Parquet file"):
        read_records(b"hello")
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(BadRecords, match=r"these records are no version; this program reads draftproof\.records/2"):
        read_records(path)
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(SCHEMA.metadata), path)
    with pytest.raises(BadRecords, match=r"the columns are not those of draftproof\.records/2: a$"):
        read_records(path)


def test_a_damaged_file_is_refused_and_never_another_error() -> None:
    """Whichever of its bytes was changed: the file is found unfit, or still holds a table."""
    whole, luck, refused = records_content([record(error="é", class_="chat")] * 40), Random(3), 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(luck.choice([1, 20])):
            content[luck.randrange(len(content))] = luck.randrange(256)
        with suppress(BadRecords):
            refused += 1
            read_records(bytes(content))
            refused -= 1
    assert refused > 100
    with pytest.raises(BadRecords, match="not a Parquet file, or a damaged one"):
        read_records(whole[: len(whole) // 2] + whole[-8:])


def test_records_of_the_first_version_are_read_as_what_they_said(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    done = record(planned_ns=7, sent_ns=9)
    pq.write_table(records_table([done]).select(FIRST_COLUMNS).cast(FIRST_SCHEMA), path)
    assert FIRST_SCHEMA.metadata == {b"draftproof.schema": b"draftproof.records/1"}
    assert records_of(read_records(path)) == [replace(done, due_ns=7)]


@pytest.mark.parametrize(
    ("fields", "gave_up"),
    [
        ({"status": "cancelled", "give_up_ns": 5, "ended_ns": 5}, True),
        # A stopped trial closes everything, whatever its users had planned.
        ({"status": "cancelled", "give_up_ns": 5, "ended_ns": 4}, False),
        ({"status": "cancelled", "give_up_ns": None, "ended_ns": 5}, False),
        ({"status": "completed", "give_up_ns": 5, "ended_ns": 6}, False),
    ],
)
def test_who_gave_up_as_planned(fields: dict[str, Any], gave_up: bool) -> None:
    assert record(**fields).gave_up == gave_up


@given(st.lists(st.sampled_from(STATUSES), max_size=20))
def test_every_record_is_in_one_status(statuses: list[Status]) -> None:
    counts = status_counts(record(status=status) for status in statuses)
    assert (list(counts), sum(counts.values())) == (list(STATUSES), len(statuses))


def completed(first_ms: float, last_ms: float, tokens: int, **fields: Any) -> RequestRecord:
    planned_ns = 1_000 * MS
    return record(
        planned_ns=planned_ns,
        sent_ns=planned_ns + 2 * MS,
        first_token_ns=planned_ns + round(first_ms * MS),
        last_token_ns=planned_ns + round(last_ms * MS),
        output_tokens=tokens,
        **fields,
    )


def test_a_summary_by_hand() -> None:
    records = [
        completed(100, 1000, 10),
        completed(200, 2000, 20),
        completed(400, 3000, 30, class_="batch"),
        record(status="failed", sent_ns=6 * MS),
        record(status="not_sent"),
    ]
    document = summarise(records, window_s=10, deadlines={"default": Deadline(first_token_s=0.2, completion_s=2)})
    assert document == {
        "planned": 5,
        "statuses": {"completed": 3, "failed": 1, "timed_out": 0, "cancelled": 0, "refused": 0, "not_sent": 1},
        # 2, 2, 2, 6 ms: p90 lies at position 2.7, so 2 + 0.7 · 4; p99 at 2.97.
        "lag_ms": {"p50": 2.0, "p90": 4.8, "p99": 5.88, "max": 6.0},
        "first_token_ms": {"p50": 200.0, "p90": 360.0, "p99": 396.0, "max": 400.0},
        "completion_ms": {"p50": 2000.0, "p90": 2800.0, "p99": 2980.0, "max": 3000.0},
        "percentiles": "sample quantiles of type 7 of Hyndman and Fan (1996): linear interpolation between order "
        "statistics; over completed requests, from the planned arrival to the first and last token",
        "verified_output_tokens": 60,
        "window_s": 10,
        "output_tokens_per_s": 6.0,
        "within_deadline": {
            "planned": 5,
            "within_deadline": 2,
            "attainment": 0.4,
            "deadlines": {"default": {"first_token_s": 0.2, "completion_s": 2.0}},
        },
    }


def test_warm_up_is_in_no_number_and_who_gave_up_is_counted() -> None:
    window = [completed(100, 1000, 10), record(status="cancelled", give_up_ns=5, ended_ns=6)]
    warm = [completed(9_000, 90_000, 999, warm_up=True), record(status="failed", sent_ns=900 * MS, warm_up=True)]
    deadlines = {"default": Deadline(first_token_s=1, completion_s=1)}
    found = summarise([*warm, *window], window_s=10, deadlines=deadlines)
    assert found == summarise(window, window_s=10, deadlines=deadlines) | {"warm_up_requests": 2}
    assert (found["planned"], found["gave_up_as_planned"], found["within_deadline"]["attainment"]) == (2, 1, 0.5)


def test_the_client_s_lag_counts_from_when_a_slot_came_free() -> None:
    waited = record(planned_ns=0, due_ns=400 * MS, sent_ns=403 * MS)
    assert (summarise([waited], window_s=1)["lag_ms"] or {})["max"] == 3.0


def test_a_deadline_of_one_class_is_judged_on_that_class() -> None:
    records = [completed(100, 1000, 10), completed(100, 1000, 10, class_="batch"), record(status="failed")]
    deadlines = {"chat": Deadline(first_token_s=1, completion_s=1)}
    found = summarise(records, window_s=1, deadlines=deadlines)["within_deadline"]
    assert (found["planned"], found["within_deadline"], found["attainment"]) == (2, 1, 0.5)


def test_without_requests_there_are_no_percentiles() -> None:
    document = summarise([], window_s=1)
    assert (document["planned"], document["lag_ms"], document["completion_ms"]) == (0, None, None)
    assert "within_deadline" not in document


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_percentiles_lie_within_the_values_and_in_order(values: list[float]) -> None:
    found = list((percentiles(values) or {}).values())
    assert found == sorted(found)
    assert found[-1] == pytest.approx(max(values), abs=1e-6)
    assert found[0] == pytest.approx(np.median(values), rel=1e-9, abs=1e-6)
