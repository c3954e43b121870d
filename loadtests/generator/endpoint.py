"""Where requests go, and how they are asked."""

import ssl
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, JsonValue

from loadtests.credentials import address_without_credentials
from loadtests.generator.said import Secrets

Api = Literal["chat", "completions"]
APIS: tuple[Api, ...] = get_args(Api)
PATHS: dict[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
PORTS = {"http": 80, "https": 443}


def normalise(base_url: str) -> str:
    """The address with its API version: ``http://host:8000``, ``…/`` and ``…/v1`` all become ``http://host:8000/v1``."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
        # As it is looked up: with a label that is too long it can't be.
        (parts.hostname or "").encode("idna")
    except ValueError:
        shown = address_without_credentials(base_url)
        raise ValueError(
            f"the base URL needs a host and a port from 1 to 65535, and [ ] around an IPv6 address: {shown!r}"
        ) from None
    if parts.scheme not in PORTS or not parts.hostname:
        # Somebody's password may stand where the host should.
        shown = address_without_credentials(base_url)
        raise ValueError(f"the base URL must start with http:// or https:// and name a host: {shown!r}")
    if port == 0:
        raise ValueError("nothing can be reached at port 0: give the base URL a port from 1 to 65535")
    if "@" in parts.netloc or parts.query or parts.fragment:
        # It is written into the manifest, so it may carry no secret.
        raise ValueError("the base URL must carry no user name, password, query or fragment")
    if not base_url.isascii() or any(one.isspace() for one in base_url):
        raise ValueError(f"the base URL must hold no space, and other letters only as %XX or punycode: {base_url!r}")
    path = parts.path.rstrip("/")
    path = path if path.endswith("/v1") else f"{path}/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


class Asked(BaseModel):
    """How a server is asked, as a manifest has it. One that says nothing is of a streamed chat."""

    model_config = ConfigDict(extra="forbid", strict=True)
    api: Api = "chat"
    stream: bool = True
    token_ids: bool = False


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server, and which kind of answer to ask it for.

    The key is a secret: it is in no repr and in no evidence. ``token_ids`` asks for the ids of the returned tokens, for
    servers that know the field (vLLM); others ignore or refuse it. ``ca_bundle`` is trusted instead of the system's
    authorities.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    api: Api = "chat"
    stream: bool = True
    token_ids: bool = False
    ca_bundle: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", normalise(self.base_url))
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError("the API key holds a character that no HTTP header can carry")

    @cached_property
    def _parts(self) -> SplitResult:
        return urlsplit(self.base_url)

    @property
    def host(self) -> str:
        return self._parts.hostname or ""

    @property
    def port(self) -> int:
        return self._parts.port or PORTS[self._parts.scheme]

    @property
    def secure(self) -> bool:
        return self._parts.scheme == "https"

    @property
    def authority(self) -> str:
        return self._parts.netloc

    @property
    def path(self) -> str:
        """Where requests of its API go."""
        return self._parts.path + PATHS[self.api]

    @property
    def models_path(self) -> str:
        return f"{self._parts.path}/models"

    @property
    def asked(self) -> dict[str, JsonValue]:
        """How it is asked, for the manifest: with the model and the plan this makes the exact bytes that were sent."""
        return {"api": self.api, "stream": self.stream, "token_ids": self.token_ids}

    def asked_as(self, asked: Asked) -> "Endpoint":
        return replace(self, api=asked.api, stream=asked.stream, token_ids=asked.token_ids)

    @property
    def secrets(self) -> Secrets:
        """What no evidence may hold, wherever the server repeats it."""
        return Secrets(self.api_key)


def describe(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the server's certificate is not trusted ({error.verify_message})"
        return f"{reason}: name the authority that signed it with a CA bundle"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return f"{type(error).__name__}: {error}"
