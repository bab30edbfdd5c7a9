"""How many nodes a draft should have, if each says how likely it is to be accepted and steps have a price.

With v(q) what a step over q nodes costs and p_1 >= p_2 >= ... the nodes' probabilities, q nodes are expected to emit
1 + p_1 + ... + p_q tokens. What counts is tokens per unit of time over the whole answer. At the rate r of that, time is
worth r tokens a unit, and the draft to take is the one of the largest

    p_1 + ... + p_q - r v(q)

(Dinkelbach's method for ratios; it is charged as it goes, with r what this answer has earned so far.) Where v is convex
this adds a node while p > r (v(q + 1) - v(q)).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class StepCosts(Protocol):
    """What steps cost, in any unit: `ngram_trie.cost.CostCurve` is one."""

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        """(k,) costs of steps over `nodes` drafted nodes at `contexts` cached tokens."""


class StepPrices:
    """The choice of the number of nodes along one answer: `least`, then `spend`, then `earn`, step after step.

    Args:
        costs: (m + 1,) v(0), ..., v(m).

    Raises:
        ValueError: costs that are not positive.
    """

    def __init__(self, costs: FloatArray) -> None:
        if not (costs > 0).all():
            raise ValueError(f"costs of steps must be positive, not {costs.min():g}")
        self._costs = costs
        # Probabilities fall, so the nodes after q are worth no more than p each: they pay at no number of them unless p
        # is above the smallest mean price from q on.
        self._mean_prices = np.array(
            [((costs[q + 1 :] - costs[q]) / np.arange(1, len(costs) - q)).min() for q in range(len(costs) - 1)]
        )
        # Until there is something to go by, the rate is that of plain steps: too small, so drafts begin large.
        self._emitted, self._spent = 1.0, float(costs[0])
        self._started = False

    @classmethod
    def at(cls, costs: StepCosts, max_draft: int, context: int) -> StepPrices:
        """Those of up to `max_draft` nodes at `context` cached tokens."""
        return cls(costs.step(range(max_draft + 1), [context] * (max_draft + 1)))

    @property
    def rate(self) -> float:
        """r: tokens per unit of cost so far."""
        return self._emitted / self._spent

    def least(self) -> FloatArray:
        """(m,) of node 1, 2, ...: what its probability must be above for a draft of this size or more to pay."""
        return np.maximum(self.rate * self._mean_prices, 0.0)

    def spend(self, probs: FloatArray) -> int:
        """How many of the nodes of the falling `probs`, (q,), to verify; the step is charged."""
        worth = np.concatenate([[0.0], np.cumsum(probs)]) - self.rate * self._costs[: len(probs) + 1]
        kept = int(worth.argmax())
        self._spent += float(self._costs[kept])
        self._started = True
        return kept

    def earn(self, num_tokens: int) -> None:
        """Note the tokens that were emitted; those of the prefill, before any step, count for nothing."""
        if self._started:
            self._emitted += num_tokens
