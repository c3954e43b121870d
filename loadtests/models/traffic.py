from typing import ClassVar

from django.db import models


class TrafficSet(models.Model):
    """Requests with arrival times; its rows lie in its parts."""

    name = models.CharField(max_length=120)
    # Over the digests of its parts and the stretches of time they were cut from: rows and split in one name.
    digest = models.CharField(max_length=64, unique=True)
    rows = models.PositiveIntegerField()
    source = models.CharField(max_length=200, help_text="name of the file it was read from")
    service = models.CharField(max_length=50, blank=True, help_text="slug of the service whose retention holds")
    imported = models.JSONField(default=dict, help_text="what the import said of the file: docs/traffic.md")
    # By it, and by the digests of parts, sets that hold the same text are known. Lengths alone have none.
    text_digest = models.CharField(
        max_length=64,
        blank=True,
        db_index=True,
        help_text="SHA-256 of the file that its text was read from: its own or, where text was joined, its donor's",
    )
    # What was left out, row by row: problems.jsonl in the evidence store.
    problems_digest = models.CharField(max_length=64, blank=True)
    split = models.JSONField(default=dict, help_text="shares, seed, blocks and near-duplicates of the split")
    statistics = models.JSONField(default=dict)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    text_deleted_at = models.DateTimeField(null=True, blank=True)
    text_deleted_by = models.CharField(max_length=150, blank=True)

    def __str__(self) -> str:
        return self.name


class TrafficPart(models.Model):
    class Kind(models.TextChoices):
        TUNING = "tuning"
        HELD_OUT = "held-out"
        EVALUATION = "evaluation"

    set = models.ForeignKey(TrafficSet, on_delete=models.PROTECT, related_name="parts")
    kind = models.CharField(max_length=12, choices=Kind)
    # The rows lie in the evidence store under this digest.
    digest = models.CharField(max_length=64)
    rows = models.PositiveIntegerField()
    # [start, end) in nanoseconds from the set's start: the time that is this part's own. A replay stays within one.
    stretches = models.JSONField(default=list)
    statistics = models.JSONField(default=dict)
    # Times of arrival and hashes of prompts: what may be known of a part without opening it.
    index_digest = models.CharField(max_length=64, blank=True)
    # What is kept of the rows when their text is deleted: hashes, lengths and times.
    outline_digest = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["set", "kind"], name="one_part_of_a_kind")]

    def __str__(self) -> str:
        return f"{self.set} / {self.kind}"


class TrafficImport(models.Model):
    """A file on its way to a set: what was asked for, how far it is, and what became of it."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        # Refused: the file can't be imported as asked. Failed: a fault of ours.
        REFUSED = "refused"
        FAILED = "failed"
        CANCELLED = "cancelled"

    OPEN: ClassVar = (State.QUEUED, State.RUNNING)

    name = models.CharField(max_length=120)
    service = models.CharField(max_length=50, blank=True)
    file_name = models.CharField(max_length=200)
    file_bytes = models.PositiveBigIntegerField()
    # Name of the uploaded file in the uploads directory; emptied when the file is gone.
    upload = models.CharField(max_length=80)
    options = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    # {"stage": …, "done": bytes or rows, "of": …} in the stage's own unit.
    progress = models.JSONField(default=dict)
    reason = models.TextField(blank=True)
    created_set = models.ForeignKey(TrafficSet, on_delete=models.PROTECT, null=True, related_name="imports")
    requested_by = models.CharField(max_length=150)
    worker = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    beat_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["state"], name="imports_by_state")]

    def __str__(self) -> str:
        return f"import {self.pk} of {self.file_name}"
