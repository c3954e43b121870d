"""Where the server's address and the token are kept: in a file of the user's own, or in the environment."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import click

from loadtests.evidence.store import make_directory, write_durably

ReadVariable = Callable[[str], str | None]
URL_VARIABLE, TOKEN_VARIABLE = "DRAFTPROOF_URL", "DRAFTPROOF_TOKEN"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Unusable(click.ClickException):
    """Nothing was asked, or nothing could be made of the answer."""

    exit_code = 2


@dataclass(frozen=True)
class Credentials:
    url: str
    # Never printed, not in a traceback either.
    token: str = field(repr=False)


def default_file() -> Path:
    return Path(click.get_app_dir("draftproof")) / "credentials.json"


def credentials(read_variable: ReadVariable, path: Path) -> Credentials:
    """From the environment where both are there, else from the file. Raises Unusable."""
    url, token = read_variable(URL_VARIABLE), read_variable(TOKEN_VARIABLE)
    if token and not url:
        raise Unusable(f"{TOKEN_VARIABLE} is set without {URL_VARIABLE}: a token is sent to the server it is of alone")
    if token and url:
        return Credentials(checked_url(url), checked_token(token))
    kept = kept_in(path)
    if url and checked_url(url) != kept.url:
        raise Unusable(f"{URL_VARIABLE} is {url}, and the token of draftproof login is for {kept.url}: log in there")
    return kept


def kept_in(path: Path) -> Credentials:
    try:
        mode = path.stat().st_mode
        document = json.loads(path.read_text(encoding="utf-8"))
        found = Credentials(checked_url(document["url"]), checked_token(document["token"]))
    except FileNotFoundError:
        said = f"run draftproof login, or set {URL_VARIABLE} and {TOKEN_VARIABLE}"
        raise Unusable(f"you are logged in nowhere: {said}") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise Unusable(f"{path} can't be read: run draftproof login again") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Unusable(f"{path} holds a token, and others may read it: chmod 600 it, or make a new token")
    return found


def keep(kept: Credentials, path: Path) -> None:
    """Nobody else can read the file at any moment, and nobody reads half of it."""
    make_directory(path.parent, 0o700)
    write_durably(path, json.dumps({"url": kept.url, "token": kept.token}).encode(), 0o600)


def checked_url(text: str) -> str:
    """The server's address without a slash at its end. Raises Unusable."""
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in parts.netloc:
        raise Unusable(f"{text!r} is no address of a server: it is like https://draftproof.house.example")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def checked_token(text: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Unusable("that is no token: it begins with dp_ and has no spaces")
    return token


def is_plain(url: str) -> bool:
    """Whether a token would go over a network in the clear."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK
