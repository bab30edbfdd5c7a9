"""STAND (Song et al. 2025, arXiv 2506.04708): n-grams with what the model held likely behind them fill a static tree.

Shapes: k = tokens kept for a context, r = contexts there is room for, m = nodes with the root.
"""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ngram_trie.drafter import HistoryDrafter, Traits, check_int
from ngram_trie.memory import KeepingDrafter
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import empty_table, hash_of, rehash, slot_of
from ngram_trie.tree import DraftTree, Fields, FloatArray, IntArray

#: The size of the paper's tree.
TREE_NODES = 80
#: How fast candidates fall off: rank r, from 0, is right in proportion to (r + 1)^-DECAY. The paper's tree is not
#: published; it is said to be wide and 13 levels deep, and so deep is the likeliest one of 80 nodes for 2.3.
DECAY = 2.3


@cache
def template(num_draft: int = TREE_NODES, k: int = 10) -> tuple[IntArray, IntArray]:
    """The tree's shape, breadth first: (m,) parents, -1 for the root, and (m,) ranks, the how-manieth likeliest token
    behind its parent a node is, counted from 0.

    They are the `num_draft` likeliest nodes if candidates fall off with DECAY, one of `k` is right, and each node is as
    good as any other.
    """
    shares = np.arange(1, k + 1) ** -DECAY
    costs = np.log(shares.sum() / shares).tolist()
    frontier: list[tuple[float, tuple[int, ...]]] = [(costs[0], (0,))]
    paths: list[tuple[int, ...]] = []
    while len(paths) < num_draft:
        _, path = heappop(frontier)
        paths.append(path)
        siblings = [(*path[:-1], path[-1] + 1)] if path[-1] + 1 < k else []
        for other in (*siblings, (*path, 0)):
            # rounded, so that the order of the ranks on a path makes no difference
            heappush(frontier, (round(sum(costs[rank] for rank in other), 9), other))
    paths = [(), *sorted(paths, key=lambda path: (len(path), path))]
    index = {path: node for node, path in enumerate(paths)}
    parents = [-1, *(index[path[:-1]] for path in paths[1:])]
    return np.array(parents, np.int64), np.array([0, *(path[-1] for path in paths[1:])], np.int64)


class Table(NamedTuple):
    """What was likely behind each context of each length, as compiled code reads and writes it.

    Attributes:
        slots: hash table of contexts, by row + 1.
        keys: (r,) their keys (`hash_of`).
        seen: (r,) how often the context occurred.
        tokens, probs: (r, k) the likeliest tokens behind it, best first, and their mean probabilities.
        size: (1,) rows in use.
    """

    slots: NDArray[np.int32]
    keys: NDArray[np.uint64]
    seen: IntArray
    tokens: NDArray[np.int32]
    probs: NDArray[np.float32]
    size: IntArray

    @classmethod
    def empty(cls, room: int, k: int) -> Table:
        columns = np.zeros(room, np.int64), np.zeros((room, k), np.int32), np.zeros((room, k), np.float32)
        return cls(empty_table(room), np.zeros(room, np.uint64), *columns, np.zeros(1, np.int64))


@compiled
def _average(table: Table, row: int, tokens: IntArray, probs: FloatArray) -> None:
    """One more occurrence of a context: the k likeliest of the running mean over all of them, in which a token that an
    occurrence does not list has 0 there.
    """
    k = len(tokens)
    seen = table.seen[row]
    table.seen[row] += 1
    merged, means = np.empty(2 * k, np.int64), np.zeros(2 * k)
    size = k if seen else 0
    for column in range(size):
        merged[column], means[column] = table.tokens[row, column], table.probs[row, column] * (seen / (seen + 1))
    for column in range(k):
        at = 0
        while at < size and merged[at] != tokens[column]:
            at += 1
        merged[at] = tokens[column]
        means[at] += probs[column] / (seen + 1)
        size = max(size, at + 1)
    for rank in range(k):
        best = 0
        for at in range(1, size):
            if means[at] > means[best]:  # the first of equals was known before
                best = at
        table.tokens[row, rank], table.probs[row, rank] = merged[best], means[best]
        means[best] = -1.0


@compiled
def _learn(fields: Fields, text: IntArray, ends: IntArray, tokens: IntArray, probs: FloatArray, order: int) -> None:
    """Average what is likely behind text[:end] into its contexts of 1 to `order` tokens, for each of `ends`."""
    table = Table(*fields)
    for row in range(len(ends)):
        end = ends[row]
        for length in range(1, min(order, end) + 1):
            key = hash_of(text[end - length : end])
            slot = slot_of(key, table.slots, table.keys)
            if table.slots[slot] == 0:
                table.keys[table.size[0]] = key
                table.size[0] += 1
                table.slots[slot] = table.size[0]
            _average(table, table.slots[slot] - 1, tokens[row], probs[row])


@compiled
def _find(table: Table, context: IntArray) -> int:
    """The row of the longest end of `context` that occurred; -1 if none did."""
    for start in range(len(context)):
        row = table.slots[slot_of(hash_of(context[start:]), table.slots, table.keys)] - 1
        if row >= 0:
            return int(row)
    return -1


@compiled
def _fill(
    fields: Fields, text: IntArray, parents: IntArray, ranks: IntArray, order: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Tokens, parents and path probabilities of the template's nodes whose parents' contexts occurred."""
    table = Table(*fields)
    size = len(parents)
    places = np.full(size, -1, np.int64)  # of the template's nodes in the draft
    # text[-order:] and, behind it, the path from the root to a node
    known = min(order, len(text))
    paths = np.empty((size, known + size), np.int64)
    paths[0, :known] = text[len(text) - known :]
    ends, found = np.full(size, known, np.int64), np.empty(size, np.int64)
    tokens, above, probs = np.empty(size, np.int64), np.empty(size, np.int64), np.ones(size)
    tokens[0], above[0], places[0] = text[-1], -1, 0
    found[0] = _find(table, paths[0, :known])
    drafted = 1
    for node in range(1, size):
        parent = places[parents[node]]
        if parent < 0 or found[parent] < 0:
            continue
        row, end = found[parent], ends[parent]
        places[node] = drafted
        tokens[drafted], above[drafted] = table.tokens[row, ranks[node]], parent
        probs[drafted] = probs[parent] * table.probs[row, ranks[node]]
        paths[drafted, :end] = paths[parent, :end]
        paths[drafted, end] = tokens[drafted]
        ends[drafted] = end + 1
        found[drafted] = _find(table, paths[drafted, max(0, end + 1 - order) : end + 1])
        drafted += 1
    return tokens[:drafted], above[:drafted], probs[:drafted]


class STAND(KeepingDrafter, HistoryDrafter):
    """STAND: of every n-gram of the text the target's k likeliest next tokens and their probabilities, averaged over
    its occurrences; a node of the tree is drafted from the longest n-gram that ends there and is known.

    The k-th occurrence weighs 1/k, what was known (k - 1)/k, and the k likeliest are kept. A node's probability is the
    product of these means along its path. What differs from the paper, of which there is no public code:

    - Of the candidates behind a node the likeliest are drafted, best first. The paper draws them without replacement
      (Gumbel-Top-K), so that its verification keeps the distribution of sampled answers. Greedy verification accepts
      the target's own choice, and a draw would only put less likely tokens in its place. Sampled answers keep their
      distribution here by the loop (`ngram_trie.targets.sampling`), whatever is drafted.
    - The paper begins with a tree of 625 nodes, 20 deep, and keeps the 80 that were accepted most often on 30 problems
      of AIME. They are not published; `template` has as many and goes as deep, by a rule that fits no model.
    - The tree is filled as far as contexts are known; nodes that are not are left out.
    - The n-grams are those of the accepted text, the prompt's last token the first that something is known behind.
      What could be read of the paper does not say whether it learns from rejected drafts or the whole prompt.
    - Accounts of the paper differ on whether contexts go down to two tokens or to one; here to one.

    The paper keeps the table over the repeated answers to one problem and begins anew with the next. Here every prompt
    is a problem of its own, so nothing is kept; `keep_between_prompts` keeps the table over all prompts. It then grows
    with every answer, by up to 4 rows of 100 bytes a token, and is never pruned.

    Args:
        num_draft: most nodes; `propose` takes its budget where that is smaller.
        order: tokens of the longest context.
        k: tokens kept for a context.
        keep_between_prompts: keep the table from one prompt to the next. The drafter's state is then "warm".
    """

    traits = Traits(scores_nodes=True, reads="top-k tokens")

    def __init__(
        self, *, num_draft: int = TREE_NODES, order: int = 4, k: int = 10, keep_between_prompts: bool = False
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("order", order, 1)
        check_int("k", k, 1)
        self.num_draft, self.order, self.k = num_draft, order, k
        super().__init__(keep_between_prompts)

    def forget(self) -> None:
        self._table = Table.empty(1024 * self.order, self.k)

    def propose(self, budget: int) -> DraftTree:
        table = self.learn()
        shape = template(min(self.num_draft, budget), self.k)
        tokens, parents, probs = _fill(tuple(table), self.text, *shape, self.order)
        return DraftTree(tokens, parents, probs=probs)

    def learn(self) -> Table:
        """Take over what the last forward said behind the text's own tokens; `propose` does so first."""
        path = np.array(self.target.last.path)
        likely = self.target.top_k(self.k, path)
        # The path's last node stands before the token that the forward chose, which is the text's last.
        ends = len(self.text) - len(path) + np.searchsorted(path, likely.places)
        table = self._room_for(self.order * len(ends))
        _learn(tuple(table), self.text, ends, likely.tokens, likely.probs, self.order)
        return table

    def _room_for(self, contexts: int) -> Table:
        """The table, with room for this many more."""
        needed = int(self._table.size[0]) + contexts
        if needed > len(self._table.seen):
            larger, size = Table.empty(2 * needed, self.k), self._table.size[0]
            for name in ("keys", "seen", "tokens", "probs"):
                getattr(larger, name)[:size] = getattr(self._table, name)[:size]
            larger.size[0] = size
            rehash(larger.keys, size, larger.slots)
            self._table = larger
        return self._table
