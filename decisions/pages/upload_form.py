"""What every form that takes a file shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms


class UploadForm(forms.Form):
    """What is missing is said by us, beside the field, not by the browser in its own words."""

    use_required_attribute = False

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(label of the field, what is wrong with it)"""
        return [(str(self.fields[name].label), str(error)) for name, errors in self.errors.items() for error in errors]

    @property
    def said(self) -> Mapping[str, Any]:
        """What the fields show: what was sent, or what they begin with."""
        return self.data if self.is_bound else self.initial
