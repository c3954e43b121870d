"""Where requests go, and the connections that take them there."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

UNLIMITED = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


def normalise(base_url: str) -> str:
    """The address with its API version: ``http://host:8000``, ``…/`` and ``…/v1`` all become ``http://host:8000/v1``."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the base URL must start with http:// or https:// and name a host: {base_url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        # It is written into the manifest, so it may carry no secret.
        raise ValueError("the base URL must carry no user name, password, query or fragment")
    path = parts.path.rstrip("/")
    path = path if path.endswith("/v1") else f"{path}/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server. The key is a secret: it is in no repr and in no evidence."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", normalise(self.base_url))

    @property
    def chat_url(self) -> str:
        return f"{self.base_url}/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        # Compression would let a proxy hold events back until its block is full.
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        return headers | ({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """A session without limits, proxies or memory.

    Every request gets a connection of its own. A kept connection may be reset by the server's idle timer just as we
    write to it; that is no failure of the server, yet nobody can tell the two apart, and sending a POST again could
    generate twice. The price is one handshake per request, the same in both arms.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=endpoint.headers,
        timeout=UNLIMITED,
        trust_env=False,
        auto_decompress=False,
    )


@dataclass(frozen=True)
class Reached:
    """The server answered; ``models`` is None where it has no model list for us."""

    models: tuple[str, ...] | None


class Unreachable(ConnectionError):
    """Nothing answers at the address, so nothing was sent."""


async def reach(endpoint: Endpoint, *, timeout_s: float = 10) -> Reached:
    """Ask for the model list; any HTTP answer counts as reached. Raises Unreachable."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            open_session(endpoint) as session,
            session.get(f"{endpoint.base_url}/models", timeout=timeout, allow_redirects=False) as response,
        ):
            return Reached(await model_names(response))
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"nothing could be sent: {endpoint.base_url} can't be reached ({describe(error)})") from None


async def model_names(response: aiohttp.ClientResponse) -> tuple[str, ...] | None:
    if response.status != 200:
        return None
    try:
        document = await response.json(content_type=None)
        return tuple(str(model["id"]) for model in document["data"])
    except (ValueError, TypeError, KeyError):
        return None


def describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError) or isinstance(
        getattr(error, "os_error", None), ConnectionRefusedError
    ):
        return "connection refused"
    return f"{type(error).__name__}: {error}"
