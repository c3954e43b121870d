from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models

from decisions.models.endpoint import Endpoint


class MessageQuerySet(models.QuerySet["Message"]):
    def due(self, at: datetime) -> MessageQuerySet:
        return self.filter(state=Message.State.WAITING, next_at__lte=at)


class Message(models.Model):
    """The outbox: what one person or one endpoint is to be told. Written in the transaction of the event, sent after
    it, kept for three months."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SENDING = "sending"
        SENT = "sent"
        GIVEN_UP = "given-up"

    # A receiver that gets the same one twice knows it by this.
    name = models.CharField(max_length=40, unique=True, help_text="webhook-id, and the mail's Message-ID")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="messages")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, null=True, related_name="messages")
    event = models.PositiveBigIntegerField(help_text="its number in the ledger")
    kind = models.CharField(max_length=60, help_text="of the event")
    happening = models.CharField(max_length=20, blank=True)
    service = models.CharField(max_length=50, blank=True, help_text="slug")
    subject = models.CharField(max_length=200)
    actor = models.CharField(max_length=150)
    at = models.DateTimeField(help_text="of the event")
    sentence = models.TextField()
    path = models.CharField(max_length=300, help_text="of the page, on this site")

    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    status = models.PositiveSmallIntegerField(null=True, help_text="of the last HTTP answer")
    answer = models.TextField(blank=True, help_text="the beginning of the last answer, or why there was none")

    objects = MessageQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        # What a sender asks for, every few seconds.
        indexes = [models.Index(fields=["state", "next_at"], name="message_due")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(person__isnull=True) ^ models.Q(endpoint__isnull=True),
                name="a_message_has_one_receiver",
            )
        ]

    def __str__(self) -> str:
        return f"message {self.name}"
