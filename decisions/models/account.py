from functools import cached_property

from django.contrib.auth.models import AbstractUser


class Account(AbstractUser):
    """A person. What someone may do comes from groups: engineer, owner, auditor, operator."""

    @cached_property
    def group_names(self) -> frozenset[str]:
        return frozenset(self.groups.values_list("name", flat=True))
