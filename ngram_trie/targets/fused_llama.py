"""A Llama-family network as a handful of tensor operations, over the weights of a stock transformers model.

It does with fewer and larger operations what the stock modules do, all on buffers that stay where they are, so that a
CUDA graph can hold a whole forward: query, key and value weights are one matrix and so are gate and up; rotary
embeddings are turned in place; residuals are added by the matrix product itself; the cache of a layer is one buffer
that is written by one operation. The stock model goes on to work: its weights become views of the joined ones.

Shapes: q = tokens of this forward, H = hidden size, a = attention heads, h = key-value heads, d = head size, c = cache
capacity, k = cached tokens that are attended to, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from ngram_trie.targets.load import window_of

FAMILIES = ("llama", "mistral", "qwen2", "phi3")
#: Rotary embeddings whose angles depend on the length of the text; all others are a table.
_CHANGING_ROPE = ("dynamic", "longrope")

#: What a layer attends with: its number and its queries (q, a, d), to (q, a, d).
Attend = Callable[[int, torch.Tensor], torch.Tensor]


def refusal(config: PretrainedConfig, context_limit: int) -> str | None:
    """Why `FusedLlama` does not compute what such a model computes, in one line; None if it does."""
    if config.model_type not in FAMILIES:
        return (
            f"engine.backend=cuda_graph knows {', '.join(FAMILIES)}, not {config.model_type}; use engine.backend=stock"
        )
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", "default")
    windows = getattr(config, "layer_types", None) or ["sliding_attention"]
    is_used = "sliding_attention" in windows and getattr(config, "use_sliding_window", True)
    window = window_of(config) if is_used else None
    if kind in _CHANGING_ROPE:
        what = f"rotary embeddings of type {kind}"
    elif (rope.get("partial_rotary_factor") or 1) != 1:
        what = f"rotary embeddings of {rope['partial_rotary_factor']} of a head"
    elif config.hidden_act not in ("silu", "swish"):
        what = f"hidden_act={config.hidden_act}"
    elif window is not None and window < context_limit:
        what = f"attention that reaches back {window} tokens at a context limit of {context_limit}"
    else:
        return None
    return f"engine.backend=cuda_graph does not know {what}; use engine.backend=stock"


@dataclass
class Linear:
    """A product with a weight (out, in) and, or None, a bias (out,)."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(q, out) from (q, in)."""
        return F.linear(inputs, self.weight, self.bias)

    def added_to(self, text: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """text + inputs @ weight.T (+ bias), in one kernel where there is no bias."""
        total = torch.addmm(text, inputs, self.weight.t())
        return total if self.bias is None else total + self.bias


@dataclass
class Block:
    """One layer's weights. `gate_up` has the gate's rows above those of up."""

    norm: torch.Tensor
    qkv: Linear
    out: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class FusedLlama:
    """The forward of a Llama, Mistral, Qwen2 or Phi-3 model.

    Args:
        model: the stock model; its weights are joined in place and stay its own.
        num_positions: rotary embeddings are tabulated for this many.
        compiled: of steps, compile the two element-wise parts of a layer into one kernel each (`torch.compile`).
            Prompts have too many lengths for that.

    Raises:
        ValueError: a model that it does not know; the message names what does.
    """

    def __init__(self, model: PreTrainedModel, num_positions: int, compiled: bool = False) -> None:
        config, base = model.config, model.base_model
        if reason := refusal(config, 0):
            raise ValueError(reason)
        self.device, self.dtype = model.device, model.dtype
        self.num_layers = config.num_hidden_layers
        self.num_heads = config.num_attention_heads
        self.num_key_value_heads = config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.num_heads
        self.embedding: torch.Tensor = base.embed_tokens.weight
        self.blocks = [_block(layer) for layer in base.layers]
        self.norm: torch.Tensor = base.norm.weight
        self.eps: float = config.rms_norm_eps
        self.head = _joined_linear([model.get_output_embeddings()])
        with torch.no_grad():
            positions = torch.arange(num_positions, device=self.device)[None]
            cos, sin = (table[0] for table in base.rotary_emb(self.embedding[:1, None], positions))
        half = self.head_size // 2
        self.cos = cos[:, None].contiguous()
        # with the halves of a head swapped, turning is x * cos + swapped * sin; the first half's sine is negative
        self.sin = torch.cat([-sin[:, :half], sin[:, half:]], -1)[:, None].contiguous()
        self._parts: dict[str, tuple[Callable[..., None], Callable[..., torch.Tensor]]] = {
            "prompt": (_turn_and_store, _gate),
            "step": (torch.compile(_turn_and_store), torch.compile(_gate)) if compiled else (_turn_and_store, _gate),
        }

    @property
    def cache_shape(self) -> tuple[int, int, int, int]:
        """(layers, 2, h, d): keys and values of one token."""
        return (self.num_layers, 2, self.num_key_value_heads, self.head_size)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step has to read: all but the embedding, of which it reads a few rows."""
        parts = [self.norm, self.head.weight, self.head.bias]
        for block in self.blocks:
            parts += [block.norm, block.mlp_norm]
            for linear in (block.qkv, block.out, block.gate_up, block.down):
                parts += [linear.weight, linear.bias]
        return sum(part.numel() * part.element_size() for part in parts if part is not None)

    def hidden(
        self,
        of: Literal["prompt", "step"],
        ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """The last hidden states (q, H) of the tokens `ids` (q,), as the head reads them.

        Args:
            of: what the tokens are.
            positions: (q,) of the tokens in the text.
            slots: (q,) cache rows that their keys and values are written to.
            cache: (layers, 2, h, c, d).
            attend: what the queries attend to, once the rows are written.
        """
        turn_and_store, gate = self._parts[of]
        text = F.embedding(ids, self.embedding)
        cos, sin = self.cos.index_select(0, positions), self.sin.index_select(0, positions)
        heads = self.num_heads + 2 * self.num_key_value_heads
        for number, block in enumerate(self.blocks):
            qkv = block.qkv(self._normed(text, block.norm)).view(-1, heads, self.head_size)
            turn_and_store(qkv, cos, sin, cache[number], slots, self.num_heads)
            seen = attend(number, qkv[:, : self.num_heads])
            text = block.out.added_to(text, seen.reshape(len(seen), -1))
            text = block.down.added_to(text, gate(block.gate_up(self._normed(text, block.mlp_norm))))
        return self._normed(text, self.norm)

    def _normed(self, text: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(text, text.shape[-1:], weight, self.eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(q, V) from the last hidden states (q, H)."""
        return self.head(hidden)


def _turn_and_store(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, num_heads: int
) -> None:
    """Turn queries and keys of `qkv` (q, a + 2 h, d) in place and write keys and values to `slots` of (2, h, c, d)."""
    key_value_heads = cache.shape[1]
    turned = qkv[:, : num_heads + key_value_heads]
    swapped = turned.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    turned.mul_(cos).addcmul_(swapped, sin)
    rows = qkv[:, num_heads:].unflatten(1, (2, key_value_heads))
    cache.index_copy_(2, slots, rows.permute(1, 2, 0, 3))


def _gate(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU's silu(gate) * up of (q, 2 I)."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def _block(layer: Any) -> Block:
    """The weights of a stock decoder layer, joined. Phi-3's come joined."""
    attention, mlp = layer.self_attn, layer.mlp
    if hasattr(attention, "qkv_proj"):
        qkv, gate_up = [attention.qkv_proj], [mlp.gate_up_proj]
    else:
        qkv, gate_up = [attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj]
    return Block(
        norm=layer.input_layernorm.weight,
        qkv=_joined_linear(qkv),
        out=_joined_linear([attention.o_proj]),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_joined_linear(gate_up),
        down=_joined_linear([mlp.down_proj]),
    )


def _joined_linear(parts: Sequence[Any]) -> Linear:
    """Weight and bias of all `parts` below each other."""
    for part in parts:
        if type(part) is not nn.Linear:
            raise ValueError(f"engine.backend=cuda_graph reads plain weights, not {type(part).__name__}; use stock")
    weight = _joined([part.weight for part in parts])
    return Linear(weight, None if parts[0].bias is None else _joined([part.bias for part in parts]))


@torch.no_grad()
def _joined(parts: Sequence[nn.Parameter]) -> torch.Tensor:
    """One tensor with the rows of all `parts`, which become views of it; it is made once in a model's life."""
    first, lengths = parts[0].data, [len(part) for part in parts]
    ends = [part.data_ptr() + part.numel() * part.element_size() for part in parts]
    storages = {part.untyped_storage().data_ptr() for part in parts}
    if len(storages) == 1 and [part.data_ptr() for part in parts[1:]] == ends[:-1]:  # joined before
        return first.as_strided((sum(lengths), *first.shape[1:]), first.stride())
    joined = torch.cat([part.data for part in parts])
    for part, rows in zip(parts, joined.split(lengths), strict=True):
        part.data = rows
    return joined
