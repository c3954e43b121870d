"""More than one test at a time."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: rejecting those ≤ alpha keeps the family-wise error ≤ alpha.

    ``p_values`` has shape (k,), each in [0, 1]; k may be 0. Raises ValueError outside [0, 1].
    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979) 65-70.
    """
    if any(not 0 <= one <= 1 for one in p_values):
        raise ValueError("a p-value lies in [0, 1]")
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda one: (p_values[one], one))):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
