"""From a file to a set in the store: all of it or nothing, and the same everywhere."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from decisions.models import Event
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore, digest_of_file
from loadtests.models import TrafficPart, TrafficSet
from loadtests.services.import_traffic import SIMILARITY, import_traffic, kept
from loadtests.traffic.importers import ImportRefused, Wanted, import_file
from loadtests.traffic.near_duplicates import VALUES, band_width
from loadtests.traffic.rows import rows_of

pytestmark = pytest.mark.django_db

GOLDEN = {
    "set": "6c521a9876ed5f855d0e5d099098a7f8744376b4dfce02107b7f2416faeb3b4e",
    "evaluation": "7ca88ec47c3de2154b0891fc2f3fb2691e83fd64650aea791ec9b473c9142ae5",
    "held-out": "c8c880206f53ca5479c50c95c2536536a9681d496d3a8105826aeb48702557b9",
    "tuning": "0bfe0b7caaa7b4603ebf3abedb5cf6b69183542c51458d161d0cd10efdf8506c",
}
FRESH = """
import sys
from pathlib import Path
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("import_traffic", sys.argv[1], name="fresh", seed=7)
"""


def imported(path: Path = SUPPORT_ASSISTANT, **asked: Any) -> TrafficSet:
    return import_traffic(path=path, **{"name": "demo", "by": "engineer", "seed": 7, **asked})


def digests(traffic: TrafficSet) -> dict[str, str]:
    return {"set": traffic.digest, **dict(traffic.parts.values_list("kind", "digest"))}


def content(part: TrafficPart) -> bytes:
    return EvidenceStore(settings.EVIDENCE_DIR).get(part.digest)


def nothing_is_left() -> bool:
    evidence, uploads = Path(settings.EVIDENCE_DIR), Path(settings.UPLOADS_DIR)
    files = [one for one in evidence.rglob("*") if one.is_file()] if evidence.exists() else []
    return not files and list(uploads.iterdir()) == [] and not TrafficSet.objects.exists()


def test_every_row_is_in_one_part_as_it_was_imported(tmp_path: Path) -> None:
    traffic = imported()
    import_file(Wanted(SUPPORT_ASSISTANT), tmp_path / "set")
    lines = (tmp_path / "set" / "rows.jsonl").read_bytes().splitlines(keepends=True)
    parts = {part.kind: content(part).splitlines(keepends=True) for part in traffic.parts.all()}
    assert sorted(line for part in parts.values() for line in part) == sorted(lines)
    place = {line: at for at, line in enumerate(lines)}
    assert all([place[line] for line in part] == sorted(place[line] for line in part) for part in parts.values())
    assert {part.kind: part.rows for part in traffic.parts.all()} == {kind: len(part) for kind, part in parts.items()}


def test_the_same_file_gives_the_same_digests_everywhere() -> None:
    assert digests(imported()) == GOLDEN


def test_a_fresh_process_with_another_hash_seed_locale_and_zone_gives_the_same_digests(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DRAFTPROOF_VAR": str(tmp_path / "fresh"),
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONHASHSEED": "4711",
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Asia/Kathmandu",
        "PYTHONPATH": str(settings.BASE_DIR),
    }
    told = subprocess.run(
        [sys.executable, "-c", FRESH, str(SUPPORT_ASSISTANT)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = dict(line.split()[:2] for line in told.splitlines() if not line.startswith("warning"))
    assert {kind.rstrip(":"): digest for kind, digest in found.items()} == GOLDEN


def test_one_character_changes_the_set_and_the_part_that_holds_it_alone(tmp_path: Path) -> None:
    original = imported()
    changed = tmp_path / SUPPORT_ASSISTANT.name
    text = SUPPORT_ASSISTANT.read_text(encoding="utf-8")
    assert text.count("spreadsheet") == 1
    changed.write_text(text.replace("spreadsheet", "spreadsheat"), encoding="utf-8")
    other = imported(changed)
    before, after = digests(original), digests(other)
    (moved,) = (kind for kind in before if kind != "set" and before[kind] != after[kind])
    assert b"spreadsheat" in content(other.parts.get(kind=moved))
    assert before["set"] != after["set"]
    assert (original.split, original.statistics) == (other.split, other.statistics)
    for one, two in zip(original.parts.order_by("kind"), other.parts.order_by("kind"), strict=True):
        assert (one.rows, one.stretches, one.statistics) == (two.rows, two.stretches, two.statistics)


def test_the_same_file_with_another_split_is_another_set() -> None:
    assert imported().digest != imported(seed=8).digest
    assert imported().digest != imported(block_s=60).digest
    assert imported() == imported()
    with pytest.raises(ValueError, match="this very set is here already"):
        imported(name="again")
    assert TrafficSet.objects.count() == 3


def test_a_set_whose_text_was_deleted_is_not_brought_back_by_chance() -> None:
    imported()
    TrafficSet.objects.update(text_deleted_at=timezone.now(), text_deleted_by="olga")
    with pytest.raises(ValueError, match="imported as 'demo', and its text was deleted by olga on"):
        imported()


def test_an_import_leaves_one_event(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(SUPPORT_ASSISTANT.read_bytes() + b'{"id": "last"}\n')
    traffic = imported(path, service="support")
    event = Event.objects.get()
    assert (event.kind, event.actor, event.subject) == ("traffic-imported", "engineer", f"traffic set {traffic.pk}")
    assert event.details == {
        "digest": traffic.digest,
        "rows": 570,
        "label": "real text",
        "skipped": {"missing": 1},
        "similarity": 0.8,
    }
    (problem,) = EvidenceStore(settings.EVIDENCE_DIR).get(traffic.problems_digest).splitlines()
    assert json.loads(problem)["line"] == 571
    assert (traffic.source, traffic.service, traffic.imported["rows"]) == ("traffic.jsonl", "support", 570)


def test_a_trace_of_lengths_is_split_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"2024-05-10 00:{second // 60:02}:{second % 60:02}+00:00,{second + 1},20" for second in range(600)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, ""]))
    traffic = imported(path, block_s=20)
    assert traffic.statistics["prompt"]["unit"] == "tokens"
    assert traffic.split["near_duplicates"]["method"] == "none: there is no text to compare"
    assert {part.kind: part.rows for part in traffic.parts.all()} == {"tuning": 220, "held-out": 300, "evaluation": 80}


def test_a_file_without_times_is_split_by_conversation(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"Question {n}", "conversation": f"c{n // 2}"}) + "\n" for n in range(40))
    )
    traffic = imported(path, similarity=1)
    assert traffic.statistics["timed"] is False
    assert [one["name"] for one in traffic.statistics["comparison"]["measures"]][-1] == "class"
    held = {part.kind: {row.conversation for row in rows_of(content(part))} for part in traffic.parts.all()}
    assert sum(map(len, held.values())) == 20


def stop_at(stage: str, after: int) -> Callable[[str, int, int], None]:
    def tell(now: str, done: int, of: int) -> None:
        assert 0 <= done <= of
        if now == stage and done >= after:
            raise InterruptedError(stage)

    return tell


@pytest.mark.parametrize("stage", ["reading", "reading prompts", "looking for near-duplicates", "writing"])
def test_an_import_that_is_stopped_leaves_nothing(stage: str) -> None:
    with pytest.raises(InterruptedError, match=stage):
        imported(tell=stop_at(stage, 1))
    assert nothing_is_left()


def test_progress_comes_by_stages() -> None:
    told: list[tuple[str, int, int]] = []
    imported(tell=lambda *news: told.append(news))
    size = SUPPORT_ASSISTANT.stat().st_size
    passes = VALUES // band_width(SIMILARITY)
    assert list(dict.fromkeys((stage, of) for stage, _, of in told)) == [
        ("reading", size),
        ("reading prompts", 570),
        ("looking for near-duplicates", passes),
        ("writing", 570),
    ]
    searched = [done for stage, done, _ in told if stage == "looking for near-duplicates"]
    assert list(dict.fromkeys(searched)) == list(range(passes))


def test_a_disk_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    put, kept = EvidenceStore.put_file, list[Path]()

    def put_file(store: EvidenceStore, source: Path) -> str:
        if kept:
            raise OSError(28, "No space left on device")
        kept.append(source)
        return put(store, source)

    monkeypatch.setattr(EvidenceStore, "put_file", put_file)
    with pytest.raises(OSError, match="No space left"):
        imported()
    assert nothing_is_left()


def test_a_failure_keeps_what_a_set_names(tmp_path: Path) -> None:
    store = EvidenceStore(settings.EVIDENCE_DIR)
    files = {part.digest: store.path(part.digest) for part in imported().parts.all()}
    other = tmp_path / "other"
    other.write_bytes(b"of no set")
    with pytest.raises(RuntimeError), kept({**files, digest_of_file(other): other}, tmp_path):
        raise RuntimeError
    assert [store.has(one) for one in (*files, digest_of_file(other))] == [True, True, True, False]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"shares": {"tuning": 1.0}}, "shares go to tuning and held-out"),
        ({"block_s": 0}, "block_s: a time block lasts 0.001 s at least"),
        ({"block_s": 1e-9}, "block_s: a time block lasts 0.001 s at least"),
        ({"block_s": 100_000}, "nothing is left for"),
        ({"similarity": 0}, "similarity must be above 0"),
        ({"name": ""}, "the set's name has 0 characters"),
        ({"name": "n" * 121}, "the set's name has 121 characters; it may have 1 to 120"),
    ],
)
def test_what_can_not_be_is_refused(asked: dict[str, Any], words: str) -> None:
    settings.UPLOADS_DIR.mkdir()
    with pytest.raises(ValueError, match=words):
        imported(**asked)
    assert nothing_is_left()


def test_a_file_of_no_request_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"")
    with pytest.raises(ImportRefused, match=r"empty\.jsonl"):
        imported(path)
    assert nothing_is_left()


def test_names_that_no_database_takes_are_written_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    address = "/v1/completions"
    rows = [{"custom_id": f"{n}", "url": address, "body": {"prompt": f"Question {n}", "a\0b": 1}} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traffic = imported(path, similarity=1)
    assert traffic.imported["unread_fields"] == {"body.a␀b": 40}


@pytest.mark.parametrize("field", ["class", "id", "conversation", "tenant"])
def test_a_nul_stands_in_no_name_of_a_row(tmp_path: Path, field: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text('{"prompt": "Hello"}\n' + json.dumps({"prompt": "Hello", field: "a\0"}) + "\n")
    import_file(Wanted(path, format="own"), tmp_path / "set")
    (problem,) = map(json.loads, (tmp_path / "set" / "problems.jsonl").read_text().splitlines())
    assert problem == {
        "file": "odd.jsonl",
        "line": 2,
        "field": field,
        "reason": "not allowed",
        "detail": "the character NUL",
    }


def test_a_set_of_no_service_is_given_the_one_that_is_asked_for_and_never_another() -> None:
    traffic = imported()
    assert imported(service="support") == traffic
    assert TrafficSet.objects.get().service == "support"
    event = Event.objects.get(kind="traffic-service-given")
    assert (event.subject, event.actor, event.details["service"]) == (
        f"traffic set {traffic.pk}",
        "engineer",
        "support",
    )
    assert imported(service="support") == traffic
    for service in ("search", ""):
        with pytest.raises(ValueError, match=f"set {traffic.pk}, 'demo', of the service 'support', whose retention"):
            imported(service=service)


def test_the_same_set_under_another_name_is_refused_with_what_to_do() -> None:
    traffic = imported()
    with pytest.raises(ValueError, match=f"set {traffic.pk}, 'demo', of no service.* another split .* 'support'$"):
        imported(name="again", service="support")
    assert TrafficSet.objects.get().service == ""
