"""N-Grammys tables small enough to read."""

from __future__ import annotations

import numpy as np

from ngram_trie.store.ngram_tables import NgramTables

SMALL = NgramTables(
    "",
    True,
    np.array([[2, 0, 3, 1], [1, 2, 3, 0]], np.int32),
    np.array([[1, 2], [2, 3], [3, 0], [0, 1]], np.int32),
    np.array([[[2, 3], [3, 0]], [[0, 0], [1, 1]], [[1, 2], [0, 0]], [[3, 3], [2, 2]]], np.int32),
    np.array([[0.5, 0.25]] * 4, np.float32),
)
