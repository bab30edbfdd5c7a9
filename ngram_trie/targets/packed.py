"""A target for speed on a CPU: weights in the layout that products of a few rows want, and few operations around them.

A step of a few tokens reads all weights once, and that is what it should cost. Two things make it cost more: products
of 4 to 16 rows, which general kernels compute as if they were large ones, and the many small operations between them.
Here the weights are laid out anew once for oneDNN, whose products of few rows stay near the memory's limit, with
residual, bias, SiLU and gate computed in the same pass; norms and rotary embeddings are compiled loops of one pass
each (docs/cpu.md has the measurements, and what else was tried). The weights are held twice.

Single precision only: other types are computed in another order of roundings. Shapes: as in
`ngram_trie.targets.compact`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numba
import numpy as np
import psutil
import torch
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from ngram_trie.targets import compact
from ngram_trie.targets.compact import CompactModel, Linear
from ngram_trie.targets.load import longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.static import StaticCache, attend_tree

#: Positions that are tabulated behind the longest text: rejected drafts stand there.
SPARE = 512


def refusal(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, context_limit: int) -> str | None:
    """Why `PackedTarget` does not run such a model here, in one line; None if it does."""
    if device.type != "cpu":
        what = f"a model on {device}"
    elif dtype != torch.float32:
        what = f"a model in {str(dtype).removeprefix('torch.')}: model.dtype=float32"
    elif not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        what = "this build of PyTorch, which has no oneDNN"
    else:
        said = compact.refusal(config, context_limit)
        return said and said.replace("backend=static", "backend=packed")
    return f"engine.backend=packed does not run {what}; use engine.backend=stock"


def fits(weight_bytes: int) -> bool:
    """Whether this machine has the memory to hold so many bytes of weights once more, with a tenth to spare."""
    return 1.1 * weight_bytes < psutil.virtual_memory().available


@dataclass
class PackedLinear(Linear):
    """A product whose weight is held a second time, in oneDNN's layout."""

    packed: torch.Tensor

    @classmethod
    def of(cls, linear: Linear) -> PackedLinear:
        # the layout is chosen for products of so many rows; others are computed from it as well
        return cls(linear.weight, linear.bias, torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), 8))

    def __call__(self, inputs: torch.Tensor, then: str = "none") -> torch.Tensor:
        """(q, out) from (q, in); `then` is applied to it: "none" or "swish", which is SiLU."""
        return torch.ops.mkldnn._linear_pointwise(inputs, self.packed, self.bias, then, [], "")

    def added_to(self, text: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        return self._with(text, inputs, "add")

    def times(self, other: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """other * (inputs @ weight.T + bias)."""
        return self._with(other, inputs, "mul")

    def _with(self, other: torch.Tensor, inputs: torch.Tensor, operation: str) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(inputs, other, self.packed, self.bias, operation)


class PackedGateUp(Linear):
    """SwiGLU's silu(gate) * up, from weights that have the gate's rows above those of up."""

    def __init__(self, gate_up: Linear) -> None:
        super().__init__(gate_up.weight, gate_up.bias)
        biases = (None, None) if gate_up.bias is None else gate_up.bias.chunk(2)
        self.gate, self.up = (
            PackedLinear.of(Linear(weight.contiguous(), bias))
            for weight, bias in zip(gate_up.weight.chunk(2), biases, strict=True)
        )

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(q, I) from (q, in)."""
        return self.up.times(self.gate(inputs, "swish"), inputs)


class PackedModel(CompactModel):
    """The network with packed weights. Arguments and errors as of `CompactModel`."""

    def __init__(self, model: PreTrainedModel, num_positions: int) -> None:
        super().__init__(model, num_positions)
        for block in self.blocks:
            block.qkv, block.out, block.down = map(PackedLinear.of, (block.qkv, block.out, block.down))
            block.gate_up = PackedGateUp(block.gate_up)
        self.head = PackedLinear.of(self.head)
        self._parts = {"prompt": (_turn_and_store, _as_it_is), "step": (_turn_and_store, _as_it_is)}

    def _normed(self, text: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        normed = torch.empty_like(text)
        rms_norm(text.numpy(), weight.detach().numpy(), np.float32(self.eps), normed.numpy())
        return normed


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
        ValueError: the network does not know such a model, or this machine has no oneDNN.
    """

    cache: StaticCache  # type: ignore[assignment]

    def __init__(self, model: PreTrainedModel, max_draft: int = 256, context_limit: int | None = None) -> None:
        super().__init__(model, max_draft, context_limit)
        if reason := refusal(model.config, model.dtype, self.device, self.context_limit):
            raise ValueError(reason)
        capacity = self.context_limit + max_draft + 1
        self.network = packed_network(model)
        self.cache = StaticCache(self.network.cache_shape, capacity, self.network.embedding)
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
        groups = self.network.num_heads // self.network.num_key_value_heads
        bias = None if attention_mask is None else attention_mask[0, 0].repeat(groups, 1)

        def attend(number: int, queries: torch.Tensor) -> torch.Tensor:
            keys, values = self.cache.rows[number, :, :, : past + count]
            if count == 1 or bias is not None:
                return attend_tree(queries, keys, values, bias, past + count)
            return F.scaled_dot_product_attention(
                queries.transpose(0, 1)[None], keys[None], values[None], is_causal=True, enable_gqa=groups > 1
            )[0].transpose(0, 1)

        positions = slots if position_ids is None else position_ids[0]
        self._hidden = self.network.hidden("step", ids[0], positions, slots, self.cache.rows, attend)
        self.cache.truncate(past + count)
        return self.network.logits(self._hidden[-logits_to_keep:])


def _as_it_is(gated: torch.Tensor) -> torch.Tensor:
    """The gate is part of the product."""
    return gated


def _turn_and_store(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, num_heads: int
) -> None:
    """As in `ngram_trie.targets.compact`; the slots follow each other."""
    turn_and_store(qkv.numpy(), cos.numpy(), sin.numpy(), cache.numpy(), slots.numpy(), num_heads)


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def rms_norm(text: np.ndarray, weight: np.ndarray, eps: np.float32, normed: np.ndarray) -> None:
    """normed = text / sqrt(mean(text^2) + eps) * weight, of each row of (q, H)."""
    rows, size = text.shape
    for row in range(rows):
        total = np.float32(0)
        for place in range(size):
            total += text[row, place] * text[row, place]
        scale = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
        for place in range(size):
            normed[row, place] = text[row, place] * scale * weight[place]


@numba.njit(cache=True, fastmath={"contract"})
def turn_and_store(
    qkv: np.ndarray, cos: np.ndarray, sin: np.ndarray, cache: np.ndarray, slots: np.ndarray, num_heads: int
) -> None:
    """Turn queries of `qkv` (q, a + 2 h, d) in place, and write turned keys and values to `slots` of (2, h, c, d).

    Args:
        cos, sin: (q, 1, d); the sine's first half is negative, as in `CompactModel`.
    """
    rows, _, size = qkv.shape
    key_heads, half = cache.shape[1], qkv.shape[2] // 2
    for row in range(rows):
        slot = slots[row]
        for head in range(num_heads + key_heads):
            for place in range(half):
                low, high = qkv[row, head, place], qkv[row, head, place + half]
                turned_low = low * cos[row, 0, place] + high * sin[row, 0, place]
                turned_high = high * cos[row, 0, place + half] + low * sin[row, 0, place + half]
                if head < num_heads:
                    qkv[row, head, place] = turned_low
                    qkv[row, head, place + half] = turned_high
                else:
                    cache[0, head - num_heads, slot, place] = turned_low
                    cache[0, head - num_heads, slot, place + half] = turned_high
        for head in range(key_heads):
            for place in range(size):
                cache[1, head, slot, place] = qkv[row, num_heads + key_heads + head, place]
