from django.conf import settings
from django.db import models


class FreshSignIn(models.Model):
    """Somebody signed in anew at the single sign-on, by their id token's ``auth_time``: good for one act, soon."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="fresh_sign_ins")
    auth_time = models.DateTimeField(help_text="when they proved who they are there")
    received_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            # The same proof counts once, however often the provider repeats it.
            models.UniqueConstraint(fields=["person", "auth_time"], name="one_fresh_sign_in_per_auth_time")
        ]

    def __str__(self) -> str:
        return f"sign-in of {self.person_id} at {self.auth_time:%Y-%m-%d %H:%M:%S}"
