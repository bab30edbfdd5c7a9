"""Drafters of llama.cpp that read tokens alone: `ngram-map-k4v` and `ngram-cache` (common/ngram-*.cpp and
common/speculative.cpp, 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngram_trie.drafter import HistoryDrafter, Traits, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import places_of_end
from ngram_trie.tree import DraftTree, Fields, IntArray
from ngram_trie.trie import COUNT, FIRST_CHILD, NEXT_SIBLING, TOKEN, NgramTrie, Trie, node_of

EMPTY = -1
#: Continuations that ngram-map-k4v keeps for a key, and how often the commonest must occur for each of the others.
VALUES, DOMINANT = 4, 2


@dataclass
class _Value:
    """Where a continuation begins, how often it was met, and how much of its last draft was accepted."""

    start: int
    num_met: int
    num_accepted: int


@dataclass
class _Key:
    counted_to: int
    num_hits: int
    values: list[_Value]


class NgramMap(HistoryDrafter):
    """llama.cpp's ngram-map-k4v (`--spec-type ngram-map-k4v`): behind the latest earlier place of the last n tokens it
    copies m tokens, if one of up to four continuations of m tokens dominates: it occurred twice as often as all others
    together. A draft is as long as what was accepted of that continuation's last one, so one that was rejected at once
    is not made again.

    The engine finds places by a table of hashes, which may give an earlier one than the latest.

    Args:
        ngram: n, the engine's size_n.
        num_draft: m, the engine's size_m; `propose` takes its budget where that is smaller.
        min_hits: how often a key must have been met.
    """

    traits = Traits(drafts_chains=True)

    def __init__(self, *, ngram: int = 12, num_draft: int = 48, min_hits: int = 1) -> None:
        check_int("ngram", ngram, 1)
        check_int("num_draft", num_draft, 1)
        check_int("min_hits", min_hits, 1)
        self.ngram, self.num_draft, self.min_hits = ngram, num_draft, min_hits

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._keys: dict[tuple[int, ...], _Key] = {}
        self._drafted: _Value | None = None

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        if self._drafted:
            self._drafted.num_accepted = len(new_ids) - 1
            self._drafted = None

    def propose(self, budget: int) -> DraftTree:
        text, n, m = self.text, self.ngram, self.num_draft
        known = len(text) - 1  # the engine has not processed the pending token
        places = places_of_end(text, n, 1, known - n - m - 1) if known >= 2 * n + m else text[:0]
        if not len(places):
            return DraftTree.root_only(self.root)
        place = int(places[-1])
        key = self._keys.setdefault(tuple(text[-n:].tolist()), _Key(0, 0, []))
        key.num_hits += 1
        if key.num_hits < self.min_hits:
            return DraftTree.root_only(self.root)
        for start in places[places >= key.counted_to] + n:  # the last place was counted before, and is again
            copied = text[start : start + m]
            same = (each for each in key.values if np.array_equal(text[each.start : each.start + m], copied))
            if value := next(same, None):
                value.num_met += 1
            elif len(key.values) < VALUES:
                key.values.append(_Value(int(start), 1, m))
        key.counted_to = place
        best = max(key.values, key=lambda value: value.num_met)  # the first of equals
        others = sum(value.num_met for value in key.values) - best.num_met
        if best.num_met < DOMINANT * others:
            return DraftTree.root_only(self.root)
        draft = text[place + n : place + n + min(m, best.num_accepted, budget)]
        self._drafted = best if len(draft) else None
        return DraftTree.chain(self.root, draft)


#: ngram-cache drafts a token behind 1 to 4 tokens if these were met so often, and so many percent of the time with it.
LEAST_MET = (2, 2, 1, 1)
LEAST_PERCENT = (66, 50, 50, 50)


@compiled
def _commonest(text: IntArray, fields: Fields, num_draft: int) -> IntArray:
    """The chain of the commonest tokens, each behind the longest context that is sure enough of it."""
    trie, size = Trie(*fields), len(text)
    whole = np.concatenate((text, np.empty(num_draft, np.int64)))
    for end in range(size, size + num_draft):
        drafted = np.int64(EMPTY)
        for length in range(min(len(LEAST_MET), end), 0, -1):
            node = node_of(trie, whole[end - length : end])
            total, best, token = 0, 0, np.int64(EMPTY)
            child = trie.nodes[node, FIRST_CHILD] if node != 0 else 0
            while child != 0:
                count = trie.nodes[child, COUNT]
                total += count
                if count > best:
                    best, token = count, trie.nodes[child, TOKEN]
                child = trie.nodes[child, NEXT_SIBLING]
            if total >= LEAST_MET[length - 1] and 100 * best >= LEAST_PERCENT[length - 1] * total:
                drafted = token
                break
        if drafted == EMPTY:
            return whole[size:end]
        whole[end] = drafted
    return whole[size:]


class NgramCache(HistoryDrafter):
    """llama.cpp's ngram-cache (`--spec-type ngram-cache`) with the cache of the request, without files of others: the
    commonest token behind the last four to one tokens, chained.

    It counts n-grams within what is new since the last draft, so of the prompt those with the first token, and of an
    answer only those that a single step emitted. The engine's example `lookup` counts across steps.

    Args:
        num_draft: most tokens of a draft; `propose` takes its budget where that is smaller.
    """

    traits = Traits(drafts_chains=True)

    def __init__(self, *, num_draft: int = 8) -> None:
        check_int("num_draft", num_draft, 1)
        self.num_draft = num_draft

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        # all n-grams of up to five tokens, counted once for each place
        self._ngrams = NgramTrie(n=len(LEAST_MET) + 1, prefix_len=1)
        self._num_counted = 0

    def propose(self, budget: int) -> DraftTree:
        self._ngrams.begin_text()
        self._ngrams.extend(self.text[self._num_counted :])
        self._num_counted = len(self.text)
        if len(self.text) < 2:
            return DraftTree.root_only(self.root)
        counts, most = tuple(self._ngrams._trie), min(self.num_draft, budget)
        return DraftTree.chain(self.root, _commonest(self.text[-len(LEAST_MET) :], counts, most))
