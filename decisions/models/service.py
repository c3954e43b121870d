from django.conf import settings
from django.db import models

from decisions.rules.policy import PRODUCTION


class Service(models.Model):
    """One language model served for one purpose."""

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=120)
    purpose = models.TextField()
    target = models.CharField(max_length=120, help_text="the target model's name")
    pool = models.CharField(max_length=40, help_text="hardware pool; its workers listen on engine.<pool>")
    owners = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="owned_services", blank=True)
    retention_days = models.PositiveIntegerField(
        null=True, blank=True, help_text="days after which the text of its traffic is deleted; empty keeps it"
    )
    # [{"pattern": regular expression, "replacement": text}]: what an import blacks out before anything is stored.
    redactions = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class Route(models.Model):
    """A named way into a service: what a release is for."""

    service = models.ForeignKey(Service, on_delete=models.PROTECT, related_name="routes")
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=120)
    purpose = models.TextField(blank=True)
    environment = models.SlugField(
        max_length=40,
        default=PRODUCTION,
        help_text="what it is for, such as production or staging: its policy is of that",
    )

    class Meta:
        ordering = ["service__slug", "slug"]

    def __str__(self) -> str:
        return f"{self.service.slug}/{self.slug}"
