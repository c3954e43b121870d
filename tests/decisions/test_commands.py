"""The commands with which an installation gets its people, services and traffic."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as installation
from django.core.management import CommandError, call_command

from decisions.models import Account, Event, Service
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficSet

pytestmark = pytest.mark.django_db

SERVICE = {
    "name": "Search",
    "purpose": "Answers",
    "target": "model",
    "pool": "gpu",
    "route": ["answers"],
    "owner": ["olga"],
}


def test_a_first_service_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("add_account", "olga", role=["owner"])
    password = capsys.readouterr().out.split()[3]
    assert Account.objects.get(username="olga").check_password(password)
    call_command("add_service", "search", **SERVICE)
    service = Service.objects.get()
    assert [route.slug for route in service.routes.all()] == ["answers"]
    assert [owner.username for owner in service.owners.all()] == ["olga"]
    event = Event.objects.get(kind="roles-set")
    assert (event.subject, event.details["after"]) == ("account olga", {"roles": ["owner"], "services": ["search"]})
    call_command("import_traffic", str(SUPPORT_ASSISTANT), name="two hours")
    told = capsys.readouterr().out.splitlines()
    traffic = TrafficSet.objects.get()
    assert f"set: {traffic.digest} (number {traffic.pk}, on the page /traffic/{traffic.pk}/)" in told
    assert [line.split(":")[0] for line in told[-3:]] == ["evaluation", "held-out", "tuning"]


def test_an_owner_must_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="no account olga with the role owner"):
        call_command("add_service", "search", **SERVICE)
    assert not Service.objects.exists()


def test_a_service_is_added_once() -> None:
    call_command("add_account", "olga", role=["owner"])
    call_command("add_service", "search", **SERVICE)
    with pytest.raises(CommandError, match="there is a service search already"):
        call_command("add_service", "search", **SERVICE)


def test_an_account_is_added_once() -> None:
    call_command("add_account", "olga", role=["owner"])
    with pytest.raises(CommandError, match="olga already"):
        call_command("add_account", "olga", role=["auditor"])


def test_a_bad_traffic_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(SUPPORT_ASSISTANT.read_bytes() + b'{"id": "last"}\n')
    with pytest.raises(CommandError, match=r"traffic\.jsonl, line 571, field messages: missing"):
        call_command("import_traffic", str(path), name="bad", on_bad_row="refuse")
    with pytest.raises(CommandError, match="there is no service 'search'"):
        call_command("import_traffic", str(path), name="bad", service="search")
    with pytest.raises(CommandError, match="does not exist"):
        call_command("import_traffic", str(tmp_path / "none.jsonl"), name="none")


def test_what_was_left_out_and_what_is_odd_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"2024-05-10 00:00:{second:02}+00:00,10,20" for second in range(60)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, "2024-05-10 00:01:00+00:00,0,20"]))
    call_command("import_traffic", str(path), name="trace", evaluation=0, tuning=0.5, held_out=0.5, block_s=30)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "left out: 1 × zero-length prompt"
    assert told[1].startswith("warning: Tuning and held-out have 2 time blocks together, too few to tell whether ")
    assert [line.split(":")[0] for line in told[2:]] == ["set", "held-out", "tuning"]


def test_a_service_s_redactions_come_first(service: Service, tmp_path: Path) -> None:
    service.redactions = [{"pattern": "Graz", "replacement": "<town>"}]
    service.save()
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f'{{"prompt": "Parcel {number} to Graz", "max_tokens": 8}}\n' for number in range(20)))
    call_command("import_traffic", str(path), name="own", service=service.slug, redact=["town=>place"], similarity=1)
    traffic = TrafficSet.objects.get()
    content = EvidenceStore(installation.EVIDENCE_DIR).get(traffic.parts.get(kind="tuning").digest)
    assert b"to <place>" in content
    assert b"Graz" not in content
    assert traffic.service == service.slug


def test_a_compressed_file_has_the_installation_s_limit(tmp_path: Path, settings: Any) -> None:
    settings.UNPACKED_LIMIT_BYTES = 100
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "again", "max_tokens": 8}\n' * 50))
    with pytest.raises(CommandError, match=r"bomb\.gz unpacks to more than 100 bytes"):
        call_command("import_traffic", str(path), name="bomb")
    with pytest.raises(CommandError, match=r"bomb\.gz unpacks to more than 1,000 bytes"):
        call_command("import_traffic", str(path), name="bomb", unpacked_limit=1_000)
    assert not TrafficSet.objects.exists()


def test_an_account_is_reset_from_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("add_account", "olga", role=["operator"])
    with pytest.raises(CommandError, match="there is no account nobody"):
        call_command("reset_account", "nobody", reason="They were locked out")
    with pytest.raises(CommandError, match="say what to reset"):
        call_command("reset_account", "olga", reason="They were locked out")
    with pytest.raises(CommandError, match="they have no second factor"):
        call_command("reset_account", "olga", second_factor=True, reason="They were locked out")
    with pytest.raises(CommandError, match="say why"):
        call_command("reset_account", "olga", password=True, reason="short")
    capsys.readouterr()
    call_command("reset_account", "olga", password=True, reason="They were locked out")
    password = capsys.readouterr().out.split()[3]
    olga = Account.objects.get(username="olga")
    assert (olga.check_password(password), olga.must_change_password) == (True, True)
    assert Event.objects.get(kind="password-reset").actor.endswith(" (reset_account)")


def test_an_account_for_single_sign_on_has_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("add_account", "olga", role=["owner"], email="olga@house.example", single_sign_on=True)
    assert "signs in by single sign-on, as olga@house.example" in capsys.readouterr().out
    assert not Account.objects.get(username="olga").has_usable_password()
