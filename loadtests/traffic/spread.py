from typing import Any

import numpy as np
from numpy.typing import NDArray


def spread(values: NDArray[Any]) -> dict[str, Any]:
    """Percentiles are values that occur: the smallest with at least that share at or below it."""
    p50, p90 = np.percentile(values, [50, 90], method="inverted_cdf").tolist()
    return {"p50": p50, "p90": p90, "max": values.max().item()}
