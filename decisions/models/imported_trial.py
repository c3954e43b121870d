from django.db import models
from django.db.models import Q

from decisions.models.brief import BriefRevision


class ImportedTrial(models.Model):
    """A trial that somebody else measured, brought to a revision to be looked at.

    It is of no campaign and no boot, which is all that a verdict is computed from.
    """

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="imported_trials")
    arm = models.CharField(max_length=60, help_text="'baseline', or the candidate's name in the brief")
    level = models.CharField(max_length=30)
    tool = models.CharField(max_length=20)
    file_name = models.CharField(max_length=200)
    file_digest = models.CharField(max_length=64, help_text="of the result file as it lay there; it isn't kept")
    run = models.PositiveIntegerField(help_text="which run of the file, from 1")
    note = models.CharField(max_length=300, blank=True, help_text="who measured it, and where")
    summary = models.JSONField(default=dict)
    records_digest = models.CharField(max_length=64, blank=True, help_text="empty: the file tells of no single request")
    manifest_digest = models.CharField(max_length=64)
    imported_by = models.CharField(max_length=150)
    imported_at = models.DateTimeField(auto_now_add=True)
    set_aside_at = models.DateTimeField(null=True)
    set_aside_by = models.CharField(max_length=150, blank=True)
    set_aside_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            # The same numbers can't stand for both arms, nor twice.
            models.UniqueConstraint(
                fields=["revision", "file_digest", "run"],
                condition=Q(set_aside_at=None),
                name="a_run_is_imported_once",
            )
        ]

    def __str__(self) -> str:
        return f"imported trial {self.pk} ({self.arm} at {self.level})"
