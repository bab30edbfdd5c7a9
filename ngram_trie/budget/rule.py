"""How many nodes a draft should have, and of what shape: one rule for every drafter that says how likely its nodes are.

With v(q) what a step over q nodes costs and p_1 >= p_2 >= ... the nodes' probabilities, a step emits, on average,
1 + p_1 + ... + p_q tokens, so the draft to take is the one of the largest

    (1 + p_1 + ... + p_q) / v(q) ** caution.

It is this step's own rate that counts, not the answer's: where a long copy is under way, the next step will go on with
it, and a token more is worth little. An exponent above 1 drafts less than a step by itself would want, for the same
reason: what is not drafted now can be drafted next.

How likely nodes are to be accepted is learned (`budget.trust`); costs are known (`budget.adaptive`).

Some engines verify chains alone (vLLM, llama.cpp, transformers' assisted generation). The chain to take of a tree is
the path from its root with the largest sum: up to a fixed length all steps cost the same. Going from likeliest child to
likeliest child would not do: a long copy behind the second may be worth more than the first alone. The tree should be
larger than the chain is long, or it spends on branches what the chain lacks; a best-first tree then leaves out only
what is less likely than each of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np

from ngram_trie.drafter import Drafter, WrappedDrafter, check_int, check_share
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, FloatArray, IntArray


class StepCosts(Protocol):
    """What steps cost, in any unit: `ngram_trie.bench.cost.CostCurve` is one."""

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        """(k,) costs of steps over `nodes` drafted nodes at `contexts` cached tokens."""


@kernel(_nrt=True)
def from_the_largest(values: FloatArray) -> IntArray:
    """The order of a draft's values (m,), equal ones as they stand. (To compile numpy's takes seconds.)"""
    order = np.empty(len(values), np.int64)
    for place in range(len(values)):
        at = place
        while at > 0 and values[order[at - 1]] < values[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place
    return order


@compiled
def nodes_that_pay(probs: FloatArray, costs: FloatArray, drafting: float = 0.0, caution: float = 1.0) -> IntArray:
    """The nodes of the draft with the best rate, as increasing indices.

    Args:
        probs: (m,) how likely each node is to be accepted; 1 for the root, which is always taken, and a child's at most
            its parent's, so that the likeliest nodes are a tree. Of equal ones the earlier node is taken.
        costs: v(0), v(1) and so on, at least m, in the unit of `drafting`, which is added to each.
    """
    order, best, most, total = from_the_largest(probs), 0, 0.0, 0.0
    for size in range(len(probs)):
        total += probs[order[size]]
        rate = total / (costs[size] + drafting) ** caution
        if rate > most:
            best, most = size, rate
    is_taken = np.zeros(len(probs), np.bool_)
    for place in range(best + 1):
        is_taken[order[place]] = True
    nodes, found = np.empty(best + 1, np.int64), 0
    for node in range(len(probs)):
        if is_taken[node]:
            nodes[found] = node
            found += 1
    return nodes


@compiled
def best_path(parents: IntArray, probs: FloatArray, most: int) -> IntArray:
    """The path from the root with the largest sum, as increasing indices.

    Args:
        parents: (m,) of a tree (`DraftTree.parents`).
        probs: (m,) as in `nodes_that_pay`. Of paths with equal sums the one whose end comes first is taken, so none
            ends in nodes of probability 0.
        most: drafted nodes of a path.
    """
    sums, depths, end = probs.copy(), np.zeros(len(parents), np.int64), 0
    for node in range(1, len(parents)):
        sums[node] += sums[parents[node]]
        depths[node] = depths[parents[node]] + 1
        if depths[node] <= most and sums[node] > sums[end]:
            end = node
    path = np.empty(depths[end] + 1, np.int64)
    for depth in range(depths[end], -1, -1):
        path[depth] = end
        end = parents[end]
    return path


class ChainDrafter(WrappedDrafter):
    """A drafter of whose trees only the best path is drafted; see the module.

    Args:
        drafter: its draft trees must have `probs`, and should have more nodes than the chain.
        num_nodes: most nodes of the chain; None for no limit but the tree's depth.
        min_prob: the chain ends before a node less likely than this, from 0 to 1.

    Raises:
        ValueError: a value that is not allowed, or a drafter that does not say how likely its nodes are.
    """

    def __init__(self, drafter: Drafter, *, num_nodes: int | None = None, min_prob: float = 0.0) -> None:
        super().__init__(drafter)
        if not drafter.traits.scores_nodes:
            raise ValueError(
                f"shape=chain: {type(drafter).__name__} does not say how likely its nodes are, so none of its paths is "
                "the best; give shape=tree"
            )
        if num_nodes is not None:
            check_int("num_nodes", num_nodes, 1)
        check_share("min_prob", min_prob)
        self.num_nodes, self.min_prob = num_nodes, min_prob
        self.traits = replace(drafter.traits, drafts_chains=True)

    def propose(self, budget: int) -> DraftTree:
        tree = self.drafter.propose(budget)
        if not isinstance(tree, DraftTree) or len(tree) == 1:
            return tree
        if tree.probs is None:
            raise ValueError(f"{type(self.drafter).__name__} does not say how likely its nodes are: give shape=tree")
        probs = np.where(tree.probs < self.min_prob, 0, tree.probs)
        most = tree.num_draft if self.num_nodes is None else self.num_nodes
        return tree.part(best_path(tree.parents, probs, most))
