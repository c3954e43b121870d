"""The manifest of a trial: what was run, where, with what, and the digests of everything it left."""

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from loadtests.canonical import canonical
from loadtests.credentials import command_without_credentials

NANOSECONDS = 1_000_000_000
SHA256 = r"^[0-9a-f]{64}$"
# The packages whose version can change what this client sends, hears or writes.
PACKAGES = ("draftproof", "aiohttp", "numpy", "pyarrow", "pydantic", "rfc8785", "scipy", "uvloop")
NO_FINGERPRINT = "(none)"


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Digests(Frozen):
    """SHA-256 of what the trial read and left; None where there is no such file."""

    plan: str = Field(pattern=SHA256)
    records: str = Field(pattern=SHA256)
    part: str | None = Field(None, pattern=SHA256)
    configuration: str | None = Field(None, pattern=SHA256)
    brief: str | None = Field(None, pattern=SHA256)
    log: str | None = Field(None, pattern=SHA256, description="of the engine's log as it was when the trial had ended")
    timeline: str | None = Field(None, pattern=SHA256)


class Counters(Frozen):
    """The engine's own counters around the trial. A counter that one side lacks has no difference."""

    before: dict[str, float]
    after: dict[str, float]
    difference: dict[str, float]


class Host(Frozen):
    name: str
    system: str
    processor: str
    logical_cpus: int
    memory_bytes: int
    accelerators: tuple[str, ...] = ()


class Client(Frozen):
    """The machine and program that sent the requests."""

    host: Host
    python: str
    packages: dict[str, str | None]
    command: tuple[str, ...]


class WarmUpFacts(Frozen):
    planned: int
    completed: int
    errors: tuple[str, ...] = ()


class Manifest(Frozen):
    """The second schema has the digests of log and timeline, and says which trial this one repeats. A manifest of the
    first is read as what it said: it has neither."""

    schema_: Literal["draftproof.manifest/1", "draftproof.manifest/2"] = Field("draftproof.manifest/2", alias="schema")
    evidence_class: Literal["measured", "imported", "simulated"]
    level: dict[str, JsonValue]
    base_url: str | None = None
    model: str
    started_at: str = Field(description="UTC, RFC 3339 with nanoseconds: the zero of all times in the records")
    window_s: float
    drain_s: float
    stopped: bool = Field(description="ended early by someone, so its later requests were cancelled or not sent")
    digests: Digests
    planned: int = Field(description="requests of the window; those of the level's warm-up are in warm_up_requests")
    statuses: dict[str, int]
    lag_ms: dict[str, float] | None
    fingerprints: dict[str, int] = Field(description=f"of completed requests; {NO_FINGERPRINT} where none was told")
    findings: tuple[str, ...] = ()
    warm_up: WarmUpFacts | None = Field(None, description="what the fresh server was sent before its first trial")
    warm_up_requests: int = Field(0, description="of the level's own warm-up, recorded and in no number")
    seeds: dict[str, int] = {}
    engine: dict[str, JsonValue] = Field({}, description="version, start-up facts and command line of the engine")
    counters: Counters | None = None
    rerun_of: str | None = Field(None, pattern=SHA256, description="the manifest whose requests were sent again")
    client: Client
    neighbour_cpu_share: float | None = Field(None, description="of the machine, what neither engine nor client took")
    self_test: dict[str, JsonValue] | None = Field(None, description="what the client adds, told before the boot")
    died: str | None = Field(None, min_length=1, description="how the engine died, in this trial or before it")

    @model_serializer(mode="wrap")
    def without_a_death(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Trials whose engine lived keep the bytes that they had before a manifest could tell of a death."""
        document: dict[str, Any] = handler(self)
        return document if self.died else {name: one for name, one in document.items() if name != "died"}


def manifest_content(manifest: Manifest) -> bytes:
    return canonical(manifest.model_dump(mode="json", by_alias=True))


def counters_around(before: Mapping[str, float], after: Mapping[str, float]) -> Counters:
    shared = sorted(before.keys() & after.keys())
    difference = {name: after[name] - before[name] for name in shared}
    return Counters(before=dict(before), after=dict(after), difference=difference)


def timestamp(moment_ns: int) -> str:
    """UTC nanoseconds since 1970 as RFC 3339: a JSON number could not hold them."""
    seconds, rest = divmod(moment_ns, NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def named(fingerprints: Mapping[str | None, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for fingerprint, count in fingerprints.items():
        found[fingerprint or NO_FINGERPRINT] += count
    return dict(found)


def installed(packages: Iterable[str] = PACKAGES) -> dict[str, str | None]:
    return {name: installed_version(name) for name in packages}


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def this_host(accelerators: Iterable[str] = ()) -> Host:
    return Host(
        name=platform.node(),
        system=platform.platform(),
        processor=processor(),
        logical_cpus=os.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        accelerators=tuple(accelerators),
    )


def processor() -> str:
    """The processor's product name; Linux alone tells it without a privilege."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    return processor_named(told) or platform.processor() or platform.machine()


def processor_named(cpuinfo: str) -> str | None:
    names = (line.partition(":") for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next((name.strip() for _, _, name in names), None)


def this_client(command: Iterable[str], accelerators: Iterable[str] = ()) -> Client:
    return Client(
        host=this_host(accelerators),
        python=platform.python_version(),
        packages=installed(),
        command=tuple(command_without_credentials(command)),
    )


def read_manifest(content: bytes) -> Manifest:
    """Strictly: a text for a number is none, and of two fields of one name nobody knows which counts. Raises ValueError
    (pydantic's ValidationError) where the bytes are no manifest of a trial."""
    manifest = Manifest.model_validate_json(content, strict=True)
    if (name := doubled(content)) is not None:
        twice = PydanticCustomError("doubled", "is there twice")
        raise ValidationError.from_exception_data("Manifest", [{"type": twice, "loc": (name,), "input": name}])
    return manifest


def doubled(content: bytes) -> str | None:
    """The first name that one object of a JSON document has twice."""
    found: list[str] = []

    def names(pairs: list[tuple[str, Any]]) -> None:
        found.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)

    json.loads(content, object_pairs_hook=names)
    return found[0] if found else None


def document_of(content: bytes) -> dict[str, Any]:
    """A manifest's bytes, checked, as a plain document (for pages and bundles)."""
    return read_manifest(content).model_dump(mode="json", by_alias=True)
