"""The manifest of an imported run: another document than that of a trial of our own, for it knows less.

Names that both have mean the same. There is no client in it, since the machine that sent the requests isn't told.
"""

from typing import Literal

from pydantic import Field, JsonValue

from loadtests.canonical import canonical
from loadtests.evidence.foreign.reading import PlannedTimes
from loadtests.evidence.manifest import SHA256, Frozen


class SourceFile(Frozen):
    """The file as it lay on the disk, compressed or not; ``run`` counts its runs from 1."""

    file: str
    bytes: int
    sha256: str = Field(pattern=SHA256)
    compression: str | None
    tool: str
    tool_version: str | None
    run: int
    runs: int


class Number(Frozen):
    unit: str | None
    value: JsonValue


class ImportedDigests(Frozen):
    records: str | None = Field(None, pattern=SHA256)


class ImportedManifest(Frozen):
    schema_: Literal["draftproof.imported/1"] = Field("draftproof.imported/1", alias="schema")
    evidence_class: Literal["imported"] = "imported"
    source: SourceFile
    model: str | None
    base_url: str | None
    started_at: str | None = Field(description="UTC, RFC 3339: the zero of all times in the records")
    window_s: float | None
    settings: dict[str, JsonValue] = Field(description="of the load, under the tool's names")
    digests: ImportedDigests
    planned: int | None
    statuses: dict[str, int] | None
    recorded: int = Field(description="requests in the records; fewer than planned where the file holds a part")
    left_out: dict[str, int] = Field(description="requests that don't count, by reason")
    planned_times: PlannedTimes | None = Field(description="what stands in planned_ns of the records")
    lag_ms: dict[str, float] | None
    lacks: tuple[str, ...] = Field(description="why nobody can approve on this")
    findings: tuple[str, ...]
    aggregates: dict[str, Number] = Field(description="the tool's own numbers, under its names")
    draftproof: str | None = Field(description="version of the program that imported it")


def manifest_content(manifest: ImportedManifest) -> bytes:
    return canonical(manifest.model_dump(mode="json", by_alias=True))
