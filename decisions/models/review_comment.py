from django.conf import settings
from django.db import models

from decisions.models.brief import BriefRevision


class ReviewComment(models.Model):
    """Words about a verdict that decide nothing. Nobody changes or removes one; the ledger has its digest."""

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="comments")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="comments")
    # Names are copied: what was said outlives accounts.
    author_name = models.CharField(max_length=150)
    text = models.TextField()
    written_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"comment {self.pk} by {self.author_name}"
