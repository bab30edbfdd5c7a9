"""How many nodes a draft should have: one rule for every drafter that says how likely its nodes are.

With v(q) what a step over q nodes costs and p_1 >= p_2 >= ... the nodes' probabilities, a step emits, on average,
1 + p_1 + ... + p_q tokens, so the draft to take is the one of the largest

    (1 + p_1 + ... + p_q) / v(q) ** caution.

It is this step's own rate that counts, not the answer's: where a long copy is under way, the next step will go on with
it, and a token more is worth little. An exponent above 1 drafts less than a step by itself would want, for the same
reason: what is not drafted now can be drafted next.

Drafters mean different things by their probabilities: a share of counts, the length of a match, a rank. So each has
two constants that make them comparable, p = said ** power * discount ** depth. They and the caution are chosen on odd
questions (`make fit-budgets`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from ngram_trie.drafter import Drafter, WrappedDrafter, check_int, check_positive
from ngram_trie.files import content_hash
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, FloatArray, IntArray


class StepCosts(Protocol):
    """What steps cost, in any unit: `ngram_trie.cost.CostCurve` is one."""

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        """(k,) costs of steps over `nodes` drafted nodes at `contexts` cached tokens."""


def nodes_that_pay(probs: FloatArray, prices: FloatArray) -> IntArray:
    """The nodes of the draft with the best rate, as increasing indices.

    Args:
        probs: (m,) how likely each node is to be accepted; 1 for the root, which is always taken, and a child's at most
            its parent's, so that the likeliest nodes are a tree. Of equal ones the earlier node is taken.
        prices: v(0) ** caution and so on, of at least m entries.
    """
    order = np.argsort(-probs, kind="stable")
    rates = probs[order].cumsum() / prices[: len(probs)]
    return np.sort(order[: int(np.argmax(rates)) + 1])


class Budgeted(WrappedDrafter):
    """A drafter whose drafts are cut to the nodes that pay; see the module.

    Args:
        drafter: its draft trees must have `probs`.
        cost: what steps cost, at the length of the prompt.
        max_draft: nodes that it is asked for.
        power, discount: constants that make the drafter's probabilities true; above 0, the discount at most 1.
        caution: exponent of the costs, above 0.

    Raises:
        ValueError: a value that is not allowed.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        cost: StepCosts,
        max_draft: int = 64,
        power: float = 1.0,
        discount: float = 1.0,
        caution: float = 1.25,
    ) -> None:
        super().__init__(drafter)
        check_int("max_draft", max_draft, 1)
        for name, value in (("power", power), ("discount", discount), ("caution", caution)):
            check_positive(name, value)
        if discount > 1:
            raise ValueError(f"discount={discount}: must be at most 1, a child is no likelier than its parent")
        self.cost, self.max_draft = cost, max_draft
        self.power, self.discount, self.caution = power, discount, caution

    def identity(self) -> str:
        return " ".join(filter(None, [self.drafter.identity(), content_hash(vars(self.cost))]))

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        nodes = range(self.max_draft + 1)
        costs = self.cost.step(nodes, [len(prompt.ids)] * len(nodes))
        if not (costs > 0).all():
            raise ValueError(f"costs of steps must be positive, not {costs.min():g}")
        self._prices = costs**self.caution

    def propose(self, budget: int) -> DraftTree:
        """
        Raises:
            ValueError: the drafter does not say how likely its nodes are.
        """
        tree = self.drafter.propose(min(budget, self.max_draft))
        if len(tree) == 1:
            return tree
        if tree.probs is None:
            raise ValueError(
                f"{type(self.drafter).__name__} does not say how likely its nodes are: give it a fixed number"
            )
        kept = nodes_that_pay(tree.probs**self.power * self.discount**tree.depths, self._prices)
        return tree if len(kept) == len(tree) else tree.part(kept)
