"""Prediction by partial matching (Cleary and Witten 1984): the orders of a context, blended by their escapes.

Of a context let an occurrence be an earlier place with the context's last token that has a successor; its length is how
many tokens up to there agree with the context's end. With n_k(t) the number of occurrences of length k or more that
token t follows, N_k their sum over all t, and u_k the number of different t,

    P_k(t) = (1 - e_k) n_k(t) / N_k + e_k P_{k-1}(t),        e_k = b u_k / (N_k + b u_k),

from order 1 to the longest occurrence's; b = 1 is Witten and Bell's escape (method C). What order 1 falls back to is
the caller's.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float64]


@njit(cache=True)
def blend_orders(counts: Numbers, found: int, escape: float, weights: FloatArray, shares: FloatArray) -> float:
    """The orders from the longest down to 1: writes each successor's probability to `shares` and returns the share that
    is left to what is below.

    Args:
        counts: (found or more, 1 + max_order) of each successor the length of its longest occurrence, then the number
            of its occurrences of each length; these become the n_k(t).
        escape: b.
        weights: (2, 1 + max_order) scratch.
    """
    weights[:] = 0.0
    totals, kinds = weights[0], weights[1]
    longest = 0
    for row in range(found):
        top = counts[row, 0]
        longest = max(longest, top)
        count = 0
        for order in range(top, 0, -1):
            count += counts[row, order]
            counts[row, order] = count
            totals[order] += count
            kinds[order] += 1
    left = 1.0
    for order in range(longest, 0, -1):
        escaped = escape * kinds[order]
        left /= totals[order] + escaped
        totals[order] = left  # from here on what one count is worth
        left *= escaped
    for row in range(found):
        top = counts[row, 0]
        share = 0.0
        for order in range(1, top + 1):
            share += totals[order] * counts[row, order]
        shares[row] = share
    return left
