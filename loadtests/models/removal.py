from django.db import models


class Removal(models.Model):
    """A file that the evidence store is to forget: nothing names it any more. The row goes once the file is gone, or
    when something names it again."""

    digest = models.CharField(max_length=64, unique=True)
    asked_at = models.DateTimeField(auto_now_add=True)
    # Of the last try that failed, and why.
    tried_at = models.DateTimeField(null=True)
    trouble = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"removal of {self.digest}"
