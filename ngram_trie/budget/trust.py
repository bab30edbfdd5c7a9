"""How likely drafted tokens are to be accepted, learned from those that were: what a drafter says, made true.

Drafters mean different things by the probabilities of their nodes: a share of counts, the length of a match, a rank.
What is learned is therefore the probability of a node behind an accepted parent, by what the drafter says of it, and a
path has the product of its nodes'.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_trie.store.compiled import compiled
from ngram_trie.tree import DraftTree, FloatArray, IntArray


class Trust:
    """The share of nodes that turned out right, by what was said of them.

    Around each of a few probabilities nodes are counted, the later ones more; `prior` nodes that were just as likely as
    was said stand at the beginning. The shares never fall from one probability to the next.
    """

    KNOTS = np.array([0.0, 0.01, 0.03, 0.06, 0.12, 0.25, 0.4, 0.6, 0.8, 0.9, 1.0])
    MEMORY = 256.0

    def __init__(self, prior: float = 8.0) -> None:
        self._prior = prior
        self._nodes, self._right = np.zeros_like(self.KNOTS), np.zeros_like(self.KNOTS)

    def add(self, said: FloatArray, right: np.ndarray) -> None:
        """Take note of nodes (k,) behind accepted parents: the probabilities `said`, and whether each was `right`."""
        at = np.searchsorted((self.KNOTS[1:] + self.KNOTS[:-1]) / 2, said)
        new = np.bincount(at, minlength=len(self.KNOTS))
        kept = np.maximum(0, 1 - new / self.MEMORY)
        self._nodes = kept * self._nodes + new
        self._right = kept * self._right + np.bincount(at, right, len(self.KNOTS))

    def __call__(self, said: FloatArray) -> FloatArray:
        """(k,) probabilities in place of those that the drafter says."""
        shares = (self._right + self._prior * self.KNOTS) / (self._nodes + self._prior)
        return np.asarray(np.interp(said, self.KNOTS, np.maximum.accumulate(shares)), float)

    def judge(self, tree: DraftTree, emitted: Sequence[int]) -> None:
        """Take note of a draft, which `emitted` followed."""
        assert tree.probs is not None
        known, right = judged(tree, emitted)
        self.add(behind_parents(tree.probs, tree.parents)[known], right)

    def of(self, tree: DraftTree) -> FloatArray:
        """(m,) how likely each node of a draft is to be accepted; 1 for the root."""
        assert tree.probs is not None
        return _products(tree.parents, self(behind_parents(tree.probs, tree.parents)))


def behind_parents(probs: FloatArray, parents: IntArray) -> FloatArray:
    """(m,) of path probabilities those of each node behind its parent."""
    shares = np.ones(len(probs))
    above = probs[parents[1:]]
    np.divide(probs[1:], above, out=shares[1:], where=above > 0)
    return np.minimum(shares, 1.0)


@compiled
def _products(parents: IntArray, shares: FloatArray) -> FloatArray:
    """(m,) along the path to each node, the root's 1."""
    probs = np.ones(len(shares))
    for node in range(1, len(shares)):
        probs[node] = probs[parents[node]] * shares[node]
    return probs


def judged(tree: DraftTree, emitted: Sequence[int]) -> tuple[IntArray, np.ndarray]:
    """Which nodes behind an accepted parent are known to be right or wrong now that `emitted` followed the root, and
    whether each is.
    """
    tokens, parents, depths = tree.tokens.tolist(), tree.parents.tolist(), tree.depths.tolist()
    accepted, known, right = {0}, [], []
    for node in range(1, len(tokens)):
        if parents[node] in accepted and depths[node] <= len(emitted):
            known.append(node)
            right.append(tokens[node] == emitted[depths[node] - 1])
            if right[-1]:
                accepted.add(node)
    return np.array(known, np.int64), np.array(right, bool)
