from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.db.models import Q

from loadtests.models.configuration import Configuration
from loadtests.models.traffic import TrafficPart


class Campaign(models.Model):
    """An ordered set of trials run for one purpose."""

    class Purpose(models.TextChoices):
        NOISE_FLOOR = "noise-floor"
        TUNING = "tuning"
        HELD_OUT = "held-out"
        BEHAVIOUR = "behaviour"
        FALLBACK = "fallback"

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        STOPPED = "stopped", "stopped: needs a person"
        CANCELLED = "cancelled"

    OPEN = (State.QUEUED, State.RUNNING)

    purpose = models.CharField(max_length=12, choices=Purpose)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    pool = models.CharField(max_length=40)
    part = models.ForeignKey(TrafficPart, on_delete=models.PROTECT, related_name="campaigns")
    brief_digest = models.CharField(max_length=64, help_text="the frozen brief that planned it")
    plan = models.JSONField()
    plan_digest = models.CharField(max_length=64)
    budget_engine_minutes = models.FloatField()
    max_reattempts = models.PositiveSmallIntegerField()
    reason = models.TextField(blank=True)
    requested_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["pool", "state"], name="campaign_queue")]

    def __str__(self) -> str:
        return f"{self.purpose} campaign {self.pk}"


def counted_boots(boots: Iterable[Boot]) -> list[Boot]:
    """Of each place in each campaign the latest attempt, where it finished: what a verdict may rest on."""
    return [boot for boot in latest_attempts(boots) if boot.state == Boot.State.FINISHED]


def latest_attempts(boots: Iterable[Boot]) -> list[Boot]:
    """The last attempt of each place, in the order of campaigns and places."""
    latest: dict[tuple[int, int], Boot] = {}
    for boot in sorted(boots, key=lambda one: (one.campaign_id, one.position, one.attempt)):
        latest[boot.campaign_id, boot.position] = boot
    return list(latest.values())


class Boot(models.Model):
    """One start of one configuration on one accelerator; an attempt that was cut off stays, the next is a new row."""

    class State(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        FINISHED = "finished"
        LOST = "lost"
        CANCELLED = "cancelled"
        VOID = "void", "void: its pair was run again"

    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, related_name="boots")
    pool = models.CharField(max_length=40)
    position = models.PositiveIntegerField(help_text="place in the campaign's order")
    pair = models.PositiveIntegerField(null=True)
    arm = models.CharField(max_length=10, help_text="baseline, candidate, or control in A/A")
    candidate = models.CharField(max_length=60, blank=True, help_text="the candidate's name in the brief")
    configuration = models.ForeignKey(Configuration, on_delete=models.PROTECT, related_name="boots")
    attempt = models.PositiveSmallIntegerField(default=1)
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    reason = models.TextField(blank=True)
    died = models.BooleanField(default=False, help_text="the engine died or could not start: a result, not an accident")

    worker = models.CharField(max_length=120, blank=True)
    host = models.CharField(max_length=120, blank=True)
    claimed_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    # What identifies the engine's process group after the worker is gone: its number and when its leader started.
    engine_group = models.IntegerField(null=True)
    engine_leader_started = models.FloatField(null=True)
    server = models.CharField(max_length=64, blank=True, help_text="unique per engine start")
    facts = models.JSONField(default=dict)
    started_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)
    log_digest = models.CharField(max_length=64, blank=True)
    log_tail = models.TextField(blank=True)

    class Meta:
        ordering = ["campaign_id", "position", "attempt"]
        constraints = [
            models.UniqueConstraint(fields=["campaign", "position", "attempt"], name="one_row_per_attempt"),
            # One trial at a time per accelerator, kept by the database itself.
            models.UniqueConstraint(fields=["pool"], condition=Q(state="running"), name="one_running_boot_per_pool"),
        ]
        indexes = [models.Index(fields=["pool", "state"], name="boot_queue")]

    def __str__(self) -> str:
        return f"boot {self.pk} ({self.arm}, attempt {self.attempt})"

    @property
    def engine_minutes(self) -> float:
        if self.started_at is None or self.stopped_at is None:
            return 0.0
        return (self.stopped_at - self.started_at).total_seconds() / 60


class Trial(models.Model):
    """One load level over one traffic segment within a boot."""

    class State(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        FINISHED = "finished"
        CUT_OFF = "cut-off", "cut off"

    boot = models.ForeignKey(Boot, on_delete=models.PROTECT, related_name="trials")
    position = models.PositiveSmallIntegerField()
    level = models.CharField(max_length=30)
    segment: models.JSONField[Any, Any] = models.JSONField(help_text="first row, row count and seed within the part")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    planned = models.PositiveIntegerField(default=0)
    progress = models.JSONField(default=dict, help_text="planned, sent, ended by status, elapsed seconds")
    summary = models.JSONField(default=dict)
    counters = models.JSONField(default=dict, help_text="engine counters: after minus before")
    findings = models.JSONField(default=list)
    plan_digest = models.CharField(max_length=64, blank=True)
    records_digest = models.CharField(max_length=64, blank=True)
    manifest_digest = models.CharField(max_length=64, blank=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["boot_id", "position"]
        constraints = [models.UniqueConstraint(fields=["boot", "position"], name="one_trial_per_position")]

    def __str__(self) -> str:
        return f"trial {self.pk} ({self.level})"


class SuiteRun(models.Model):
    """What a boot of a behaviour campaign has instead of trials: the preserved-behaviour suite, asked once."""

    boot = models.OneToOneField(Boot, on_delete=models.PROTECT, related_name="suite_run")
    progress: models.JSONField[Any, Any] = models.JSONField(default=dict, help_text="requests planned and answered")
    answers_digest = models.CharField(max_length=64, blank=True, help_text="every answer, in the evidence store")
    findings = models.JSONField(default=list)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"suite of {self.boot}"
