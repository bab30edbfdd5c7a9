"""SGLang's `NGRAM` drafter: a trie of the latest tokens of all requests, whose branches make a draft tree."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Literal, get_args

import numpy as np

from ngram_trie.drafter import HistoryDrafter, check_bool, check_choice, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, Fields, IntArray, grow
from ngram_trie.trie import COUNT, FIRST_CHILD, NEXT_SIBLING, TOKEN, Rows, Trie, TrieStorage, add_child, child_of

MatchType = Literal["BFS", "PROB"]


@compiled
def _insert(window: IntArray, fields: Fields, used: IntArray, clock: int) -> int:
    """Count every path that begins in `window` and runs to its end; `used` of a node is when it was met last. Returns
    the clock, which ticks at every token."""
    trie = Trie(*fields)
    for start in range(len(window)):
        node = 0
        for token in window[start:]:
            node = add_child(trie, node, token, 1)
            clock += 1
            used[node] = clock
    return clock


@kernel(_nrt=True)
def _children(nodes: Rows, node: int, by_count: bool, used: IntArray, most: int) -> list[int]:
    """At most `most` children of a node: the most frequent first, of equal ones the smallest token; or the latest used
    first."""
    found = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    child = nodes[node, FIRST_CHILD]
    while child != 0:
        if by_count:
            entry = (-np.int64(nodes[child, COUNT]), np.int64(nodes[child, TOKEN]), np.int64(child))
        else:
            entry = (-used[child], np.int64(0), np.int64(child))
        if len(found) < most or entry < found[-1]:
            place = len(found)
            while place > 0 and entry < found[place - 1]:
                place -= 1
            found.insert(place, entry)
            if len(found) > most:
                found.pop()
        child = nodes[child, NEXT_SIBLING]
    return [int(entry[2]) for entry in found]


@kernel
def _anchor(trie: Trie, text: IntArray, length: int) -> int:
    """The node of the last `length` tokens if something followed them, else 0."""
    node = 0
    for position in range(len(text) - length, len(text)):
        node = child_of(trie, node, text[position])
        if node == 0:
            return 0
    return node if trie.nodes[node, FIRST_CHILD] != 0 else 0


@compiled
def _by_recency(
    text: IntArray, fields: Fields, used: IntArray, depth: int, breadths: tuple[int, int], num_draft: int
) -> tuple[IntArray, IntArray]:
    """BFS: below each matched suffix, the longest first, breadth first; a node has as many children, the latest used
    ones, as the breadth at its depth."""
    trie, least, most = Trie(*fields), breadths[0], breadths[1]
    tokens, parents = np.empty(num_draft + 1, np.int64), np.empty(num_draft + 1, np.int64)
    tokens[0], parents[0], size = text[-1], -1, 1
    longest = max(1, depth - 1)
    step = (most - least) / longest
    for length in range(min(depth, len(text)), 0, -1):
        anchor = _anchor(trie, text, length)
        if anchor == 0:
            continue
        queue = [(0, (longest - length) * step + least, anchor)]
        head = 0
        while head < len(queue) and size <= num_draft:
            parent, breadth, node = queue[head]
            head += 1
            for child in _children(trie.nodes, node, False, used, max(1, int(breadth))):
                if size > num_draft:
                    break
                place, size = grow(tokens, parents, size, parent, trie.nodes[child, TOKEN])
                queue.append((place, breadth - step, child))
    return tokens[:size], parents[:size]


@compiled
def _by_frequency(
    text: IntArray, fields: Fields, used: IntArray, depth: int, breadth: int, num_draft: int
) -> tuple[IntArray, IntArray]:
    """PROB: below each matched suffix, the longest first, the likeliest node next: the product along its path of its
    count over those of the `breadth` most frequent siblings."""
    trie = Trie(*fields)
    tokens, parents = np.empty(num_draft + 1, np.int64), np.empty(num_draft + 1, np.int64)
    tokens[0], parents[0], size = text[-1], -1, 1
    heap = [(0.0, 0, 0, 0) for _ in range(0)]  # minus the probability, the order of arrival, node, parent in the draft
    arrived = 0
    for length in range(min(depth, len(text)), 0, -1):
        node = _anchor(trie, text, length)
        place, prob = 0, 1.0
        while node != 0 and size <= num_draft:
            children = _children(trie.nodes, node, True, used, breadth)
            total = 0.0
            for child in children:
                total += trie.nodes[child, COUNT]
            for child in children:
                arrived += 1
                heappush(heap, (-prob * trie.nodes[child, COUNT] / total, arrived, child, place))
            if len(heap) == 0:
                break
            negated, _, node, above = heappop(heap)
            prob = -negated
            place, size = grow(tokens, parents, size, above, trie.nodes[node, TOKEN])
    return tokens[:size], parents[:size]


class _LatestPaths(TrieStorage):
    """The trie, with the time at which each node was met last."""

    def __init__(self) -> None:
        super().__init__(1024)
        self._used, self._clock = np.zeros(len(self._trie.nodes), np.int64), 0

    def insert(self, window: IntArray) -> None:
        """Count every path that begins in the (k,) tokens and runs to their end."""
        self._reserve(len(window) * (len(window) + 1) // 2)
        if more := len(self._trie.nodes) - len(self._used):
            self._used = np.pad(self._used, (0, more))
        self._clock = _insert(window, tuple(self._trie), self._used, self._clock)

    def draft(self, text: IntArray, rule: MatchType, depth: int, breadths: tuple[int, int], size: int) -> DraftTree:
        """At most `size` nodes behind the (k,) tokens `text`."""
        if rule == "BFS":
            return DraftTree(*_by_recency(text, tuple(self._trie), self._used, depth, breadths, size))
        return DraftTree(*_by_frequency(text, tuple(self._trie), self._used, depth, breadths[1], size))


class SGLangNgram(HistoryDrafter):
    """SGLang's NGRAM (python/sglang/srt/speculative: ngram_worker.py and cpp_ngram/trie.cpp, 0.5).

    After each step the last `depth` tokens of the request go into the trie, with every suffix of them; so the longest
    paths have `depth` tokens, and steps that emit little count the same tokens again. The prompt itself does not go in:
    only what of it lies in that window. Every suffix of the text that is a path with children is an anchor. Below the
    longest anchor first, then the shorter ones, the draft tree is filled:

    - BFS, the default: breadth first, the latest used children first; the breadth falls from `max_breadth` to
      `min_breadth` the longer the match and the deeper the node;
    - PROB: the likeliest node next, by counts.

    All requests share the trie (`keep_between_prompts`). Where it is full, at 10 million nodes, the engine throws the
    least recently used leaves away; this one grows. The engine pads drafts with token 0; here they stay shorter. Equal
    probabilities are taken in the order of arrival, which the engine leaves to its heap.

    Args:
        num_draft: most nodes of a draft. The engine's 12 count the pending token.
        depth: longest path, the engine's max_trie_depth.
        min_breadth, max_breadth: see above; PROB takes at most `max_breadth` children.
        match_type: BFS or PROB.
        keep_between_prompts: share the trie between prompts. The state is then "warm".

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    def __init__(
        self,
        *,
        num_draft: int = 11,
        depth: int = 18,
        min_breadth: int = 1,
        max_breadth: int = 10,
        match_type: MatchType = "BFS",
        keep_between_prompts: bool = False,
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("depth", depth, 2)
        check_int("min_breadth", min_breadth, 1)
        check_int("max_breadth", max_breadth, min_breadth)
        check_choice("match_type", match_type, get_args(MatchType))
        check_bool("keep_between_prompts", keep_between_prompts)
        self.num_draft, self.depth, self.match_type = num_draft, depth, match_type
        self.min_breadth, self.max_breadth = min_breadth, max_breadth
        self.keep_between_prompts = keep_between_prompts
        if keep_between_prompts:
            self.state = "warm"
        self._paths = _LatestPaths()

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        if not self.keep_between_prompts:
            self._paths = _LatestPaths()
        self._is_first = True

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        if self._is_first:  # emitted by prefill, behind which nothing is inserted
            self._is_first = False
            return
        self._paths.insert(self.text[-self.depth :])

    def remind(self, prompt: Prompt, output_ids: Sequence[int]) -> None:
        """As if each step had emitted one token."""
        if self.remembers:
            self.start(prompt)
            for token in output_ids:
                self.observe([token])

    def propose(self, budget: int) -> DraftTree:
        breadths, size = (self.min_breadth, self.max_breadth), min(self.num_draft, budget)
        return self._paths.draft(self.text[-self.depth :], self.match_type, self.depth, breadths, size)
