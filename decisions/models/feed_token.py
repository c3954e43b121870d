from __future__ import annotations

from django.conf import settings
from django.db import models


class FeedToken(models.Model):
    """The secret in the address of a person's feeds, for programs that can't sign in. It is stored nowhere itself."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="feed_tokens")
    prefix = models.CharField(max_length=12, help_text="how the secret begins, to tell tokens apart")
    # The secret is 256 random bits: a slow hash would protect it no better.
    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the secret")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"feed token {self.pk} ({self.prefix}…)"
