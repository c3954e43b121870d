"""What looks like a key, a token or a password is in nothing that is kept."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.credentials import (
    HIDDEN,
    address_without_credentials,
    beginning_without_credentials,
    command_without_credentials,
    names_a_credential,
    without_credentials,
)
from loadtests.evidence.foreign.values import address
from loadtests.evidence.manifest import this_client


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://me:s3cret@serving:8000/v1?key=s3cret", "https://serving:8000/v1?key=[hidden]"),
        (
            "401, url='https://me:s3c?re/t@host/v1?api_key=s3cret&n=1'",
            "401, url='https://host/v1?api_key=[hidden]&n=1'",
        ),
        ("http://me:s3c@ret@host:80/x and ftp://s3cret@host", "http://host:80/x and ftp://host"),
        ("http://me:12345@host", "http://host"),
        ("Authorization: Bearer s3cret.x", "Authorization: [hidden]"),
        ("Authorization: Basic czNjcmV0OnM=", "Authorization: [hidden]"),
        ("sent bearer s3cret-1234", "sent bearer [hidden]"),
        ("vllm bench serve --api-key s3cret --model m", "vllm bench serve --api-key [hidden] --model m"),
        ("--hf-token=s3cret --header 'X-Api-Key: s3cret'", "--hf-token=[hidden] --header 'X-Api-Key: [hidden]'"),
        ('{"api_key": "s3c ret", "model": "m"}', '{"api_key": [hidden], "model": "m"}'),
        ('"{\\"api_key\\": \\"s3cret\\", \\"n\\": 1}"', '"{\\"api_key\\": [hidden], \\"n\\": 1}"'),
        (
            "?X-Amz-Credential=s3cret&X-Amz-Signature=s3cret&a=1",
            "?X-Amz-Credential=[hidden]&X-Amz-Signature=[hidden]&a=1",
        ),
        ("?access_token=s3cret#x", "?access_token=[hidden]"),
        ("password: s3cret, again", "password: [hidden], again"),
        ("secret_key=s3cret subscription-key: s3cret", "secret_key=[hidden] subscription-key: [hidden]"),
        ("authkey=s3cret jwt: s3cret", "authkey=[hidden] jwt: [hidden]"),
        ('{"x_subscription_key": "s3 cret"}', '{"x_subscription_key": [hidden]}'),
        ('curl -H "x-api-key: s3cret" host', 'curl -H "x-api-key: [hidden]" host'),
        ("Incorrect API key: sk-s3cret-1234, sk-proj-s3cret", "Incorrect API key: [hidden], [hidden]"),
        ("--secret-key s3cret;x --model m", "--secret-key [hidden] --model m"),
        ("http://a@b:c@d//e", "http://d//e"),
    ],
)
def test_the_value_is_hidden_and_the_rest_stays(text: str, left: str) -> None:
    assert without_credentials(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Too Many Requests",
        "https://host:8000/v1/a@b",
        "https://host/path?user=a@b",
        "http://[::1]:8000/x@y",
        "max_tokens=5 stop_token_ids=[2] eos_token=</s> first_token=0.25",
        "--api-key-env SERVING_KEY",
        "Bearer authentication required",
        "the tokenizer: Qwen/Qwen3",
        "keyboard=x num_tokens=5 tokenizer=m key=x sort_key=x cache-key: x author: me pad_token=<p>",
        "sk-learn 1.5 and risk-1234567890",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert without_credentials(text) == text


@given(st.text(), st.text())
def test_it_hides_the_same_once_and_twice(one: str, other: str) -> None:
    hidden = without_credentials(f"{one} https://me:s3cret@host/?token=s3cret {other}")
    assert "s3cret" not in hidden
    assert without_credentials(hidden) == hidden


@pytest.mark.parametrize("end", ["", "@", ' "'])
@pytest.mark.parametrize(
    "part",
    [
        *("a", "api", "--", ".-", "://a:", "//a/", "/", "//a@", "a:", "@", "token ", '"', " ", "key=", "api_key="),
        *("?key=", "-k ", "bearer ", "bearer a", "sk-", "sk-proj", "\\\\", "K", "kEy", "'a", "//[:"),
    ],
)
def test_no_text_takes_long(part: str, end: str) -> None:
    """In proportion to its length it takes a second or so; with its square, minutes."""
    text = part * (100_000 // len(part))
    began = time.process_time()
    without_credentials(f"key //{text}{end}")
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("whole", "left"),
    [
        ("me:s3cret@serving:8000/v1", "serving:8000/v1"),
        ("https://me:s3?cret@host/v1?x=s3cret#s3cret", "https://host/v1"),
        ("https://host:8000/v1", "https://host:8000/v1"),
        ("h:8000", "h:8000"),
    ],
)
def test_an_address_keeps_its_host_and_path(whole: str, left: str) -> None:
    assert address_without_credentials(whole) == left


@pytest.mark.parametrize("length", [40, 300])
@pytest.mark.parametrize("long", [290, 3_001, 40_000])
@pytest.mark.parametrize(
    ("before", "end"),
    [
        ("401 of https://me:", "@host/v1, again"),
        ("401 of url='https://me:", "@host/v1'"),
        ("the key sk-", "1 is known to nobody"),
        ("bearer ", "1 is known to nobody"),
        ("password=", " is wrong"),
        ('{"password": "', '", "model": "m"}'),
    ],
)
def test_no_part_of_a_long_credential_is_kept(before: str, end: str, long: int, length: int) -> None:
    secret = "Pw" * (long // 2)
    kept = beginning_without_credentials(f"{before}{secret}{end}", length)
    assert "Pw" not in kept
    assert len(kept) <= length


@given(st.text(), st.integers(1, 50))
def test_the_beginning_of_a_short_text_is_that_of_all_of_it(text: str, length: int) -> None:
    if len(text) <= 10 * length:
        assert beginning_without_credentials(text, length) == without_credentials(text)[:length]


def test_a_long_text_that_names_no_credential_loses_nothing() -> None:
    assert beginning_without_credentials("x" * 10_000, 300) == "x" * 300


def test_what_is_too_long_for_an_address_is_none() -> None:
    assert address(f"http://me:{'s3cret' * 10_000}@host/v1") is None
    assert address("http://me:s3cret@host/v1") == "http://host/v1"


def test_a_command_hides_the_argument_after_an_option_too() -> None:
    command = ["draftproof", "x", "--api-key", "s3cret", "--base-url", "http://me:s3cret@h", "-H", "X-Api-Key: s3cret"]
    left = ("draftproof", "x", "--api-key", HIDDEN, "--base-url", "http://h", "-H", f"X-Api-Key: {HIDDEN}")
    assert tuple(command_without_credentials(command)) == left
    assert this_client(command).command == left


def test_a_field_is_known_by_its_whole_name() -> None:
    assert all(map(names_a_credential, ("api_key", "OPENAI_API_KEY", "token", "hf_token", "password", "x-api-key")))
    assert all(map(names_a_credential, ("secret_key", "x_subscription_key", "subscriptionKey", "authkey", "jwt")))
    assert all(map(names_a_credential, ("accessKeyId", "auth_token", "client_secret", "credentials", "api_keys")))
    assert not any(map(names_a_credential, ("num_tokens", "tokenizer", "key", "sort_key", "kv_keys", "eos_token", "")))
    assert not any(map(names_a_credential, ("max_tokens", "tokenizer_id", "first_token", "model", "keyboard")))
