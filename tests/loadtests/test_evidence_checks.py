"""A store that can't be used is told before anything is measured; no key is ever printed."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from config.celery import require_evidence_store as required_by_workers
from loadtests import uploads
from loadtests.checks import check_evidence_store, require_evidence_store
from loadtests.evidence.bucket import Address
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.stores import evidence_store
from tests.support import buckets


def told(found: list[CheckMessage]) -> list[tuple[str | None, str]]:
    return [(one.id, one.msg) for one in found]


def test_without_settings_evidence_lies_in_the_directory(settings: Any) -> None:
    assert type(evidence_store()) is EvidenceStore
    assert evidence_store().root == Path(settings.EVIDENCE_DIR)
    assert check_evidence_store() == []


def test_a_bucket_that_can_be_used_is_no_matter(kept_in_a_bucket: Address) -> None:
    assert check_evidence_store() == []
    require_evidence_store()
    required_by_workers()
    assert evidence_store() is evidence_store()


def test_an_address_that_is_none_is_an_error(settings: Any) -> None:
    settings.EVIDENCE_URL, settings.EVIDENCE_ENDPOINT, settings.EVIDENCE_REGION = "/srv/evidence", "", ""
    why = "DRAFTPROOF_EVIDENCE: '/srv/evidence' is no address like s3://bucket/prefix"
    assert told(check_evidence_store()) == [("loadtests.E001", why)]
    with pytest.raises(ImproperlyConfigured, match="is no address like"):
        require_evidence_store()
    with pytest.raises(SystemExit, match="the worker does not start: DRAFTPROOF_EVIDENCE: "):
        required_by_workers()


def test_a_bucket_that_is_not_there_is_an_error(kept_in_a_bucket: Address) -> None:
    buckets.client(kept_in_a_bucket.endpoint).delete_bucket(Bucket=kept_in_a_bucket.bucket)
    ((kind, why),) = told(check_evidence_store())
    assert kind == "loadtests.E002"
    assert f"s3://{kept_in_a_bucket.bucket} could not be asked for: there is no such bucket" in why
    with pytest.raises(ImproperlyConfigured, match="there is no such bucket"):
        require_evidence_store()


def test_a_server_that_is_away_is_a_warning_and_keeps_nobody_from_starting(
    kept_in_a_bucket: Address, settings: Any
) -> None:
    settings.EVIDENCE_ENDPOINT = f"http://127.0.0.1:{buckets.free_port()}"
    assert [kind for kind, _ in told(check_evidence_store())] == ["loadtests.W001"]
    require_evidence_store()
    required_by_workers()


@pytest.mark.parametrize("missing", [[*buckets.KEYS], ["AWS_SECRET_ACCESS_KEY"]])
def test_keys_that_are_missing_are_an_error(
    kept_in_a_bucket: Address, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: list[str]
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in missing:
        monkeypatch.delenv(name)
    ((kind, why),) = told(check_evidence_store())
    assert kind == "loadtests.E002"
    assert "redentials" in why


def test_the_check_command_fails_and_prints_no_key(kept_in_a_bucket: Address, s3: str) -> None:
    with buckets.faulty_server(s3) as server:
        server.fault = lambda *_: 403
        out = StringIO()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("django.conf.settings.EVIDENCE_ENDPOINT", server.endpoint)
            with pytest.raises(SystemCheckError) as raised:
                call_command("check", deploy=True, tags=["evidence"], stdout=out, stderr=out)
    said = f"{out.getvalue()}{raised.value}"
    assert "403 Forbidden: the keys are not known there, or lack s3:ListBucket" in said
    assert not any(secret in said for secret in buckets.KEYS.values())


def test_other_commands_do_not_ask_the_store(kept_in_a_bucket: Address, s3: str) -> None:
    uploads.directory()
    with buckets.faulty_server(s3) as server, pytest.MonkeyPatch.context() as patched:
        patched.setattr("django.conf.settings.EVIDENCE_ENDPOINT", server.endpoint)
        call_command("check", stdout=StringIO())
        assert server.asked == []
        call_command("check", deploy=True, tags=["evidence"], stdout=StringIO())
        assert server.asked == ["HEAD"]
