"""Short questions to an engine over HTTP: no redirects, no proxies, a limit on time and on length."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
MOST_BYTES = 16 << 20
CONNECTIONS: dict[str, type[http.client.HTTPConnection]] = {
    "http": http.client.HTTPConnection,
    "https": http.client.HTTPSConnection,
}


@dataclass(frozen=True)
class Server:
    """Where an engine answers. The headers may hold a key: they are in no repr."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, path: str, *, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
        """Status and text; OSError for whatever went wrong on the way."""
        return self.ask("GET", path, None, timeout_s)

    def post(self, path: str, body: bytes, *, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
        return self.ask("POST", path, body, timeout_s)

    def ask(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, str]:
        parts = urlsplit(self.base_url)
        connection = CONNECTIONS[parts.scheme](parts.netloc, timeout=timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, f"{parts.path}{path}", body, headers | dict(self.headers))
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_BYTES).decode("utf-8", errors="replace")
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
