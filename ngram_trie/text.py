"""A text that grows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class GrowingText:
    """Token ids in one array, which is made anew, twice as large, when it is full.

    Args:
        ids: (n,) the first ones.
        dtype: how they are held.
    """

    def __init__(self, ids: np.ndarray | Sequence[int], dtype: Any = np.int64) -> None:
        self._size = len(ids)
        self._buffer = np.empty(2 * self._size + 256, dtype)
        self._buffer[: self._size] = ids

    def __len__(self) -> int:
        return self._size

    @property
    def ids(self) -> np.ndarray:
        """(n,) a view of all."""
        return self._buffer[: self._size]

    def extend(self, ids: np.ndarray | Sequence[int]) -> None:
        end = self._size + len(ids)
        if end > len(self._buffer):
            grown = np.empty(2 * end, self._buffer.dtype)
            grown[: self._size] = self.ids
            self._buffer = grown
        self._buffer[self._size : end] = ids
        self._size = end
