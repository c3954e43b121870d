"""The timeline: one row a second, missing is missing, and the client's numbers come from the records."""

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.evidence.records import RequestRecord
from loadtests.evidence.timeline import (
    BadTimeline,
    Gaps,
    Sample,
    gaps,
    read_timeline,
    timeline_content,
    timeline_table,
)

SECOND = 1_000_000_000


def record(sent_s: float | None, ended_s: float | None) -> RequestRecord:
    fields: dict[str, Any] = dict.fromkeys(one for one in RequestRecord.__dataclass_fields__)
    return RequestRecord(**fields | {"sent_ns": at(sent_s), "ended_ns": at(ended_s), "planned_ns": 0})


def at(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def sample(asked_s: float, **values: float) -> Sample:
    return Sample(round(asked_s * SECOND), round((asked_s + 0.01) * SECOND), values)


def test_every_second_is_a_row_and_has_the_sample_begun_nearest_to_it() -> None:
    samples = [sample(0.3, running=1), sample(-0.1, running=2), sample(0.9, running=3), sample(3.02, waiting=4)]
    table = timeline_table(samples, [], end_ns=3_700_000_000)
    assert table["at_ns"].to_pylist() == [0, SECOND, 2 * SECOND, 3 * SECOND]
    assert table["running"].to_pylist() == [2.0, 3.0, None, None]
    assert table["waiting"].to_pylist() == [None, None, None, 4.0]
    assert table["read_ns"].to_pylist() == [-90_000_000, 910_000_000, None, 3_030_000_000]


def test_what_the_client_had_open_is_exact_at_the_second() -> None:
    records = [record(0.2, 1.0), record(0.5, 2.5), record(1.0, None), record(None, 1.5), record(None, None)]
    table = timeline_table([], records, end_ns=3 * SECOND)
    assert table["sent"].to_pylist() == [0, 3, 3, 3]
    assert table["ended"].to_pylist() == [0, 1, 2, 3]
    assert table["in_flight"].to_pylist() == [0, 2, 2, 1]


def test_missing_samples_and_a_silent_engine_are_counted() -> None:
    samples = [sample(0, running=1), sample(2, host_cpu=0.5), sample(3, running=0)]
    found = gaps(timeline_table(samples, [], end_ns=4 * SECOND))
    assert found == Gaps(seconds=5, samples=2, engine=1)
    assert found.sentences == [
        "timeline: in 2 of 5 seconds no sample was taken in time",
        "timeline: in 1 of 5 seconds the engine did not tell its state",
    ]


def test_a_figure_that_nobody_tells_is_null_and_no_gap() -> None:
    table = timeline_table([sample(0, running=1.0), sample(1, running=0.0)], [], end_ns=SECOND)
    assert table["accelerator_use"].to_pylist() == table["draft_tokens"].to_pylist() == [None, None]
    assert gaps(table).sentences == []


def test_the_bytes_come_back() -> None:
    table = timeline_table([sample(0, running=1, kv_cache_use=0.25)], [record(0.1, 0.2)], end_ns=SECOND)
    assert read_timeline(timeline_content(table)).equals(table)


def test_another_file_is_refused() -> None:
    with pytest.raises(BadTimeline, match="not a Parquet file"):
        read_timeline(b"no such thing")
    content = timeline_content(timeline_table([sample(0, running=1)], [record(0.1, 0.2)], end_ns=SECOND))
    with pytest.raises(BadTimeline, match="not a Parquet file, or a damaged one"):
        read_timeline(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    sink = BytesIO()
    pq.write_table(pa.table({"at_ns": [0]}), sink)
    with pytest.raises(BadTimeline, match=r"this timeline is no version; this program reads draftproof\.timeline/1"):
        read_timeline(sink.getvalue())


@given(
    samples=st.lists(st.floats(-2, 12).map(lambda moment: sample(moment, running=moment)), max_size=30),
    end_ns=st.integers(-SECOND, 10 * SECOND),
)
def test_the_grid_is_fixed_whatever_was_sampled(samples: list[Sample], end_ns: int) -> None:
    table = timeline_table(samples, [], end_ns=end_ns)
    assert table["at_ns"].to_pylist() == list(range(0, max(0, end_ns) + 1, SECOND))
    for at_ns, read_ns in zip(table["at_ns"].to_pylist(), table["read_ns"].to_pylist(), strict=True):
        assert read_ns is None or abs(read_ns - 10_000_000 - at_ns) <= SECOND / 2
