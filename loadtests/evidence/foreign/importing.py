"""From a result file to a directory per run: all of them, or nothing. This is the edge that reads and writes."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from loadtests.canonical import digest
from loadtests.evidence.foreign import aiperf, guidellm, vllm_bench
from loadtests.evidence.foreign.detect import chosen
from loadtests.evidence.foreign.manifest import ImportedDigests, ImportedManifest, SourceFile, manifest_content
from loadtests.evidence.foreign.reading import EvidenceRefused, Placed, PlannedTimes, Run, placed
from loadtests.evidence.foreign.values import BadField, Value, clean
from loadtests.evidence.manifest import installed_version, timestamp
from loadtests.evidence.records import RequestRecord, records_content
from loadtests.evidence.store import make_directory, sync_directory, write_durably
from loadtests.evidence.summary import DEFINITION, NS_PER_MS, percentiles, since_planned_ms
from loadtests.traffic.importers.importing import with_head, workspace
from loadtests.traffic.importers.lines import split_lines
from loadtests.traffic.importers.source import Source, opened

DOCUMENT_LIMIT = 200 << 20
LINE_LIMIT = 8 << 20
MOST_RUNS = 1_000
MOST_REQUESTS = 2_000_000
SPACE = re.compile(r"[ \t\r\n]*")
COUNTED_FROM: dict[PlannedTimes, str] = {
    "scheduled": "the time that the tool's schedule aimed at",
    "released": "the moment at which the tool let the request go",
    "sent": "the send",
}
STAND_IN: dict[PlannedTimes, str] = {
    "scheduled": "Planned times are those of the tool's own schedule; no plan of ours stands behind them.",
    "released": "Planned times were not recorded: the moment at which the tool let a request go stands in for them, so "
    "how late it was behind its schedule can't be known.",
    "sent": "Planned times were not recorded: send times stand in for them, so latency counts from the send, and how "
    "late the tool was can't be known.",
}
EXPORT_AGAIN = "export the file again; a line or field that is left out would take its request out of the count"


def import_evidence(path: Path, out: Path, wanted: str = "auto") -> dict[str, Any]:
    """Write one directory a run into ``out``, a new or empty directory, and give the summary.

    Raises EvidenceRefused, and OSError where the disk fails; then ``out`` is as it was.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EvidenceRefused(f"{out} is there and not empty: evidence is never written over")
    try:
        runs, source = read_runs(path, wanted)
    except BadField as error:
        raise EvidenceRefused(f"{path.name}: {error}; {EXPORT_AGAIN}") from None
    except RecursionError:
        raise EvidenceRefused(f"{path.name}: nested too deeply to be a result file") from None
    except EvidenceRefused as error:
        raise EvidenceRefused(f"{path.name}: {error}") from None
    if not 0 < len(runs) <= MOST_RUNS:
        raise EvidenceRefused(f"{path.name} holds {len(runs)} runs; from 1 to {MOST_RUNS} can be imported at once")
    with workspace(out) as (work, _):
        summaries = [keep(run, number, len(runs), source, work) for number, run in enumerate(runs, start=1)]
        sync_directory(work)
        make_directory(out.parent)
        work.rename(out)
        sync_directory(out.parent)
    return {"source": source, "evidence_class": "imported", "out": str(out), "runs": summaries}


def read_runs(path: Path, wanted: str) -> tuple[list[Run], dict[str, Any]]:
    with opened(path) as source:
        head, chunks = with_head(source.chunks(), LINE_LIMIT)
        first = first_record(head)
        try:
            runs = record_runs(chunks, first, wanted) if first is not None else document_runs(chunks, wanted)
        except (BadField, EvidenceRefused):
            if source.damage is None:
                raise
        if source.damage is not None:
            raise EvidenceRefused(f"the compressed file is damaged or cut short ({source.damage}); get it again")
        return runs, described(source)


def described(source: Source) -> dict[str, Any]:
    document = source.document()
    return {**document, "file": clean(str(document["file"]))}


def first_record(head: bytes) -> Any:
    """The first line where it is one of AIPerf's records: only those are read line by line."""
    line = next((line for line in head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n") if line.strip()), b"")
    if b'"metadata"' not in line or b'"metrics"' not in line:
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if aiperf.is_record(document) else None


def record_runs(chunks: Iterable[bytes], first: Any, wanted: str) -> list[Run]:
    chosen(first, wanted)
    run = aiperf.run_of_records(json_lines(chunks))
    if not run.requests:
        raise EvidenceRefused("it holds no request outside the warm-up: there is nothing to import")
    return [run]


def json_lines(chunks: Iterable[bytes]) -> Iterator[Value]:
    for line in split_lines(chunks, limit=LINE_LIMIT):
        if line.size > LINE_LIMIT:
            raise EvidenceRefused(f"line {line.number}: {line.size} bytes, the limit is {LINE_LIMIT}")
        if not line.content.strip():
            continue
        if line.number > MOST_REQUESTS:
            raise EvidenceRefused(f"more than {MOST_REQUESTS} lines: records of so many requests don't fit in memory")
        try:
            document = json.loads(line.content)
        except (ValueError, RecursionError) as error:
            end = "" if line.ended else ", and the file is cut short here"
            raise EvidenceRefused(f"line {line.number}: not JSON ({told(error)}){end}; {EXPORT_AGAIN}") from None
        if not aiperf.is_record(document):
            raise EvidenceRefused(f"line {line.number}: no record with metadata and metrics; {EXPORT_AGAIN}")
        yield Value(document, (f"line {line.number}:",))


def told(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is no UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else clean(str(error))


def document_runs(chunks: Iterable[bytes], wanted: str) -> list[Run]:
    documents = documents_of(whole(chunks))
    tool = chosen(documents[0], wanted)
    if aiperf.is_record(documents[0]):
        raise EvidenceRefused(f"records of AIPerf stand one a line, of at most {LINE_LIMIT} bytes; these don't")
    if tool == "vllm-bench":
        for number, document in enumerate(documents[1:], start=2):
            if chosen(document, wanted) != tool:
                raise EvidenceRefused(f"object {number} is of another tool than the first: import them one by one")
        several = len(documents) > 1
        return vllm_bench.runs(
            [Value(one, (f"object {at}:",) if several else ()) for at, one in enumerate(documents, start=1)]
        )
    if len(documents) > 1:
        raise EvidenceRefused("something follows the end of the document; export the file again")
    document = Value(documents[0])
    return guidellm.runs(document) if tool == "guidellm" else [aiperf.run_of_summary(document)]


def whole(chunks: Iterable[bytes]) -> str:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > DOCUMENT_LIMIT:
            raise EvidenceRefused(
                f"more than {DOCUMENT_LIMIT >> 20} MiB of JSON in one document; write the result without the answers' "
                "texts, or import a shorter run"
            )
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise EvidenceRefused(f"not UTF-8 at byte {error.start}: this is no JSON result file") from None


def documents_of(text: str) -> list[Any]:
    """Every JSON value of the file: vLLM's --append-result writes one after the other."""
    decoder, found, at = json.JSONDecoder(), list[Any](), space_after(text, 0)
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise EvidenceRefused(f"not JSON: {told(error)}; the file may be cut short: export it again") from None
        found.append(document)
        at = space_after(text, at)
    if not found:
        raise EvidenceRefused("the file is empty")
    return found


def space_after(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def keep(run: Run, number: int, runs: int, source: dict[str, Any], work: Path) -> dict[str, Any]:
    """Write the records, if there are any, and the manifest of one run."""
    name = f"run-{number}"
    found = placed(run.requests)
    records = records_content(found.records) if found.records else None
    manifest = manifest_of(run, found, SourceFile(**source, **identity(run), run=number, runs=runs), records)
    content = manifest_content(manifest)
    if records is not None:
        write_durably(work / name / "records.parquet", records)
    write_durably(work / name / "manifest.json", content)
    return {"directory": name, **summary_of(run, found, manifest), "manifest_sha256": digest(content)}


def identity(run: Run) -> dict[str, str | None]:
    return {"tool": run.tool, "tool_version": run.tool_version}


def manifest_of(run: Run, found: Placed, source: SourceFile, records: bytes | None) -> ImportedManifest:
    dated = found.zero_ns is not None and run.epoch
    return ImportedManifest(
        source=source,
        model=run.model,
        base_url=run.base_url,
        started_at=timestamp(found.zero_ns) if dated and found.zero_ns is not None else None,
        window_s=run.window_s,
        settings=run.settings,
        digests=ImportedDigests(records=None if records is None else digest(records)),
        planned=run.planned,
        statuses=run.statuses,
        recorded=len(found.records),
        left_out=run.left_out,
        planned_times=found.planned_times,
        lag_ms=None if found.planned_times in (None, "sent") else lag_ms(found.records),
        lacks=("The engine was neither started nor probed by us.", *stand_ins(run, found), *run.lacks),
        findings=run.findings,
        aggregates=run.aggregates,
        draftproof=installed_version("draftproof"),
    )


def stand_ins(run: Run, found: Placed) -> Iterator[str]:
    if found.planned_times is None:
        return
    yield STAND_IN[found.planned_times]
    if not found.own_ids:
        yield "Request ids are missing or come twice: a request is named by its place in the file."
    if run.planned is not None and len(found.records) < run.planned:
        yield (
            f"The records hold {len(found.records)} of {run.planned} requests: the others are counted in the statuses, "
            "and the percentiles are those of a part."
        )


def summary_of(run: Run, found: Placed, manifest: ImportedManifest) -> dict[str, Any]:
    document = manifest.model_dump(mode="json", include={"model", "planned", "statuses", "recorded", "planned_times"})
    if found.planned_times is None:
        return document | {"aggregates": run.aggregates, "lacks": manifest.lacks}
    completed = [record for record in found.records if record.status == "completed"]
    return document | {
        "lag_ms": manifest.lag_ms,
        "first_token_ms": latencies_ms(completed, "first_token_ns"),
        "completion_ms": latencies_ms(completed, "last_token_ns"),
        "percentiles": f"{DEFINITION}; over completed requests, from {COUNTED_FROM[found.planned_times]} to the first "
        "and last token",
        "lacks": manifest.lacks,
        "findings": manifest.findings,
    }


def lag_ms(records: Iterable[RequestRecord]) -> dict[str, float] | None:
    """Sent − planned. When a request was due under a cap isn't told, so a wait for a slot is in it."""
    return percentiles((one.sent_ns - one.planned_ns) / NS_PER_MS for one in records if one.sent_ns is not None)


def latencies_ms(records: Iterable[RequestRecord], moment: str) -> dict[str, float] | None:
    found = (since_planned_ms(getattr(record, moment), record) for record in records)
    return percentiles(value for value in found if value is not None)
