"""An S3 server in a process of its own, buckets on it, and a server before it that fails as it is told."""

import contextlib
import http.client
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3

from loadtests.evidence.bucket import Address

REGION = "us-east-1"
# Moto takes any; what must never be printed is recognised by them.
KEYS = {"AWS_ACCESS_KEY_ID": "the-key-of-the-test", "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-test"}
START_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Gives its address."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as sink, subprocess.Popen(command, stdout=sink, stderr=sink, env=os.environ | KEYS) as process:
        try:
            wait_for(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, "the S3 server ended"
            assert time.monotonic() < until, "the S3 server does not start"
            time.sleep(0.05)
        else:
            return


def client(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )


def new_bucket(endpoint: str) -> Address:
    address = Address(f"evidence-{secrets.token_hex(6)}", "house/one", endpoint, REGION)
    client(endpoint).create_bucket(Bucket=address.bucket)
    return address


# What becomes of a request, (method, headers): None and it is passed on, else one of these words or an answer's status.
Fault = Callable[[str, Any], str | int | None]
DROP_BEFORE, DROP_AFTER, CUT = "drop before", "drop after", "cut"
ERROR = b'<?xml version="1.0"?><Error><Code>%s</Code><Message>told to</Message></Error>'
CODES = {403: b"AccessDenied", 500: b"InternalError", 501: b"NotImplemented", 503: b"SlowDown"}


class FaultyServer(ThreadingHTTPServer):
    """Passes everything on to an S3 server, but for what ``fault`` says of it."""

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = urlsplit(behind).netloc
        self.fault: Fault = lambda *_: None
        self.asked: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, *faults: str | int | None) -> None:
        """The next requests, one after the other."""
        left = list(faults)
        self.fault = lambda *_: left.pop(0) if left else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.command)
        fault = self.server.fault(self.command, self.headers)
        if isinstance(fault, int):
            self.give(fault, {}, ERROR % CODES[fault])
        elif fault == DROP_BEFORE:
            self.drop()
        else:
            self.pass_on(body, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def pass_on(self, body: bytes, fault: str | None) -> None:
        behind = http.client.HTTPConnection(self.server.behind, timeout=30)
        with contextlib.closing(behind):
            headers = {name: value for name, value in self.headers.items() if name != "Expect"}
            behind.request(self.command, self.path, body, headers)
            found = behind.getresponse()
            content = found.read()
        if fault == DROP_AFTER:
            self.drop()
        else:
            self.give(found.status, dict(found.getheaders()), content, cut=fault == CUT)

    def give(self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"connection", "content-length", "transfer-encoding"}:
                self.send_header(name, value)
        # A HEAD tells of a length without its content.
        told = headers.get("Content-Length", headers.get("content-length"))
        length = len(content) if self.command != "HEAD" else int(told or 0)
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.drop()

    def drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """The tests say what happened."""


@contextmanager
def faulty_server(behind: str) -> Iterator[FaultyServer]:
    server = FaultyServer(behind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
