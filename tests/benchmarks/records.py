"""How fast the records of a large trial become evidence, in a fresh process: ``make bench``. Exits 1 if too slow."""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.canonical import digest
from loadtests.evidence.manifest import this_host
from loadtests.evidence.records import RequestRecord, read_records, records_content
from loadtests.evidence.store import write_durably

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
ROWS = 1_000_000
LIMIT = 200_000
PLANNED_NS, PROMPTS = 1_000_003, 5_000


def record(number: int) -> RequestRecord:
    """Of a completed request with all that an engine tells; the digests don't compress."""
    planned = number * PLANNED_NS
    return RequestRecord(
        request_id=f"peak-{number:07d}",
        row=number % PROMPTS,
        class_="chat",
        level="peak",
        prompt_sha256=digest(str(number % PROMPTS).encode()),
        prompt_tokens=200 + number % 300,
        planned_ns=planned,
        sent_ns=planned + 5_000 + number % 977,
        first_token_ns=planned + 90_000_000 + number % 7_919,
        last_token_ns=planned + 990_000_000 + number % 10_007,
        ended_ns=planned + 991_000_000 + number % 10_007,
        server_queue_ms=1.5 + number % 7,
        server_prefill_ms=20.25 + number % 11,
        server_decode_ms=30.0 + number % 13,
        status="completed",
        finish_reason="stop",
        output_tokens=64 + number % 100,
        chunks=60 + number % 4,
        rounds=30 + number % 9,
        draft_tokens=120 + number % 5,
        accepted_tokens=34 + number % 3,
        accepted_histogram=[10, 5, 5, number % 10],
        output_sha256=digest(str(number).encode()),
        error=None,
        fingerprint="f" * 64,
        due_ns=planned,
    )


@dataclass(frozen=True)
class Found:
    """``seconds`` from records in memory to a named file on the disk."""

    processor: str
    cores: int
    python: str
    load_before: float
    rows: int
    seconds: float
    file_mb: float

    @property
    def rows_per_s(self) -> int:
        return round(self.rows / self.seconds)


def measure(directory: Path) -> Found:
    host, load = this_host(), os.getloadavg()[0]
    records = [record(number) for number in range(ROWS)]
    begun = time.perf_counter()
    content = records_content(records)
    write_durably(directory / digest(content), content)
    seconds = time.perf_counter() - begun
    assert read_records(content).num_rows == ROWS
    return Found(
        processor=host.processor,
        cores=host.logical_cpus,
        python=platform.python_version(),
        load_before=round(load, 1),
        rows=ROWS,
        seconds=round(seconds, 2),
        file_mb=round(len(content) / 1e6, 1),
    )


def document(found: Found) -> str:
    told = asdict(found) | {"rows_per_s": found.rows_per_s, "limit_rows_per_s": LIMIT}
    return json.dumps(told, indent=2) + "\n"


def page(found: Found) -> str:
    return f"""# Records

Written by `make bench` (`tests/benchmarks/records.py`): the records of one trial of completed requests, as a
Parquet file with its SHA-256, flushed to the disk; in a fresh process.

Machine: {found.processor}, {found.cores} cores, Python {found.python}; load before the run {found.load_before:g}.

| rows | file | time | rows per second | at least |
|---:|---:|---:|---:|---:|
| {found.rows:,} | {found.file_mb:g} MB | {found.seconds:g} s | {found.rows_per_s:,} | {LIMIT:,} |
"""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=RESULTS)
    out: Path = options.parse_args().out
    with tempfile.TemporaryDirectory(prefix="draftproof-bench-") as directory:
        found = measure(Path(directory))
    out.mkdir(parents=True, exist_ok=True)
    (out / "records.json").write_text(document(found), encoding="utf-8")
    (out / "records.md").write_text(page(found), encoding="utf-8")
    print(page(found))
    return 0 if found.rows_per_s >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
