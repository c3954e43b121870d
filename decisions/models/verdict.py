from __future__ import annotations

import json
from typing import Any

from django.db import models

from decisions.models.brief import BriefRevision


class Verdict(models.Model):
    """What the rules made of the evidence: the stored bytes are the digested bytes."""

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="verdicts")
    result = models.CharField(max_length=12)
    sentence = models.TextField()
    content = models.BinaryField()
    digest = models.CharField(max_length=64, unique=True)
    evidence_digest = models.CharField(max_length=64, help_text="of the list of evidence digests it was computed from")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.result} {self.digest[:8]}"

    @property
    def document(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(bytes(self.content))
        return loaded
