"""The commands with which an installation gets its people, services and traffic."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from decisions.models import Account, Service
from loadtests.demo import SUPPORT_ASSISTANT
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
    call_command("import_traffic", str(SUPPORT_ASSISTANT), name="two hours")
    told = capsys.readouterr().out.splitlines()
    traffic = TrafficSet.objects.get()
    assert f"set: {traffic.digest}" in told
    assert [line.split(":")[0] for line in told[-3:]] == ["evaluation", "held-out", "tuning"]


def test_an_owner_must_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="no account olga with the role owner"):
        call_command("add_service", "search", **SERVICE)
    assert not Service.objects.exists()


def test_an_account_is_added_once() -> None:
    call_command("add_account", "olga", role=["owner"])
    with pytest.raises(CommandError, match="olga already"):
        call_command("add_account", "olga", role=["auditor"])


def test_a_bad_traffic_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text("{}\n")
    with pytest.raises(CommandError, match=r"traffic\.jsonl, line 1, field id"):
        call_command("import_traffic", str(path), name="bad")
    with pytest.raises(CommandError, match="No such file"):
        call_command("import_traffic", str(tmp_path / "none.jsonl"), name="none")
