"""A target for speed on a CPU: steps of a few tokens that cost little more than reading the weights once.

Two things make them cost more in stock modules: products of 2 to 16 rows, which general kernels compute as if they were
large ones, and the many small operations between them. Here a forward is one compiled function over weights that are
laid out anew, and held twice (`ngram_trie.targets.small_gemm`; docs/speed.md has measurements).
A prompt is read some tokens at a time, so that what is between two products stays in the processor's cache.

Single precision only: other types are computed in another order of roundings. Shapes: as in
`ngram_trie.targets.fused_llama`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import psutil
import torch
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from ngram_trie.targets import fused_llama, layers, small_gemm
from ngram_trie.targets.check import apart
from ngram_trie.targets.fused_llama import Block, FusedLlama, Linear
from ngram_trie.targets.load import longest_text, window_of
from ngram_trie.targets.model import Forward, TargetModel, check_finite
from ngram_trie.targets.state import State, alteration, state_of
from ngram_trie.targets.top_k import greedy_rows, peaks_of
from ngram_trie.tree import DraftTree, IntArray

#: Tokens that go through all layers together: whole tiles of `small_gemm`.
TOGETHER = 99

#: Positions that are tabulated behind the longest text: rejected drafts stand there.
SPARE = 512


def refusal(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, context_limit: int) -> str | None:
    """Why `CpuTarget` does not run such a model here, in one line; None if it does."""
    if device.type != "cpu":
        what = f"a model on {device}"
    elif dtype != torch.float32:
        what = f"a model in {str(dtype).removeprefix('torch.')}: model.dtype=float32"
    else:
        said = fused_llama.refusal(config, context_limit)
        return said and said.replace("backend=cuda_graph", "backend=cpu")
    return f"engine.backend=cpu does not run {what}; use engine.backend=stock"


def fits(weight_bytes: int) -> bool:
    """Whether this machine has the memory to hold this many bytes of weights once more, and half of them on the way."""
    return 1.5 * weight_bytes < psutil.virtual_memory().available


class CpuCache:
    """Keys (layers, h, panels, d, `PANEL`) and values (layers, h, c, d) of all layers, of which p tokens count."""

    def __init__(self, shape: tuple[int, int, int, int], capacity: int) -> None:
        num_layers, _, heads, size = shape
        panels = -(-capacity // small_gemm.PANEL)
        # zeros: what stands behind the last token is computed, too, and thrown away
        self.keys = np.zeros((num_layers, heads, panels, size, small_gemm.PANEL), np.float32)
        # attention reads as far as a vector behind the last value
        self.values = np.zeros((num_layers, heads, panels * small_gemm.PANEL + small_gemm.WIDTH, size), np.float32)
        self.length = 0

    def truncate(self, length: int) -> None:
        self.length = length

    def keep(self, past: int, path: list[int]) -> None:
        """Keep the first `past` tokens and, moved right behind them, the tree nodes in `path` (increasing)."""
        if path[-1] != len(path) - 1:
            layers.move(self.keys, self.values, past, np.array(path))
        self.length = past + len(path)


class CpuModel(FusedLlama):
    """The network with packed weights beside its own. Arguments and errors as of `FusedLlama`."""

    def __init__(self, model: PreTrainedModel, num_positions: int) -> None:
        super().__init__(model, num_positions)
        with ThreadPoolExecutor(1) as other:
            compiling = other.submit(layers.compile_all)
            self.layers = _layers(self.blocks)
            self.final_norm, (self.packed_head, self.head_bias) = _array(self.norm), _packed(self.head)
            compiling.result()

    def read(self, ids: torch.Tensor, positions: torch.Tensor, cache: CpuCache, unseen: torch.Tensor) -> torch.Tensor:
        """The last hidden states (q, H) of the tokens `ids` (q,), which are written behind the cached text.

        Args:
            positions: (q,) of the tokens in the text.
            unseen: (q, q), which of these tokens each doesn't see; all before them are seen.
        """
        team, eps, mask = small_gemm.team(), np.float32(self.eps), unseen.numpy()
        text = F.embedding(ids, self.embedding).numpy()
        cos, sin = (table.index_select(0, positions).numpy() for table in (self.cos, self.sin))
        slots = np.arange(cache.length, cache.length + len(ids))
        at = cos, sin, cache.keys, cache.values, slots
        with small_gemm.alone():
            text = layers.through(text, self.layers, eps, *at, mask, self.num_heads, team)
        cache.length += len(ids)
        return torch.from_numpy(layers.rms_norm(text, self.final_norm, eps))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As of `FusedLlama`."""
        sizes, nothing = (len(self.head.weight), small_gemm.team()), np.empty((0, 0), np.float32)
        with small_gemm.alone():
            found = small_gemm.product(hidden.numpy(), self.packed_head, self.head_bias, nothing, *sizes)
        return torch.from_numpy(found)


def _layers(blocks: Sequence[Block]) -> layers.Layers:
    """In one array each: what a compiled function is given costs time at every call; all layers are given at once."""
    names = ("norm", "qkv", "out", "mlp_norm", "gate_up", "down")
    parts = ([_parts(getattr(block, name)) for block in blocks] for name in names)
    return layers.Layers(*(np.stack(each) for part in parts for each in zip(*part, strict=True)))


def _parts(weights: torch.Tensor | Linear) -> tuple[np.ndarray, ...]:
    return _packed(weights) if isinstance(weights, Linear) else (_array(weights),)


def _packed(linear: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias as `small_gemm.product` reads them."""
    bias = np.empty(0, np.float32) if linear.bias is None else _array(linear.bias)
    return small_gemm.packed(linear.weight.detach()).numpy(), bias


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


#: Of each model its state when it was last packed, and its network, or why it has none.
_NETWORKS: WeakKeyDictionary[PreTrainedModel, tuple[State, CpuModel | str]] = WeakKeyDictionary()
_PACKING = threading.Lock()


def cpu_network(model: PreTrainedModel, state: State | None = None) -> CpuModel | str:
    """The model's packed network, made once, and again when the model is in another state; or why it has none: its
    modules do something else than the network, by what hangs on them or by what they answer.
    """
    state = state or state_of(model)
    with _PACKING:
        if model not in _NETWORKS or _NETWORKS[model][0] != state:
            _NETWORKS.pop(model, None)  # its memory is free before more is taken
            found: CpuModel | str | None = alteration(model)
            if found is None:
                found = CpuModel(model, longest_text(model.config) + SPARE)
                checked = longest_text(model.config, min(128, window_of(model.config) or 128))
                found = apart(CpuTarget(model, 8, checked, found)) or found
            _NETWORKS[model] = state, found
        return _NETWORKS[model][1]


class CpuTarget(TargetModel):
    """A target on a CPU that runs a packed network over one static cache.

    Args:
        model: a stock Llama, Mistral, Qwen2 or Phi-3 model in single precision; others are refused. It stays usable.
        max_draft, context_limit: as in `TargetModel`.
        network: the model's packed network, where it is at hand.

    Raises:
        ValueError: the network does not know such a model, or does not compute what it does.
    """

    cache: CpuCache  # type: ignore[assignment]

    def __init__(
        self,
        model: PreTrainedModel,
        max_draft: int = 256,
        context_limit: int | None = None,
        network: CpuModel | None = None,
    ) -> None:
        super().__init__(model, max_draft, context_limit)
        if reason := refusal(model.config, model.dtype, self.device, self.context_limit):
            raise ValueError(reason)
        found = network or cpu_network(model)
        if isinstance(found, str):
            raise ValueError(f"engine.backend=cpu: {found}; use engine.backend=stock")
        self.network = found
        capacity = self.context_limit + max_draft + 1
        self.cache = CpuCache(self.network.cache_shape, capacity)
        self._positions = torch.arange(capacity)

    def _layout(self, tree: DraftTree) -> dict[str, Any]:
        """What each node does not see of the tree, and positions."""
        positions = torch.from_numpy(tree.depths + self.cache.length)
        return {"unseen": torch.from_numpy(~tree.ancestor_mask), "position_ids": positions}

    def _greedy(self, tree: DraftTree, ids: torch.Tensor, **kwargs: Any) -> IntArray:
        """The largest logits of groups are found on the way, by which `top_k` finds the likeliest tokens, too."""
        logits = self._forward(ids, **kwargs)
        rows = logits.numpy()
        peaks = peaks_of(rows)
        choices = check_finite(greedy_rows(rows, peaks), self.model)
        self.last = Forward(tree, self._hidden, logits, choices, peaks=peaks)
        return choices

    def _forward(
        self,
        ids: torch.Tensor,
        unseen: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> torch.Tensor:
        """As `TargetModel._forward`. Without `unseen` the tokens (1, m) see those before them."""
        past, count = self.cache.length, ids.shape[-1]
        if unseen is None:
            positions = self._positions[past : past + count]
            parts = [
                self.network.read(part, at, self.cache, torch.ones(len(part), len(part)).triu(1) != 0)
                for part, at in zip(ids[0].split(TOGETHER), positions.split(TOGETHER), strict=True)
            ]
            self._hidden = torch.cat(parts)
        else:
            assert position_ids is not None
            self._hidden = self.network.read(ids[0], position_ids, self.cache, unseen)
        return self.network.logits(self._hidden[-logits_to_keep:])
