from __future__ import annotations

import json
from typing import Any

from django.db import models


class Event(models.Model):
    """One line of the ledger. ``content`` holds the exact bytes hashed; the other columns repeat them for filters.

    ``service`` and ``route``: where it belonged when it was written, as slugs; null: to none, or nobody knew. Events
    from before they stood in the bytes have them in the columns alone, as migration 0012 found them.

    Triggers of both databases refuse UPDATE, DELETE and TRUNCATE. SQLite rebuilds a table when a column changes and
    loses its triggers then: a migration that alters this table must put them back (see migration 0002).
    """

    sequence = models.PositiveBigIntegerField(primary_key=True)
    kind = models.CharField(max_length=60, db_index=True)
    actor = models.CharField(max_length=150, db_index=True)
    subject = models.CharField(max_length=200, db_index=True)
    at = models.DateTimeField()
    content = models.BinaryField()
    previous = models.CharField(max_length=64, unique=True)
    hash = models.CharField(max_length=64)
    service = models.CharField(max_length=50, null=True)
    route = models.CharField(max_length=50, null=True)

    class Meta:
        ordering = ["sequence"]
        # A page of the filtered history is read off one of these, from a number on, without sorting.
        indexes = [
            *(
                models.Index(fields=[name, "sequence"], name=f"event_{name}")
                for name in ("kind", "actor", "service", "route")
            ),
            models.Index(fields=["at"], name="event_at"),
        ]

    def __str__(self) -> str:
        return f"#{self.sequence} {self.kind}"

    @property
    def details(self) -> dict[str, Any]:
        """Nothing where the bytes are no event any more: whoever lists it can list it, and verifying says so."""
        try:
            return dict(json.loads(bytes(self.content))["details"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return {}

    @property
    def text(self) -> str:
        """What was hashed; where it is no text any more, what can be read of it."""
        return bytes(self.content).decode(errors="replace")
