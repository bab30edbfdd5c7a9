"""The places of a text, chained by token: where each token occurred before, and what stands there.

Nothing is built but chains: from each place to that of the same token before it. Tokens are numbered in order of first
appearance; all arrays hold these numbers, so memory is linear in the text. Rejected drafts and earlier texts have
chains of their own. Beside the chains it is known how often each token is in the text, and which are the most frequent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ngram_trie.blend.ppm import FloatArray, Numbers
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.store.hashing import slot_of
from ngram_trie.tree import Fields, IntArray

# Rows of `Index.tokens`: a token's latest place in the text, among rejected drafts, in earlier texts, and among drafts
# that were rejected there (-1: none), how often it is in the text, its rank among the most frequent (-1: none), and for
# counting successors: the context that saw it last, and its row there.
LAST, REJECTED, EARLIER, EARLIER_REJECTED, COUNT, RANK, SEEN_BY, ROW = range(8)
# Entries of `Index.sizes`: places, tokens that are numbered, those of them that the text has, those that are ranked,
# how many contexts were asked for, the length of the text, its last place, entries of `likely`, and places of earlier
# texts.
SIZE, NUM_TOKENS, NUM_KINDS, NUM_RANKED, CONTEXT, LENGTH, END, NUM_LIKELY, NUM_EARLIER = range(9)
#: Ends a distribution in `Index.likely`.
NO_MORE = -1


class Index(NamedTuple):
    """The text and its tokens, as compiled code reads and writes them. Capacities: c places, v tokens, r likely ones.

    A place is a token of the text, or one that was drafted behind it and rejected.

    Attributes:
        text: (c,) token numbers.
        back: (c,) the place that each stands behind; -1: none.
        before: (c,) of each place that of the same token before it, in the same chain; -1: none.
        follower: (c,) the token that followed; -1: none.
        soft: (c,) where in `likely` the model's distribution behind the place begins; -1: there is none.
        likely, probs: (r,) of each distribution the likeliest tokens, the likeliest first, and their probabilities; at
            its end stands `NO_MORE`.
        ids: (v,) the token of each number.
        slots: hash table of the tokens, by number + 1.
        tokens: (8, v) what is known of each token: rows LAST to ROW.
        frequent: (f,) the most frequent tokens, best first, as far as they are ranked.
        common: the most frequent tokens of the background.
        sizes: (9,) SIZE to NUM_EARLIER.
    """

    text: Numbers
    back: Numbers
    before: Numbers
    follower: Numbers
    soft: Numbers
    likely: Numbers
    probs: NDArray[np.float32]
    ids: IntArray
    slots: Numbers
    tokens: Numbers
    frequent: Numbers
    common: Numbers
    sizes: IntArray


class Part(NamedTuple):
    """Places of an index with what is known of them, in token ids: an answer that is remembered.

    Attributes:
        ids, back, followers, soft: (c,) as `text`, `back`, `follower` and `soft` of an `Index`; -1 also for what lies
            before the part.
        likely, probs: (r,) as there.
    """

    ids: IntArray
    back: Numbers
    followers: IntArray
    soft: Numbers
    likely: IntArray
    probs: NDArray[np.float32]


@kernel
def enter(token: int, index: Index) -> int:
    """The number of `token`, which gets one if it is new."""
    slot = slot_of(token, index.slots, index.ids)
    if index.slots[slot] == 0:
        number = index.sizes[NUM_TOKENS]
        index.sizes[NUM_TOKENS] += 1
        index.ids[number] = token
        index.tokens[:COUNT, number] = index.tokens[RANK, number] = -1
        index.tokens[COUNT, number] = index.tokens[SEEN_BY, number] = 0
        index.slots[slot] = number + 1
    return index.slots[slot] - 1


@compiled
def enter_all(new_ids: Numbers, index: Index) -> Numbers:
    """(k,) the numbers of the tokens `new_ids` (k,); new ones get one each."""
    numbers = np.empty(len(new_ids), np.int32)
    for at, token in enumerate(new_ids):
        numbers[at] = enter(token, index)
    return numbers


@kernel
def _add(token: int, back: int, chain: int, index: Index) -> int:
    """A new place of `token` behind the place `back`, in one of the chains LAST to EARLIER_REJECTED."""
    place = index.sizes[SIZE]
    index.sizes[SIZE] += 1
    index.text[place], index.back[place] = token, back
    index.follower[place] = index.soft[place] = -1
    index.before[place] = index.tokens[chain, token]
    index.tokens[chain, token] = place
    return place


@compiled
def extend(new_ids: IntArray, fields: Fields) -> None:
    """Append `new_ids` to the text of an `Index`."""
    index = Index(*fields)
    tokens, sizes = index.tokens, index.sizes
    for new_id in new_ids:
        token = enter(new_id, index)
        if sizes[END] >= 0:
            index.follower[sizes[END]] = token
        sizes[END] = _add(token, sizes[END], LAST, index)
        sizes[LENGTH] += 1
        sizes[NUM_KINDS] += tokens[COUNT, token] == 0
        tokens[COUNT, token] += 1
        _rank(token, index)


@compiled
def reject(tree_ids: IntArray, parents: IntArray, places: IntArray, fields: Fields) -> None:
    """Add what was drafted and rejected: of each node of a tree the place, where it is -1, is made and written."""
    index = Index(*fields)
    for node in range(len(tree_ids)):
        if places[node] < 0:
            places[node] = _add(enter(tree_ids[node], index), places[parents[node]], REJECTED, index)


@compiled
def attach(places: IntArray, likely: IntArray, probs: FloatArray, least: float, fields: Fields) -> None:
    """Take the distributions (m, k) behind places (m,)."""
    index = Index(*fields)
    at = index.sizes[NUM_LIKELY]
    for row, place in enumerate(places):
        index.soft[place] = at
        for rank in range(likely.shape[1]):
            if probs[row, rank] < least:
                break
            index.likely[at], index.probs[at] = enter(likely[row, rank], index), probs[row, rank]
            at += 1
        index.likely[at] = NO_MORE
        at += 1
    index.sizes[NUM_LIKELY] = at


@compiled
def recall(part_fields: Fields, fields: Fields) -> None:
    """Add the places of a `Part`; the text does not follow them."""
    index, part = Index(*fields), Part(*part_fields)
    base, base_likely = index.sizes[SIZE], index.sizes[NUM_LIKELY]
    for at, token in enumerate(part.ids):
        chain = EARLIER_REJECTED if part.followers[at] < 0 else EARLIER
        place = _add(enter(token, index), base + part.back[at] if part.back[at] >= 0 else -1, chain, index)
        if part.followers[at] >= 0:
            index.follower[place] = enter(part.followers[at], index)
        if part.soft[at] >= 0:
            index.soft[place] = base_likely + part.soft[at]
    for at, token in enumerate(part.likely):
        index.likely[base_likely + at] = token if token == NO_MORE else enter(token, index)
        index.probs[base_likely + at] = part.probs[at]
    index.sizes[NUM_LIKELY] += len(part.likely)
    index.sizes[NUM_EARLIER] += len(part.ids)


@kernel(_nrt=True)
def _rank(token: int, index: Index) -> None:
    """Move `token`, which has just been counted, to its place among the most frequent tokens."""
    tokens, frequent, num_ranked = index.tokens, index.frequent, index.sizes[NUM_RANKED]
    rank = tokens[RANK, token]
    if rank < 0:
        if num_ranked < len(frequent):
            rank = num_ranked
            index.sizes[NUM_RANKED] += 1
        elif num_ranked > 0 and tokens[COUNT, token] > tokens[COUNT, frequent[num_ranked - 1]]:
            rank = num_ranked - 1
            tokens[RANK, frequent[rank]] = -1
        else:
            return
    while rank > 0 and tokens[COUNT, frequent[rank - 1]] <= tokens[COUNT, token]:  # of equals the latest first
        frequent[rank] = frequent[rank - 1]
        tokens[RANK, frequent[rank]] = rank
        rank -= 1
    frequent[rank] = token
    tokens[RANK, token] = rank
