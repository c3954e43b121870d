"""How a message is sent: where to, how often it is tried, and what is in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

WEBHOOK, SLACK = "webhook", "slack"
LONGEST_ADDRESS = 500

# 10 s, 40 s, … 11 hours: fifteen hours in all.
MOST_ATTEMPTS = 8
FIRST_WAIT_S, GROWTH = 10.0, 4.0
# So many messages given up one after the other, and nobody reads there any more.
MOST_GIVEN_UP = 5
GONE = 410

Address = IPv4Address | IPv6Address
# All that IANA has given out for public use; Python's own list of what isn't public is of what is known to be private.
GLOBAL_UNICAST = IPv6Network("2000::/3")
# NAT64 (RFC 6052): its last 32 bits are the IPv4 address that is reached.
TRANSLATED = IPv6Network("64:ff9b::/96")


def wait_s(attempts: int, draw: float) -> float:
    """Before the next attempt, after so many. ``draw`` from 0 to 1 spreads what failed at once by half to either
    side."""
    return FIRST_WAIT_S * GROWTH ** (attempts - 1) * (0.5 + draw)


def address_problem(address: str, hosts: Collection[str], *, plain_loopback: bool) -> str | None:
    """Why nothing is sent to this address; None where it may be. ``plain_loopback``: http is allowed within this
    machine."""
    parts = split_address(address)
    if parts is None:
        return "this is no address: it is like https://hooks.house.example/draftproof"
    host = parts.hostname or ""
    if parts.scheme != "https" and not (parts.scheme == "http" and plain_loopback and is_loopback(host)):
        return "the address has to begin with https://"
    if host not in hosts:
        return f"{host} is not among the hosts that DRAFTPROOF_NOTIFY_HOSTS allows: {', '.join(hosts) or 'none'}"
    return None


def split_address(address: str) -> SplitResult | None:
    """None for what is no address of a server that a request can go to."""
    if not address.isascii() or not address.isprintable() or " " in address or len(address) > LONGEST_ADDRESS:
        return None
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or "#" in address:
        return None
    return parts


def is_loopback(host: str) -> bool:
    return host == "localhost" or is_loopback_address(host)


def is_loopback_address(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def reach_problem(found: str, hosts: Collection[str], *, plain_loopback: bool) -> str | None:
    """Why nothing is sent to what a host's name leads to: a name that is allowed may lead into the house."""
    address = embedded_in(ip_address(found.split("%")[0]))
    if is_public(address):
        return None
    if any(address in network for network in networks(hosts)) or (plain_loopback and address.is_loopback):
        return None
    return f"its name leads to {address}, a private address that DRAFTPROOF_NOTIFY_HOSTS doesn't list"


def is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast


def embedded_in(address: Address) -> Address:
    """IPv4 within IPv6 is judged as what it is, however a network translates it."""
    if isinstance(address, IPv4Address):
        return address
    if address in TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def networks(hosts: Collection[str]) -> list[Any]:
    found = []
    for one in hosts:
        try:
            found.append(ip_network(one, strict=False))
        except ValueError:
            continue
    return found


def shown_address(address: str) -> str:
    """What pages and the history say of it: the rest of a webhook's address is often its key."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…"


def webhook_body(*, kind: str, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """As the Standard Webhooks specification lays it out."""
    return {"type": kind.replace("-", ".", 1), "timestamp": utc(at), "data": dict(data)}


def slack_body(sentence: str, link: str) -> dict[str, Any]:
    """What Slack and those that take its incoming webhooks read."""
    return {"text": f"{escaped(sentence)} <{link}|Open>"}


def escaped(text: str) -> str:
    # Slack reads these three as its own marks, and no others.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
