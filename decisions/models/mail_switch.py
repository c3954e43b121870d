from django.conf import settings
from django.db import models


class MailSwitch(models.Model):
    """Whether a person wants mail of a kind of happening. Without one it is as ``rules.notices.HAPPENINGS`` says."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="mail_switches")
    happening = models.CharField(max_length=20)
    on = models.BooleanField()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["person", "happening"], name="one_mail_switch_per_happening")]

    def __str__(self) -> str:
        return f"{self.happening} {'on' if self.on else 'off'}"
