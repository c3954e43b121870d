"""Where messages may be posted, how often they are tried, and what is in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions.rules.delivery import (
    MOST_ATTEMPTS,
    address_problem,
    reach_problem,
    shown_address,
    slack_body,
    wait_s,
    webhook_body,
)

PRIVATE = "192.168.7.7"
HOSTS = ("hooks.house.example", "127.0.0.1", "10.2.0.0/16", PRIVATE, "localhost")


@pytest.mark.parametrize(
    "address",
    [
        "https://hooks.house.example/services/T0/B0/x",
        "https://hooks.house.example:8443/a?key=b",
        "https://HOOKS.house.example",
        f"https://{PRIVATE}/hook",
        "http://127.0.0.1:9000/hook",
        "http://localhost:9000/hook",
    ],
)
def test_where_messages_may_go(address: str) -> None:
    assert address_problem(address, HOSTS, plain_loopback=True) is None


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://hooks.house.example/x", "has to begin with https://"),
        ("https://elsewhere.example/x", "elsewhere.example is not among the hosts"),
        ("https://hooks.house.example.evil.example/x", "is not among the hosts"),
        ("https://hooks.house.example@evil.example/x", "this is no address"),
        ("https://user:word@hooks.house.example/", "this is no address"),
        ("https://hooks.house.example/#part", "this is no address"),
        ("https://hooks.house.example/a b", "this is no address"),
        ("https://hooks.house.example/\r\nX-More: 1", "this is no address"),
        ("https://hooks.house.example:99999/", "this is no address"),
        ("https://hööks.house.example/", "this is no address"),
        ("https://[::1/", "this is no address"),
        ("https://" + "a" * 500, "this is no address"),
        ("ftp://hooks.house.example/", "this is no address"),
        ("file:///etc/passwd", "this is no address"),
        ("hooks.house.example", "this is no address"),
        ("", "this is no address"),
    ],
)
def test_where_they_may_not(address: str, said: str) -> None:
    assert said in str(address_problem(address, HOSTS, plain_loopback=True))


def test_plain_http_is_for_the_embedded_installation_alone() -> None:
    assert address_problem("http://127.0.0.1:9000/", HOSTS, plain_loopback=False) == (
        "the address has to begin with https://"
    )


def test_no_host_is_allowed_at_first() -> None:
    assert address_problem("https://hooks.house.example/", [], plain_loopback=True) == (
        "hooks.house.example is not among the hosts that DRAFTPROOF_NOTIFY_HOSTS allows: none"
    )


@pytest.mark.parametrize(
    "found",
    [
        "93.184.216.34",
        "2606:2800:220:1::1",
        "64:ff9b::93.184.216.34",
        "::ffff:10.2.3.4",
        "10.2.3.4",
        PRIVATE,
        "127.0.0.1",
    ],
)
def test_what_a_name_may_lead_to(found: str) -> None:
    assert reach_problem(found, HOSTS, plain_loopback=False) is None


@pytest.mark.parametrize(
    "found",
    [
        "10.3.0.1",
        "192.168.7.8",
        "169.254.169.254",
        "0.0.0.0",  # noqa: S104
        "100.64.0.1",
        "224.0.0.1",
        "127.0.0.2",
        "::1",
        "::ffff:10.3.0.1",
        "fe80::1%eth0",
        "fd00::1",
        "64:ff9b::10.3.0.1",
        "64:ff9b:1::a03:1",
        "2002:a03:1::1",
        "2001:0:a03:1::1",
        "::10.3.0.1",
        "::ffff:0:10.3.0.1",
        "fec0::1",
        "5f00::1",
    ],
)
def test_what_a_name_may_not_lead_to(found: str) -> None:
    assert "a private address that DRAFTPROOF_NOTIFY_HOSTS doesn't list" in str(
        reach_problem(found, HOSTS, plain_loopback=False)
    )


def test_loopback_is_reached_in_the_embedded_installation() -> None:
    assert reach_problem("::1", [], plain_loopback=True) is None
    assert reach_problem("10.0.0.1", [], plain_loopback=True) is not None


@given(st.integers(min_value=1, max_value=MOST_ATTEMPTS - 1), st.floats(min_value=0, max_value=1))
def test_each_wait_is_longer_than_the_one_before(attempts: int, draw: float) -> None:
    assert 5 * 4 ** (attempts - 1) <= wait_s(attempts, draw) <= 15 * 4 ** (attempts - 1)
    # Even where the draw is the other way round.
    assert wait_s(attempts, 1) < wait_s(attempts + 1, 0)


def test_all_attempts_take_most_of_a_day() -> None:
    assert 12 * 3600 < sum(wait_s(one, 0.5) for one in range(1, MOST_ATTEMPTS)) < 24 * 3600


def test_the_bodies() -> None:
    at = datetime(2026, 3, 1, 14, 5, tzinfo=UTC)
    assert webhook_body(kind="release-in-force", at=at, data={"event": 7}) == {
        "type": "release.in-force",
        "timestamp": "2026-03-01T14:05:00Z",
        "data": {"event": 7},
    }
    assert slack_body("owner approved “<!channel> & more”.", "https://house.example/briefs/1/1/") == {
        "text": "owner approved “&lt;!channel&gt; &amp; more”. <https://house.example/briefs/1/1/|Open>"
    }


def test_of_an_address_the_host_is_shown() -> None:
    assert shown_address("https://hooks.house.example:8443/services/T0/key?a=b") == "https://hooks.house.example:8443/…"
