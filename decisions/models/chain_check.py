from __future__ import annotations

from django.db import models


class ChainCheck(models.Model):
    """How far the history has been verified: the one row, which nothing but pages rests on. It is found anew from the
    ledger whenever somebody empties the table."""

    verified_to = models.PositiveBigIntegerField(default=0, help_text="number of the last event that is known to hold")
    head = models.CharField(max_length=64, help_text="that event's hash")
    verified_at = models.DateTimeField(null=True)
    # A walk from the first event on, which may take several turns; none goes on where it began at no time.
    walked_to = models.PositiveBigIntegerField(default=0)
    walked_head = models.CharField(max_length=64, blank=True)
    walk_began_at = models.DateTimeField(null=True)
    whole_at = models.DateTimeField(null=True, help_text="when the last walk from the first event on ended")
    checkpoint = models.PositiveBigIntegerField(default=0, help_text="key of the last checkpoint held against it")
    fault = models.TextField(blank=True, help_text="what doesn't hold; only a whole walk takes it back")
    fault_event = models.PositiveBigIntegerField(null=True)
    fault_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"verified to event {self.verified_to}"
