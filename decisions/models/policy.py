from __future__ import annotations

from typing import Any

from django.db import models

from decisions.models.service import Service
from decisions.rules.policy import Policy, read_policy


class SigningPolicy(models.Model):
    """A version of what a service asks of signatures on routes of one environment. It never changes: a change is a new
    version. Where there is none, the policy is ``rules.policy.DEFAULT``, version 0."""

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="policies")
    environment = models.SlugField(max_length=40)
    version = models.PositiveIntegerField(help_text="from 1")
    document: models.JSONField[Any, Any] = models.JSONField(help_text="as rules.policy.Policy has it")
    reason = models.TextField(help_text="why it was set")
    set_by = models.CharField(max_length=150)
    set_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["service_id", "environment", "version"]
        constraints = [
            models.UniqueConstraint(
                fields=["service", "environment", "version"], name="one_version_of_a_policy_per_environment"
            )
        ]

    def __str__(self) -> str:
        return f"policy of {self.service.slug} in {self.environment}, version {self.version}"

    @property
    def policy(self) -> Policy:
        return read_policy(self.document)
