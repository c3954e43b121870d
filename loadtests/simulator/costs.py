"""What one step of an engine costs, as a stated model: a document that can be saved, loaded and fitted.

The shape is the roofline of Williams, Waterman & Patterson, "Roofline: an insightful visual performance model",
CACM 52 (2009): reading the weights is a floor that every step pays; above a knee the arithmetic of the tokens in the
step takes longer than that, and the step grows linearly with them.
"""

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from loadtests.traffic.levels import Frozen

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]
Cost = Annotated[float, Field(ge=0, le=60)]


class RoundCost(Frozen):
    """The target's share of a step, all in seconds.

    step = fixed + per_sequence · sequences + max(weights, per_token · verified + per_prefill_token · prefill)
    + per_context_token · context
    """

    fixed_s: Cost = Field(description="paid by every step: scheduling, launches, sampling")
    per_sequence_s: Cost = 0.0
    weights_s: Cost = Field(description="reading the weights once: the floor of the roofline")
    per_token_s: Cost = Field(description="arithmetic for one token that is checked in a decode round")
    per_prefill_token_s: Cost = Field(description="arithmetic for one token of a prompt")
    per_context_token_s: Cost = Field(0.0, description="reading the keys and values of one token of context")

    @property
    def knee_tokens(self) -> float:
        """Tokens checked in one step up to which they are free."""
        return self.weights_s / self.per_token_s if self.per_token_s else float("inf")

    def seconds(self, sequences: Any, verified: Any, context: Any, prefill: Any = 0) -> Any:
        """Of one step, a float, or with arrays of one length of each of several, an array."""
        arithmetic = self.per_token_s * verified + self.per_prefill_token_s * prefill
        one = isinstance(arithmetic, float)
        roof = max(self.weights_s, arithmetic) if one else np.maximum(self.weights_s, arithmetic)
        return self.fixed_s + self.per_sequence_s * sequences + roof + self.per_context_token_s * context


class DrafterCost(Frozen):
    """The drafter's share of a step, in seconds: fixed + per_position · K + per_draft_token · tokens drafted.

    A drafter that drafts one token after the other pays ``per_position_s`` K times, one that drafts a block at once
    pays it never. ``idle_s`` is the price of a step for which a schedule says K = 0: not the same as no speculation.
    """

    fixed_s: Cost = 0.0
    per_position_s: Cost = 0.0
    per_draft_token_s: Cost = 0.0
    idle_s: Cost = 0.0

    def seconds(self, drafted: Any, k: int) -> Any:
        if k == 0:
            return self.idle_s
        return self.fixed_s + self.per_position_s * k + self.per_draft_token_s * drafted


class Costs(Frozen):
    """The costs of a step as a document of their own, to be laid over an engine model; drafters by method."""

    schema_: Literal["draftproof.costs/1"] = Field("draftproof.costs/1", alias="schema")
    round: RoundCost
    drafters: dict[str, DrafterCost] = Field(default_factory=dict)
