"""Verification of a draft as a batch of rows, one for each path from the root to a leaf (N-Grammys, appendix D).

Needs no mask of its own: each row is a plain continuation of the text, so any attention that a model has will do.
Tokens that rows share are computed once for each row, and the cache is held once for each row; `StockNetwork`, which
reads the same draft as one tree, does neither. Both accept the same tokens.

Shapes: r = rows, t = tokens of the longest row, m = tree nodes, h = key-value heads, c = cache capacity, p = cached
tokens, d = head size.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch

from ngram_trie.targets.network import Forward
from ngram_trie.targets.stock import KVCache, PreallocatedLayer, StockNetwork
from ngram_trie.tree import DraftTree


class RowsLayer(PreallocatedLayer):
    """One layer's keys and values in buffers (r, h, c, d). Row 0 holds the text; the others hold its first `shared`
    tokens and are brought up to date when they are needed.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.shared = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, end = len(key_states), self.length + key_states.shape[-2]
        if rows > len(self.keys):
            self.keys, self.values = self._widened(self.keys, rows), self._widened(self.values, rows)
            self.shared = 0
        if rows > 1 and self.shared < self.length:
            for buffer in (self.keys, self.values):
                buffer[1:, :, self.shared : self.length] = buffer[:1, :, self.shared : self.length]
            self.shared = self.length
        self.keys[:rows, :, self.length : end] = key_states
        self.values[:rows, :, self.length : end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def _widened(self, buffer: torch.Tensor, rows: int) -> torch.Tensor:
        wide = buffer.new_empty(rows, *buffer.shape[1:])
        wide[0, :, : self.length] = buffer[0, :, : self.length]
        return wide

    def keep_row(self, row: int, past: int, count: int) -> None:
        """Make the text the first `past` tokens and the `count` that `row` continues them with."""
        if row and self.is_initialized:  # some layers read the keys of a layer below them
            for buffer in (self.keys, self.values):
                buffer[0, :, past : past + count] = buffer[row, :, past : past + count]
        self.length, self.shared = past + count, min(self.shared, past)


class RowsCache(KVCache):
    """Keys and values of one text, held once for each row of a batch.

    Attributes:
        row_of: of each node of the tree that was read last, the row that it lies in.
    """

    layer_kind = RowsLayer
    row_of: list[int]

    def truncate(self, length: int) -> None:
        for layer in self.layers:
            layer.keep_row(0, length, 0)

    def keep(self, past: int, path: list[int]) -> None:
        for layer in self.layers:
            layer.keep_row(self.row_of[path[-1]], past, len(path))


class RowsNetwork(StockNetwork):
    """A model's own modules, which read a draft as k rows of w + 1 tokens each, the pending root first, as N-Grammys
    does.

    The rows are the tree's paths from root to leaf, shorter ones filled up behind their leaf. Drafted rows that are
    equal, or the beginning of another, were merged by the tree and are verified once. A text grows to as many rows as a
    draft has had, each of the whole context: 25 rows of 4,096 tokens of a 7B model in half precision are 54 GB, so give
    `context_limit` (model.context_limit) no more than the prompts need.
    """

    cache_kind = RowsCache

    def step(self, text: KVCache, tree: DraftTree, top_k: int) -> Forward:
        """One forward over the tree's rows (r, t)."""
        assert isinstance(text, RowsCache)
        started = perf_counter()
        rows, text.row_of = paths_of(tree)
        width = max(map(len, rows))
        nodes = torch.tensor([path + [0] * (width - len(path)) for path in rows])  # the filling is never read
        ids = torch.from_numpy(tree.tokens)[nodes]
        device = self.model.device
        place = torch.tensor(text.row_of).to(device), torch.from_numpy(tree.depths).to(device)
        built = perf_counter() - started
        hidden, logits = self._forward(text, ids)
        return self._seen(tree, hidden[place], logits[place], built)


def paths_of(tree: DraftTree) -> tuple[list[list[int]], list[int]]:
    """The paths from the root to each leaf, in the order of the leaves, and for each node the first it lies on."""
    inner = set(tree.parents.tolist())
    paths = [tree.path_to(leaf) for leaf in range(len(tree)) if leaf not in inner]
    row_of = [-1] * len(tree)
    for row, path in enumerate(paths):
        for node in path:
            if row_of[node] < 0:
                row_of[node] = row
    return paths, row_of
