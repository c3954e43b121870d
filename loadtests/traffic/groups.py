"""Conversations that belong together, because they hold an equal or nearly equal prompt."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Int32 = NDArray[np.int32]
# Shape (n, 2): numbers of conversations.
Pairs = NDArray[np.int32]
NO_PAIRS: Pairs = np.empty((0, 2), dtype=np.int32)


def groups_of(conversations: int, pairs: Pairs) -> Int32:
    """For each of the conversations the number of the earliest one that it hangs together with, directly or through
    others: its own where there is none."""
    if not len(pairs):
        return np.arange(conversations, dtype=np.int32)
    joined = coo_array((np.ones(len(pairs), dtype=np.int8), pairs.T), shape=(conversations, conversations))
    _, labels = connected_components(joined, directed=False)
    _, earliest = np.unique(labels, return_index=True)
    groups: Int32 = earliest[labels].astype(np.int32)
    return groups
