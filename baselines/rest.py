"""REST (He et al. 2023, arXiv 2311.08252): drafts retrieved from a datastore of other texts by the last tokens."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.baselines.datastore import BORDER, SORTED_TOKENS, Datastore, Tokens, how_to_get
from ngram_trie.drafter import HistoryDrafter, Traits, check_int, check_place
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import empty_table
from ngram_trie.tree import DraftTree, FloatArray, IntArray
from ngram_trie.trie import COUNT, NUM_FIELDS, Trie, add_child, prune


@compiled
def _compare(tokens: Tokens, start: int, text: IntArray, length: int) -> int:
    """-1, 0, 1: the tokens from `start` on come before, begin with, come after the last `length` tokens of `text`."""
    offset = len(text) - length
    for index in range(length):
        if start + index >= len(tokens) or tokens[start + index] < text[offset + index]:
            return -1
        if tokens[start + index] > text[offset + index]:
            return 1
    return 0


@compiled
def _hits(tokens: Tokens, suffixes: Tokens, text: IntArray, length: int) -> tuple[int, int]:
    """The range [low, high) of `suffixes` that begin with the last `length` tokens of `text`."""
    bounds = [0, 0]
    for side in range(2):
        low, high = bounds[0], len(suffixes)
        while low < high:
            middle = (low + high) // 2
            if _compare(tokens, suffixes[middle], text, length) < side:
                low = middle + 1
            else:
                high = middle
        bounds[side] = low
    return bounds[0], bounds[1]


@compiled
def _starts(tokens: Tokens, suffixes: Tokens, low: int, high: int, length: int, most: int) -> IntArray:
    """Where the text goes on behind the first `most` hits of `length` tokens that do not end a document."""
    if length < SORTED_TOKENS:  # those that do come first
        last = high
        while low < last:
            middle = (low + last) // 2
            if tokens[suffixes[middle] + length] == BORDER:
                low = middle + 1
            else:
                last = middle
    starts, found = np.empty(min(most, high - low), np.int64), 0
    for hit in range(low, high):
        if found == len(starts):
            break
        starts[found] = suffixes[hit] + length
        found += tokens[starts[found]] != BORDER
    return starts[:found]


@compiled
def _retrieve(
    tokens: Tokens,
    suffixes: Tokens,
    text: IntArray,
    max_span: int,
    min_span: int,
    num_tokens: int,
    max_hits: int,
    num_draft: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Tokens, parents and probabilities of the draft; the root alone if there is no hit."""
    starts, length = np.empty(0, np.int64), min(max_span, len(text))
    while length >= min_span and not len(starts):
        low, high = _hits(tokens, suffixes, text, length)
        starts = _starts(tokens, suffixes, low, high, length, max_hits)
        length -= 1
    if not len(starts):
        return text[-1:].copy(), np.full(1, -1, np.int64), np.ones(1)
    capacity = len(starts) * num_tokens + 1
    trie = Trie(np.zeros((capacity, NUM_FIELDS), np.int32), empty_table(capacity), np.ones(1, np.int64))
    for hit in range(len(starts)):
        start, node = int(starts[hit]), 0
        for position in range(start, min(start + num_tokens, len(tokens))):
            if tokens[position] == BORDER:
                break
            node = add_child(trie, node, tokens[position], 1)
    trie.nodes[0, COUNT] = len(starts)
    return prune(trie.nodes, 0, num_draft, False, text[-1])


class REST(HistoryDrafter):
    """REST (section 3 of the paper): the longest suffix of the text, of `max_span` down to `min_span` tokens, that the
    datastore holds is looked up; what follows each hit becomes a path of a trie that counts prefixes, and the most
    frequent prefixes are drafted. A node's probability is its share of the hits and one more.

    As in the release (FasterDecoding/REST), spans go from 16 to 2, the first that hits is taken, at most 5,000 hits are
    read, 10 tokens after each. The release keeps 64 prefixes by a heap, in the order of a hash where counts are equal,
    and then drops whole paths until at most 64 nodes are left; here exactly the most frequent 64 are kept, those nearer
    to the root first where counts are equal. Its tokens have 16 bits and its documents run into each other; here
    tokens have 32 bits, no continuation crosses the end of a document, and what stands at one is no hit: a shorter span
    is looked up where nothing else is.

    Args:
        datastore: folder that `scripts.build_datastore` wrote; opened by `bind`, or when the first prompt starts.
        max_span, min_span: longest and shortest suffix that is looked up; at most 16.
        num_tokens: tokens read after each hit.
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        max_hits: most hits that are read, the first in the order of the suffix array.
    """

    traits = Traits(scores_nodes=True, state="preloaded")
    not_sent = ("_store",)  # another process maps the files itself

    def __init__(
        self,
        *,
        datastore: str,
        max_span: int = 16,
        min_span: int = 2,
        num_tokens: int = 10,
        num_draft: int = 64,
        max_hits: int = 5000,
    ) -> None:
        check_place("datastore", datastore)
        self.datastore = Path(datastore)
        check_int("max_span", max_span, 1, SORTED_TOKENS)
        check_int("min_span", min_span, 1, max_span)
        check_int("num_tokens", num_tokens, 1)
        check_int("num_draft", num_draft, 1)
        check_int("max_hits", max_hits, 1)
        self.max_span, self.min_span = max_span, min_span
        self.num_tokens, self.num_draft, self.max_hits = num_tokens, num_draft, max_hits

    def parts(self) -> Mapping[Path, str]:
        return {self.datastore / "header.json": how_to_get(self.datastore)}

    def bind(self, target: Any) -> None:
        """Raises:
        FileNotFoundError, ValueError: no usable datastore (`Datastore`).
        """
        self._store.check(target.model)

    @functools.cached_property
    def _store(self) -> Datastore:
        return Datastore(self.datastore)

    def propose(self, budget: int) -> DraftTree:
        store, num_draft = self._store, min(self.num_draft, budget)
        limits = self.max_span, self.min_span, self.num_tokens, self.max_hits, num_draft
        tokens, parents, probs = _retrieve(store.tokens, store.suffixes, self.text, *limits)
        return DraftTree(tokens, parents, probs=probs)
