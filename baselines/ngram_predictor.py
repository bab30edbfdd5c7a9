"""The n-gram predictor with backoff (akunu, "Speculative Decoding with N-grams"): frequency tables of the text so far,
asked for one token after another, the longest context first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ngram_trie.drafter import HistoryDrafter, Traits, check_choice, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import empty_table, hash_of, slot_of, slot_of_pair
from ngram_trie.tree import DraftTree, FloatArray, IntArray

Ties = Literal["recent", "earlier"]


def expected_accepted(alpha: float, num_draft: int) -> float:
    """Expected number of accepted tokens of a chain of D = `num_draft` drafts that are each right with probability
    `alpha` (section "Speedup Analysis"): sum_{i=1..D} alpha^i, which is the chapter's sum over the number accepted,
    sum_{k=0..D} k alpha^k (1 - alpha) + D alpha^D, where its first sum ends at D - 1. The chapter's own 2.05 and 3.28
    for D = 4 and alpha = 0.7 and 0.9 follow from neither way to end it.
    """
    return float(sum(alpha**i for i in range(1, num_draft + 1)))


class _Tables(NamedTuple):
    """Counts of what followed each context, a row for each length of context (row c - 1: contexts of c tokens), in the
    order in which contexts, and pairs of a context and what continued it, were met; o = orders, r = room."""

    slots: NDArray[np.int32]  # (o, c) hash tables of contexts, by number + 1
    keys: NDArray[np.uint64]  # (o, r) the chapter's key of a context, 64-bit FNV-1a over its tokens
    best_tokens: IntArray  # (o, r) its most frequent continuation
    best_counts: IntArray  # (o, r) how often that was seen
    totals: IntArray  # (o, r) how often it was seen with any continuation
    pair_slots: NDArray[np.int32]  # (o, c) hash tables of pairs, by number + 1
    pair_contexts: IntArray  # (o, r) the context of a pair
    pair_tokens: IntArray  # (o, r) what continued it
    pair_counts: IntArray  # (o, r) how often that was seen
    sizes: IntArray  # (o, 2) contexts and pairs


@compiled
def count(tables: _Tables, text: IntArray, begin: int, ties_recent: bool) -> None:
    """Count text[begin:], each token after all its contexts within `text`; no more than the tables have room for."""
    for at in range(begin, len(text)):
        token = text[at]
        for length in range(1, min(len(tables.slots), at) + 1):
            row = length - 1
            key, slots = hash_of(text[at - length : at]), tables.slots[row]
            slot = slot_of(key, slots, tables.keys[row])
            if slots[slot] == 0:
                tables.keys[row, tables.sizes[row, 0]] = key
                tables.sizes[row, 0] += 1
                slots[slot] = tables.sizes[row, 0]
            context, slots = slots[slot] - 1, tables.pair_slots[row]
            slot = slot_of_pair(context, token, slots, tables.pair_contexts[row], tables.pair_tokens[row])
            if slots[slot] == 0:
                tables.pair_contexts[row, tables.sizes[row, 1]] = context
                tables.pair_tokens[row, tables.sizes[row, 1]] = token
                tables.sizes[row, 1] += 1
                slots[slot] = tables.sizes[row, 1]
            tables.pair_counts[row, slots[slot] - 1] += 1
            seen = tables.pair_counts[row, slots[slot] - 1]
            if seen > tables.best_counts[row, context] or (ties_recent and seen == tables.best_counts[row, context]):
                tables.best_tokens[row, context] = token
                tables.best_counts[row, context] = seen
            tables.totals[row, context] += 1


@compiled
def predict(tables: _Tables, text: IntArray, num_draft: int) -> tuple[IntArray, FloatArray]:
    """(d,) the drafts that continue `text`, each appended to the context of the next, d at most `num_draft`; and
    (d + 1,) path probabilities, the root's 1 first: products of each draft's share of what followed its context, the
    first context followed once more by something new."""
    num_rows = len(tables.slots)
    known = min(num_rows, len(text))
    context = np.empty(known + num_draft, np.int64)
    context[:known] = text[len(text) - known :]
    probs = np.ones(num_draft + 1)
    end = known
    while end < len(context):
        for length in range(min(num_rows, end), 0, -1):
            key = hash_of(context[end - length : end])
            found = tables.slots[length - 1, slot_of(key, tables.slots[length - 1], tables.keys[length - 1])] - 1
            if found >= 0:
                context[end] = tables.best_tokens[length - 1, found]
                total = tables.totals[length - 1, found] + (end == known)
                share = tables.best_counts[length - 1, found] / total
                probs[end - known + 1] = probs[end - known] * share
                break
        else:
            break
        end += 1
    return context[known:end], probs[: end - known + 1]


def empty_tables(max_order: int, room: int) -> _Tables:
    """Tables for n-grams of 2 to `max_order` tokens, in which `room` tokens can be counted."""
    orders, tables = max_order - 1, [np.tile(empty_table(room), (max_order - 1, 1)) for _ in range(2)]
    keys, *rest = (np.zeros((orders, room), kind) for kind in (np.uint64, *[np.int64] * 6))
    return _Tables._make([tables[0], keys, *rest[:3], tables[1], *rest[3:], np.zeros((orders, 2), np.int64)])


class NgramPredictor(HistoryDrafter):
    """The n-gram predictor: tables of orders 2 to `max_order` over prompt and output, updated with every token; a draft
    is the most frequent continuation of the longest context that was seen before (sections "Update", "Prediction").

    Nothing is drafted where not even the last token was seen before: a plain step ("No-draft fallback"). As in the
    chapter the tables keep what has left the history ("The Predictor's Sliding Window"), so that the history bounds
    only how long a context can be: 512 is never felt, and values below `max_order` - 1 lower the order.

    What the chapter leaves open:
    - which of equally frequent continuations is drafted: see `ties`;
    - what a new request starts with: empty tables, here;
    - two contexts with the same 64-bit key share their counts, there as here.

    Args:
        max_order: longest n-gram, MAX_ORDER.
        num_draft: longest chain of drafts, DRAFT_COUNT; `propose` takes its budget where that is smaller.
        history: the sliding window of recent tokens, MAX_HISTORY.
        ties: of equally frequent continuations, the one that reached the count last ("recent", the default because the
            chapter wants "recency bias") or first ("earlier").
    """

    traits = Traits(scores_nodes=True, drafts_chains=True)

    def __init__(self, *, max_order: int = 4, num_draft: int = 4, history: int = 512, ties: Ties = "recent") -> None:
        check_int("max_order", max_order, 2)
        check_int("num_draft", num_draft, 1)
        check_int("history", history, 1)
        check_choice("ties", ties, get_args(Ties))
        self.max_order, self.num_draft, self.history = max_order, num_draft, history
        self.ties: Ties = ties

    def _count_all(self, room: int) -> None:
        self._room = room
        self._tables = empty_tables(min(self.max_order, self.history + 1), room)
        count(self._tables, self.text, 0, self.ties == "recent")

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._count_all(len(self.text) + 512)

    def observe(self, new_ids: Sequence[int]) -> None:
        begin = len(self.text)
        super().observe(new_ids)
        if len(self.text) > self._room:
            self._count_all(2 * len(self.text))  # seldom, as the room doubles
        else:
            count(self._tables, self.text, begin, self.ties == "recent")

    def propose(self, budget: int) -> DraftTree:
        return DraftTree.chain(self.root, *predict(self._tables, self.text, min(self.num_draft, budget)))
