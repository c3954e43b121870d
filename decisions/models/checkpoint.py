from __future__ import annotations

from django.db import models


class Checkpoint(models.Model):
    """The ledger's head at a time, signed. ``content`` holds the envelope; the other columns repeat what is in it.

    Like the ledger, the table is written once: triggers refuse everything else (migration 0010).
    """

    size = models.PositiveBigIntegerField(db_index=True, help_text="number of the last event that it is over")
    head = models.CharField(max_length=64, help_text="that event's hash")
    at = models.DateTimeField()
    key_id = models.CharField(max_length=64)
    content = models.BinaryField()
    digest = models.CharField(max_length=64, unique=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"checkpoint over event {self.size}"
