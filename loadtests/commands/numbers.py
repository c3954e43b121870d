"""Numbers that a command takes. What can't be used is refused under the option's own name."""

import math
from typing import Any

import click
from pydantic import BaseModel


class Number(click.FloatRange):
    """A finite one: nan is in every range of click's, and inf in those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


def number_for(model: type[BaseModel], field: str) -> Number:
    """In the range of the field that it becomes."""
    told = {
        bound: limit
        for one in model.model_fields[field].metadata
        for bound in ("ge", "gt", "le", "lt")
        if (limit := getattr(one, bound, None)) is not None
    }
    return Number(
        min=told.get("ge", told.get("gt")),
        max=told.get("le", told.get("lt")),
        min_open="gt" in told,
        max_open="lt" in told,
    )
