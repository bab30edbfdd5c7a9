"""A target for speed on a CPU: steps of a few tokens that cost little more than reading the weights once.

Two things make them cost more in stock modules: products of 2 to 16 rows, which general kernels compute as if they were
large ones, and the many small operations between them. Here a layer is one compiled function over weights that are laid
out anew, and held twice (`ngram_trie.targets.few_rows`; docs/cpu.md has the measurements, and what else was tried).
Prompts, and steps of more tokens, go through the library's kernels.

Single precision only: other types are computed in another order of roundings. Shapes: as in
`ngram_trie.targets.compact`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import psutil
import torch
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from ngram_trie.targets import compact, few_rows
from ngram_trie.targets.compact import Attend, Block, CompactModel, Linear
from ngram_trie.targets.load import longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.static import StaticCache, attend_tree

#: Products of more rows take a library's kernels, which are as fast there.
FEW = 96

#: Positions that are tabulated behind the longest text: rejected drafts stand there.
SPARE = 512


def refusal(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, context_limit: int) -> str | None:
    """Why `PackedTarget` does not run such a model here, in one line; None if it does."""
    if device.type != "cpu":
        what = f"a model on {device}"
    elif dtype != torch.float32:
        what = f"a model in {str(dtype).removeprefix('torch.')}: model.dtype=float32"
    else:
        said = compact.refusal(config, context_limit)
        return said and said.replace("backend=static", "backend=packed")
    return f"engine.backend=packed does not run {what}; use engine.backend=stock"


def fits(weight_bytes: int) -> bool:
    """Whether this machine has the memory to hold this many bytes of weights once more, with a tenth to spare."""
    return 1.1 * weight_bytes < psutil.virtual_memory().available


class PackedModel(CompactModel):
    """The network with packed weights beside its own. Arguments and errors as of `CompactModel`."""

    def __init__(self, model: PreTrainedModel, num_positions: int) -> None:
        super().__init__(model, num_positions)
        self.layers = [_layer(block) for block in self.blocks]
        self.final_norm, (self.packed_head, self.head_bias) = _array(self.norm), _packed(self.head)

    def hidden_of_few(
        self, ids: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, cache: torch.Tensor, unseen: torch.Tensor
    ) -> torch.Tensor:
        """The last hidden states (q, H) of at most `FEW` tokens that end the text.

        Args:
            ids, positions, slots, cache: as of `hidden`; the slots follow each other, and all before them are seen.
            unseen: (q, q), which of these tokens each doesn't see.
        """
        threads, eps, mask = few_rows.num_threads(), np.float32(self.eps), unseen.numpy()
        text = F.embedding(ids, self.embedding).numpy()
        cos, sin = (table.index_select(0, positions).numpy() for table in (self.cos, self.sin))
        for layer, rows in zip(self.layers, cache.numpy(), strict=True):
            text = few_rows.through(text, layer, eps, cos, sin, rows, slots.numpy(), mask, self.num_heads, threads)
        return torch.from_numpy(few_rows.rms_norm(text, self.final_norm, eps))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As of `CompactModel`."""
        if len(hidden) > FEW:
            return super().logits(hidden)
        sizes = len(self.head.weight), few_rows.num_threads()
        return torch.from_numpy(few_rows.product(hidden.numpy(), self.packed_head, self.head_bias, *sizes))


def _layer(block: Block) -> few_rows.Layer:
    return few_rows.Layer(
        _array(block.norm),
        *_packed(block.qkv),
        *_packed(block.out),
        _array(block.mlp_norm),
        *_packed(block.gate_up),
        *_packed(block.down),
    )


def _packed(linear: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias as `few_rows.product` reads them."""
    bias = np.empty(0, np.float32) if linear.bias is None else _array(linear.bias)
    return few_rows.packed(linear.weight.detach()).numpy(), bias


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


#: The network of each model that was packed, with the state of the weights that it was made from.
_NETWORKS: WeakKeyDictionary[PreTrainedModel, tuple[list[tuple[int, int]], PackedModel]] = WeakKeyDictionary()


def packed_network(model: PreTrainedModel) -> PackedModel:
    """The model's packed network, made once and again when its weights were changed."""
    state, network = _NETWORKS.get(model, (None, None))
    if network is None or state != _state(model):
        network = PackedModel(model, longest_text(model.config) + SPARE)
        _NETWORKS[model] = (_state(model), network)
    return network


def _state(model: PreTrainedModel) -> list[tuple[int, int]]:
    """Where each weight lies and how often it was written to; what inference mode made can't be written to."""
    weights = model.parameters()
    return [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]


class PackedTarget(TargetModel):
    """A target on a CPU that runs a packed network over one static cache.

    Args:
        model: a stock Llama, Mistral, Qwen2 or Phi-3 model in single precision; others are refused. It stays usable.
        max_draft, context_limit: as in `TargetModel`.

    Raises:
        ValueError: the network does not know such a model.
    """

    cache: StaticCache  # type: ignore[assignment]

    def __init__(self, model: PreTrainedModel, max_draft: int = 256, context_limit: int | None = None) -> None:
        super().__init__(model, max_draft, context_limit)
        if reason := refusal(model.config, model.dtype, self.device, self.context_limit):
            raise ValueError(reason)
        capacity = self.context_limit + max_draft + 1
        self.network = packed_network(model)
        # attention reads as far as a vector behind the last value
        self.cache = StaticCache(self.network.cache_shape, capacity + few_rows.WIDTH, self.network.embedding)
        self._slots = torch.arange(capacity)

    def _forward(
        self,
        ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        logits_to_keep: int = 0,
        **_: Any,
    ) -> torch.Tensor:
        """As `TargetModel._forward`. Without a mask the tokens (1, m) see those before them."""
        past, count = self.cache.length, ids.shape[-1]
        slots = self._slots[past : past + count]
        positions = slots if position_ids is None else position_ids[0]
        if count <= FEW:
            mask = torch.ones(count, count).triu(1) if attention_mask is None else attention_mask[0, 0, :, past:]
            self._hidden = self.network.hidden_of_few(ids[0], positions, slots, self.cache.rows, mask != 0)
        else:
            attend = self._attention(past + count, attention_mask)
            self._hidden = self.network.hidden("prompt", ids[0], positions, slots, self.cache.rows, attend)
        self.cache.truncate(past + count)
        return self.network.logits(self._hidden[-logits_to_keep:])

    def _attention(self, length: int, mask: torch.Tensor | None) -> Attend:
        """Attention to the first `length` tokens under a mask (1, 1, q, length); without one, to those before."""
        groups = self.network.num_heads // self.network.num_key_value_heads
        bias = None if mask is None else mask[0, 0].repeat(groups, 1)

        def attend(number: int, queries: torch.Tensor) -> torch.Tensor:
            keys, values = self.cache.rows[number, :, :, :length]
            if bias is not None:
                return attend_tree(queries, keys, values, bias, length)
            return F.scaled_dot_product_attention(
                queries.transpose(0, 1)[None], keys[None], values[None], is_causal=True, enable_gqa=groups > 1
            )[0].transpose(0, 1)

        return attend
