from django.conf import settings
from django.db import models

from decisions.models.brief import BriefRevision
from decisions.models.verdict import Verdict


class Signature(models.Model):
    """A decision owner's signed act on a verdict, bound to the digests of brief, evidence and verdict."""

    class Meaning(models.TextChoices):
        APPROVE = "approve", "Approve: this configuration may run on the route"
        REJECT = "reject", "Reject: this configuration may not run"
        REQUEST_CHANGES = "request-changes", "Request changes: a new revision is needed"

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="signatures")
    verdict = models.ForeignKey(Verdict, on_delete=models.PROTECT, related_name="signatures")
    signer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="signatures")
    # Names are copied: evidence outlives accounts.
    signer_name = models.CharField(max_length=150)
    meaning = models.CharField(max_length=20, choices=Meaning)
    reason = models.TextField()
    statement = models.BinaryField(help_text="the exact statement that was shown and signed")
    digest = models.CharField(max_length=64)
    signed_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.meaning} by {self.signer_name}"
