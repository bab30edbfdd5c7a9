"""A decoder as a handful of tensor operations, over the weights of a stock transformers model; its `Plan` says which.

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
from transformers import PreTrainedModel

from ngram_trie.targets.internals import decoder_of
from ngram_trie.targets.plan import Plan, parts_of, plain

#: What a layer attends with: its number and its queries (q, a, d), to (q, a, d).
Attend = Callable[[int, torch.Tensor], torch.Tensor]


@dataclass
class Linear:
    """A product with a weight (out, in) and, or None, a bias (out,)."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(q, out) from (q, in)."""
        return F.linear(inputs, self.weight, self.bias)

    def added_to(self, text: torch.Tensor, inputs: torch.Tensor, scale: float) -> torch.Tensor:
        """text + scale * (inputs @ weight.T (+ bias)), in one kernel where there is no bias."""
        total = torch.addmm(text, inputs, self.weight.t(), alpha=scale)
        return total if self.bias is None else total.add(self.bias, alpha=scale)


@dataclass
class Block:
    """One layer's weights; norms as in `plan.Family`. `gate_up` has the gate's rows above those of up."""

    norms: Sequence[torch.Tensor | None]
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class FusedDecoder:
    """The forward of a model that has a plan.

    Args:
        model: the stock model; its weights are joined in place and stay its own.
        plan: what it computes.
        compiled: of steps, compile the two element-wise parts of a layer into one kernel each (`torch.compile`).
            Prompts have too many lengths for that.

    Raises:
        ValueError: weights that cannot be read; the message names what can.
    """

    def __init__(self, model: PreTrainedModel, plan: Plan, compiled: bool = False) -> None:
        base: Any = decoder_of(model)
        self.plan, self.device, self.dtype = plan, model.device, model.dtype
        self.rotary = base.rotary_emb
        self.embedding: torch.Tensor = base.embed_tokens.weight
        self.blocks = [_block(layer, plan) for layer in base.layers]
        self.norm: torch.Tensor = base.norm.weight
        self.head = _joined_linear(plain(model.get_output_embeddings()))
        self._widening = float(torch.tensor(plan.embedding, dtype=self.dtype))
        gate = _gate_gelu if plan.activation == "gelu" else _gate_silu
        self._parts: dict[str, tuple[Callable[..., None], Callable[..., torch.Tensor]]] = {
            "prompt": (_turn_and_store, gate),
            "step": (torch.compile(_turn_and_store), torch.compile(gate)) if compiled else (_turn_and_store, gate),
        }

    def hidden(
        self,
        of: Literal["prompt", "step"],
        ids: torch.Tensor,
        tables: Sequence[tuple[torch.Tensor, torch.Tensor]],
        slots: torch.Tensor,
        cache: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """The last hidden states (q, H) of the tokens `ids` (q,), as the head reads them.

        Args:
            of: what the tokens are.
            tables: of each kind of layers, cosine and sine (q, 1, r) of the tokens' positions (`plan.rotary_tables`).
            slots: (q,) cache rows that their keys and values are written to.
            cache: (layers, 2, h, c, d).
            attend: what the queries attend to, once the rows are written.
        """
        turn_and_store, gate = self._parts[of]
        plan, text = self.plan, F.embedding(ids, self.embedding)
        if plan.embedding != 1:
            text = text * self._widening
        heads = plan.num_heads + 2 * plan.num_key_value_heads
        for number, block in enumerate(self.blocks):
            before, behind, mlp_before, mlp_behind = block.norms
            qkv = block.qkv(self._normed(text, before))
            if block.query_norm is not None and block.key_norm is not None:
                sizes = [plan.num_heads * plan.head_size, plan.num_key_value_heads * plan.head_size]
                queries, keys, values = qkv.split([*sizes, sizes[1]], -1)
                qkv = torch.cat(
                    [self._norm_parts(queries, block.query_norm), self._norm_parts(keys, block.key_norm), values], -1
                )
            qkv = qkv.view(-1, heads, plan.head_size)
            turn_and_store(qkv, *tables[plan.kinds.index(plan.tables[number])], cache[number], slots, plan.num_heads)
            seen = attend(number, qkv[:, : plan.num_heads])
            text = self._added(text, block.out, seen.reshape(len(seen), -1), behind)
            inner = gate(block.gate_up(self._normed(text, mlp_before)))
            text = self._added(text, block.down, inner, mlp_behind)
        return self._normed(text, self.norm)

    def _added(self, text: torch.Tensor, linear: Linear, inputs: torch.Tensor, norm: torch.Tensor | None) -> Any:
        if norm is None:
            return linear.added_to(text, inputs, self.plan.residual)
        return text.add(self._normed(linear(inputs), norm), alpha=self.plan.residual)

    def _normed(self, text: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """RMSNorm; None leaves the text."""
        if weight is None:
            return text
        if not self.plan.family.adds_one:
            return F.rms_norm(text, weight.shape, weight, self.plan.eps)
        normed = F.rms_norm(text, weight.shape, None, self.plan.eps)
        return torch.addcmul(normed, normed, weight)

    def _norm_parts(self, text: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._normed(text.unflatten(-1, (-1, len(weight))), weight).flatten(-2)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(q, V) from the last hidden states (q, H)."""
        logits, cap = self.head(hidden), self.plan.logit_cap
        if self.plan.logits != 1:
            logits = logits * self.plan.logits
        return torch.tanh(logits / cap) * cap if cap else logits


def _turn_and_store(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, num_heads: int
) -> None:
    """Turn queries and keys of `qkv` (q, a + 2 h, d) in place and write keys and values to `slots` of (2, h, c, d)."""
    key_value_heads = cache.shape[1]
    turned = qkv[:, : num_heads + key_value_heads, : cos.shape[-1]]
    swapped = turned.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    turned.mul_(cos).addcmul_(swapped, sin)
    rows = qkv[:, num_heads:].unflatten(1, (2, key_value_heads))
    cache.index_copy_(2, slots, rows.permute(1, 2, 0, 3))


def _gate_silu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of (q, 2 I)."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def _gate_gelu(gate_up: torch.Tensor) -> torch.Tensor:
    """The same with GELU by its tanh."""
    gate, up = gate_up.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def _block(layer: nn.Module, plan: Plan) -> Block:
    """The weights of a stock decoder layer, joined."""
    parts = parts_of(layer, plan.family)
    weights: list[Any] = [norm and norm.weight for norm in (*parts.norms, parts.query_norm, parts.key_norm)]
    return Block(weights[:4], *weights[4:], *map(_joined_linear, parts[3:]))


def _joined_linear(parts: Sequence[nn.Linear]) -> Linear:
    """Weight and bias of all `parts` below each other."""
    weight = _joined([part.weight for part in parts])
    return Linear(weight, None if parts[0].bias is None else _joined([part.bias for part in parts]))


@torch.no_grad()
def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
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
