"""What holds of the store in a directory alone; the rest is in test_evidence_stores.py."""

import errno
import os
import resource
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from loadtests.evidence.store import EvidenceDamaged, EvidenceStore, write_durably

# "abc" is the first example of FIPS 180-2.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore(tmp_path / "evidence")


def files_under(store: EvidenceStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file()]


def test_what_is_put_is_found_under_its_digest(store: EvidenceStore) -> None:
    assert store.put(b"abc") == ABC
    assert store.get(ABC) == b"abc"
    assert store.has(ABC)
    assert store.path(ABC) == store.root / "sha256" / ABC[:2] / ABC[2:]
    assert files_under(store) == [store.path(ABC)]


def test_a_file_is_kept_like_bytes(store: EvidenceStore, tmp_path: Path) -> None:
    source = tmp_path / "engine.log"
    source.write_bytes(b"x" * 3_000_000)
    name = store.put_file(source)
    assert name == sha256(b"x" * 3_000_000).hexdigest()
    assert store.put_file(source) == name
    assert store.get(name) == source.read_bytes()
    assert files_under(store) == [store.path(name)]
    assert stat.S_IMODE(store.path(name).stat().st_mode) == 0o400


def test_bytes_are_written_once(store: EvidenceStore) -> None:
    store.put(b"abc")
    before = store.path(ABC).stat()
    assert store.put(b"abc") == ABC
    after = store.path(ABC).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert stat.S_IMODE(after.st_mode) == 0o400


def test_damage_is_found_and_never_papered_over(store: EvidenceStore, tmp_path: Path) -> None:
    store.put(b"abc")
    path = store.path(ABC)
    path.chmod(0o644)
    path.write_bytes(b"abd")
    with pytest.raises(EvidenceDamaged, match=f"evidence {ABC} is damaged: {path} holds bytes of digest") as raised:
        store.get(ABC)
    assert (raised.value.digest, raised.value.path) == (ABC, path)
    assert raised.value.found == sha256(b"abd").hexdigest()
    with pytest.raises(EvidenceDamaged):
        store.put(b"abc")
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    with pytest.raises(EvidenceDamaged):
        store.put_file(source)
    assert path.read_bytes() == b"abd"


def test_a_full_disk_leaves_nothing_half_written(store: EvidenceStore, tmp_path: Path) -> None:
    store.put(b"abc")
    source = tmp_path / "source"
    source.write_bytes(b"y" * 300_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel refuses every file beyond this size, as it does when the disk is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as of_bytes:
            store.put(b"x" * 300_000)
        with pytest.raises(OSError, match="File too large"):
            store.put_file(source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert of_bytes.value.errno == errno.EFBIG
    assert files_under(store) == [store.path(ABC)]


def test_a_disk_that_fails_to_sync_keeps_no_name(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(b"abc")

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        store.put(b"abd")
    assert files_under(store) == [store.path(ABC)]


def test_writing_durably_replaces_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]
