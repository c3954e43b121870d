from __future__ import annotations

import json
from typing import Any

from django.db import models


class Event(models.Model):
    """One line of the ledger. ``content`` holds the exact bytes hashed; the other columns repeat them for filters.

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

    class Meta:
        ordering = ["sequence"]

    def __str__(self) -> str:
        return f"#{self.sequence} {self.kind}"

    @property
    def details(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(bytes(self.content))["details"]
        return loaded
