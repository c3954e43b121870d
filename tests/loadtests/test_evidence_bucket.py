"""What holds of the store in a bucket alone: servers that fail, rights that are missing, versions, parts and copies."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from loadtests.evidence import bucket as evidence_bucket
from loadtests.evidence.bucket import Address, BucketStore, read_address
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable
from tests.support import buckets
from tests.support.buckets import CUT, DROP_AFTER, DROP_BEFORE, FaultyServer

ABC = sha256(b"abc").hexdigest()
# S3 takes no smaller part.
PART = 5 << 20


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a few short pauses, however busy the machine is."""
    monkeypatch.setattr(evidence_bucket, "READ_PATIENCE_S", 30.0)
    monkeypatch.setattr(evidence_bucket, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never passes."""
    monkeypatch.setattr(evidence_bucket, "READ_PATIENCE_S", 0.2)
    monkeypatch.setattr(evidence_bucket, "WRITE_PATIENCE_S", 0.2)


@pytest.fixture
def server(bucket: Address) -> Iterator[FaultyServer]:
    with buckets.faulty_server(bucket.endpoint) as server:
        yield server


@pytest.fixture
def store(bucket: Address, server: FaultyServer, tmp_path: Path) -> BucketStore:
    return BucketStore(bucket._replace(endpoint=server.endpoint), tmp_path / "copies")


@pytest.fixture
def client(bucket: Address) -> Any:
    return buckets.client(bucket.endpoint)


def key(address: Address, wanted: str) -> str:
    return f"{address.prefix}/sha256/{wanted[:2]}/{wanted[2:]}"


def keys(client: Any, address: Address) -> list[str]:
    return [one["Key"] for one in client.list_objects_v2(Bucket=address.bucket).get("Contents", ())]


def uploads(client: Any, address: Address) -> list[Any]:
    return list(client.list_multipart_uploads(Bucket=address.bucket).get("Uploads", ()))


def copies(store: BucketStore) -> list[Path]:
    return [one for one in store.root.rglob("*") if one.is_file()]


def acts(store: BucketStore, source: Path) -> list[Callable[[], object]]:
    """Everything that asks the server."""
    return [
        lambda: store.put(b"abc"),
        lambda: store.put_file(source),
        lambda: store.get(ABC),
        lambda: store.check(ABC),
        lambda: store.file(ABC),
        lambda: store.has(ABC),
        lambda: store.size(ABC),
        lambda: store.forget(ABC),
        lambda: store.sweep(older_than_s=0),
        store.reach,
    ]


@pytest.mark.parametrize("fault", [503, 500, DROP_BEFORE, DROP_AFTER, CUT])
def test_a_fault_that_passes_is_waited_out(store: BucketStore, server: FaultyServer, fault: str | int) -> None:
    server.fail(fault, fault, fault)
    assert store.put(b"abc") == ABC
    asks: list[Callable[[], bytes]] = [lambda: store.get(ABC), lambda: store.file(ABC).read_bytes()]
    for ask in asks:
        server.fail(fault, fault, fault)
        assert ask() == b"abc"
    server.fail(fault, fault, fault)
    store.forget(ABC)
    server.fail()
    assert not store.has(ABC)


def test_an_answer_that_is_lost_stores_nothing_twice(store: BucketStore, server: FaultyServer, client: Any) -> None:
    client.put_bucket_versioning(Bucket=store._bucket, VersioningConfiguration={"Status": "Enabled"})
    server.fail(None, DROP_AFTER)
    assert store.put(b"abc") == ABC
    assert len(client.list_object_versions(Bucket=store._bucket)["Versions"]) == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [503, DROP_BEFORE])
def test_a_server_that_stays_away_is_named_with_what_was_asked_for(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any, tmp_path: Path, fault: str | int
) -> None:
    (source := tmp_path / "source").write_bytes(b"abc")
    server.fault = lambda *_: fault
    for act in acts(store, source):
        with pytest.raises(EvidenceUnreachable, match=f"s3://{bucket.bucket}") as raised:
            act()
        assert raised.value.passing
    with pytest.raises(EvidenceUnreachable, match=f"s3://{bucket.bucket}/{key(bucket, ABC)} could not be stored: "):
        store.put(b"abc")
    assert keys(client, bucket) == []
    assert copies(store) == []


@pytest.mark.usefixtures("impatient")
def test_a_server_that_was_given_up_just_now_is_not_asked_by_the_next_reader(
    store: BucketStore, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_bucket, "GIVEN_UP_S", 60.0)
    other = store.put(b"abd")
    server.fault = lambda *_: 503
    with pytest.raises(EvidenceUnreachable, match="SlowDown"):
        store.get(ABC)
    server.fail()
    server.asked.clear()
    with pytest.raises(EvidenceUnreachable, match=f"{other[2:]} could not be read: SlowDown") as raised:
        store.get(other)
    assert (raised.value.passing, server.asked) == (True, [])
    # What was measured is worth the question.
    assert store.put(b"abc") == ABC
    monkeypatch.setattr(evidence_bucket, "GIVEN_UP_S", 0.0)
    assert store.get(other) == b"abd"


def test_a_bucket_that_is_gone_is_named_and_not_waited_for(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any
) -> None:
    client.delete_bucket(Bucket=bucket.bucket)
    with pytest.raises(EvidenceUnreachable, match=f"{key(bucket, ABC)} could not be stored: NoSuchBucket") as raised:
        store.put(b"abc")
    assert not raised.value.passing
    assert server.asked == ["HEAD", "PUT"]
    with pytest.raises(EvidenceUnreachable, match=f"{key(bucket, ABC)} could not be read: NoSuchBucket"):
        store.get(ABC)
    with pytest.raises(EvidenceUnreachable, match=f"s3://{bucket.bucket} could not be asked for: there is no such"):
        store.reach()


def test_rights_that_are_missing_are_told_and_no_key_is(
    store: BucketStore, server: FaultyServer, tmp_path: Path
) -> None:
    (source := tmp_path / "source").write_bytes(b"abc")
    server.fault = lambda *_: 403
    for act in acts(store, source):
        server.asked.clear()
        with pytest.raises(EvidenceUnreachable, match=r"s3:ListBucket|AccessDenied") as raised:
            act()
        assert not raised.value.passing
        assert len(server.asked) == 1
        assert not any(secret in str(raised.value) for secret in buckets.KEYS.values())


def test_a_server_without_conditional_puts_still_keeps_what_it_has(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any
) -> None:
    server.fault = lambda _, headers: 501 if headers.get("If-None-Match") else None
    assert store.put(b"abc") == ABC
    client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC), Body=b"abd")
    with pytest.raises(EvidenceDamaged):
        store.put(b"abc")
    assert client.get_object(Bucket=bucket.bucket, Key=key(bucket, ABC))["Body"].read() == b"abd"


def test_of_two_that_put_the_same_the_second_checks_what_the_first_put(
    store: BucketStore, bucket: Address, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the other came between the look and the put.
    monkeypatch.setattr(BucketStore, "_is_kept", lambda *_: False)
    client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC), Body=b"abc")
    assert store.put(b"abc") == ABC
    client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC), Body=b"abd")
    with pytest.raises(EvidenceDamaged):
        store.put(b"abc")


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of two parts and a bit."""
    monkeypatch.setattr(evidence_bucket, "PART_BYTES", PART)
    path = tmp_path / "large"
    path.write_bytes(b"".join(bytes([one]) * (PART // 8) for one in range(17)))
    return path


def test_a_large_file_goes_in_parts_through_faults(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any, large: Path
) -> None:
    server.fail(None, None, DROP_BEFORE, 503, None, DROP_AFTER, None, None, DROP_AFTER)
    name = store.put_file(large)
    assert name == sha256(large.read_bytes()).hexdigest()
    assert store.get(name) == store.file(name).read_bytes() == large.read_bytes()
    assert client.head_object(Bucket=bucket.bucket, Key=key(bucket, name))["ETag"].endswith('-3"')
    assert store.put_file(large) == name
    assert uploads(client, bucket) == []


def test_a_file_that_grows_while_it_is_stored_is_kept_as_far_as_it_reached(
    store: BucketStore, server: FaultyServer, large: Path
) -> None:
    before = large.read_bytes()

    def grow(method: str, _: Any) -> None:
        if method == "PUT":
            with large.open("ab") as more:
                more.write(b"more")

    server.fault = grow
    name = store.put_file(large)
    server.fail()
    assert store.get(name) == before != large.read_bytes()


def test_a_file_that_changes_while_it_is_stored_is_not_kept(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any, large: Path
) -> None:
    def change(method: str, _: Any) -> None:
        if method == "POST":
            with large.open("r+b") as other:
                other.seek(PART + 7)
                other.write(b"other")

    server.fault = change
    with pytest.raises(OSError, match="large changed while it was stored"):
        store.put_file(large)
    assert (keys(client, bucket), uploads(client, bucket)) == ([], [])


@pytest.mark.usefixtures("impatient")
def test_a_large_file_that_can_not_be_stored_leaves_nothing(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any, large: Path
) -> None:
    def away(method: str, _: Any) -> int | None:
        return 503 if method == "PUT" else None

    server.fault = away
    with pytest.raises(EvidenceUnreachable, match=f"s3://{bucket.bucket}/.* could not be stored"):
        store.put_file(large)
    assert (keys(client, bucket), uploads(client, bucket)) == ([], [])
    assert large.exists()


def test_what_is_forgotten_is_gone_in_every_version(store: BucketStore, bucket: Address, client: Any) -> None:
    client.put_bucket_versioning(Bucket=bucket.bucket, VersioningConfiguration={"Status": "Enabled"})
    for content in (b"abd", b"abc"):
        client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC), Body=content)
    client.delete_object(Bucket=bucket.bucket, Key=key(bucket, ABC))
    client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC), Body=b"abc")
    client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC) + "0", Body=b"another")
    store.forget(ABC)
    left = client.list_object_versions(Bucket=bucket.bucket)
    assert [one["Key"] for one in left["Versions"]] == [key(bucket, ABC) + "0"]
    assert "DeleteMarkers" not in left


def test_a_server_that_knows_no_versions_forgets_what_it_has(
    store: BucketStore, server: FaultyServer, bucket: Address, client: Any
) -> None:
    store.put(b"abc")
    server.fault = lambda method, _: 501 if method == "GET" else None
    store.forget(ABC)
    assert keys(client, bucket) == []


def test_a_copy_is_fetched_once_and_checked_each_time(store: BucketStore, server: FaultyServer) -> None:
    store.put(b"abc")
    copy = store.file(ABC)
    assert copies(store) == [copy]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o400
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    server.asked.clear()
    assert store.file(ABC) == copy
    assert server.asked == ["HEAD"]
    copy.chmod(0o600)
    copy.write_bytes(b"abd")
    assert store.file(ABC).read_bytes() == b"abc"


def test_no_copy_is_made_of_what_is_damaged(store: BucketStore, bucket: Address, client: Any) -> None:
    client.put_object(Bucket=bucket.bucket, Key=key(bucket, ABC), Body=b"abd")
    with pytest.raises(EvidenceDamaged, match=f"s3://{bucket.bucket}/{key(bucket, ABC)} holds bytes of digest"):
        store.file(ABC)
    assert copies(store) == []


def test_a_copy_of_what_was_forgotten_elsewhere_goes(store: BucketStore, bucket: Address, tmp_path: Path) -> None:
    store.put(b"abc")
    copy = store.file(ABC)
    BucketStore(bucket, tmp_path / "of another host").forget(ABC)
    with pytest.raises(EvidenceMissing):
        store.file(ABC)
    assert not copy.exists()


def test_a_copy_that_came_while_it_was_forgotten_goes(
    store: BucketStore, bucket: Address, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(b"abc")
    fetch = BucketStore._fetch

    def fetched_too_late(self: BucketStore, wanted: str, copy: Path) -> None:
        fetch(self, wanted, copy)
        client.delete_object(Bucket=bucket.bucket, Key=key(bucket, wanted))

    monkeypatch.setattr(BucketStore, "_fetch", fetched_too_late)
    with pytest.raises(EvidenceMissing):
        store.file(ABC)
    assert copies(store) == []


def test_a_sweep_takes_copies_that_nobody_used_for_a_day(store: BucketStore, client: Any, bucket: Address) -> None:
    old, young = store.file(store.put(b"abc")), store.file(store.put(b"abd"))
    a_day_ago = time.time() - evidence_bucket.UNUSED_S - 60
    os.utime(old, (a_day_ago, a_day_ago))
    store.sweep(older_than_s=0)
    assert copies(store) == [young]
    # A machine that is never swept drops them when it makes another copy.
    old = store.file(sha256(b"abc").hexdigest())
    os.utime(old, (a_day_ago, a_day_ago))
    store.forget(store.put(b"abe"))
    newest = store.file(store.put(b"abf"))
    assert sorted(copies(store)) == sorted([young, newest])
    newest.unlink()
    store.forget(sha256(b"abf").hexdigest())
    # Used again, it stays.
    os.utime(young, (a_day_ago, a_day_ago))
    store.file(sha256(b"abd").hexdigest())
    store.sweep(older_than_s=0)
    assert copies(store) == [young]
    assert len(keys(client, bucket)) == 2


def test_a_sweep_takes_back_uploads_that_were_never_completed(
    store: BucketStore, client: Any, bucket: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (f"{bucket.prefix}/sha256/ab/cd", "of/somebody/else"):
        client.create_multipart_upload(Bucket=bucket.bucket, Key=name)
    # This server says of every upload that it began in 2010.
    with monkeypatch.context() as years:
        years.setattr(evidence_bucket, "UNUSED_S", 1000 * 365 * 24 * 3600)
        store.sweep(older_than_s=0)
    assert len(uploads(client, bucket)) == 2
    store.sweep(older_than_s=0)
    assert [one["Key"] for one in uploads(client, bucket)] == ["of/somebody/else"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no address like s3://bucket/prefix"),
        ("evidence", "no address like s3://bucket/prefix"),
        ("file:///srv/evidence", "no address like s3://bucket/prefix"),
        ("s3://", "no bucket's name"),
        ("s3://ab", "no bucket's name"),
        ("s3://Bucket", "no bucket's name"),
        ("s3://bucket:9000/x", "no bucket's name"),
        ("s3://bucket/a//b", "no prefix"),
        ("s3://bucket/a/../b", "no prefix"),
        ("s3://bucket/with space", "no prefix"),
        ("s3://bucket/x?versionId=1", "no address like s3://bucket/prefix"),
    ],
)
def test_an_address_that_names_no_bucket_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_address(url)


@pytest.mark.parametrize("endpoint", ["minio:9000", "ftp://minio", "http://", "http://minio:port", "http://a b"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"the endpoint '.*' is no address"):
        read_address("s3://bucket", endpoint=endpoint)


@pytest.mark.parametrize(
    ("url", "endpoint"), [("s3://key:hidden@bucket/x", ""), ("s3://bucket", "https://key:hidden@minio:9000")]
)
def test_a_password_in_an_address_is_refused_and_not_repeated(url: str, endpoint: str) -> None:
    with pytest.raises(ValueError, match="no key or password") as raised:
        read_address(url, endpoint=endpoint)
    assert "hidden" not in str(raised.value)


def test_an_address_is_read() -> None:
    assert read_address("s3://my.bucket-1/a/b.c/") == Address("my.bucket-1", "a/b.c")
    assert read_address("s3://bucket") == Address("bucket", "")
    for endpoint in ("http://127.0.0.1:9000", "https://minio.example", "http://[::1]:9000/s3"):
        assert read_address("s3://bucket/p", endpoint=endpoint, region="x").endpoint == endpoint


def test_without_a_prefix_evidence_lies_at_the_top(bucket: Address, client: Any, tmp_path: Path) -> None:
    BucketStore(bucket._replace(prefix=""), tmp_path).put(b"abc")
    assert keys(client, bucket) == [f"sha256/{ABC[:2]}/{ABC[2:]}"]
