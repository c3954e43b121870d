"""What holds of every evidence store, in a directory or in a bucket."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loadtests.evidence.bucket import Address, BucketStore
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceStore
from tests.support import buckets

# "abc" is the first example of FIPS 180-2.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
SOME = 3_000_000


class Kept(NamedTuple):
    store: EvidenceStore
    # The bytes under a digest become others, behind the store's back.
    tamper: Callable[[str, bytes], None]
    names: Callable[[], list[str]]


def in_directory(root: Path) -> Kept:
    store = EvidenceStore(root)

    def tamper(wanted: str, content: bytes) -> None:
        store.path(wanted).chmod(0o600)
        store.path(wanted).write_bytes(content)

    return Kept(store, tamper, lambda: [f"{one.parent.name}{one.name}" for one in root.rglob("*") if one.is_file()])


def in_bucket(address: Address, copies: Path) -> Kept:
    client = buckets.client(address.endpoint)

    def tamper(wanted: str, content: bytes) -> None:
        key = f"{address.prefix}/sha256/{wanted[:2]}/{wanted[2:]}"
        client.put_object(Bucket=address.bucket, Key=key, Body=content)

    def names() -> list[str]:
        found = client.list_objects_v2(Bucket=address.bucket).get("Contents", ())
        return ["".join(one["Key"].removeprefix(f"{address.prefix}/sha256/").split("/")) for one in found]

    return Kept(BucketStore(address, copies), tamper, names)


@pytest.fixture(params=["directory", "bucket"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "directory":
        return in_directory(tmp_path / "evidence")
    return in_bucket(request.getfixturevalue("bucket"), tmp_path / "copies")


def test_what_is_put_is_found_under_its_digest(kept: Kept) -> None:
    assert kept.store.put(b"abc") == ABC
    assert kept.store.get(ABC) == b"abc"
    assert kept.store.has(ABC)
    assert kept.store.size(ABC) == 3
    assert kept.store.file(ABC).read_bytes() == b"abc"
    kept.store.check(ABC)
    assert kept.names() == [ABC]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(content=st.binary(max_size=3000))
@example(content=b"")
@example(content=b"\r\n0\r\n\r\n")
def test_any_bytes_come_back(kept: Kept, content: bytes) -> None:
    name = kept.store.put(content)
    assert name == sha256(content).hexdigest()
    assert kept.store.get(name) == kept.store.file(name).read_bytes() == content


def test_a_file_is_kept_like_bytes(kept: Kept, tmp_path: Path) -> None:
    source = tmp_path / "engine.log"
    source.write_bytes(b"x" * SOME)
    name = kept.store.put_file(source)
    assert name == sha256(b"x" * SOME).hexdigest()
    assert kept.store.put_file(source) == kept.store.put(source.read_bytes()) == name
    assert kept.store.get(name) == kept.store.file(name).read_bytes() == source.read_bytes()
    assert kept.names() == [name]


def test_damage_is_found_and_never_papered_over(kept: Kept, tmp_path: Path) -> None:
    kept.store.put(b"abc")
    kept.tamper(ABC, b"abd")
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    for act in (
        lambda: kept.store.get(ABC),
        lambda: kept.store.file(ABC),
        lambda: kept.store.check(ABC),
        lambda: kept.store.put(b"abc"),
        lambda: kept.store.put_file(source),
    ):
        with pytest.raises(EvidenceDamaged, match=f"evidence {ABC} is damaged: .* holds bytes of digest") as raised:
            act()
        assert (raised.value.digest, raised.value.found) == (ABC, sha256(b"abd").hexdigest())


def test_what_is_not_there_is_said_to_be_missing(kept: Kept) -> None:
    assert not kept.store.has(ABC)
    for ask in (kept.store.get, kept.store.check, kept.store.file, kept.store.size):
        with pytest.raises(EvidenceMissing, match=f"no evidence {ABC}"):
            ask(ABC)


@pytest.mark.parametrize("name", ["", "abc", "../../etc/passwd", ABC.upper(), ABC + "\n", f"../{ABC}"])
def test_only_digests_are_names(kept: Kept, name: str) -> None:
    store = kept.store
    for act in (store.path, store.has, store.size, store.get, store.check, store.file, store.forget):
        with pytest.raises(ValueError, match="not a SHA-256 digest"):
            act(name)


def test_many_that_keep_the_same_at_once_keep_it_once(kept: Kept) -> None:
    together = Barrier(8)

    def put(_: int) -> str:
        together.wait()
        return kept.store.put(b"abc")

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(put, range(8))) == {ABC}
    assert kept.store.get(ABC) == b"abc"
    assert kept.names() == [ABC]


def test_what_is_forgotten_is_gone_and_can_be_kept_again(kept: Kept) -> None:
    kept.store.put(b"abc")
    other = kept.store.put(b"abd")
    here = kept.store.file(ABC)
    kept.store.forget(ABC)
    kept.store.forget(ABC)
    assert kept.names() == [other]
    assert not here.exists()
    with pytest.raises(EvidenceMissing):
        kept.store.get(ABC)
    assert kept.store.put(b"abc") == ABC
    assert kept.store.get(ABC) == b"abc"


def test_a_store_that_can_be_used_is_reached(kept: Kept) -> None:
    kept.store.reach()
