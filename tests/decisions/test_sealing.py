"""The seal on held-out traffic: it opens for a frozen brief while it measures, and every use of it stays visible."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Event, Route
from decisions.rules.brief import BadBrief
from decisions.selectors.seal import Use, used_before, uses_of
from decisions.services.advance_brief import advance_brief
from decisions.services.cancel_brief import cancel_brief
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.revise_brief import revise_brief
from decisions.services.sign_decision import sign_decision
from decisions.services.start_brief import start_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficPart, TrafficSet
from loadtests.part_indexes import held
from loadtests.services.import_traffic import import_traffic
from loadtests.services.read_part import read_part
from loadtests.traffic.importers import Wanted
from loadtests.traffic.rows import Row
from tests.conftest import PASSWORD
from tests.support.play import TARGET, play, started_brief

pytestmark = pytest.mark.django_db

# The demo's brief is for it.
SERVICE = "support-assistant"


@pytest.fixture
def traffic() -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service=SERVICE, seed=7)


def frozen(route: Route, engineer: Account, traffic: TrafficSet, **changes: Any) -> BriefRevision:
    document = brief_document(TARGET, traffic) | {"route": route.slug} | changes
    revision = create_brief(route=route, source=json.dumps(document), by=engineer)
    freeze_brief(revision=revision, by=engineer)
    return revision


def open_for(revision: BriefRevision, part: TrafficPart | None = None) -> list[Row]:
    assert revision.traffic_set
    wanted = part or revision.traffic_set.parts.get(kind="held-out")
    digest = revision.digest
    return read_part(part=wanted, purpose="held-out", brief_digest=digest, reader="boot 1", actor="worker")


def measuring(revision: BriefRevision, engineer: Account) -> BriefRevision:
    start_brief(revision=revision, by=engineer)
    return revision


def test_the_seal_opens_for_a_frozen_brief_only_while_it_measures(
    route: Route, engineer: Account, traffic: TrafficSet
) -> None:
    revision = frozen(route, engineer, traffic)
    with pytest.raises(Refused, match=r"the brief is frozen: the held-out part opens .* only while it is measuring"):
        open_for(revision)
    assert len(open_for(measuring(revision, engineer))) == traffic.parts.get(kind="held-out").rows
    # A stop doesn't close it: the attempts after it read the same part.
    BriefRevision.objects.filter(pk=revision.pk).update(halted="the pool is being repaired")
    assert open_for(revision)
    cancel_brief(revision=revision, by=engineer, reason="no longer wanted")
    with pytest.raises(Refused, match="the brief is cancelled"):
        open_for(revision)
    kinds = Event.objects.filter(kind__startswith="held-out-").order_by("sequence").values_list("kind", flat=True)
    assert list(kinds) == ["held-out-refused", "held-out-read", "held-out-read", "held-out-refused"]


def test_a_judged_brief_opens_nothing_more(route: Route, engineer: Account) -> None:
    revision = started_brief(route, engineer)
    play(revision)
    with pytest.raises(Refused, match="the brief is in-review"):
        open_for(revision)


def test_a_measuring_brief_opens_its_own_traffic_alone(route: Route, engineer: Account, traffic: TrafficSet) -> None:
    revision = measuring(frozen(route, engineer, traffic), engineer)
    other = import_traffic(path=SUPPORT_ASSISTANT, name="split anew", by="engineer", service=SERVICE, seed=8)
    with pytest.raises(Refused, match="names this held-out part, so it stays sealed"):
        open_for(revision, other.parts.get(kind="held-out"))


def test_a_draft_has_no_digest_to_open_anything_with(route: Route, engineer: Account, traffic: TrafficSet) -> None:
    source = json.dumps(brief_document(TARGET, traffic))
    draft = create_brief(route=route, source=source, by=engineer)
    BriefRevision.objects.filter(pk=draft.pk).update(traffic_set=traffic, state="measuring")
    draft.refresh_from_db()
    with pytest.raises(Refused, match="no frozen brief"):
        open_for(draft)


def use_as_expected(revision: BriefRevision, *, same_route: bool = False) -> Use:
    """Read once when it was planned, and once for each of eight boots."""
    reads = [one for one in Event.objects.filter(kind="held-out-read") if one.details["brief"] == revision.digest]
    return Use(
        brief_id=revision.brief_id,
        number=revision.number,
        title=revision.title,
        route="support-assistant/chat",
        first_read_at=reads[0].at,
        reads=9,
        same_route=same_route,
    )


def test_traffic_that_nobody_read_has_no_uses(route: Route, engineer: Account, traffic: TrafficSet) -> None:
    revision = frozen(route, engineer, traffic)
    assert (uses_of(traffic), used_before(revision)) == ([], [])
    assert Event.objects.get(kind="brief-freeze").details["held_out_used_before"] == []


def test_an_index_that_is_lost_refuses_the_freeze(
    route: Route, engineer: Account, traffic: TrafficSet, settings: Any
) -> None:
    held.cache_clear()
    digest = traffic.parts.get(kind="held-out").index_digest
    EvidenceStore(settings.EVIDENCE_DIR).forget(digest)
    with pytest.raises(BadBrief) as refused:
        frozen(route, engineer, traffic)
    (problem,) = refused.value.problems
    assert problem.startswith(
        "traffic.set: the index of the set's held-out part can't be read, so nobody knows whether the plan fits: no "
        f"evidence {digest}"
    )


def test_a_second_use_is_said_at_the_freeze_and_marked_for_the_same_route(
    route: Route, engineer: Account, owner: Account, traffic: TrafficSet
) -> None:
    first = started_brief(route, engineer)
    play(first)
    assert uses_of(traffic) == [use_as_expected(first)]
    verdict = first.verdicts.get()
    sign_decision(
        verdict=verdict,
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="request-changes",
        reason="Measure for longer, please.",
    )
    # Its words, and so its digest, are those of the first revision: each has its own readings all the same.
    second = revise_brief(revision=first, by=engineer)
    freeze_brief(revision=second, by=engineer)
    batch = Route.objects.create(service=route.service, slug="batch", name="Batch")
    elsewhere = frozen(batch, engineer, traffic)
    flags = [event.details["held_out_used_before"] for event in Event.objects.filter(kind="brief-freeze")]
    assert flags == [
        [],
        [{"brief": first.brief_id, "revision": 1, "route": "support-assistant/chat", "same_route": True}],
        [{"brief": first.brief_id, "revision": 1, "route": "support-assistant/chat", "same_route": False}],
    ]
    assert used_before(second) == [use_as_expected(first, same_route=True)]
    assert used_before(elsewhere) == [use_as_expected(first)]
    assert used_before(first) == []


def test_the_later_of_two_users_sees_the_earlier_and_not_the_other_way_round(
    route: Route, engineer: Account, owner: Account, traffic: TrafficSet
) -> None:
    first = started_brief(route, engineer)
    play(first)
    second = measuring(frozen(route, engineer, traffic, title="Another question"), engineer)
    play(second)
    assert [(use.brief_id, use.reads) for use in uses_of(traffic)] == [(first.brief_id, 9), (second.brief_id, 9)]
    assert [use.brief_id for use in used_before(second)] == [first.brief_id]
    assert used_before(first) == []


def test_the_same_rows_in_another_set_are_a_second_use(
    route: Route, engineer: Account, owner: Account, traffic: TrafficSet
) -> None:
    first = started_brief(route, engineer)
    play(first)
    copy = TrafficSet.objects.create(
        name="copy", digest="e" * 64, rows=traffic.rows, service=traffic.service, created_by="engineer"
    )
    for part in traffic.parts.all():
        TrafficPart.objects.create(
            set=copy, kind=part.kind, digest=part.digest, rows=part.rows, statistics=part.statistics
        )
    second = frozen(route, engineer, copy)
    assert [use.brief_id for use in used_before(second)] == [first.brief_id]
    play(measuring(second, engineer))
    assert len(used_before(second)) == 1


def test_what_another_split_of_the_same_rows_has_seen_is_used(
    route: Route, engineer: Account, owner: Account, traffic: TrafficSet
) -> None:
    """What one split holds out, another may have tuned on."""
    first = started_brief(route, engineer)
    play(first)
    other = import_traffic(path=SUPPORT_ASSISTANT, name="Split again", by="engineer", service=SERVICE, seed=99)
    second = frozen(route, engineer, other)
    (use,) = used_before(second)
    assert (use.brief_id, use.same_route, use.through) == (first.brief_id, True, str(first.traffic_set))
    assert use.rows > 50
    play(measuring(second, engineer))
    assert [one.brief_id for one in used_before(second)] == [first.brief_id]
    # The first had read its own held-out rows before the second began.
    assert used_before(first) == []


@pytest.mark.parametrize(("first_row", "last_row"), [(0, 569), (1, 570), (40, 570)])
def test_an_export_that_overlaps_has_seen_what_it_holds(
    route: Route, engineer: Account, owner: Account, traffic: TrafficSet, tmp_path: Path, first_row: int, last_row: int
) -> None:
    rows = SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()[first_row:last_row]
    export = tmp_path / "export.jsonl"
    export.write_text("\n".join(rows) + "\n", encoding="utf-8")
    overlapping = import_traffic(path=export, name="Export", by="engineer", service=SERVICE, seed=99)
    first = measuring(frozen(route, engineer, overlapping), engineer)
    advance_brief(revision=first)
    (use,) = used_before(frozen(route, engineer, traffic))
    assert (use.brief_id, use.through, use.rows > 50) == (first.brief_id, "Export", True)


@pytest.fixture
def join(tmp_path: Path) -> Callable[..., TrafficSet]:
    """A trace of the demo's lengths and classes, with the demo's texts joined to it anew."""
    rows = [json.loads(line) for line in SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["prompt_tokens"] = -(-sum(len(one["content"]) for one in row.pop("messages")) // 4)
        row.pop("sampling")
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def joined(seed: int) -> TrafficSet:
        reading = Wanted(trace, donor=SUPPORT_ASSISTANT, seed=seed)
        return import_traffic(
            path=trace, name=f"Joined {seed}", by="engineer", service=SERVICE, seed=seed, reading=reading
        )

    return joined


@pytest.mark.parametrize("joined_first", [True, False])
def test_texts_that_were_joined_again_are_used_whatever_their_times(
    route: Route, engineer: Account, owner: Account, join: Callable[..., TrafficSet], joined_first: bool
) -> None:
    """What one join holds out, another, or the file itself, may have tuned on."""
    other = (
        join(99)
        if joined_first
        else import_traffic(path=SUPPORT_ASSISTANT, name="Itself", by="engineer", service=SERVICE, seed=99)
    )
    first = measuring(frozen(route, engineer, other), engineer)
    advance_brief(revision=first)
    (use,) = used_before(frozen(route, engineer, join(7)))
    assert (use.brief_id, use.through, use.rows > 25) == (first.brief_id, str(other), True)


def test_what_people_ask_every_week_is_no_second_use(
    route: Route, engineer: Account, owner: Account, traffic: TrafficSet, tmp_path: Path
) -> None:
    """A third of this week's prompts were asked last week too, at other times."""
    rows = [json.loads(line) for line in SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows):
        row["arrival_s"] += number % 97
        if number % 3:
            row["messages"][-1]["content"] = row["messages"][-1]["content"][::-1]
    week = tmp_path / "week.jsonl"
    week.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    last_week = import_traffic(path=week, name="Last week", by="engineer", service=SERVICE, seed=7)
    advance_brief(revision=measuring(frozen(route, engineer, last_week), engineer))
    assert used_before(frozen(route, engineer, traffic)) == []


def refusals(route: Route, engineer: Account, traffic: TrafficSet, **changes: Any) -> list[str]:
    with pytest.raises(BadBrief) as refusal:
        frozen(route, engineer, traffic, **changes)
    assert not Event.objects.filter(kind="brief-freeze").exists()
    return refusal.value.problems


def test_lengths_without_text_cannot_be_frozen(route: Route, engineer: Account, traffic: TrafficSet) -> None:
    traffic.imported = {"acceptance": {"usable": False, "why": "lengths"}}
    traffic.save()
    (problem,) = refusals(route, engineer, traffic)
    assert problem.startswith("traffic.set: this set holds lengths and no text")
    assert problem.endswith("import the file again with a donor of real text")


DEADLINE = {"first_token_s": 1.0, "completion_s": 2.0}
REPLAY = {"name": "peak", "arrival": {"process": "replay", "time_scale": 1.0}, "duration_s": 30}


def test_times_that_nobody_recorded_cannot_be_replayed(route: Route, engineer: Account, traffic: TrafficSet) -> None:
    levels = [*brief_document(TARGET, traffic)["levels"][:2], REPLAY]
    traffic.imported = {"needs_arrival_process": True}
    traffic.save()
    assert refusals(route, engineer, traffic, levels=levels) == [
        "levels.2.arrival.process: level peak is a replay, but the times of this traffic were never recorded: "
        "choose another arrival process"
    ]
    frozen(route, engineer, traffic)


def test_a_set_whose_text_was_deleted_cannot_be_frozen(route: Route, engineer: Account, traffic: TrafficSet) -> None:
    traffic.text_deleted_at, traffic.text_deleted_by = traffic.created_at, "olga"
    traffic.save()
    (problem,) = refusals(route, engineer, traffic)
    assert "was deleted on" in problem
    assert "by olga, so there is nothing to send: import fresh traffic" in problem


def test_a_levels_own_deadline_for_a_class_that_nobody_has_is_refused(
    route: Route, engineer: Account, traffic: TrafficSet
) -> None:
    levels = brief_document(TARGET, traffic)["levels"]
    levels[1]["deadlines"] = {"chat": DEADLINE, "cat": DEADLINE}
    (problem,) = refusals(route, engineer, traffic, levels=levels)
    assert problem.startswith("levels.1.deadlines.cat: no request of both parts is of the class 'cat'; there are chat")
