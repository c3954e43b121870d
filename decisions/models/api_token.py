from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def valid(self, at: datetime) -> ApiTokenQuerySet:
        """A token dies with its person's account, at once."""
        return self.filter(revoked_at=None, expires_at__gt=at, person__is_active=True)


class ApiToken(models.Model):
    """With it a program acts for a person, within its scopes. The secret itself is stored nowhere."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="api_tokens")
    name = models.CharField(max_length=80, help_text="what it is for")
    prefix = models.CharField(max_length=12, help_text="how the secret begins, to tell tokens apart")
    # The secret is 256 random bits: a slow hash would protect it no better.
    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the secret")
    scopes: models.JSONField[Any, Any] = models.JSONField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"token {self.pk} ({self.prefix}…)"


class AnsweredPost(models.Model):
    """What was answered to a POST with an Idempotency-Key, for whoever sends it again. Without a status the first one
    is still being answered, or its process ended before it could say what became of it."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    asked = models.CharField(max_length=64, help_text="digest of method, address and body")
    status = models.PositiveSmallIntegerField(null=True)
    content = models.BinaryField(null=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["person", "key"], name="one_answer_per_idempotency_key")]

    def __str__(self) -> str:
        return f"answer to {self.key}"
