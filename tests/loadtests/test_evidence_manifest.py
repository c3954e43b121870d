"""The manifest is one canonical document that says what was run."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from loadtests.canonical import canonical
from loadtests.evidence.manifest import (
    Client,
    Counters,
    Digests,
    Host,
    Manifest,
    counters_around,
    document_of,
    installed_version,
    manifest_content,
    named,
    processor,
    processor_named,
    read_manifest,
    this_client,
    timestamp,
)

HOST = Host(name="bench", system="Linux", processor="one", logical_cpus=2, memory_bytes=8 << 30)


def manifest(**fields: Any) -> Manifest:
    known: dict[str, Any] = {
        "evidence_class": "measured",
        "level": {"name": "quiet"},
        "model": "m",
        "started_at": timestamp(0),
        "window_s": 10.0,
        "drain_s": 5.0,
        "stopped": False,
        "digests": Digests(plan="a" * 64, records="b" * 64),
        "planned": 1,
        "statuses": {"completed": 1},
        "lag_ms": None,
        "fingerprints": {"f": 1},
        "client": Client(host=HOST, python="3.11", packages={"aiohttp": "3"}, command=("draftproof",)),
    }
    return Manifest(**known | fields)


def test_the_bytes_are_canonical_and_come_back() -> None:
    content = manifest_content(manifest())
    assert content == canonical(json.loads(content))
    assert document_of(content)["schema"] == "draftproof.manifest/2"
    assert canonical(document_of(content)) == content


def test_a_manifest_of_the_first_schema_is_still_read() -> None:
    document = json.loads(manifest_content(manifest())) | {"schema": "draftproof.manifest/1"}
    del document["digests"]["timeline"], document["rerun_of"]
    found = read_manifest(canonical(document))
    assert (found.schema_, found.digests.timeline, found.rerun_of) == ("draftproof.manifest/1", None, None)


def test_a_death_is_told_and_a_life_changes_no_byte() -> None:
    lived, died = manifest_content(manifest()), manifest_content(manifest(died="exit 137"))
    assert b"died" not in lived
    assert json.loads(died) == json.loads(lived) | {"died": "exit 137"}
    assert [read_manifest(one).died for one in (lived, died)] == [None, "exit 137"]
    assert document_of(died)["died"] == "exit 137"


def test_the_processor_is_named_as_the_kernel_names_it() -> None:
    told = "processor\t: 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\nflags\t: fpu\n"
    assert processor_named(told) == "AMD EPYC 7763 64-Core Processor"
    assert processor_named("processor\t: 0\n") is None
    assert processor()


def test_a_digest_must_be_one() -> None:
    with pytest.raises(ValidationError, match="should match pattern"):
        Digests(plan="a" * 63, records="b" * 64)


def test_a_counter_that_one_side_lacks_has_no_difference() -> None:
    found = counters_around({"generation_tokens": 10, "gone": 1}, {"generation_tokens": 52.0, "new": 3})
    assert found == Counters(
        before={"generation_tokens": 10, "gone": 1},
        after={"generation_tokens": 52, "new": 3},
        difference={"generation_tokens": 42},
    )


def test_nanoseconds_survive_in_the_time() -> None:
    assert timestamp(1_764_547_200_123_456_789) == "2025-12-01T00:00:00.123456789Z"


def test_a_missing_fingerprint_has_a_name() -> None:
    assert named({"f": 2, None: 1}) == {"f": 2, "(none)": 1}


def test_the_client_names_itself() -> None:
    client = this_client(["draftproof", "replay"])
    assert client.command == ("draftproof", "replay")
    assert client.packages["aiohttp"]
    assert client.host.memory_bytes > 0
    assert installed_version("no-such-package-of-ours") is None
