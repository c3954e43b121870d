from __future__ import annotations

from django.db import models

from decisions.models.service import Service


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    def enabled_for(self, service: Service | None) -> EndpointQuerySet:
        """Those of the whole installation, and those of the service."""
        own = models.Q(service=None) | models.Q(service=service) if service else models.Q(service=None)
        return self.filter(own, disabled_at=None)


class Endpoint(models.Model):
    """An address that messages are posted to, of a service or of the whole installation.

    Address and secret are needed again at each message, so they can't be hashed: they are encrypted, see
    ``decisions.at_rest``.
    """

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack"

    service = models.ForeignKey(Service, on_delete=models.PROTECT, null=True, related_name="endpoints")
    kind = models.CharField(max_length=10, choices=Kind)
    name = models.CharField(max_length=80, help_text="who reads there")
    shown = models.CharField(max_length=300, help_text="its host: the rest of an address is often its key")
    address = models.TextField(help_text="encrypted")
    secret = models.TextField(blank=True, help_text="encrypted; Slack has none")
    # For a day after a change messages carry the signature of both.
    old_secret = models.TextField(blank=True, help_text="encrypted")
    secret_set_at = models.DateTimeField()
    given_up = models.PositiveIntegerField(default=0, help_text="messages given up since the last that arrived")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    disabled_at = models.DateTimeField(null=True)
    disabled_note = models.TextField(blank=True)

    objects = EndpointQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} “{self.name}”"

    @property
    def told(self) -> dict[str, object]:
        """What an event says of it: neither address nor secret."""
        named = {"service": self.service.slug} if self.service else {}
        return {"name": self.name, "kind": self.kind, "host": self.shown, **named}
