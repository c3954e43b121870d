"""The evidence store in a bucket of an S3-compatible server, under the names that it has in a directory:
s3://bucket/prefix/sha256/ab/cdef… holds the bytes whose SHA-256 is abcdef….

An object is put only where there is none yet, and is durable once the server says that it has it. Whatever needs a file
on this machine gets a copy, which stays for a day after its last use and goes when the evidence is forgotten.
"""

import logging
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    SSLError,
)
from storages.backends.s3 import S3Storage

from loadtests.canonical import digest
from loadtests.evidence.store import (
    PRIVATE_DIRECTORY,
    READ_ONLY,
    EvidenceDamaged,
    EvidenceMissing,
    EvidenceStore,
    EvidenceUnreachable,
    digest_of_file,
    incoming,
    make_directory,
    place_of,
    settle,
)

logger = logging.getLogger(__name__)

# A page waits for the server as long as a person does; what was measured is worth more patience.
READ_PATIENCE_S, WRITE_PATIENCE_S = 10.0, 120.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0
# A page that reads a dozen files of a server that is away waits for the first of them alone.
GIVEN_UP_S = 5.0
# A larger file goes in parts of this size: S3 takes 10,000 of them, and none but the last under 5 MiB.
PART_BYTES = 32 << 20
CHUNK_BYTES = 1 << 20
# Longer than any import may take: no copy goes while one reads it, and no upload while one sends it.
UNUSED_S = 24 * 3600
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"[A-Za-z0-9!_.*'()-]+")
ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?(/[^\s?#]*)?")
# What passes by itself, beside 429 and what servers say from 500 on; and what never does.
PASSING = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"}
NOT_KNOWN = {"NotImplemented", "501", "MethodNotAllowed", "405"}
THERE_ALREADY = {"PreconditionFailed", "412", "NoSuchUpload"}
WHAT_TO_DO = {
    "403": "403 Forbidden: the keys are not known there, or lack s3:ListBucket or another right",
    "404": "there is no such bucket",
}

T = TypeVar("T")


class Address(NamedTuple):
    bucket: str
    prefix: str
    endpoint: str = ""
    region: str = ""


def read_address(url: str, *, endpoint: str = "", region: str = "") -> Address:
    """``url`` is s3://bucket/prefix. Raises ValueError, which never repeats what may be a password."""
    parts = urlsplit(url)
    if "@" in url or "@" in endpoint:
        raise ValueError("no key or password may stand in the address: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if parts.scheme != "s3" or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is no address like s3://bucket/prefix")
    if not BUCKET.fullmatch(parts.netloc):
        raise ValueError(f"{parts.netloc!r} is no bucket's name: 3 to 63 of a-z, 0-9, dot and hyphen")
    prefix = parts.path.strip("/")
    if prefix and not all(PREFIX.fullmatch(one) and one.strip(".") for one in prefix.split("/")):
        raise ValueError(f"{prefix!r} is no prefix: letters, digits and !_.*'()- between single slashes")
    if endpoint and not ENDPOINT.fullmatch(endpoint):
        raise ValueError(f"the endpoint {endpoint!r} is no address like https://host:port")
    return Address(parts.netloc, prefix, endpoint, region)


def configured(address: Address) -> Config:
    # Every S3-compatible server takes the bucket in the path; few have a host name for each.
    style = "path" if address.endpoint else "auto"
    return Config(
        connect_timeout=5,
        read_timeout=20,
        # Repeated here alone, within one budget.
        retries={"total_max_attempts": 1},
        # The digest of what is sent is signed, so the server checks what it got; what comes back is checked here.
        s3={"addressing_style": style, "payload_signing_enabled": True},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


class BucketStore(EvidenceStore):
    """``copies`` is the directory of the files that were needed on this machine."""

    def __init__(self, address: Address, copies: Path) -> None:
        super().__init__(copies)
        self._bucket, self._place = address.bucket, f"s3://{address.bucket}"
        self._shelf = f"{address.prefix}/sha256/".lstrip("/")
        # When a server that is away was given up last, and in which words.
        self._given_up: tuple[float, str] | None = None
        self._storage = S3Storage(
            bucket_name=address.bucket,
            endpoint_url=address.endpoint or None,
            region_name=address.region or None,
            client_config=configured(address),
            # Found by boto3, which names those that are incomplete and renews those of a role.
            access_key=None,
            secret_key=None,
            security_token=None,
        )

    @property
    def _client(self) -> Any:
        """One per thread."""
        return self._storage.connection.meta.client

    def url(self, wanted: str) -> str:
        return f"{self._place}/{self._key(wanted)}"

    def reach(self) -> None:
        self._insist(self._place, "asked for", lambda: self._client.head_bucket(Bucket=self._bucket), 0)

    def has(self, wanted: str) -> bool:
        key = self._key(wanted)
        return self._insist(self.url(wanted), "looked for", lambda: bool(self._storage.exists(key)))

    def size(self, wanted: str) -> int:
        key = self._key(wanted)

        def head() -> int:
            try:
                return int(self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"])
            except ClientError as error:
                raise self._missing_or(error, wanted) from None

        return self._insist(self.url(wanted), "looked for", head)

    def get(self, wanted: str) -> bytes:
        content = self._insist(self.url(wanted), "read", lambda: b"".join(self._chunks(wanted)))
        self._checked(wanted, digest(content))
        return content

    def check(self, wanted: str) -> None:
        self._check(wanted, None)

    def file(self, wanted: str) -> Path:
        """A copy on this machine, checked each time; it stays for a day after this. Raises as ``get``."""
        copy = self.path(wanted)
        with suppress(FileNotFoundError):
            os.utime(copy)
        if not copy.is_file() or digest_of_file(copy) != wanted:
            self._insist(self.url(wanted), "read", lambda: self._fetch(wanted, copy))
        # Where it was forgotten meanwhile, by a process anywhere, no copy may stay.
        if not self.has(wanted):
            copy.unlink(missing_ok=True)
            raise self._missing(wanted)
        return copy

    def put(self, content: bytes) -> str:
        name = digest(content)
        checksum = b64encode(bytes.fromhex(name)).decode()
        if not self._is_kept(name):
            self._put_new(name, "put_object", Body=content, ChecksumSHA256=checksum)
        return name

    def put_file(self, source: Path) -> str:
        """A large file is hashed first and again while it is sent, as far as it reached at first: one that still grows
        can't mislead."""
        with source.open("rb") as opened:
            beginning = opened.read(PART_BYTES + 1)
            if len(beginning) <= PART_BYTES:
                return self.put(beginning)
            opened.seek(0)
            name = digest_of(iter(lambda: opened.read(CHUNK_BYTES), b""))
            if not self._is_kept(name):
                self._send_parts(name, opened, source)
        return name

    def drop_copy(self, wanted: str) -> None:
        self.path(wanted).unlink(missing_ok=True)

    def forget(self, wanted: str) -> None:
        """Every version of it, where the bucket keeps versions, and the copy here, which goes in any case."""
        try:
            self._insist(self.url(wanted), "removed", lambda: self._remove(self._key(wanted)))
        finally:
            self.drop_copy(wanted)

    def sweep(self, *, older_than_s: float) -> None:
        """Also the copies that nobody used for a day, and uploads that were never completed."""
        super().sweep(older_than_s=older_than_s)
        self._drop_unused_copies()
        self._insist(self._place, "swept", self._abort_old_uploads)

    def _key(self, wanted: str) -> str:
        return f"{self._shelf}{place_of(wanted)}"

    def _check(self, wanted: str, patience_s: float | None) -> None:
        url = self.url(wanted)
        self._checked(wanted, self._insist(url, "read", lambda: digest_of(self._chunks(wanted)), patience_s))

    def _insist(self, name: str, doing: str, act: Callable[[], T], patience_s: float | None = None) -> T:
        """Does the act, again while what went wrong may pass by itself, and then says so with the object's name. Where
        no patience is named, a server that was given up just now isn't asked."""
        given_up = self._given_up
        if patience_s is None and given_up and time.monotonic() < given_up[0] + GIVEN_UP_S:
            raise EvidenceUnreachable(f"{name} could not be {doing}: {given_up[1]}")
        until = time.monotonic() + (READ_PATIENCE_S if patience_s is None else patience_s)
        pause = FIRST_PAUSE_S
        while True:
            try:
                return act()
            except (BotoCoreError, ClientError) as error:
                passing = may_pass(error)
                if not passing or time.monotonic() + pause > until:
                    self._given_up = (time.monotonic(), words(error)) if passing else None
                    why = f"{name} could not be {doing}: {words(error)}"
                    raise EvidenceUnreachable(why, passing=passing) from error
                logger.warning("%s could not be %s, trying again: %s", name, doing, words(error))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _missing(self, wanted: str) -> EvidenceMissing:
        return EvidenceMissing(f"no evidence {wanted} at {self.url(wanted)}")

    def _missing_or(self, error: ClientError, wanted: str) -> Exception:
        return self._missing(wanted) if code_of(error) in {"NoSuchKey", "404"} else error

    def _checked(self, wanted: str, found: str) -> None:
        if found != wanted:
            raise EvidenceDamaged(wanted, self.url(wanted), found)

    def _chunks(self, wanted: str) -> Iterator[bytes]:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(wanted))
        except ClientError as error:
            raise self._missing_or(error, wanted) from None
        with closing(answer["Body"]) as body:
            yield from body.iter_chunks(CHUNK_BYTES)

    def _fetch(self, wanted: str, copy: Path) -> None:
        # Here too: the sweep of the installation reaches one machine.
        self._drop_unused_copies()
        make_directory(copy.parent, PRIVATE_DIRECTORY)
        with incoming(self.base) as (sink, temporary):
            sink.writelines(self._chunks(wanted))
            sink.flush()
            self._checked(wanted, digest_of_file(temporary))
            settle(sink, temporary, copy, READ_ONLY)

    def _drop_unused_copies(self) -> None:
        limit = time.time() - UNUSED_S
        for copy in self.base.glob("[0-9a-f][0-9a-f]/[0-9a-f]*"):
            with suppress(FileNotFoundError):
                if copy.stat().st_mtime < limit:
                    copy.unlink()

    def _is_kept(self, name: str) -> bool:
        """What is there already is checked, and never written again."""
        key = self._key(name)
        there = self._insist(self.url(name), "stored", lambda: bool(self._storage.exists(key)), WRITE_PATIENCE_S)
        if there:
            self._check(name, WRITE_PATIENCE_S)
        return there

    def _put_new(self, name: str, operation: str, **told: Any) -> None:
        """If-None-Match where the server knows it: of two that put the same, the second checks what the first put."""

        def send() -> bool:
            put = getattr(self._client, operation)
            try:
                put(Bucket=self._bucket, Key=self._key(name), IfNoneMatch="*", **told)
            except ClientError as error:
                if code_of(error) in THERE_ALREADY:
                    return False
                if code_of(error) not in NOT_KNOWN:
                    raise
                put(Bucket=self._bucket, Key=self._key(name), **told)
            return True

        if not self._insist(self.url(name), "stored", send, WRITE_PATIENCE_S):
            self._check(name, WRITE_PATIENCE_S)

    def _send_parts(self, name: str, opened: BinaryIO, source: Path) -> None:
        where = {"Bucket": self._bucket, "Key": self._key(name)}
        upload = self._part(name, "create_multipart_upload", **where, ChecksumAlgorithm="SHA256")["UploadId"]
        try:
            parts = list(self._sent(name, opened, source, {**where, "UploadId": upload}))
            self._put_new(name, "complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts})
        except BaseException:
            # One that can't be taken back now is swept later.
            with suppress(BotoCoreError, ClientError):
                self._client.abort_multipart_upload(**where, UploadId=upload)
            raise

    def _sent(self, name: str, opened: BinaryIO, source: Path, where: dict[str, str]) -> Iterator[dict[str, Any]]:
        size, whole = opened.tell(), sha256()
        opened.seek(0)
        for number in range(1, -(-size // PART_BYTES) + 1):
            piece = opened.read(min(PART_BYTES, size - opened.tell()))
            whole.update(piece)
            checksum = b64encode(sha256(piece).digest()).decode()
            told = {**where, "PartNumber": number, "Body": piece, "ChecksumSHA256": checksum}
            tag = self._part(name, "upload_part", **told)["ETag"]
            yield {"PartNumber": number, "ETag": tag, "ChecksumSHA256": checksum}
        if whole.hexdigest() != name:
            raise OSError(f"{source} changed while it was stored")

    def _part(self, name: str, operation: str, **told: Any) -> Any:
        return self._insist(
            self.url(name), "stored", lambda: getattr(self._client, operation)(**told), WRITE_PATIENCE_S
        )

    def _remove(self, key: str) -> None:
        try:
            versions = self._versions(key)
        except ClientError as error:
            if code_of(error) not in NOT_KNOWN:
                raise
            versions = [{}]
        for version in versions:
            self._client.delete_object(Bucket=self._bucket, Key=key, **version)

    def _versions(self, key: str) -> list[dict[str, str]]:
        pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=key)
        found = [one for page in pages for kind in ("Versions", "DeleteMarkers") for one in page.get(kind, ())]
        return [{"VersionId": one["VersionId"]} for one in found if one["Key"] == key]

    def _abort_old_uploads(self) -> None:
        limit = datetime.now(UTC) - timedelta(seconds=UNUSED_S)
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=self._shelf)
        for upload in (one for page in pages for one in page.get("Uploads", ())):
            if upload["Initiated"] < limit:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def digest_of(chunks: Iterable[bytes]) -> str:
    found = sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def may_pass(error: BotoCoreError | ClientError) -> bool:
    if not isinstance(error, ClientError):
        lost = isinstance(error, (ConnectionError, HTTPClientError, IncompleteReadError))
        return lost and not isinstance(error, SSLError)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code_of(error) in PASSING or status == 429 or (status >= 500 and code_of(error) not in NOT_KNOWN)


def words(error: BotoCoreError | ClientError) -> str:
    if not isinstance(error, ClientError):
        return str(error)
    code, message = code_of(error), error.response.get("Error", {}).get("Message", "")
    return WHAT_TO_DO.get(code, f"{code}: {message}")
