"""A network for speed on a CPU: steps of a few tokens that cost little more than reading the weights once.

Two things make them cost more in stock modules: products of 2 to 16 rows, which general kernels compute as if they were
large ones, and the many small operations between them. Here a forward is one compiled function over weights that are
laid out anew, and held twice (`ngram_trie.targets.small_gemm`; docs/speed.md has measurements).
A prompt is read some tokens at a time, so that what is between two products stays in the processor's cache.

Single precision only: other types are computed in another order of roundings.

Shapes: q = tokens of a forward, H = hidden size, a = attention heads, h = key-value heads, d = head size, c = capacity
of a text, w = different windows of layers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ngram_trie.targets import layers, small_gemm
from ngram_trie.targets.internals import decoder_of
from ngram_trie.targets.network import Forward, States
from ngram_trie.targets.plan import Parts, Plan, parts_of, plain, rotary_tables
from ngram_trie.targets.top_k import greedy_rows, peaks_of
from ngram_trie.tree import DraftTree, IntArray

#: Tokens of a prompt that go through all layers together: whole tiles of `small_gemm`.
PREFILL_CHUNK = 99

_TILE = small_gemm.MAX_ROWS


def fits(weight_bytes: int) -> bool:
    """Whether this machine has the memory to hold this many bytes of weights once more, and a tenth on the way."""
    return 1.1 * weight_bytes < psutil.virtual_memory().available


class PackedText:
    """Keys (layers, h, panels, d, `PANEL`) and values (layers, h, c, d) of all layers, of which p tokens count.

    Attributes:
        tables: cosine and sine of each kind of layers (tables, c, 1, r).
    """

    def __init__(self, plan: Plan, capacity: int, tables: tuple[torch.Tensor, torch.Tensor]) -> None:
        panels, shape = -(-capacity // small_gemm.PANEL), (plan.num_layers, plan.num_key_value_heads)
        # zeros: what stands behind the last token is computed, too, and thrown away
        self.keys = np.zeros((*shape, panels, plan.head_size, small_gemm.PANEL), np.float32)
        # attention reads as far as a vector behind the last value
        self.values = np.zeros((*shape, panels * small_gemm.PANEL + small_gemm.WIDTH, plan.head_size), np.float32)
        self.tables = tables
        self.length = 0

    def truncate(self, length: int) -> None:
        self.length = length

    def keep(self, past: int, path: list[int]) -> None:
        if path[-1] != len(path) - 1:
            layers.move(self.keys, self.values, past, np.array(path))
        self.length = past + len(path)


class PackedNetwork:
    """A network over packed weights, beside the model's own.

    Raises:
        ValueError: weights that cannot be read.
    """

    #: A step costs more with each token, and more with each tile that is begun; hardly more for the first of a tile,
    #: which are computed while memory gives the weights.
    sizes = tuple((tokens, tokens) for tokens in sorted({1, 2 * _TILE // 3, _TILE, _TILE + 1, 2 * _TILE, 18, 36}))

    def __init__(self, model: PreTrainedModel, plan: Plan) -> None:
        base: Any = decoder_of(model)
        (head,) = plain(model.get_output_embeddings())
        with ThreadPoolExecutor(1) as other:
            compiling = other.submit(layers.compile_all)
            self.plan, self.rotary, self.embedding = plan, base.rotary_emb, base.embed_tokens.weight
            self.layers = _layers([parts_of(layer, plan.family) for layer in base.layers], plan)
            self.final_norm = _norm(base.norm, plan)
            (self.head,), (self.head_bias,) = _packed([[head]], plan.logits)
            self.num_tokens = len(head.weight)
            compiling.result()
        self.numbers = layers.Numbers(
            plan.num_heads, np.float32(plan.eps), np.float32(plan.attention), np.float32(plan.attention_cap or 0),
            plan.activation == "gelu",
        )  # fmt: skip
        self._tables: tuple[torch.Tensor, torch.Tensor] | None = None
        self._tabulating = threading.Lock()

    def text(self, capacity: int) -> PackedText:
        with self._tabulating:
            if self._tables is None or self._tables[0].shape[1] < capacity:
                self._tables = rotary_tables(
                    self.rotary, self.plan.kinds, capacity, self.embedding, self.plan.head_size
                )
            return PackedText(self.plan, capacity, self._tables)

    def read(self, text: PackedText, ids: IntArray) -> States:
        parts = []
        for part in torch.from_numpy(ids).split(PREFILL_CHUNK):
            later = np.triu(np.ones((len(part), len(part)), np.bool_), 1)
            parts.append(self._rows(text, part, text.length + np.arange(len(part)), later))
        hidden = torch.cat(parts)
        return States(hidden, self._logits(hidden[-1:]))

    def step(self, text: PackedText, tree: DraftTree, top_k: int) -> Forward:
        """The largest logits of groups are found on the way, by which `top_k` finds the likeliest tokens, too."""
        started = perf_counter()
        unseen, positions = ~tree.ancestor_mask, tree.depths + text.length
        built = perf_counter() - started
        hidden = self._rows(text, torch.from_numpy(tree.tokens), positions, unseen)
        logits = self._logits(hidden)
        rows = logits.numpy()
        peaks = peaks_of(rows)
        choices = greedy_rows(rows, peaks)
        return Forward(choices=choices, build_seconds=built, tree=tree, hidden=hidden, logits=logits, peaks=peaks)

    def capture(self, text: PackedText, max_nodes: int, length: int, top_k: int) -> int:
        return 0

    def _rows(self, text: PackedText, ids: torch.Tensor, positions: IntArray, unseen: np.ndarray) -> torch.Tensor:
        """The last hidden states (q, H) of tokens (q,), which are written behind the text.

        Args:
            positions: (q,) of the tokens in the text.
            unseen: (q, q), which of these tokens each doesn't see; all before them are seen, but for windows.
        """
        rows = F.embedding(ids, self.embedding)
        if self.plan.embedding != 1:
            rows = rows * self.plan.embedding
        past, spans = text.length, self.plan.spans
        starts = np.zeros((len(spans), len(ids)), np.int64)
        masks = np.empty((len(spans), *unseen.shape), np.bool_)
        for number, span in enumerate(spans):
            masks[number] = unseen
            if span is not None:
                masks[number] |= positions[:, None] - positions >= span
                starts[number] = (positions - span + 1).clip(0, past)
        at = torch.from_numpy(positions)
        cos, sin = (table.index_select(1, at).numpy() for table in text.tables)
        slots = np.arange(past, past + len(ids))
        threads = small_gemm.threads_and_kernel()
        with small_gemm.alone():
            found = layers.run_layers(
                rows.detach().numpy(), self.layers, self.numbers, cos, sin, text.keys, text.values, slots, masks,
                starts, threads,
            )  # fmt: skip
        text.length += len(ids)
        return torch.from_numpy(layers.rms_norm(found, self.final_norm, self.numbers.eps, layers.NOTHING))

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(q, V) from the last hidden states (q, H)."""
        sizes, nothing = (self.num_tokens, small_gemm.threads_and_kernel()), np.empty((0, 0), np.float32)
        with small_gemm.alone():
            found = small_gemm.product(hidden.numpy(), self.head, self.head_bias, nothing, *sizes)
        logits, cap = torch.from_numpy(found), self.plan.logit_cap
        return logits.div_(cap).tanh_().mul_(cap) if cap else logits


def _layers(parts: Sequence[Parts], plan: Plan) -> layers.Layers:
    """In one array each: what a compiled function is given costs time at every call; all layers are given at once."""
    before, behind, mlp_before, mlp_behind = (
        np.stack([_norm(part.norms[place], plan, plan.residual if place % 2 else 1.0) for part in parts])
        for place in range(4)
    )
    arrays: dict[str, np.ndarray] = {}
    for name in layers.PRODUCTS:
        behind_it = {"out": behind, "down": mlp_behind}.get(name)
        scale = plan.residual if behind_it is not None and not behind_it.shape[1] else 1.0
        arrays[name], arrays[f"{name}_bias"] = _packed([getattr(part, name) for part in parts], scale)
    return layers.Layers(
        norm=before,
        out_norm=behind,
        mlp_norm=mlp_before,
        down_norm=mlp_behind,
        query_norm=np.stack([_norm(part.query_norm, plan) for part in parts]),
        key_norm=np.stack([_norm(part.key_norm, plan) for part in parts]),
        span=np.array([plan.spans.index(window) for window in plan.windows]),
        table=np.array([plan.kinds.index(kind) for kind in plan.tables]),
        **arrays,
    )


def _norm(module: Any, plan: Plan, scale: float = 1.0) -> np.ndarray:
    """What a norm multiplies by, times `scale`; nothing where there is no norm."""
    if module is None:
        return np.empty(0, np.float32)
    weight: np.ndarray = module.weight.detach().numpy()
    return (1 + weight if plan.family.adds_one else weight) * np.float32(scale)


def _packed(products: Sequence[Sequence[torch.nn.Linear]], scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases of n products, each of parts below each other, times `scale`, as `small_gemm.product` reads
    them: (n, panels, in, `PANEL`) and (n, out or 0).
    """
    with torch.no_grad():
        packed = small_gemm.packed([[part.weight for part in parts] for parts in products])
        found: list[list[Any]] = [[part.bias for part in parts if part.bias is not None] for parts in products]
        biases = torch.stack([torch.cat(each) if each else torch.empty(0) for each in found])
        return (packed if scale == 1 else packed.mul_(scale)).numpy(), (biases * scale).numpy()
