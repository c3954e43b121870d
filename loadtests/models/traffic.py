from django.db import models


class TrafficSet(models.Model):
    """Requests with arrival times; its rows lie in its parts."""

    name = models.CharField(max_length=120)
    digest = models.CharField(max_length=64, unique=True)
    rows = models.PositiveIntegerField()
    source = models.CharField(max_length=200, help_text="name of the file it was read from")
    split = models.JSONField(default=dict, help_text="shares, seed and block length of the split")
    statistics = models.JSONField(default=dict)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class TrafficPart(models.Model):
    class Kind(models.TextChoices):
        TUNING = "tuning"
        HELD_OUT = "held-out"
        EVALUATION = "evaluation"

    set = models.ForeignKey(TrafficSet, on_delete=models.PROTECT, related_name="parts")
    kind = models.CharField(max_length=12, choices=Kind)
    # The rows lie in the evidence store under this digest.
    digest = models.CharField(max_length=64)
    rows = models.PositiveIntegerField()
    statistics = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["set", "kind"], name="one_part_of_a_kind")]

    def __str__(self) -> str:
        return f"{self.set} / {self.kind}"
