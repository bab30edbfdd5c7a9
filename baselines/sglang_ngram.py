"""SGLang's `NGRAM` drafter: a trie of the latest tokens of all requests, whose branches make a draft tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from ngram_trie.drafter import HistoryDrafter, check_choice, check_int
from ngram_trie.memory import KeepingDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, Fields, IntArray, grow
from ngram_trie.trie import FIRST_CHILD, NEXT_SIBLING, TOKEN, Rows, Trie, TrieStorage, add_child, node_of

#: The engine has a second rule, PROB.
MatchType = Literal["BFS"]


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
def _children(nodes: Rows, node: int, used: IntArray, most: int) -> list[int]:
    """At most `most` children of a node, the latest used first."""
    found = [(np.int64(0), np.int64(0)) for _ in range(0)]
    child = nodes[node, FIRST_CHILD]
    while child != 0:
        entry = (-used[child], np.int64(child))
        if len(found) < most or entry < found[-1]:
            place = len(found)
            while place > 0 and entry < found[place - 1]:
                place -= 1
            found.insert(place, entry)
            if len(found) > most:
                found.pop()
        child = nodes[child, NEXT_SIBLING]
    return [int(entry[1]) for entry in found]


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
        anchor = node_of(trie, text[len(text) - length :])
        if anchor == 0:
            continue
        queue = [(0, (longest - length) * step + least, anchor)]
        head = 0
        while head < len(queue) and size <= num_draft:
            parent, breadth, node = queue[head]
            head += 1
            for child in _children(trie.nodes, node, used, max(1, int(breadth))):
                if size > num_draft:
                    break
                place, size = grow(tokens, parents, size, parent, trie.nodes[child, TOKEN])
                queue.append((place, breadth - step, child))
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

    def draft(self, text: IntArray, depth: int, breadths: tuple[int, int], size: int) -> DraftTree:
        """At most `size` nodes behind the (k,) tokens `text`."""
        return DraftTree(*_by_recency(text, tuple(self._trie), self._used, depth, breadths, size))


class SGLangNgram(KeepingDrafter, HistoryDrafter):
    """SGLang's NGRAM (python/sglang/srt/speculative: ngram_worker.py and cpp_ngram/trie.cpp, 0.5).

    After each step the last `depth` tokens of the request go into the trie, with every suffix of them; so the longest
    paths have `depth` tokens, and steps that emit little count the same tokens again. The prompt itself does not go in:
    only what of it lies in that window. Every suffix of the text that is a path with children is an anchor. Below the
    longest anchor first, then the shorter ones, the draft tree is filled by the engine's default rule, BFS: breadth
    first, the latest used children first; the breadth falls from `max_breadth` to `min_breadth` the longer the match
    and the deeper the node.

    All requests share the trie (`keep_between_prompts`). Where it is full, at 10 million nodes, the engine throws the
    least recently used leaves away; this one grows. The engine pads drafts with token 0; here they stay shorter.

    Args:
        num_draft: most nodes of a draft. The engine's 12 count the pending token.
        depth: longest path, the engine's max_trie_depth.
        min_breadth, max_breadth: see above.
        match_type: BFS.
        keep_between_prompts: share the trie between prompts. The state is then "warm".
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
        self.num_draft, self.depth = num_draft, depth
        self.min_breadth, self.max_breadth = min_breadth, max_breadth
        super().__init__(keep_between_prompts)

    def forget(self) -> None:
        self._paths = _LatestPaths()

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._is_first = True

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        if self._is_first:  # emitted by prefill, behind which nothing is inserted
            self._is_first = False
            return
        self._paths.insert(self.text[-self.depth :])

    def remind(self, prompt: Prompt, output_ids: Sequence[int]) -> None:
        """As if each step had emitted one token."""
        if self.traits.remembers:
            self.start(prompt)
            for token in output_ids:
                self.observe([token])

    def propose(self, budget: int) -> DraftTree:
        breadths, size = (self.min_breadth, self.max_breadth), min(self.num_draft, budget)
        return self._paths.draft(self.text[-self.depth :], self.depth, breadths, size)
