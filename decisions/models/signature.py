from django.conf import settings
from django.db import models

from decisions.models.brief import BriefRevision
from decisions.models.signature_request import SignatureRequest
from decisions.models.verdict import Verdict


class Signature(models.Model):
    """A decision owner's signed act on a verdict, bound to the digests of brief, evidence and verdict."""

    class Meaning(models.TextChoices):
        APPROVE = "approve", "Approve: this configuration may run on the route"
        REJECT = "reject", "Reject: this configuration may not run"
        REQUEST_CHANGES = "request-changes", "Request changes: a new revision is needed"
        BREAK_GLASS = "break-glass", "Break the glass: this configuration may run on the route until the owners decide"

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="signatures")
    verdict = models.ForeignKey(Verdict, on_delete=models.PROTECT, related_name="signatures")
    request = models.ForeignKey(
        SignatureRequest,
        on_delete=models.PROTECT,
        null=True,
        related_name="signatures",
        help_text="null: signed before there were requests",
    )
    signer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="signatures")
    # Names are copied: evidence outlives accounts.
    signer_name = models.CharField(max_length=150)
    signer_username = models.CharField(max_length=150)
    authentication = models.CharField(max_length=40, help_text="how the signer proved who they are, at the signature")
    meaning = models.CharField(max_length=20, choices=Meaning)
    reason = models.TextField()
    statement = models.BinaryField(help_text="the exact statement that was shown and signed")
    digest = models.CharField(max_length=64, help_text="of the statement")
    bound = models.CharField(max_length=64, help_text="digest of the digests of brief, evidence and verdict")
    signed_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            # The same person counts once towards a quorum.
            models.UniqueConstraint(
                fields=["request", "signer", "meaning"], name="one_signature_per_person_and_meaning"
            )
        ]

    def __str__(self) -> str:
        return f"{self.meaning} by {self.signer_name}"

    @property
    def in_part(self) -> bool:
        """Whether it was one of several that the decision takes, and no decision of this meaning came of them yet."""
        wanted = {"approve": "approved", "reject": "rejected"}.get(self.meaning)
        return wanted is not None and self.request is not None and self.request.outcome != wanted
