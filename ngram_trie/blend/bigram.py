"""Tables of what follows a token elsewhere: the model's own bigram, or that of recorded answers.

With n(t) the number of times that token t follows a token in the answers, N their sum and u the number of different t,
the probability is n(t) / (N + b u): order 1 of `ngram_trie.blend.ppm`. What it leaves is the caller's to give away. A
row holds a token's k likeliest successors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ngram_trie.blend.background import NOTHING, Background, most_common
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.tree import IntArray


def of_answers(answers: Iterable[Sequence[int] | IntArray], k: int, escape: float) -> Background:
    """Of token ids in [0, 2**31), `k` successors of each; none reaches from one answer into the next. `escape` is b."""
    texts = [np.empty(0, np.int64), *(np.asarray(answer, np.int64) for answer in answers)]
    counts = np.bincount(np.concatenate(texts))
    pairs, times = np.unique(np.concatenate([text[:-1] << 31 | text[1:] for text in texts]), return_counts=True)
    first, second = pairs >> 31, pairs & 0x7FFFFFFF
    known, starts, row, kinds = np.unique(first, return_index=True, return_inverse=True, return_counts=True)
    shares = times / (np.bincount(row, times) + escape * kinds)[row]
    order = np.lexsort((second, -times, row))  # of equals the lowest token first
    place = row, np.arange(len(row)) - starts[row]
    kept = place[1] < k
    rows = np.full(len(counts), -1, np.int32)
    rows[known] = np.arange(len(known))
    table = NOTHING._replace(
        rows=rows,
        successors=np.full((len(known), k), -1, np.int32),
        shares=np.zeros((len(known), k), np.float32),
        counts=counts,
        total=int(counts.sum()),
        common=most_common(counts),
    )
    table.successors[place[0][kept], place[1][kept]] = second[order][kept]
    table.shares[place[0][kept], place[1][kept]] = shares[order][kept]
    return table


def of_model(tables: NgramTables, k: int, escape: float) -> Background:
    """Of a model's bigram, which counts as one observation: a probability p is a share of p / (1 + escape). It does not
    say how frequent tokens are.

    Raises:
        ValueError: the tables hold fewer than `k` successors of each token.
    """
    if k > tables.k:
        raise ValueError(f"k={k}: the tables hold {tables.k} successors of each token")
    successors = np.ascontiguousarray(tables.bigram[:, :k], np.int32)
    return NOTHING._replace(
        rows=np.arange(len(successors), dtype=np.int32),
        successors=successors,
        shares=np.asarray(tables.shares[:, :k] / (1 + escape), np.float32),
    )
