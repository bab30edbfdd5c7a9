"""How likely drafted tokens are to be accepted, learned from those that were: what a drafter says, made true.

Drafters mean different things by the probabilities of their nodes: a share of counts, the length of a match, a rank.
What is learned is therefore the probability of a node behind an accepted parent, by what the drafter says of it, and a
path has the product of its nodes'.

All of it is compiled: between two steps a processor's caches hold weights, and each line of Python takes many times as
long as in a loop of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, FloatArray, IntArray

#: Probabilities around which nodes are counted.
KNOTS = np.array([0.0, 0.01, 0.03, 0.06, 0.12, 0.25, 0.4, 0.6, 0.8, 0.9, 1.0])
#: Nodes that a knot remembers.
MEMORY = 256.0


class Trust:
    """The share of nodes that turned out right, by what was predicted for them.

    Around each of a few probabilities nodes are counted, the later ones more; `prior` nodes that were just as likely as
    predicted stand at the beginning. The shares never fall from one probability to the next.
    """

    def __init__(self, prior: float = 8.0) -> None:
        self._prior = prior
        self._nodes, self._right = np.zeros_like(KNOTS), np.zeros_like(KNOTS)

    def judge(self, tree: DraftTree, emitted: Sequence[int]) -> None:
        """Take note of a draft, which `emitted` followed: of the nodes behind an accepted parent, as far as the text is
        known.
        """
        assert tree.probs is not None
        _judge(tree.tokens, tree.parents, tree.probs, np.array(emitted, np.int64), self._nodes, self._right)

    def of(self, tree: DraftTree) -> FloatArray:
        """(m,) how likely each node of a draft is to be accepted; 1 for the root."""
        assert tree.probs is not None
        return np.asarray(_along_paths(tree.parents, tree.probs, self._nodes, self._right, self._prior), float)


@kernel
def _behind_parent(node: int, parents: IntArray, probs: FloatArray) -> float:
    """The probability of a node behind its parent, of those of whole paths."""
    above = probs[parents[node]]
    return min(probs[node] / above, 1.0) if above > 0 else 1.0


@compiled
def _judge(
    tokens: IntArray, parents: IntArray, probs: FloatArray, emitted: IntArray, nodes: FloatArray, right: FloatArray
) -> None:
    """Count nodes around each knot, and those that were right, in place."""
    depths, accepted = np.zeros(len(tokens), np.int64), np.zeros(len(tokens), np.bool_)
    new, new_right = np.zeros(len(KNOTS)), np.zeros(len(KNOTS))
    accepted[0] = True
    for node in range(1, len(tokens)):
        depths[node] = depths[parents[node]] + 1
        if not accepted[parents[node]] or depths[node] > len(emitted):
            continue
        accepted[node] = tokens[node] == emitted[depths[node] - 1]
        share, at = _behind_parent(node, parents, probs), 0
        while at < len(KNOTS) - 1 and share > (KNOTS[at] + KNOTS[at + 1]) / 2:
            at += 1
        new[at] += 1
        new_right[at] += accepted[node]
    for at in range(len(KNOTS)):
        kept = max(0.0, 1 - new[at] / MEMORY)
        nodes[at], right[at] = kept * nodes[at] + new[at], kept * right[at] + new_right[at]


@compiled
def _along_paths(
    parents: IntArray, probs: FloatArray, nodes: FloatArray, right: FloatArray, prior: float
) -> FloatArray:
    """(m,) the product along the path to each node of the shares that were right, linear between knots."""
    shares = (right + prior * KNOTS) / (nodes + prior)
    for at in range(1, len(KNOTS)):
        shares[at] = max(shares[at], shares[at - 1])
    found = np.ones(len(parents))
    for node in range(1, len(parents)):
        predicted, at = _behind_parent(node, parents, probs), 1
        while predicted > KNOTS[at]:
            at += 1
        weight = (predicted - KNOTS[at - 1]) / (KNOTS[at] - KNOTS[at - 1])
        found[node] = found[parents[node]] * (shares[at - 1] + weight * (shares[at] - shares[at - 1]))
    return found
