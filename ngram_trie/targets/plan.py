"""What a family of models computes, as data. The networks for speed (`targets.cpu`, `targets.cuda_graph`) read it and
know no family; docs/extending.md adds one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedConfig

from ngram_trie.targets.load import ropes_of, window_of

#: A layer's norms: before attention, behind it, before the MLP and behind it.
_BEFORE = ("input_layernorm", None, "post_attention_layernorm", None)
_BEHIND = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")
_AROUND = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


class Family(NamedTuple):
    """What no field of a config says.

    Attributes:
        norms: attributes of a layer, see above; None for no norm.
        adds_one: whether norms multiply by 1 + weight.
        widens: whether embeddings are multiplied by the root of their size.
        qkv, gate_up, down: the products of a layer, joined or one by one.
    """

    norms: tuple[str | None, ...] = _BEFORE
    adds_one: bool = False
    widens: bool = False
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"


#: By `model_type`.
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "ministral": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "seed_oss": Family(),
    "smollm3": Family(),
    "granite": Family(),
    "granitemoehybrid": Family(gate_up=("shared_mlp.input_linear",), down="shared_mlp.output_linear"),
    "phi3": Family(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)),
    "gemma2": Family(_AROUND, adds_one=True, widens=True),
    "gemma3_text": Family(_AROUND, adds_one=True, widens=True),
    "olmo2": Family(_BEHIND),
    "olmo3": Family(_BEHIND),
}
#: Rotary embeddings whose angles depend on the length of the text; all others are a table.
_CHANGING_ROPE = ("dynamic", "longrope")
#: Activations, by what configs call them.
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu"}


@dataclass(frozen=True)
class Plan:
    """What a decoder computes, apart from its weights.

    Attributes:
        windows: by layer, how many positions it sees, its own included, or None for all.
        tables: by layer, the kind of its rotary table; "" where there is one kind, None for no rotation.
        activation: "silu" or "gelu", by its tanh.
        embedding, attention, residual, logits: what each is multiplied by.
        attention_cap, logit_cap: scores x become cap tanh(x / cap); None leaves them.
        head_size: d.
    """

    family: Family
    windows: tuple[int | None, ...]
    tables: tuple[str | None, ...]
    activation: str
    embedding: float
    attention: float
    residual: float
    logits: float
    attention_cap: float | None
    logit_cap: float | None
    eps: float
    num_heads: int
    num_key_value_heads: int
    head_size: int

    @property
    def num_layers(self) -> int:
        return len(self.windows)

    @cached_property
    def kinds(self) -> list[str | None]:
        """The kinds of rotary tables, each once."""
        return sorted(set(self.tables), key=str)

    @cached_property
    def spans(self) -> list[int | None]:
        """The windows, each once."""
        return sorted(set(self.windows), key=lambda window: window or 0)


def plan_of(config: PreTrainedConfig) -> Plan | str:
    """What a model of this `config` computes, or why no network for speed computes it: the part of a line that says
    what is not known.
    """
    config = config.get_text_config()

    def field(name: str, default: Any = None) -> Any:
        # a field that the kind of config has not is left over: the model does not read it
        return getattr(config, name) if hasattr(type(config), name) else default

    family = FAMILIES.get(config.model_type)
    if family is None:
        return f"models of type {config.model_type} (it knows {', '.join(FAMILIES)})"
    window, size = window_of(config), config.num_hidden_layers
    layers = field("layer_types") or ["sliding_attention"] * size
    ropes = ropes_of(config)
    changing = [each["rope_type"] for each in ropes.values() if each.get("rope_type") in _CHANGING_ROPE]
    activation = field("hidden_act", field("hidden_activation"))
    if others := sorted(set(layers) - {"full_attention", "sliding_attention"}):
        return f"layers of type {', '.join(others)}"
    if field("num_local_experts", 0):
        return "a mixture of experts"
    if changing:
        return f"rotary embeddings of type {changing[0]}"
    if activation not in _ACTIVATIONS:
        return f"hidden_act={activation}"
    if field("use_bidirectional_attention"):
        return "attention to later tokens"
    turns = field("no_rope_layers") or [field("position_embedding_type", "rope") == "rope"] * size
    tables = [kind if kind in ropes else "" for kind in layers]
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    scale = head_size if (scalar := field("query_pre_attn_scalar")) is None else scalar
    return Plan(
        family,
        windows=tuple(window if kind == "sliding_attention" else None for kind in layers),
        tables=tuple(table if turn else None for table, turn in zip(tables, turns, strict=False)),
        activation=_ACTIVATIONS[activation],
        embedding=config.hidden_size**0.5 if family.widens else field("embedding_multiplier", 1.0),
        attention=field("attention_multiplier", scale**-0.5),
        residual=field("residual_multiplier", 1.0),
        logits=1 / field("logits_scaling", 1.0),
        attention_cap=field("attn_logit_softcapping") if config.model_type != "gemma3_text" else None,
        logit_cap=field("final_logit_softcapping"),
        eps=config.rms_norm_eps,
        num_heads=heads,
        num_key_value_heads=config.num_key_value_heads,
        head_size=head_size,
    )


class Parts(NamedTuple):
    """A layer's modules: norms as in `Family.norms`, and of queries and keys; products, some in parts."""

    norms: list[nn.Module | None]
    query_norm: nn.Module | None
    key_norm: nn.Module | None
    qkv: list[nn.Linear]
    out: list[nn.Linear]
    gate_up: list[nn.Linear]
    down: list[nn.Linear]


def plain(*modules: Any) -> list[nn.Linear]:
    """
    Raises:
        ValueError: one is not a product with a plain weight.
    """
    for module in modules:
        if type(module) is not nn.Linear:
            raise ValueError(f"networks for speed read plain weights, not {type(module).__name__}")
    return list(modules)


def parts_of(layer: nn.Module, family: Family) -> Parts:
    """
    Raises:
        ValueError: a product that is not with a plain weight.
    """

    def linear(*names: str) -> list[nn.Linear]:
        return plain(*map(layer.get_submodule, names))

    attention = layer.get_submodule("self_attn")
    return Parts(
        [None if name is None else layer.get_submodule(name) for name in family.norms],
        getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
        linear(*family.qkv),
        linear("self_attn.o_proj"),
        linear(*family.gate_up),
        linear(family.down),
    )


def rotary_tables(
    rotary: nn.Module | None, kinds: Sequence[str | None], num_positions: int, like: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (kinds, positions, 1, r), r = `size` or, where less is turned, that. Turning is x cos + swapped
    sin, with the halves of x swapped; the first half's sine is negative.

    Args:
        rotary: the model's own module; it may have none if nothing is turned.
        like: what has the type and device of the tables.
    """
    positions = torch.arange(num_positions, device=like.device)[None]
    found = {}
    with torch.no_grad():
        for kind in filter(lambda kind: kind is not None, kinds):
            assert rotary is not None
            found[kind] = rotary(like[:1, None], positions, *([kind] if kind else []))
    width = next((table[0].shape[-1] for table in found.values()), size)
    still = like.new_ones(1, num_positions, width), like.new_zeros(1, num_positions, width)
    cos, sin = (torch.cat(tables) for tables in zip(*[found.get(kind, still) for kind in kinds], strict=True))
    half = width // 2
    sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
    return cos[:, :, None].to(like).contiguous(), sin[:, :, None].to(like).contiguous()
