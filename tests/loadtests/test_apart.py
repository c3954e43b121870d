"""A process of its own is bounded, or refused."""

import math
import os

import pytest

from loadtests.apart import bound


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_no_time_is_no_limit(seconds: float) -> None:
    with pytest.raises(ValueError, match="is no limit: say a number of seconds above 0"):
        bound(parent=os.getppid(), seconds=seconds)
