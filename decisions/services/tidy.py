from datetime import timedelta

from django.utils import timezone

from decisions.models import AnsweredPost, Message

ANSWERS_KEPT = timedelta(days=7)
MESSAGES_KEPT = timedelta(days=90)


def tidy() -> None:
    """Forgets what nobody asks for any more: answers to repeated requests, and messages that have come to their end."""
    now = timezone.now()
    AnsweredPost.objects.filter(created_at__lt=now - ANSWERS_KEPT).delete()
    Message.objects.filter(ended_at__lt=now - MESSAGES_KEPT).delete()
