from __future__ import annotations

import json

from django.db import models

from loadtests import configurations


class Configuration(models.Model):
    """A configuration by its digest; the stored bytes are the digested bytes."""

    digest = models.CharField(max_length=64, unique=True)
    content = models.BinaryField()
    label = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.label} {self.digest[:8]}"

    @property
    def document(self) -> configurations.Configuration:
        return configurations.Configuration.model_validate(json.loads(bytes(self.content)))
