from __future__ import annotations

from typing import Any

from django.db import models

from decisions.models.brief import BriefRevision
from loadtests.models import Campaign


class BehaviourResult(models.Model):
    """What the preserved-behaviour suite made of the answers of a campaign's boots: its bytes lie in the evidence store
    under ``digest``. Answers that were asked again after a fault give another row."""

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="behaviour_results")
    campaign = models.ForeignKey(Campaign, on_delete=models.PROTECT, related_name="behaviour_results")
    answers: models.JSONField[Any, Any] = models.JSONField(help_text="digest of the answers by arm")
    digest = models.CharField(max_length=64)
    outcome = models.CharField(max_length=20)
    sentence = models.TextField()
    cases = models.PositiveIntegerField(help_text="those that held or broke")
    broken = models.JSONField(default=list, help_text="ids of the broken cases")
    exercised = models.BooleanField(help_text="drafts were both accepted and rejected")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"behaviour of {self.revision}: {self.outcome}"
