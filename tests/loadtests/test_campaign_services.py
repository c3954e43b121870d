"""Campaigns in the database: planned, claimed one at a time, lost, run again as whole pairs, ended."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from decisions.models import Event
from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime, Speculative
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot, Campaign, TrafficPart, TrafficSet, Trial
from loadtests.models.campaign import counted_boots
from loadtests.planning import Purpose
from loadtests.services.beat import beat
from loadtests.services.claim_boot import claim_boot, pools_with_work
from loadtests.services.create_campaign import create_campaign
from loadtests.services.end_campaign import end_campaign
from loadtests.services.finish_boot import finish_boot
from loadtests.services.give_up_boot import declare_fault, lose_silent_boots
from loadtests.services.import_traffic import import_traffic
from loadtests.services.read_part import read_part
from loadtests.services.refused import Refused
from loadtests.traffic.importers import ImportRefused, Wanted
from loadtests.traffic.levels import Arrival, Level

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unsealed")]

BASELINE = Configuration(
    schema="draftproof.configuration/1",
    runtime=Runtime(version="0.32.0"),
    target=Checkpoint(name="target", weights_sha256="a" * 64, tokenizer_sha256="b" * 64),
    hardware=Hardware(pool="cpu", accelerator="cpu"),
)
CANDIDATE = BASELINE.with_speculative(Speculative(method="ngram", num_speculative_tokens=4))
LEVELS = [
    Level(name="quiet", arrival=Arrival(process="constant", rate=0.5), duration_s=6),
    Level(name="peak", arrival=Arrival(process="poisson", rate=2), duration_s=6),
]


@pytest.fixture
def traffic() -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer")


def campaign_of(
    traffic: TrafficSet, purpose: Purpose = "held-out", *, budget: float = 60, attempts: int = 1
) -> Campaign:
    return create_campaign(
        purpose=purpose,
        traffic_set=traffic,
        brief_digest="c" * 64,
        baseline=BASELINE,
        candidates={} if purpose in ("noise-floor", "fallback") else {"ngram-k4": CANDIDATE},
        levels=LEVELS,
        peak="peak",
        pairs=4,
        seed=1,
        deadlines={},
        budget_engine_minutes=budget,
        max_reattempts=attempts,
        by="engineer",
    )


def claim() -> Boot:
    boot = claim_boot(pool="cpu", worker="worker", host="host")
    assert boot is not None
    return boot


def finish(boot: Boot) -> None:
    assert finish_boot(boot=boot, died=False, reason="", log_digest="", log_tail="")


def silence(boot: Boot) -> None:
    Boot.objects.filter(pk=boot.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=60))


def states(campaign: Campaign) -> list[tuple[int, int, str]]:
    return list(campaign.boots.order_by("position", "attempt").values_list("position", "attempt", "state"))


def test_both_arms_of_a_pair_get_the_same_segments_and_the_arms_alternate(traffic: TrafficSet) -> None:
    boots = list(campaign_of(traffic).boots.prefetch_related("trials"))
    assert [boot.pair for boot in boots] == [0, 0, 1, 1, 2, 2, 3, 3]
    for first, second in zip(boots[::2], boots[1::2], strict=True):
        assert {first.arm, second.arm} == {"baseline", "candidate"}
        assert [(t.level, t.segment) for t in first.trials.all()] == [(t.level, t.segment) for t in second.trials.all()]
    for block in (boots[:4], boots[4:]):
        arms = [boot.arm for boot in block]
        assert arms == arms[::-1]
    used = [row for boot in boots[::2] for trial in boot.trials.all() for row in trial.segment["rows"]]
    assert len(used) == len(set(used))


def test_a_pool_runs_one_boot_at_a_time(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    boot = claim()
    assert (boot.position, boot.state) == (0, Boot.State.RUNNING)
    assert claim_boot(pool="cpu", worker="other", host="host") is None
    assert pools_with_work() == set()
    finish(boot)
    assert pools_with_work() == {"cpu"}
    assert claim().position == 1
    campaign.refresh_from_db()
    assert campaign.state == Campaign.State.RUNNING


def test_a_campaign_is_done_when_every_place_has_finished(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    for _ in range(8):
        finish(claim())
    campaign.refresh_from_db()
    assert campaign.state == Campaign.State.DONE
    assert claim_boot(pool="cpu", worker="worker", host="host") is None


def test_a_silent_boot_is_lost_and_its_whole_pair_runs_again(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    finish(claim())
    second = claim()
    assert lose_silent_boots() == []
    silence(second)
    assert lose_silent_boots() == [second]
    assert states(campaign)[:4] == [(0, 1, "void"), (0, 2, "waiting"), (1, 1, "lost"), (1, 2, "waiting")]
    assert not beat(boot=second, trial=None, progress=None)
    assert not finish_boot(boot=second, died=False, reason="", log_digest="", log_tail="")
    again = claim()
    assert (again.position, again.attempt) == (0, 2)
    assert [t.segment for t in again.trials.all()] == [
        t.segment for t in Trial.objects.filter(boot__position=0, boot__attempt=1)
    ]


def test_only_the_last_attempt_of_a_place_counts(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    finish(claim())
    silence(claim())
    lose_silent_boots()
    for _ in range(8):
        finish(claim())
    counted = counted_boots(campaign.boots.all())
    assert [(boot.position, boot.attempt) for boot in counted[:3]] == [(0, 2), (1, 2), (2, 1)]
    assert len(counted) == 8


def test_attempts_beyond_the_brief_stop_the_campaign(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic, attempts=1)
    for _ in range(2):
        silence(claim())
        lose_silent_boots()
    campaign.refresh_from_db()
    assert campaign.state == Campaign.State.STOPPED
    assert "the brief allows 1 further attempts" in campaign.reason
    assert not campaign.boots.filter(state="waiting").exists()


def test_a_tuning_boot_that_is_lost_runs_again_alone(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic, "tuning")
    assert [boot.arm for boot in campaign.boots.all()] == ["baseline", "candidate", "baseline"]
    silence(claim())
    lose_silent_boots()
    assert states(campaign) == [(0, 1, "lost"), (0, 2, "waiting"), (1, 1, "waiting"), (2, 1, "waiting")]


def test_a_declared_fault_runs_the_pair_again_and_keeps_both_attempts(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    first = claim()
    finish(first)
    finish(claim())
    first.refresh_from_db()
    declare_fault(boot=first, reason="the host was rebooted", actor="operator")
    assert states(campaign)[:4] == [(0, 1, "void"), (0, 2, "waiting"), (1, 1, "void"), (1, 2, "waiting")]
    assert Event.objects.get(kind="fault-declared").details["reason"] == "the host was rebooted"
    waiting = campaign.boots.filter(state="waiting").first()
    assert waiting is not None
    with pytest.raises(Refused, match="only a finished boot"):
        declare_fault(boot=waiting, reason="no reason at all", actor="operator")


def test_a_used_up_budget_stops_the_campaign_and_says_so(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic, budget=1)
    boot = claim()
    finish(boot)
    now = timezone.now()
    Boot.objects.filter(pk=boot.pk).update(started_at=now - timedelta(minutes=2), stopped_at=now)
    assert claim_boot(pool="cpu", worker="worker", host="host") is None
    campaign.refresh_from_db()
    assert campaign.state == Campaign.State.STOPPED
    assert "2.0 of the 1.0 minutes" in campaign.reason


def test_a_cancelled_campaign_lets_go_of_its_boots(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    boot = claim()
    end_campaign(campaign=campaign, state=Campaign.State.CANCELLED, reason="not needed", actor="engineer")
    assert not beat(boot=boot, trial=None, progress=None)
    assert not end_campaign(campaign=campaign, state=Campaign.State.DONE, reason="", actor="engineer")
    assert set(campaign.boots.values_list("state", flat=True)) == {"running", "cancelled"}


@pytest.mark.parametrize("purpose", ["noise-floor", "tuning", "fallback"])
def test_the_held_out_part_is_sealed_for_every_other_purpose(traffic: TrafficSet, purpose: str) -> None:
    part = TrafficPart.objects.get(set=traffic, kind="held-out")
    with pytest.raises(Refused, match="may not read the held-out part"):
        read_part(part=part, purpose=purpose, brief_digest="c" * 64, reader="boot 1", actor="worker")
    assert Event.objects.get(kind="held-out-refused").details["purpose"] == purpose


def test_reading_the_held_out_part_is_an_event(traffic: TrafficSet) -> None:
    part = TrafficPart.objects.get(set=traffic, kind="held-out")
    rows = read_part(part=part, purpose="held-out", brief_digest="c" * 64, reader="boot 1", actor="worker")
    assert len(rows) == part.rows
    assert Event.objects.get(kind="held-out-read").details["reader"] == "boot 1"


def test_the_same_file_is_one_set(traffic: TrafficSet) -> None:
    assert import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer") == traffic
    assert sum(part.rows for part in traffic.parts.all()) == traffic.rows == 570


def test_a_bad_file_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(SUPPORT_ASSISTANT.read_bytes() + b'{"id": "last"}\n')
    with pytest.raises(ImportRefused, match=r"bad\.jsonl, line 571, field messages: missing"):
        import_traffic(path=path, name="bad", by="engineer", reading=Wanted(path, refuse=True))
    assert not TrafficSet.objects.exists()


def test_a_plan_that_needs_more_held_out_traffic_is_refused(traffic: TrafficSet) -> None:
    long = [Level(name="peak", arrival=Arrival(process="constant", rate=20), duration_s=60)]
    with pytest.raises(ValueError, match="the held-out part has"):
        create_campaign(
            purpose="held-out",
            traffic_set=traffic,
            brief_digest="c" * 64,
            baseline=BASELINE,
            candidates={"ngram-k4": CANDIDATE},
            levels=long,
            peak="peak",
            pairs=4,
            seed=1,
            deadlines={},
            budget_engine_minutes=60,
            max_reattempts=1,
            by="engineer",
        )
    assert not Campaign.objects.exists()


def test_a_fault_lets_the_partner_go_that_is_just_running(traffic: TrafficSet) -> None:
    campaign = campaign_of(traffic)
    first = claim()
    finish(first)
    second = claim()
    first.refresh_from_db()
    declare_fault(boot=first, reason="the host was rebooted", actor="operator")
    assert not beat(boot=second, trial=None, progress=None)
    assert states(campaign)[:4] == [(0, 1, "void"), (0, 2, "waiting"), (1, 1, "void"), (1, 2, "waiting")]
