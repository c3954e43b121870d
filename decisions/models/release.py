from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from decisions.models.brief import BriefRevision
from decisions.models.service import Route
from decisions.models.signature import Signature
from loadtests.models import Configuration


class ReleaseQuerySet(models.QuerySet["Release"]):
    def in_force(self, at: datetime) -> ReleaseQuerySet:
        """Expiry counts by the clock, whether or not a background task has noticed."""
        return self.filter(revoked_at=None, superseded_at=None, expires_at__gt=at)

    def expired(self, at: datetime) -> ReleaseQuerySet:
        return self.filter(revoked_at=None, superseded_at=None, expires_at__lte=at)


class Release(models.Model):
    """An approved configuration in force on a route, with its tested range, fallback and expiry."""

    route = models.ForeignKey(Route, on_delete=models.PROTECT, related_name="releases")
    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="releases")
    signature = models.OneToOneField(Signature, on_delete=models.PROTECT, related_name="release")
    configuration = models.ForeignKey(Configuration, on_delete=models.PROTECT, related_name="releases")
    fallback = models.ForeignKey(Configuration, on_delete=models.PROTECT, related_name="+")
    tested_range = models.JSONField()
    released_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    superseded_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=150, blank=True)
    revoke_reason = models.TextField(blank=True)
    # Set by the background task with their events; whether a release has expired never rests on it.
    expiry_recorded_at = models.DateTimeField(null=True)
    end_announced_at = models.DateTimeField(null=True)

    objects = ReleaseQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["route"],
                condition=Q(revoked_at=None, superseded_at=None),
                name="one_release_in_force_per_route",
            )
        ]

    def __str__(self) -> str:
        return f"release {self.pk} on {self.route}"
