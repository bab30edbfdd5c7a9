"""RACER (Zhang et al. 2026, arXiv 2604.14885): what followed the text's suffixes before, by frequency, and the
runners-up of earlier forwards where nodes are left.

Shapes: n = tokens of an n-gram, c = nodes of the automaton, V = vocabulary, k = successors kept for a token, m = nodes
of the draft with the root.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ngram_trie.drafter import HistoryDrafter, Traits, check_int
from ngram_trie.memory import KeepingDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, FloatArray, IntArray, grow, rank_probs


class Automaton(NamedTuple):
    """A trie of n-grams in at most c nodes, of which those not used for longest are given to new ones. Node 0 is the
    root, and stands for "none" as a child, sibling or neighbour. A node and those that lead to it are used together, so
    none is older than a child of its own and the oldest is a leaf.

    Attributes:
        token, parent, child, sibling: (c,) of each node; `child` is its latest one, `sibling` the one added before it.
        freq: (c,) how many n-grams passed through it since it was made.
        newer, older: (c,) its neighbours by last use; those of node 0 are the oldest and the newest.
    """

    token: IntArray
    parent: IntArray
    child: IntArray
    sibling: IntArray
    freq: IntArray
    newer: IntArray
    older: IntArray

    @classmethod
    def empty(cls, max_nodes: int) -> Automaton:
        nodes = np.arange(max_nodes)
        token, parent, child, sibling, freq = np.zeros((5, max_nodes), np.int64)
        return cls(token, parent, child, sibling, freq, np.roll(nodes, -1), np.roll(nodes, 1))


@kernel
def _child(trie: Automaton, node: int, token: int) -> int:
    child = trie.child[node]
    while child and trie.token[child] != token:
        child = trie.sibling[child]
    return child


@kernel
def _use(trie: Automaton, node: int) -> None:
    """Make a node, and then what leads to it, the newest (the paper's TouchPrefix, appendix E.3)."""
    newer, older = trie.newer, trie.older
    while node:
        newer[older[node]], older[newer[node]] = newer[node], older[node]
        newest = older[0]
        newer[newest], older[node] = node, newest
        newer[node], older[0] = 0, node
        node = trie.parent[node]


@kernel
def _take_oldest(trie: Automaton) -> int:
    """The oldest node, a leaf, out of the trie."""
    node = trie.newer[0]
    if trie.freq[node]:  # else it has not been in the trie yet
        before = trie.child[trie.parent[node]]
        if before == node:
            trie.child[trie.parent[node]] = trie.sibling[node]
        else:
            while trie.sibling[before] != node:
                before = trie.sibling[before]
            trie.sibling[before] = trie.sibling[node]
    return node


@compiled(_nrt=False)
def _insert(trie: Automaton, text: IntArray, first_end: int, last_end: int, n: int) -> None:
    """Count the n-grams of the text that end before `first_end` to `last_end`."""
    for end in range(max(first_end, n), last_end + 1):
        at, node = end - n, 0
        while at < end:
            child = _child(trie, node, text[at])
            if not child:
                break
            trie.freq[child] += 1
            node = child
            at += 1
        _use(trie, node)  # before nodes are taken: not these
        while at < end:
            child = _take_oldest(trie)
            trie.token[child], trie.parent[child], trie.freq[child] = text[at], node, 1
            trie.child[child], trie.sibling[child] = 0, trie.child[node]
            trie.child[node] = child
            _use(trie, child)
            node = child
            at += 1


@compiled
def _retrieve(
    trie: Automaton, suffix: IntArray, min_match: int, tokens: IntArray, parents: IntArray, probs: FloatArray
) -> int:
    """The retrieval tree (section 3.2): of the borders, suffixes of the text of `min_match` tokens and more, and all
    that continues them, the m most frequent states; what continues several borders alike is one node of the draft.
    Returns the number of nodes.
    """
    heap = [(0, 0, 0, 0, 0, 0)]  # -frequency, depth below the border, order, state, node of the draft above, border
    heap.clear()
    for length in range(len(suffix), min_match - 1, -1):
        border = 0
        for token in suffix[len(suffix) - length :]:
            border = _child(trie, border, token)
            if not border:
                break
        if border:
            _use(trie, border)
            heap.append((-trie.freq[border], 0, len(heap), border, -1, border))
    heapq.heapify(heap)
    size, pushed = 1, len(heap)
    for _ in range(len(tokens)):
        if not heap:
            break
        _, depth, _, state, above, border = heapq.heappop(heap)
        node = 0
        if depth:
            node, size = grow(tokens, parents, size, above, trie.token[state])
            probs[node] = max(probs[node], trie.freq[state] / (trie.freq[border] + 1))
        child = trie.child[state]
        while child:
            heapq.heappush(heap, (-trie.freq[child], depth + 1, pushed, child, node, border))
            pushed += 1
            child = trie.sibling[child]
    return size


@compiled
def _refill(
    table: NDArray[np.int32], k: int, rank_prob: FloatArray, size: int, tokens: IntArray, parents: IntArray,
    probs: FloatArray,
) -> int:  # fmt: skip
    """The logits tree (section 3.1, algorithm 1), merged into a draft of `size` nodes until it has m, breadth first.

    A node of breadth b has its b likeliest successors. The root's breadth is k, that of its children k, k/2, k/4, ...
    by rank, and that of the children of a deeper node b/2, b/4, ..., each at least 1 (equation 3). Returns the number
    of nodes.
    """
    breadth = np.zeros(len(tokens), np.int64)
    queue = np.zeros(len(tokens), np.int64)
    breadth[0] = k
    queued = 1
    for head in range(len(tokens)):
        if head == queued:
            break
        parent = queue[head]
        if tokens[parent] >= len(table):
            continue
        below = breadth[parent] if parent == 0 else breadth[parent] // 2
        for rank in range(breadth[parent]):
            token = table[tokens[parent], rank]
            if token < 0:
                break
            node, size = grow(tokens, parents, size, parent, token)
            if node >= 0:
                probs[node] = max(probs[node], probs[parent] * rank_prob[rank])
                breadth[node] = max(below, 1)
                queue[queued] = node
                queued += 1
            below //= 2
    return size


class RACER(KeepingDrafter, HistoryDrafter):
    """RACER: a retrieval tree from an automaton over the n-grams of prompt and output, and a logits tree in what is
    left of the nodes (section 3.3; hkr04/RACER).

    Each n-gram of the verified text is counted in the automaton. The borders of a text are its suffixes, of `min_match`
    tokens and more, that begin n-grams; their continuations are pooled by frequency. Of each token the table keeps the
    top k that the model gave when it was last seen, in the prompt or in a draft, accepted or not. Authors' settings: 64
    nodes, which count the pending token, k = 8, n = 10, 10,000 nodes of the automaton. They keep automaton and table
    from question to question, as `keep_between_prompts` does.

    As in the newest release, a node that both trees have is paid for once; earlier ones leave its second slot empty.
    Against the release:

    - All borders are found, each suffix looked up from the root. Theirs are found by failure links, which are right
      after prefill, missing from newer nodes and reset as they are used, and the match begins with the answer: they
      find fewer.
    - After a token that follows no border they keep the old state, as if that token had not been there.
    - The oldest leaf is given away, as the paper says. Theirs can be an inner node (n-grams are marked as used from the
      root down), which cuts off what is below.
    - Of equally frequent states the one nearer to the root goes first, then that of the longer match; theirs depend on
      the order of a hash table.
    - A token that has not been seen has no successors; theirs has k times token 0.
    - Of a token that stands at several nodes the last one counts, in the order of our tree.
    - Probabilities (`DraftTree.probs`) are ours: a retrieved node has the largest share of a border's count, one from
      the table one in its rank + 2 of its parent's.

    Args:
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        k: successors kept for a token, the breadth of the logits tree.
        ngram: n.
        min_match: shortest border.
        max_nodes: c, with the root.
        keep_between_prompts: keep automaton and table from one prompt to the next. The drafter's state is then "warm".
    """

    traits = Traits(scores_nodes=True, reads="top-k tokens")

    def __init__(
        self,
        *,
        num_draft: int = 63,
        k: int = 8,
        ngram: int = 10,
        min_match: int = 2,
        max_nodes: int = 10_000,
        keep_between_prompts: bool = True,
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("k", k, 1)
        check_int("ngram", ngram, 2)
        check_int("min_match", min_match, 1)
        check_int("max_nodes", max_nodes, ngram + 1)
        self.num_draft, self.k, self.ngram, self.min_match = num_draft, k, ngram, min_match
        self.max_nodes = max_nodes
        self._rank_probs = rank_probs(np.arange(k))
        self.traits = replace(self.traits, reads_top_k=k)
        super().__init__(keep_between_prompts)

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """8 successors to 64 nodes, as published. Fewer nodes make a narrower logits tree where that is better: of 2
        to 8 successors, 8 were the best with 32 nodes and 2 with 8, on odd questions (configs/experiment/racer_k.yaml).
        """
        return {"num_draft": num_nodes, "k": max(1, min(8, num_nodes // 4))}

    def forget(self) -> None:
        self._trie = Automaton.empty(self.max_nodes)
        self._table = np.full((0, self.k), -1, np.int32)

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._num_indexed = 0
        self._index(len(prompt.ids))
        likely = self.target.top_k_in_prompt(prompt.last_places(), self.k)
        self._put(prompt.ids[likely.places], likely.tokens)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._index(len(self.text) - 1)  # all but the root, which is not verified yet

    def propose(self, budget: int) -> DraftTree:
        self.learn()
        size = min(self.num_draft, budget) + 1
        tokens, parents, probs = np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(size)
        tokens[0], parents[0], probs[0] = self.root, -1, 1.0
        suffix = self.text[max(0, len(self.text) - self.ngram + 1) :]
        size = _retrieve(self._trie, suffix, self.min_match, tokens, parents, probs)
        k = min(self.k, self.sized(budget)["k"]) if budget < self.num_draft else self.k  # as one made for so many
        size = _refill(self._table, k, self._rank_probs, size, tokens, parents, probs)
        return DraftTree(tokens[:size], parents[:size], probs=probs[:size])

    def learn(self) -> None:
        """Take over what the last forward said; `propose` does so first, and `start` of the prompt."""
        last = self.target.last
        if last.prompt is None:
            likely = self.target.top_k(self.k)
            self._put(last.tree.tokens[likely.places], likely.tokens)

    def _index(self, end: int) -> None:
        """Count the n-grams of the text up to its token `end`."""
        _insert(self._trie, self.text, self._num_indexed + 1, end, self.ngram)
        self._num_indexed = end

    def _put(self, tokens: IntArray, successors: IntArray) -> None:
        """Make (r, k) `successors` the rows of (r,) `tokens`, the last row of each."""
        unique, from_behind = np.unique(tokens[::-1], return_index=True)
        if len(unique) and unique[-1] >= len(self._table):
            grown = np.full((max(2 * len(self._table), int(unique[-1]) + 1), self.k), -1, np.int32)
            grown[: len(self._table)] = self._table
            self._table = grown
        self._table[unique, : successors.shape[1]] = successors[len(tokens) - 1 - from_behind]
