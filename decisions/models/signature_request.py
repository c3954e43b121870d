from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Q

from decisions.models.brief import BriefRevision
from decisions.models.verdict import Verdict
from decisions.rules.policy import Policy, read_policy


class SignatureRequestQuerySet(models.QuerySet["SignatureRequest"]):
    def open(self, at: datetime) -> SignatureRequestQuerySet:
        """Expiry counts by the clock, whether or not a background task has noticed. A broken glass has to be answered
        for, so its request doesn't lapse."""
        return self.filter(Q(expires_at__gt=at) | Q(glass_broken_at__isnull=False), closed_at=None)

    def lapsed(self, at: datetime) -> SignatureRequestQuerySet:
        return self.filter(closed_at=None, expires_at__lte=at, glass_broken_at=None)


class SignatureRequest(models.Model):
    """The owners are asked to decide on a verdict, under the policy that was in force when they were asked."""

    class Outcome(models.TextChoices):
        APPROVED = "approved"
        REJECTED = "rejected"
        CHANGES_REQUESTED = "changes-requested"
        WITHDRAWN = "withdrawn"
        EXPIRED = "expired"

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="signature_requests")
    verdict = models.ForeignKey(Verdict, on_delete=models.PROTECT, related_name="signature_requests")
    # Copied: a later change of the service's policy is for later requests.
    policy_document: models.JSONField[Any, Any] = models.JSONField()
    policy_version = models.PositiveIntegerField(help_text="0: the policy of a service that has set none")
    environment = models.SlugField(max_length=40)
    bound = models.CharField(max_length=64, help_text="digest of the digests of brief, evidence and verdict")
    opened_by = models.CharField(max_length=150)
    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=20, choices=Outcome, blank=True)
    glass_broken_at = models.DateTimeField(null=True)
    # Set by the background task with its event; whether something has expired or fallen away never rests on it.
    expiry_recorded_at = models.DateTimeField(null=True)
    fall_recorded_at = models.DateTimeField(null=True)

    objects = SignatureRequestQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["revision"], condition=Q(closed_at=None), name="one_open_request_per_revision"
            )
        ]

    def __str__(self) -> str:
        return f"request {self.pk} for signatures on {self.revision}"

    @property
    def policy(self) -> Policy:
        return read_policy(self.policy_document)

    @property
    def told(self) -> dict[str, Any]:
        """What an event says of it."""
        return {
            "request": self.pk,
            "bound": self.bound,
            "policy": self.policy_document,
            "policy_version": self.policy_version,
            "environment": self.environment,
            "expires": self.expires_at.isoformat(),
        }
