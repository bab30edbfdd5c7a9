"""How likely drafted tokens are to be accepted, learned from those that were: what a drafter says, made true.

Drafters mean different things by the probabilities of their nodes: a share of counts, the length of a match, a rank.
What is learned is therefore the probability of a node behind an accepted parent, by what the drafter says of it, and a
path has the product of its nodes'.

That still promises too much of the nodes that a draft would take last: they stand there because they look good, and of
many that do some are overrated. So it is corrected once more by a node's rank in its draft, by how many nodes of such
ranks were accepted over how many were expected. Nodes behind the last token that a step emitted count as expected
behind it: left out, they would count where a draft fails before them, and not where it goes on.

All of it is compiled: between two steps a processor's caches hold weights, and each line of Python takes many times as
long as in a loop of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_trie.budget.rule import from_the_largest
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, FloatArray, IntArray

#: Probabilities around which nodes are counted.
KNOTS = np.array([0.0, 0.01, 0.03, 0.06, 0.12, 0.25, 0.4, 0.6, 0.8, 0.9, 1.0])
#: Nodes that a knot or a class of ranks remembers, and nodes as expected that stand at a class's beginning.
MEMORY, AS_EXPECTED = 256.0, 4.0
#: Classes of ranks: 1, 2 and 3, 4 to 7, 8 to 15, 16 to 31, all others.
RANKS = 6


class Trust:
    """The share of nodes that turned out right, by what was predicted for them.

    Around each of a few probabilities nodes are counted, the later ones more; `prior` nodes that were just as likely as
    predicted stand at the beginning. The shares never fall from one probability to the next.
    """

    def __init__(self, prior: float = 8.0) -> None:
        self._prior = prior
        self._nodes, self._right = np.zeros_like(KNOTS), np.zeros_like(KNOTS)
        self._expected, self._accepted = np.full(RANKS, AS_EXPECTED), np.full(RANKS, AS_EXPECTED)

    def judge(self, tree: DraftTree, emitted: Sequence[int]) -> None:
        """Take note of a draft, which `emitted` followed: of its nodes as far as the text is known."""
        assert tree.probs is not None
        _judge(
            tree.tokens, tree.parents, tree.probs, np.array(emitted, np.int64),
            self._nodes, self._right, self._prior, self._expected, self._accepted,
        )  # fmt: skip

    def of(self, tree: DraftTree) -> FloatArray:
        """(m,) how likely each node of a draft is to be accepted: 1 for the root, a child's at most its parent's."""
        assert tree.probs is not None
        shares = self._accepted / self._expected
        return np.asarray(_likely(tree.parents, tree.probs, self._nodes, self._right, self._prior, shares), float)


@kernel
def _behind_parent(node: int, parents: IntArray, probs: FloatArray) -> float:
    """The probability of a node behind its parent, of those of whole paths."""
    above = probs[parents[node]]
    return min(probs[node] / above, 1.0) if above > 0 else 1.0


@kernel(_nrt=True)
def _along_paths(
    parents: IntArray, probs: FloatArray, nodes: FloatArray, right: FloatArray, prior: float
) -> FloatArray:
    """(m,) the product along the path to each node of the shares that were right, linear between knots."""
    shares, found = np.empty(len(KNOTS)), np.empty(len(parents))
    shares[0], found[0] = right[0] / (nodes[0] + prior), 1.0
    for at in range(1, len(KNOTS)):  # array expressions would take numba twice as long to compile
        shares[at] = max((right[at] + prior * KNOTS[at]) / (nodes[at] + prior), shares[at - 1])
    for node in range(1, len(parents)):
        predicted, at = _behind_parent(node, parents, probs), 1
        while predicted > KNOTS[at]:
            at += 1
        weight = (predicted - KNOTS[at - 1]) / (KNOTS[at] - KNOTS[at - 1])
        found[node] = found[parents[node]] * (shares[at - 1] + weight * (shares[at] - shares[at - 1]))
    return found


@kernel
def _class_of(rank: int) -> int:
    """The class of a rank from 1."""
    kind = 0
    while rank > 1 and kind < RANKS - 1:
        rank //= 2
        kind += 1
    return kind


@compiled
def _likely(
    parents: IntArray, probs: FloatArray, nodes: FloatArray, right: FloatArray, prior: float, shares: FloatArray
) -> FloatArray:
    """(m,) corrected by `shares` (RANKS,) of what was expected, never rising from one rank to the next."""
    found = _along_paths(parents, probs, nodes, right, prior)
    order, least = from_the_largest(found), 1.0
    for rank in range(1, len(order)):
        least = min(least, found[order[rank]] * shares[_class_of(rank)])
        found[order[rank]] = least
    return found


@compiled
def _judge(
    tokens: IntArray, parents: IntArray, probs: FloatArray, emitted: IntArray, nodes: FloatArray, right: FloatArray,
    prior: float, expected: FloatArray, came: FloatArray,
) -> None:  # fmt: skip
    """Count nodes around each knot and of each class of ranks, and those that were right, in place."""
    found = _along_paths(parents, probs, nodes, right, prior)
    depths, known = np.zeros(len(tokens), np.int64), np.ones(len(tokens), np.bool_)
    accepted = np.zeros(len(tokens))  # 1 or 0; where that is not known, how likely
    new, new_right = np.zeros(len(KNOTS)), np.zeros(len(KNOTS))
    accepted[0] = 1.0
    for node in range(1, len(tokens)):
        above = parents[node]
        depths[node] = depths[above] + 1
        known[node] = known[above] and not (accepted[above] > 0 and depths[node] > len(emitted))
        if not known[node] and found[above] > 0:
            accepted[node] = accepted[above] * found[node] / found[above]
        if not known[node] or accepted[above] == 0:
            continue
        accepted[node] = 1.0 if tokens[node] == emitted[depths[node] - 1] else 0.0
        share, at = _behind_parent(node, parents, probs), 0
        while at < len(KNOTS) - 1 and share > (KNOTS[at] + KNOTS[at + 1]) / 2:
            at += 1
        new[at] += 1
        new_right[at] += accepted[node]
    for at in range(len(KNOTS)):
        kept = max(0.0, 1 - new[at] / MEMORY)
        nodes[at], right[at] = kept * nodes[at] + new[at], kept * right[at] + new_right[at]
    order = from_the_largest(found)
    for rank in range(1, len(order)):
        node, kind = order[rank], _class_of(rank)
        expected[kind] += found[node] - (expected[kind] - AS_EXPECTED) / MEMORY
        came[kind] += accepted[node] - (came[kind] - AS_EXPECTED) / MEMORY
