"""One server, asked with one token."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

from decisions.client.credentials import Credentials, Unusable

TIMEOUT = urllib3.Timeout(connect=10, read=120)
MOST_BYTES = 64_000_000
# A POST carries an Idempotency-Key, so each method may be sent again; answers are never asked for again.
AGAIN = urllib3.Retry(total=2, redirect=0, status=0, other=0, backoff_factor=0.5, allowed_methods=None)


class Refusal(Exception):
    """The server understood and said no."""

    def __init__(self, status: int, detail: str, errors: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, errors

    @property
    def lines(self) -> list[str]:
        return [self.detail, *(line_of(one) for one in self.errors)]


def line_of(error: dict[str, Any]) -> str:
    where = [f"line {error['line']}" if error.get("line") else "", str(error.get("field") or "")]
    place = ", ".join(one for one in where if one)
    return f"{place}: {error.get('detail')}" if place else str(error.get("detail"))


class Server:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._pool = urllib3.PoolManager(timeout=TIMEOUT, retries=AGAIN)

    def get(self, *path: object, **asked: object) -> dict[str, Any]:
        return self._send("GET", path, asked={name: value for name, value in asked.items() if value is not None})

    def put(self, *path: object, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("PUT", path, body=body)

    def post(self, *path: object, body: dict[str, Any] | None = None, key: str | None = None) -> dict[str, Any]:
        """``key``: the act's own, where it may be asked for again after this process has ended."""
        return self._send("POST", path, body=body, headers={"Idempotency-Key": key or str(uuid.uuid4())})

    def page(self, *path: object) -> str:
        """The address of a page, for people."""
        return f"{self._credentials.url}/{'/'.join(quote(str(one), safe='') for one in path)}/"

    def _send(
        self,
        method: str,
        path: tuple[object, ...],
        *,
        asked: dict[str, object] | None = None,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        address = f"{self._credentials.url}/api/v1/{'/'.join(quote(str(one), safe='') for one in path)}"
        sent = {"Authorization": f"Bearer {self._credentials.token}", "Accept": "application/json", **(headers or {})}
        content = None
        if body is not None:
            content, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            answer = self._pool.request(
                method,
                f"{address}?{urlencode(asked)}" if asked else address,
                body=content,
                headers=sent,
                # Whoever answers so would be sent the token.
                redirect=False,
                preload_content=False,
            )
            told = answer.read(MOST_BYTES + 1)
        except urllib3.exceptions.HTTPError as error:
            raise Unusable(f"{self._credentials.url} didn't answer: {reason_of(error)}") from None
        finally:
            self._pool.clear()
        return self._understood(answer.status, told, answer.headers.get("Location"))

    def _understood(self, status: int, told: bytes, location: str | None) -> dict[str, Any]:
        url = self._credentials.url
        if 300 <= status < 400:
            raise Unusable(f"{url} leads elsewhere ({location}): log in at the address that it is served at")
        document = document_in(told)
        if 200 <= status < 300 and document is not None:
            return document
        if 400 <= status < 500 and document is not None and isinstance(document.get("detail"), str):
            errors = tuple(one for one in document.get("errors") or () if isinstance(one, dict))
            raise Refusal(status, document["detail"], errors)
        raise Unusable(f"{url} answered {status}, and that is no answer of Draftproof's API")


def document_in(told: bytes) -> dict[str, Any] | None:
    if len(told) > MOST_BYTES:
        return None
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def reason_of(error: Exception) -> str:
    """Without urllib3's own names around it."""
    inner = getattr(error, "reason", None) or error
    return str(inner).split(": ", 1)[-1]
