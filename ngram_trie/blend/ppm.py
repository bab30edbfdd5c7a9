"""Prediction by partial matching (Cleary and Witten 1984): the orders of a context, blended by their escapes.

Of a context let an occurrence be an earlier place with the context's last token that has a successor; its length is how
many tokens up to there agree with the context's end. With n_k(t) the number of occurrences of length k or more that
token t follows, N_k their sum over all t, and u_k the number of different t,

    P_k(t) = (1 - e_k) n_k(t) / N_k + e_k P_{k-1}(t),        e_k = b u_k / (N_k + b u_k),

from order 1 to the longest occurrence's; b = 1 is Witten and Bell's escape (method C). What order 1 falls back to is
the caller's.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.store.hashing import empty_table

Numbers: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float64]


class Successors(NamedTuple):
    """What follows one context, a row for each successor; written anew for each context.

    Attributes:
        tokens: (r,) the successors.
        shares: (r,) their probabilities.
        counts: (r, 1 + max_order) the length of the longest occurrence, then what occurrences of each length count;
            `blend_orders` makes these the n_k(t).
        kinds: (r,) the length of the longest occurrence that makes it one of the u_k different successors.
        weights: (2, 1 + max_order) scratch.
        slots: scratch for a hash table of the successors.
    """

    tokens: Numbers
    shares: FloatArray
    counts: FloatArray
    kinds: Numbers
    weights: FloatArray
    slots: Numbers


@compiled
def room_for(size: int, max_order: int) -> Successors:
    """Room for this many successors."""
    return Successors(
        np.empty(size, np.int32),
        np.empty(size),
        np.empty((size, max_order + 1)),
        np.empty(size, np.int32),
        np.empty((2, max_order + 1)),
        empty_table(size),
    )


@kernel
def count_occurrence(
    successors: Successors, row: int, length: int, is_new: bool, weight: float = 1.0, is_kind: bool = True
) -> None:
    """Count an occurrence of `length` tokens for the successor in `row`: as `weight` of one, and as a kind."""
    counts = successors.counts[row]
    if is_new:
        for order in range(len(counts)):  # assigning all at once takes numba longer to compile
            counts[order] = 0
        successors.kinds[row] = 0
    counts[length] += weight
    counts[0] = max(counts[0], length)
    if is_kind:
        successors.kinds[row] = max(successors.kinds[row], length)


@kernel
def blend_orders(successors: Successors, found: int, escape: float) -> float:
    """The orders from the longest down to 1: writes the probability of each of the `found` successors and returns the
    share that is left to what is below. `escape` is b.
    """
    counts, weights = successors.counts, successors.weights
    totals, kinds = weights[0], weights[1]
    for order in range(len(totals)):
        totals[order] = kinds[order] = 0.0
    longest = 0
    for row in range(found):
        top = int(counts[row, 0])
        longest = max(longest, top)
        count = 0.0
        for order in range(top, 0, -1):
            count += counts[row, order]
            counts[row, order] = count
            totals[order] += count
        for order in range(successors.kinds[row], 0, -1):
            kinds[order] += 1
    left = 1.0
    for order in range(longest, 0, -1):
        escaped = escape * kinds[order]
        left /= totals[order] + escaped
        totals[order] = left  # from here on what one count is worth
        left *= escaped
    for row in range(found):
        top = int(counts[row, 0])
        share = 0.0
        for order in range(1, top + 1):
            share += totals[order] * counts[row, order]
        successors.shares[row] = share
    return left
