from django.db import models

from decisions.models.service import Service


class ServiceCases(models.Model):
    """A version of the cases that a service adds to the preserved-behaviour suite. It never changes: a change is a new
    version, and a brief names the one it means by its digest."""

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="cases")
    version = models.PositiveIntegerField(help_text="from 1")
    source = models.TextField(help_text="as written")
    # The exact bytes that were hashed: what is written, without comments and layout.
    content = models.BinaryField()
    digest = models.CharField(max_length=64)
    count = models.PositiveIntegerField(help_text="of cases in it")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["service_id", "version"]
        constraints = [models.UniqueConstraint(fields=["service", "version"], name="one_version_of_a_service_s_cases")]

    def __str__(self) -> str:
        return f"cases of {self.service.slug}, version {self.version}"
