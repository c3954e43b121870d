from __future__ import annotations

import json
from typing import Any

from django.db import models

from decisions.models.brief import BriefRevision


class TakenLook(models.Model):
    """A planned look on the way, once taken: what the rules made of the evidence that there was. It is no verdict of
    the brief, and its figures are shown to nobody before there is one."""

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="looks")
    number = models.PositiveSmallIntegerField()
    pairs = models.PositiveIntegerField()
    result = models.CharField(max_length=12)
    content = models.BinaryField()
    digest = models.CharField(max_length=64)
    evidence_digest = models.CharField(max_length=64, help_text="of the list of evidence digests it was computed from")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        # A look spends its share of alpha once, whoever asks and however often.
        constraints = [models.UniqueConstraint(fields=["revision", "number"], name="one_taking_per_look")]

    def __str__(self) -> str:
        return f"look {self.number} of {self.revision}"

    @property
    def document(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(bytes(self.content))
        return loaded
