"""How many nodes a draft should have, if each says how likely it is to be accepted and a step has a price.

With v(q) what a step over q nodes costs and p_1 >= p_2 >= ... the nodes' probabilities, a step emits, on average,
1 + p_1 + ... + p_q tokens, so the draft to take is the one of the largest

    (1 + p_1 + ... + p_q) / v(q) ** caution.

It is this step's own rate that counts, not the answer's: where a long copy is under way, the next step will go on with
it, and a token more is worth little. An exponent above 1 drafts less than a step by itself would want, for the same
reason: what is not drafted now can be drafted next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class StepCosts(Protocol):
    """What steps cost, in any unit: `ngram_trie.cost.CostCurve` is one."""

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        """(k,) costs of steps over `nodes` drafted nodes at `contexts` cached tokens."""


@dataclass(frozen=True)
class StepPrices:
    """What up to q nodes cost.

    Attributes:
        costs: (q + 1,) what tokens are divided by: v(0) ** caution and so on.
        least: (q,) of nodes 1, 2, ...: the smallest mean price of a node from there on. Probabilities fall, so once one
            is not above the best rate so far times this, no larger draft pays.
    """

    costs: FloatArray
    least: FloatArray

    @classmethod
    def of(cls, costs: FloatArray, caution: float = 1.25) -> StepPrices:
        """Of v(0), ..., v(q), (q + 1,).

        Raises:
            ValueError: costs that are not positive.
        """
        if not (costs > 0).all():
            raise ValueError(f"costs of steps must be positive, not {costs.min():g}")
        costs = costs**caution
        size = len(costs)
        least = [((costs[q + 1 :] - costs[q]) / np.arange(1, size - q)).min() for q in range(size - 1)]
        return cls(costs, np.maximum(np.array(least), 0.0))

    @classmethod
    def free(cls, num_draft: int) -> StepPrices:
        """Of nodes that all pay."""
        return cls(np.ones(num_draft + 1), np.zeros(num_draft))

    def up_to(self, num_draft: int) -> StepPrices:
        """Those of at most `num_draft` nodes."""
        return StepPrices(self.costs[: num_draft + 1], self.least[:num_draft])

    def __len__(self) -> int:
        return len(self.least)
