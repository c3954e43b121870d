"""Signed checkpoints of the ledger's head, the keys that sign them, and what they show of a history."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from config.celery import app
from decisions import ledger, signing
from decisions.history import verify_history
from decisions.models import Checkpoint, Event, SigningKey
from decisions.services.checkpoint_regularly import checkpoint_regularly
from decisions.services.make_checkpoint import make_checkpoint
from decisions.services.recorded_signer import recorded_signer
from decisions.services.refused import Refused
from decisions.services.rotate_key import rotate_key
from decisions.signing import NoSigningKey, PrivateKey, configured_signer, new_key, write_key
from decisions.verify import CHECKPOINT, ROTATION, Key, read_envelope
from loadtests.canonical import canonical, digest
from tests.conftest import WRITTEN_ONCE, without_triggers

pytestmark = pytest.mark.django_db

WHY = "The yearly change of keys"


class Kms:
    """As an object of a key-management service is: the key never leaves it."""

    def __init__(self, key: PrivateKey | None = None) -> None:
        self._key = key or new_key()

    @property
    def key_id(self) -> str:
        return self._key.key_id

    def public_key(self) -> bytes:
        return self._key.public_key()

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(content)


class Muddled(Kms):
    """Signs the hash instead of what it was given, as a service may do that is asked in the wrong way."""

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(digest(content).encode())


KMS, MUDDLED = Kms(), Muddled()


def append(count: int, actor: str = "engineer") -> None:
    with transaction.atomic():
        for number in range(count):
            ledger.append("tested", subject="subject", actor=actor, details={"number": number})


def said(command: str, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def broken(*arguments: str) -> str:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("verify_ledger", *arguments, stdout=out)
    assert ended.value.code == 1
    return out.getvalue()


def execute(sql: str, *parameters: Any) -> None:
    with without_triggers(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def rewrite(sequence: int, actor: str) -> None:
    """What whoever owns the database can do: another actor in an event, and every later event chained anew."""
    previous = ""
    for event in list(Event.objects.filter(sequence__gte=sequence).order_by("sequence")):
        stated = json.loads(bytes(event.content))
        if event.sequence == sequence:
            stated["actor"] = actor
        else:
            stated["previous"] = previous
        content = canonical(stated)
        execute(
            "UPDATE decisions_event SET actor = %s, previous = %s, content = %s, hash = %s WHERE sequence = %s",
            *(stated["actor"], stated["previous"], content, digest(content), event.sequence),
        )
        previous = digest(content)


# Checkpoints


def test_a_checkpoint_names_the_head_and_is_signed() -> None:
    append(2)
    checkpoint = make_checkpoint()
    envelope = read_envelope(bytes(checkpoint.content), CHECKPOINT)
    # The key's own event came before it.
    head = Event.objects.get(sequence=3)
    assert (head.kind, checkpoint.size, checkpoint.head) == ("signing-key-added", 3, head.hash)
    assert envelope.document == {
        "schema": "draftproof.checkpoint/1",
        "origin": "draftproof",
        "size": 3,
        "head": head.hash,
        "at": ledger.timestamp(checkpoint.at),
    }
    assert envelope.signed_by(Key(configured_signer().public_key()))
    assert not envelope.signed_by(Key(new_key().public_key()))


def test_the_same_head_is_signed_once_by_a_key() -> None:
    append(1)
    first = make_checkpoint()
    assert make_checkpoint() == first
    append(1)
    assert make_checkpoint().size == first.size + 1
    assert make_checkpoint(size=1).size == 1


def test_an_empty_ledger_has_nothing_to_sign() -> None:
    recorded_signer()
    execute("DELETE FROM decisions_event")
    with pytest.raises(Refused, match="the ledger is empty"):
        make_checkpoint()


def test_a_broken_history_is_not_signed() -> None:
    append(3)
    make_checkpoint()
    append(3)
    execute("UPDATE decisions_event SET actor = 'nobody' WHERE sequence = 6")
    with pytest.raises(Refused, match="broken at event 6: its columns actor differ"):
        make_checkpoint()
    assert checkpoint_regularly() is None


def test_a_history_that_contradicts_its_last_checkpoint_is_not_signed() -> None:
    append(3)
    make_checkpoint()
    rewrite(2, "nobody")
    append(1)
    with pytest.raises(Refused, match="contradicts its checkpoint over event 4"):
        make_checkpoint()


@pytest.mark.parametrize("table", WRITTEN_ONCE)
@pytest.mark.parametrize("act", ["UPDATE {} SET {} = 'x'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_them(table: str, act: str) -> None:
    append(1)
    make_checkpoint()
    column = {"decisions_event": "actor", "decisions_signingkey": "key_id", "decisions_checkpoint": "head"}[table]
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(act.format(table, column))
    assert verify_history().fault == ""


@pytest.mark.skipif("connection.vendor != 'sqlite'")
@pytest.mark.parametrize("table", ["decisions_signingkey", "decisions_checkpoint"])
def test_sqlite_does_not_replace_them_either(table: str) -> None:
    append(1)
    make_checkpoint()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")


def test_verify_says_from_where_to_where() -> None:
    assert said("verify_ledger") == "ok 0 events\n"
    append(2)
    make_checkpoint()
    append(1)
    first, last = (ledger.timestamp(Event.objects.get(sequence=one).at) for one in (1, 4))
    checkpoint = Checkpoint.objects.get()
    assert said("verify_ledger").splitlines() == [
        f"ok 4 events, from event 1 of {first} to event 4 of {last}",
        f"checkpoints that hold: 1, the furthest over event 3 of {ledger.timestamp(checkpoint.at)}, signed with "
        f"the key {checkpoint.key_id}",
    ]


def test_a_checkpoint_of_elsewhere_shows_that_the_history_is_the_same(tmp_path: Path) -> None:
    append(2)
    kept = tmp_path / "kept.json"
    said("checkpoint_ledger", "--to", str(kept))
    append(5)
    at = ledger.timestamp(Checkpoint.objects.get().at)
    assert said("verify_ledger", "--checkpoint", str(kept)).splitlines()[-1] == (
        f"{kept}: its history is this one's up to event 3, of {at}"
    )


def test_a_history_written_anew_contradicts_its_checkpoint(tmp_path: Path) -> None:
    append(4)
    kept = tmp_path / "kept.json"
    said("checkpoint_ledger", "--to", str(kept))
    rewrite(2, "nobody")
    assert ledger.verify().broken is None, "the chain alone doesn't show it"
    assert "event 5 has another hash there. The history up to it was written anew since" in broken()
    execute("DELETE FROM decisions_checkpoint")
    assert said("verify_ledger").startswith("ok 5 events"), "whoever owns the database removes checkpoints too"
    assert f"broken at {kept} (draftproof, " in broken("--checkpoint", str(kept))


def test_an_end_that_was_cut_off_is_noticed(tmp_path: Path) -> None:
    append(6)
    kept = tmp_path / "kept.json"
    said("checkpoint_ledger", "--to", str(kept))
    execute("DELETE FROM decisions_event WHERE sequence > 4")
    assert ledger.verify().broken is None
    execute("DELETE FROM decisions_checkpoint")
    execute("DELETE FROM decisions_signingkey")
    assert said("verify_ledger").startswith("ok 4 events")
    assert "it is over event 7, and the ledger ends at event 4: its end was removed" in broken(
        "--checkpoint", str(kept)
    )


def test_the_row_of_a_checkpoint_is_held_against_what_was_signed() -> None:
    append(2)
    make_checkpoint()
    execute("UPDATE decisions_checkpoint SET size = 1")
    assert broken() == "broken at the checkpoint over event 1: its columns differ from what was signed\n"
    execute("UPDATE decisions_checkpoint SET content = %s", b"{}")
    assert broken().startswith("broken at the checkpoint over event 1: it is no signed checkpoint")


def test_a_checkpoint_that_a_stranger_signed_is_refused() -> None:
    append(2)
    recorded_signer()
    with transaction.atomic():
        make_checkpoint(signer=Kms())
    assert "no key that is or was in use here signed it as it stands" in broken()


def test_the_keys_are_those_that_the_ledger_names() -> None:
    append(1)
    make_checkpoint()
    stranger = new_key()
    execute("UPDATE decisions_signingkey SET key_id = %s, public_key = %s", stranger.key_id, stranger.public_key())
    assert broken() == "broken at the signing keys: they aren't those that the ledger names\n"


@pytest.mark.parametrize("content", [b"", b"{}", b"no json", b'{"payload":"","payloadType":"x","signatures":[]}'])
def test_what_is_no_checkpoint_is_told_as_that(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"kept\.json: it is no signed checkpoint") as refused:
        call_command("verify_ledger", "--checkpoint", str(path))
    assert refused.value.returncode == 2


def test_a_checkpoint_is_written_into_a_directory_under_a_name_of_its_own(tmp_path: Path) -> None:
    append(1)
    said("checkpoint_ledger", "--to", str(tmp_path))
    checkpoint = Checkpoint.objects.get()
    path = tmp_path / f"checkpoint-2-{checkpoint.at:%Y%m%dT%H%M%SZ}.json"
    assert path.read_bytes() == bytes(checkpoint.content) + b"\n"


def test_a_checkpoint_is_mailed(settings: Any, mailoutbox: list[mail.EmailMessage]) -> None:
    append(1)
    with pytest.raises(CommandError, match="no mail server is named: set EMAIL_URL"):
        call_command("checkpoint_ledger", "--mail", "auditor@house.example", stdout=StringIO())
    settings.EMAIL_URL = "smtp://mail.house.example"
    said("checkpoint_ledger", "--mail", "auditor@house.example")
    checkpoint = Checkpoint.objects.get()
    (message,) = mailoutbox
    assert (message.to, message.subject) == (["auditor@house.example"], "Checkpoint of draftproof over event 2")
    assert checkpoint.head in message.body
    assert checkpoint.key_id in message.body
    ((name, content, kind),) = message.attachments
    assert (name, kind) == (f"checkpoint-2-{checkpoint.at:%Y%m%dT%H%M%SZ}.json", "application/json")
    assert content == bytes(checkpoint.content) + b"\n"


def test_the_beat_signs_what_is_new_and_sends_it(
    settings: Any, tmp_path: Path, mailoutbox: list[mail.EmailMessage], caplog: pytest.LogCaptureFixture
) -> None:
    assert checkpoint_regularly() is None, "an empty history"
    append(1)
    settings.CHECKPOINT_TO, settings.CHECKPOINT_MAIL = tmp_path / "out", ["auditor@house.example"]
    first = checkpoint_regularly()
    assert first is not None
    assert "could not be mailed: no mail server is named" in caplog.text
    again = checkpoint_regularly()
    assert again is not None
    assert again.size == first.size + 1, "that it could not be mailed is new, once a day"
    assert checkpoint_regularly() is None, "nothing new"
    append(1)
    settings.EMAIL_URL = "smtp://mail.house.example"
    second = checkpoint_regularly()
    assert second is not None
    assert (tmp_path / "out").read_bytes() == bytes(second.content) + b"\n"
    assert [one.subject for one in mailoutbox] == ["Checkpoint of draftproof over event 4"]


def test_the_beat_knows_the_task() -> None:
    app.loader.import_default_modules()
    assert "decisions.checkpoint_ledger" in {one["task"] for one in app.conf.beat_schedule.values()} & set(app.tasks)


# Keys


def test_the_embedded_default_makes_a_key_for_its_owner_alone(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    key = recorded_signer()
    path = Path(settings.OWN_SIGNING_KEY_FILE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"made a signing key of this installation's own: {path}" in caplog.text
    assert recorded_signer().key_id == key.key_id
    event = Event.objects.get()
    assert (event.kind, event.subject, event.actor) == ("signing-key-added", "signing key", "draftproof")
    assert event.details["key"] == key.key_id == digest(key.public_key())
    assert [one.key_id for one in SigningKey.objects.all()] == [key.key_id]


def in_the_environment(settings: Any, key: PrivateKey, path: Path) -> None:
    settings.SIGNING_KEY = key.pem.decode().replace("\n", "\\n")


def in_a_file(settings: Any, key: PrivateKey, path: Path) -> None:
    write_key(path, key)
    settings.SIGNING_KEY_FILE = path


def in_a_service(settings: Any, key: PrivateKey, path: Path) -> None:
    KMS._key = key
    settings.SIGNER = "kms_of_a_test:key"


@pytest.mark.parametrize("configure", [in_the_environment, in_a_file, in_a_service])
def test_a_key_comes_from_the_environment_a_file_or_a_service(
    configure: Callable[..., None], settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kms_of_a_test", SimpleNamespace(key=KMS))
    key = new_key()
    configure(settings, key, tmp_path / "key.pem")
    append(1)
    assert make_checkpoint().key_id == key.key_id
    assert verify_history().fault == ""
    assert not Path(settings.OWN_SIGNING_KEY_FILE).exists()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SIGNING_KEY", "-----BEGIN nothing", "DRAFTPROOF_SIGNING_KEY holds no private key in PEM"),
        ("SIGNING_KEY_FILE", "/nowhere/key.pem", "the signing key /nowhere/key.pem can't be read: No such file"),
        ("SIGNER", "nowhere.at_all:key", "the signing key nowhere.at_all:key can't be had: ModuleNotFoundError"),
        ("SIGNER", "json", "can't be had"),
    ],
)
def test_a_key_that_cannot_be_had_is_said(settings: Any, name: str, value: str, why: str) -> None:
    setattr(settings, name, value)
    append(1)
    with pytest.raises(CommandError, match=why):
        call_command("checkpoint_ledger")
    assert not Checkpoint.objects.exists()


def test_a_key_of_another_kind_is_refused(settings: Any) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    settings.SIGNING_KEY = other.decode()
    with pytest.raises(NoSigningKey, match="of another kind than Ed25519"):
        configured_signer()


def test_a_service_that_names_another_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Kms):
        @property
        def key_id(self) -> str:
            return "0" * 64

    monkeypatch.setitem(sys.modules, "kms_of_a_test", SimpleNamespace(key=Other()))
    with pytest.raises(NoSigningKey, match="isn't the SHA-256 of its public key"):
        signing.key_of_service("kms_of_a_test:key")


def test_a_signature_that_does_not_hold_is_kept_nowhere() -> None:
    append(1)
    with pytest.raises(NoSigningKey, match="gave a signature that its own public key doesn't hold"):
        make_checkpoint(signer=MUDDLED)
    assert not Checkpoint.objects.exists()


def test_a_file_that_others_can_read_is_said(settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    in_a_file(settings, new_key(), tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o644)
    configured_signer()
    assert "can be read by others than its owner: chmod 600" in caplog.text


def test_of_two_processes_that_begin_at_once_the_first_key_counts(tmp_path: Path) -> None:
    first, path = new_key(), tmp_path / "key.pem"
    write_key(path, first)
    write_key(path, new_key())
    assert signing.key_in_file(path).key_id == first.key_id


def test_a_key_that_the_ledger_does_not_name_signs_nothing(settings: Any) -> None:
    append(1)
    make_checkpoint()
    settings.SIGNING_KEY = new_key().pem.decode()
    with pytest.raises(NoSigningKey, match=r"and by the ledger it is .* manage\.py rotate_key"):
        make_checkpoint()


# Rotation


def test_a_rotation_is_one_event_signed_by_both_keys() -> None:
    append(1)
    old, new = recorded_signer(), Kms()
    make_checkpoint()
    added = rotate_key(new=new, old=old, by="operator", reason=WHY)
    event = Event.objects.get(kind="signing-key-rotated")
    assert event.actor == "operator"
    assert {name: event.details[name] for name in ("old", "key", "by_the_old_key", "reason")} == {
        "old": old.key_id,
        "key": new.key_id,
        "by_the_old_key": True,
        "reason": WHY,
    }
    rotation = read_envelope(bytes(added.rotation or b""), ROTATION)
    assert (rotation.document["old"], rotation.document["new"]) == (old.key_id, new.key_id)
    assert rotation.signed_by(Key(old.public_key()))
    assert rotation.signed_by(Key(new.public_key()))
    assert [one.key_id for one in SigningKey.objects.all()] == [old.key_id, new.key_id]
    last = Checkpoint.objects.last()
    assert last is not None
    assert (last.key_id, last.size) == (new.key_id, event.sequence)
    assert verify_history().fault == "", "what the old key signed still holds"


def test_a_lost_key_says_nothing_about_the_next() -> None:
    append(1)
    old, new = recorded_signer(), Kms()
    added = rotate_key(new=new, old=None, by="operator", reason="The old key was lost")
    rotation = read_envelope(bytes(added.rotation or b""), ROTATION)
    assert not rotation.signed_by(Key(old.public_key()))
    assert rotation.signed_by(Key(new.public_key()))
    assert verify_history().fault == ""


def test_who_may_not_rotate() -> None:
    with pytest.raises(Refused, match="nothing was signed yet"):
        rotate_key(new=Kms(), old=None, by="operator", reason=WHY)
    old = recorded_signer()
    with pytest.raises(Refused, match="a reason of at least"):
        rotate_key(new=Kms(), old=old, by="operator", reason="so")
    with pytest.raises(Refused, match="is or was in use here"):
        rotate_key(new=old, old=old, by="operator", reason=WHY)
    with pytest.raises(Refused, match="the key in use is"):
        rotate_key(new=Kms(), old=Kms(), by="operator", reason=WHY)
    assert SigningKey.objects.count() == 1


def test_a_rotation_that_was_tampered_with_is_noticed() -> None:
    append(1)
    rotate_key(new=Kms(), old=recorded_signer(), by="operator", reason=WHY)
    last = SigningKey.objects.last()
    assert last is not None
    execute("UPDATE decisions_signingkey SET rotation = %s WHERE id = %s", b"{}", last.pk)
    assert (
        broken() == f"broken at the signing key {last.key_id}: its public key or its rotation isn't what was recorded\n"
    )


def test_the_embedded_key_is_rotated_by_one_command(settings: Any) -> None:
    append(1)
    old = recorded_signer().key_id
    path = Path(settings.OWN_SIGNING_KEY_FILE)
    told = said("rotate_key", "--by", "operator", "--reason", WHY)
    new = configured_signer().key_id
    assert new != old
    assert told.startswith(f"key {new} signs from now on\nit is in {path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.with_name(path.name + ".next").exists()
    append(1)
    assert make_checkpoint().key_id == new
    assert [line.split()[0] for line in said("show_keys").splitlines()] == [old, new]


def test_a_rotation_that_was_cut_off_is_brought_to_its_end(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    append(1)
    recorded_signer()
    with monkeypatch.context() as patched:
        patched.setattr("decisions.management.commands.rotate_key.os.replace", cut_off)
        with pytest.raises(OSError, match="cut off"):
            said("rotate_key", "--by", "operator", "--reason", WHY)
    with pytest.raises(NoSigningKey):
        recorded_signer()
    assert "has its place now" in said("rotate_key", "--by", "operator", "--reason", WHY)
    assert recorded_signer().key_id == SigningKey.objects.order_by("-pk")[0].key_id
    assert SigningKey.objects.count() == 2


def cut_off(*_: object) -> None:
    raise OSError("cut off")


def test_a_named_key_comes_next_and_must_be_configured(settings: Any, tmp_path: Path) -> None:
    append(1)
    recorded_signer()
    path = tmp_path / "next.pem"
    assert f"in {path}" in said("make_key", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = said("rotate_key", "--new", str(path), "--by", "operator", "--reason", WHY)
    assert f"configure {path} in every process now" in told
    with pytest.raises(NoSigningKey):
        recorded_signer()
    settings.SIGNING_KEY_FILE = path
    assert recorded_signer().key_id == signing.key_in_file(path).key_id


def test_a_key_of_a_service_cannot_be_made_here(settings: Any) -> None:
    settings.SIGNING_KEY = new_key().pem.decode()
    with pytest.raises(CommandError, match="say with --new which one comes after it"):
        call_command("rotate_key", "--by", "operator", "--reason", WHY)


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text("something")
    with pytest.raises(CommandError, match="is there already"):
        call_command("make_key", str(path))
    assert path.read_text() == "something"


def test_public_keys_are_shown_for_whoever_verifies() -> None:
    key = recorded_signer()
    shown = said("show_keys", "--pem")
    assert shown.splitlines()[0].startswith(f"{key.key_id} since ")
    assert "-----BEGIN PUBLIC KEY-----" in shown
