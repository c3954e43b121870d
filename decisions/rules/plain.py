"""From numpy and infinities to a document that has one canonical form."""

import math
from typing import Any

import numpy as np

# Ten digits: more than anyone reads, fewer than two builds of a numerical library may disagree about.
DIGITS = 10


def plain(thing: Any) -> Any:
    """The same document with plain numbers: floats to ten significant digits, what isn't finite as None."""
    if isinstance(thing, dict):
        return {str(key): plain(one) for key, one in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain(one) for one in thing]
    if isinstance(thing, (bool, np.bool_)):
        return bool(thing)
    if isinstance(thing, np.integer):
        return int(thing)
    if isinstance(thing, (float, np.floating)):
        return rounded(float(thing))
    return thing


def rounded(number: float) -> float | None:
    if not math.isfinite(number):
        return None
    # adding zero turns −0.0 into 0.0
    return float(f"{number:.{DIGITS}g}") + 0.0
