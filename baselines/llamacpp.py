"""Drafters of llama.cpp that read tokens alone: `ngram-mod`, `ngram-map-k4v` and `ngram-cache` (common/ngram-*.cpp and
common/speculative.cpp, 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngram_trie.drafter import HistoryDrafter, check_bool, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, Fields, IntArray
from ngram_trie.trie import COUNT, FIRST_CHILD, NEXT_SIBLING, TOKEN, NgramTrie, Trie, child_of

#: Entries of ngram-mod's table, the share of them beyond which it is emptied, and after how many drafts in a row of
#: which less than LOW was accepted it is emptied, too.
TABLE, FULL, LOW, MOST_LOW = 1 << 22, 0.25, 0.25, 5
#: New n-grams go into it when more tokens than this are new.
CHUNK = 32
EMPTY = -1
#: Continuations that ngram-map-k4v keeps for a key, and how often the commonest must occur for each of the others.
VALUES, DOMINANT = 4, 2


@kernel
def _entry(tokens: IntArray, start: int, ngram: int) -> int:
    """Where the table has what follows the n-gram at `start`: whatever other n-grams it has there."""
    mixed = np.uint64(0)
    for position in range(start, start + ngram):
        mixed = mixed * np.uint64(6364136223846793005) + np.uint64(tokens[position])
    return int(mixed & np.uint64(TABLE - 1))


@compiled
def _fill(table: NDArray[np.int32], text: IntArray, first: int, ngram: int) -> int:
    """Enter the n-grams from `first` on that a token follows; returns how many entries were empty."""
    filled = 0
    for start in range(first, len(text) - ngram):
        entry = _entry(text, start, ngram)
        filled += table[entry] == EMPTY
        table[entry] = text[start + ngram]
    return filled


@compiled
def _look_up(table: NDArray[np.int32], end: IntArray, num_draft: int) -> IntArray:
    """The chain behind the n-gram `end`, as far as the table goes on."""
    ngram = len(end)
    text = np.concatenate((end, np.empty(num_draft, np.int64)))
    for size in range(num_draft):
        token = table[_entry(text, size, ngram)]
        if token == EMPTY:
            return text[ngram : ngram + size]
        text[ngram + size] = token
    return text[ngram:]


class NgramMod(HistoryDrafter):
    """llama.cpp's ngram-mod (`--spec-type ngram-mod`): a hash table of 4 million entries from n-grams to the token that
    followed them last, without the n-grams themselves. A draft is a chain of look-ups; one that ends before `min_draft`
    tokens is not made.

    All requests share the table (`keep_between_prompts`). It is emptied before a prompt if a quarter is in use, and
    after five drafts in a row of which less than a quarter was accepted. New tokens go in by chunks of more than 32.

    Args:
        ngram: n, the engine's n_match.
        min_draft, num_draft: the engine's n_min and n_max; `propose` takes its budget where that is smaller.
        keep_between_prompts: share the table between prompts. The state is then "warm".

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    drafts_chains = True

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """A draft that is not made is three quarters of the largest at most, as in the engine's sizes."""
        return {"num_draft": num_nodes, "min_draft": num_nodes * 3 // 4}

    def __init__(
        self, *, ngram: int = 24, min_draft: int = 48, num_draft: int = 64, keep_between_prompts: bool = False
    ) -> None:
        check_int("ngram", ngram, 1)
        check_int("num_draft", num_draft, 1)
        check_int("min_draft", min_draft, 0, num_draft)
        check_bool("keep_between_prompts", keep_between_prompts)
        self.ngram, self.min_draft, self.num_draft = ngram, min_draft, num_draft
        self.keep_between_prompts = keep_between_prompts
        if keep_between_prompts:
            self.state = "warm"
        self._empty()

    def _empty(self) -> None:
        self._table = np.full(TABLE, EMPTY, np.int32)
        self._num_used = self._num_low = self._next = 0

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        if not self.keep_between_prompts:
            self._empty()
        self._num_low = self._next = self._num_drafted = 0
        self._add(prompt.ids)
        if self._num_used > FULL * TABLE:
            self._empty()

    def _add(self, text: IntArray) -> None:
        if len(text) >= self.ngram:
            self._num_used += _fill(self._table, text, self._next, self.ngram)
            self._next = len(text) - self.ngram

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        if self._num_drafted:
            is_low = len(new_ids) - 1 < LOW * self._num_drafted
            self._num_low = self._num_low + 1 if is_low else 0
            self._num_drafted = 0
            if self._num_low >= MOST_LOW:
                self._empty()

    def propose(self, budget: int) -> DraftTree:
        known = self.text[:-1]  # the engine has not processed the pending token
        if len(known) < self.ngram:
            return DraftTree.root_only(self.root)
        if self._next + CHUNK < len(known):
            self._add(known)
        size = min(self.num_draft, budget)
        draft = _look_up(self._table, self.text[-self.ngram :], size)
        if len(draft) < min(self.min_draft, size):
            return DraftTree.root_only(self.root)
        self._num_drafted = len(draft)
        return DraftTree.chain(self.root, draft)


@compiled
def _places(text: IntArray, first: int, last: int, ngram: int) -> IntArray:
    """Where in [first, last] the last `ngram` tokens of `text` begin."""
    found = [np.int64(0) for _ in range(0)]
    end = len(text) - ngram
    for start in range(first, last + 1):
        same = 0
        while same < ngram and text[start + same] == text[end + same]:
            same += 1
        if same == ngram:
            found.append(np.int64(start))
    return np.array(found, np.int64)


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

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    drafts_chains = True

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
        places = _places(text, 1, known - n - m - 1, n) if known >= 2 * n + m else text[:0]
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
            node = 0
            for position in range(end - length, end):
                node = child_of(trie, node, whole[position])
                if node == 0:
                    break
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


class _Counts(NgramTrie):
    """Counts of all n-grams of up to five tokens, once for each place."""

    def __init__(self) -> None:
        super().__init__(n=len(LEAST_MET) + 1, prefix_len=1)

    def chain(self, text: IntArray, num_draft: int) -> IntArray:
        """The draft behind the (k,) tokens `text`, k >= 2."""
        return np.asarray(_commonest(text[-len(LEAST_MET) :], tuple(self._trie), num_draft))


class NgramCache(HistoryDrafter):
    """llama.cpp's ngram-cache (`--spec-type ngram-cache`) with the cache of the request, without files of others: the
    commonest token behind the last four to one tokens, chained.

    It counts n-grams within what is new since the last draft, so of the prompt those with the first token, and of an
    answer only those that a single step emitted. The engine's example `lookup` counts across steps.

    Args:
        num_draft: most tokens of a draft; `propose` takes its budget where that is smaller.

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    drafts_chains = True

    def __init__(self, *, num_draft: int = 8) -> None:
        check_int("num_draft", num_draft, 1)
        self.num_draft = num_draft

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._ngrams = _Counts()
        self._num_counted = 0

    def propose(self, budget: int) -> DraftTree:
        self._ngrams.begin_text()
        self._ngrams.extend(self.text[self._num_counted :])
        self._num_counted = len(self.text)
        draft = self._ngrams.chain(self.text, min(self.num_draft, budget)) if len(self.text) > 1 else ()
        return DraftTree.chain(self.root, draft)
