"""A model's own modules as a network: a stock `AutoModelForCausalLM` reads a whole draft tree in one forward.

Nothing of the model is copied or patched. A tree goes in as a flat list of tokens with an attention mask over the cache
and the tree (paper, section 3.2, "Model Verification") and with position ids = cached length + depth (equation 6).

Shapes: b = 1 batch, h = key-value heads, c = cache capacity, p = cached tokens, m = tree nodes, d = head size.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from time import perf_counter
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from ngram_trie.targets.internals import (
    Cache,
    DynamicLayer,
    attention_of,
    decoder_of,
    keeps_state,
    last_logits_alone,
    with_cache,
)
from ngram_trie.targets.load import window_of
from ngram_trie.targets.network import Forward, States, greedy
from ngram_trie.tree import DraftTree, IntArray


class PreallocatedLayer(DynamicLayer):
    """One layer's keys and values in buffers (b, h, c, d) that are written in place, of which the first p rows count.

    transformers' `DynamicLayer` copies the whole cache at every step to append to it; its `StaticLayer` attends over
    the whole capacity. This one does neither.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        batch, heads, _, size = key_states.shape
        keys = key_states.new_empty(batch, heads, self.capacity, size)
        values = value_states.new_empty(batch, heads, self.capacity, value_states.shape[-1])
        # Only now: where there was no memory for the buffers, the layer must not count as initialised.
        super().lazy_initialization(key_states, value_states)
        self.keys, self.values = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity


class KVCache(Cache):
    """Keys and values of all layers for one text; rows of rejected drafts are dropped by `keep`."""

    layer_kind = PreallocatedLayer

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[self.layer_kind(capacity) for _ in range(num_layers)])

    @property
    def length(self) -> int:
        """p: number of cached tokens."""
        return max(int(layer.length) for layer in self.layers)

    def truncate(self, length: int) -> None:
        for layer in self.layers:
            layer.length = length

    def keep(self, past: int, path: list[int]) -> None:
        """Keep the first `past` rows and, moved right behind them, those of the tree nodes in `path` (increasing)."""
        # A path that is the front of the tree (always so for a chain) already lies where it belongs.
        if path[-1] != len(path) - 1:
            held = [layer for layer in self.layers if layer.is_initialized]  # others read a layer's below them
            rows = torch.tensor(path) + past
            for layer in held:
                rows = rows.to(layer.keys.device)  # layers may be spread over several
                for buffer in (layer.keys, layer.values):
                    # index_select copies, so that source and destination rows may overlap
                    buffer[:, :, past : past + len(path)] = buffer.index_select(2, rows)
        self.truncate(past + len(path))


def tree_attention(
    tree: DraftTree, past: int, dtype: torch.dtype, device: torch.device | str, window: int | None = None
) -> dict[str, torch.Tensor]:
    """Additive mask (1, 1, m, p + m) and position ids (1, m) of a tree behind `past` cached tokens (equation 6). Layers
    with a sliding `window` see as many positions, their own included.
    """
    nodes = len(tree)
    mask = torch.zeros(1, 1, nodes, past + nodes, dtype=dtype)
    hidden = ~torch.from_numpy(tree.ancestor_mask)
    mask[0, 0, :, past:].masked_fill_(hidden, torch.finfo(dtype).min)
    positions = torch.from_numpy(tree.depths) + past
    if window is not None:
        distances = positions[:, None] - torch.cat([torch.arange(past), positions])
        mask[0, 0].masked_fill_(distances >= window, torch.finfo(dtype).min)
    return {"attention_mask": mask.to(device), "position_ids": positions[None].to(device)}


#: Kinds of layers whose masks and caches are known.
_KINDS = ("full_attention", "sliding_attention")


def layer_windows(config: PreTrainedConfig) -> dict[str, int | None]:
    """The sliding window, or None, of each kind of layer that a model of this `config` has."""
    window, config = window_of(config), config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    return {kind: window if kind == "sliding_attention" else None for kind in kinds} if kinds else {"all": window}


def tree_refusal(model: PreTrainedModel) -> str | None:
    """Why no draft tree can be verified by such a model, in one line; None if nothing speaks against it."""
    config, attention = model.config, attention_of(model.config)
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ())
    others = kinds - set(_KINDS)
    if config.is_encoder_decoder:
        what = "has an encoder: drafts are for models that continue a text"
    elif others or (keeps_state(model) and not kinds):  # of kinds that may have states, some models have none
        layers = f" (layers: {', '.join(sorted(others))})" if others else ""
        what = f"keeps a state that rejected drafts cannot be taken out of{layers}"
    elif getattr(config, "alibi", False) or "position_ids" not in inspect.signature(model.forward).parameters:
        what = "takes no positions, so the branches of a draft tree cannot stand side by side"
    elif attention not in ("sdpa", "eager"):
        return (
            f"the model's attention is {attention!r}, which takes no mask of a draft tree: load the model with "
            "attn_implementation='sdpa' (or 'eager')"
        )
    else:
        return None
    return f"model type {config.model_type} {what}; use the model's own generate"


class StockNetwork:
    """The modules of any causal model of transformers that takes 4D masks and a cache (docs/library.md lists those
    tested), with eager or SDPA attention; it is put in evaluation mode.

    Raises:
        ValueError: the model cannot verify draft trees (`tree_refusal`).
    """

    cache_kind: type[KVCache] = KVCache
    sizes = ((1, 1), (2, 2), (8, 8), (32, 32))

    def __init__(self, model: PreTrainedModel) -> None:
        if reason := tree_refusal(model):
            raise ValueError(reason)
        self._model = weakref.ref(model.eval())  # networks are kept as long as there is the model
        self._windows = layer_windows(model.config)
        self._num_layers = model.config.get_text_config().num_hidden_layers

    @property
    def model(self) -> PreTrainedModel:
        """The model, which whoever has the network keeps alive."""
        model = self._model()
        assert model is not None
        return model

    def text(self, capacity: int) -> KVCache:
        return self.cache_kind(self._num_layers, capacity)

    def read(self, text: KVCache, ids: IntArray) -> States:
        hidden, logits = self._forward(text, torch.from_numpy(ids)[None], **last_logits_alone(self.model))
        return States(hidden[0], logits[0, -1:])

    def step(self, text: KVCache, tree: DraftTree, top_k: int) -> Forward:
        started = perf_counter()
        # A plain step needs no mask.
        layout = self._layout(text, tree) if tree.num_draft else {}
        built = perf_counter() - started
        hidden, logits = self._forward(text, torch.from_numpy(tree.tokens)[None], **layout)
        return self._seen(tree, hidden[0], logits[0], built)

    def capture(self, text: KVCache, max_nodes: int, length: int, top_k: int) -> int:
        return 0

    def _seen(self, tree: DraftTree, hidden: torch.Tensor, logits: torch.Tensor, built: float) -> Forward:
        choices = greedy(logits).cpu().numpy()
        return Forward(choices=choices, build_seconds=built, tree=tree, hidden=hidden, logits=logits)

    def _layout(self, text: KVCache, tree: DraftTree) -> dict[str, Any]:
        """Mask and positions of the tree; where layers differ in their windows, a mask for each kind of layer."""
        each = {
            kind: tree_attention(tree, text.length, self.model.dtype, self.model.device, window)
            for kind, window in self._windows.items()
        }
        layout: dict[str, Any] = next(iter(each.values()))
        if len(each) > 1:
            layout["attention_mask"] = {kind: part["attention_mask"] for kind, part in each.items()}
        return layout

    def _forward(self, text: KVCache, ids: torch.Tensor, **kwargs: Any) -> States:
        """Of the tokens (r, t) that follow the text."""
        model, found, thread = self.model, [], threading.get_ident()

        def keep_hidden(module: Any, args: Any, output: Any) -> None:
            if threading.get_ident() == thread:  # another one may be at another answer of this model
                found.append(output.last_hidden_state)

        # What any causal model of transformers calls its decoder gives the head its input. The hook goes at once: a
        # model outlives its targets, and one left behind would keep their caches alive.
        with decoder_of(model).register_forward_hook(keep_hidden):
            output = model(input_ids=ids.to(model.device), **with_cache(model, text), **kwargs)
        return States(found[-1], output.logits)
