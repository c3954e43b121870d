from functools import cached_property
from typing import NoReturn

from django.contrib.auth.models import AbstractUser
from django.db import models


class Account(AbstractUser):
    """A person. What someone may do comes from groups: engineer, owner, auditor, operator.

    An account is deactivated and never deleted, so its username never stands for somebody else.
    """

    # Somebody else knows it: an operator who has made the account, or set the password anew.
    must_change_password = models.BooleanField(default=False)

    @cached_property
    def group_names(self) -> frozenset[str]:
        return frozenset(self.groups.values_list("name", flat=True))

    def delete(self, *args: object, **more: object) -> NoReturn:
        raise TypeError("an account is deactivated, never deleted: what it did stays in the history under its name")
