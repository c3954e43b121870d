from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from decisions.models.behaviour_result import BehaviourResult
from decisions.rules.demonstrations import MODES, Implementation


class Demonstration(models.Model):
    """Somebody's word that an engine keeps a model's behaviour under a method of speculation, and what it rests on.

    It is of an engine and not of a service. No verdict is computed from it; the gates of a brief say whether there is
    one.
    """

    engine = models.CharField(max_length=20, help_text="vllm, remote or simulated, as in a configuration's runtime")
    distribution = models.CharField(max_length=120)
    version = models.CharField(max_length=120)
    method = models.CharField(max_length=30, help_text="of speculation")
    mode = models.CharField(max_length=12, choices=list(MODES.items()), help_text="of sampling")
    # The suite's result lies in the evidence store under it.
    result_digest = models.CharField(max_length=64)
    evidence: models.JSONField[Any, Any] = models.JSONField(
        help_text="digests of the answers, by the server that gave them"
    )
    summary: models.JSONField[Any, Any] = models.JSONField(
        help_text="what the result said, without a word of an answer"
    )
    result = models.ForeignKey(
        BehaviourResult, on_delete=models.PROTECT, null=True, related_name="demonstrations", help_text="null: a file"
    )
    note = models.CharField(max_length=1000, blank=True)
    vouched_by = models.CharField(max_length=150)
    vouched_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_by = models.CharField(max_length=150, blank=True)
    withdrawn_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["engine", "distribution", "version", "method", "mode", "result_digest"],
                condition=Q(withdrawn_at=None),
                name="a_result_is_vouched_for_once",
            )
        ]

    def __str__(self) -> str:
        return f"demonstration {self.pk}"

    @property
    def about(self) -> Implementation:
        return Implementation(self.engine, self.distribution, self.version, self.method)
