"""The target model: a stock `AutoModelForCausalLM` that verifies a whole draft tree in one forward.

Nothing of the model is copied or patched. A tree goes in as a flat list of tokens with an attention mask over the cache
and the tree (paper, section 3.2, "Model Verification") and with position ids = cached length + depth (equation 6).

Shapes: b = 1 batch, h = key-value heads, c = cache capacity, p = cached tokens, m = tree nodes, d = head size.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel

from ngram_trie.drafter import TopK
from ngram_trie.targets.internals import Cache, DynamicLayer, attention_of, keeps_state, with_cache
from ngram_trie.targets.load import longest_text, window_of
from ngram_trie.targets.top_k import top_k_rows
from ngram_trie.tree import DraftTree, IntArray

#: Places of a prompt whose logits are made at once.
PROMPT_ROWS = 64


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
            rows = torch.tensor(path, device=held[0].keys.device) + past
            for layer in held:
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


def refusal(model: PreTrainedModel) -> str | None:
    """Why no draft tree can be verified by such a model, in one line; None if nothing speaks against it."""
    config, attention = model.config, attention_of(model.config)
    others = set(getattr(config.get_text_config(), "layer_types", None) or ()) - set(_KINDS)
    if config.is_encoder_decoder:
        what = "has an encoder: drafts are for models that continue a text"
    elif keeps_state(model) or others:
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


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """(m,) the largest logit's token of each row (m, V), on its device; -1 where that logit is not finite. argmax takes
    NaN for the largest, so a row with one is found by the logit that was chosen.
    """
    chosen = logits.argmax(-1, keepdim=True)
    return torch.where(logits.gather(-1, chosen).isfinite(), chosen, -1)[:, 0]


def check_finite(choices: IntArray, model: PreTrainedModel) -> IntArray:
    """The (m,) choices that `greedy` made, on the host.

    Raises:
        ValueError: a logit is not finite.
    """
    if choices.min() < 0:
        raise ValueError(
            f"model {model.name_or_path or type(model).__name__}: a logit is NaN or infinite: its weights are damaged, "
            f"or {str(model.dtype).removeprefix('torch.')} is too small for it (model.dtype)"
        )
    return choices


@dataclass
class Forward:
    """What one forward of the target said, on its device; the next one overwrites it.

    Attributes:
        tree: what was verified, m nodes; None for a prefill, which has the prompt's l tokens instead.
        hidden: (m, H) or (l, H) the last hidden states, as the language-model head reads them.
        logits: (m, V); of a prefill those of the last token alone, (1, V).
        choices: (m,) the greedy next token after each node; of a prefill (1,).
        path: node indices that were accepted, the root first; known once they are committed.
        peaks: of a backend for CPUs, `peaks_of` the logits, by which the choices were found.
        top_k: where the step itself found them, the `keeps_top_k` likeliest tokens behind every node.
    """

    tree: DraftTree | None
    hidden: torch.Tensor
    logits: torch.Tensor
    choices: IntArray
    path: list[int] = field(default_factory=list)
    peaks: np.ndarray | None = None
    top_k: TopK | None = None


class TargetModel:
    """Greedy next tokens of a causal language model, for prompts and for draft trees.

    Args:
        model: any causal model of transformers that takes 4D masks and a cache (docs/library.md lists those tested),
            with eager or SDPA attention; it is put in evaluation mode.
        max_draft: the largest number of draft nodes that `verify` will be given; sizes the cache.
        context_limit: largest number of tokens of prompt and output together; the model's own by default.

    Raises:
        ValueError: the model cannot verify draft trees (`refusal`).

    Attributes:
        last: the last forward of `prefill` or `verify`, for drafters that read more than tokens.
        keeps_top_k: how many of the likeliest tokens behind each node the drafter will ask for after every step, so
            that a backend may find them on the way.
        keeps_prompt: whether a prompt that was the last to be read is not read again: its rows are still in the cache.
        saved_seconds: what the last `prefill` would have taken, had it not been left out: as long as that prompt's did.
    """

    last: Forward
    cache_kind = KVCache
    keeps_top_k = 0
    keeps_prompt = False
    saved_seconds = 0.0
    _prompt: tuple[bytes, Forward, float] | None = None

    def __init__(self, model: PreTrainedModel, max_draft: int = 256, context_limit: int | None = None) -> None:
        if reason := refusal(model):
            raise ValueError(reason)
        self.model = model.eval()
        self.device = model.device
        self.context_limit = longest_text(model.config, context_limit)
        self.max_draft = max_draft
        self.cache = self.cache_kind(model.config.get_text_config().num_hidden_layers, self.context_limit + max_draft)
        self.build_seconds = 0.0
        self._windows = layer_windows(model.config)
        self._knows_head = False

    def prefill(self, prompt_ids: IntArray) -> int:
        """Read the prompt (l,) into an empty cache; returns the first output token.

        Raises:
            ValueError: a logit is not finite, here and in `verify`.
        """
        self.begin_prefill(prompt_ids)
        return self.end_prefill()

    @torch.inference_mode()
    def begin_prefill(self, prompt_ids: IntArray) -> None:
        """Let the device begin to read the prompt; until `end_prefill` the host is free."""
        started = perf_counter()
        self.build_seconds = self.saved_seconds = 0.0
        self._begun, name = None, prompt_ids.tobytes()
        if self.keeps_prompt and self._prompt and self._prompt[0] == name:
            self.cache.truncate(len(prompt_ids))
            return
        self.forget()
        logits = self._forward(torch.from_numpy(prompt_ids)[None], logits_to_keep=1)
        self._begun = (name, logits, greedy(logits), perf_counter() - started)

    def end_prefill(self) -> int:
        """Wait for what `begin_prefill` began; returns the first output token."""
        started = perf_counter()
        if self._begun is None:
            assert self._prompt is not None
            _, self.last, self.saved_seconds = self._prompt
        else:
            name, logits, chosen, seconds = self._begun
            choices = check_finite(chosen.cpu().numpy(), self.model)
            self.last = Forward(None, self._hidden, logits, choices)
            if self.keeps_prompt:
                self._prompt = name, self.last, seconds + perf_counter() - started
        return int(self.last.choices[-1])

    def capture(self) -> int:
        """Prepare steps of every size, before a clock runs; returns how many there are. Here there is nothing to do."""
        return 0

    def forget(self) -> None:
        """Empty the cache."""
        self.cache.truncate(0)
        self._prompt = None

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> IntArray:
        """One forward over the tree's m nodes; returns the greedy next token after each node, (m,).

        The nodes' keys and values stay behind the cached text until `commit` says which of them were accepted.
        """
        started = perf_counter()
        # A plain step needs no mask.
        layout = self._layout(tree) if tree.num_draft else {}
        self.build_seconds += perf_counter() - started
        return self._greedy(tree, torch.from_numpy(tree.tokens)[None], **layout)

    def _layout(self, tree: DraftTree) -> dict[str, Any]:
        """Mask and positions of the tree; where layers differ in their windows, a mask for each kind of layer."""
        each = {
            kind: tree_attention(tree, self.cache.length, self.model.dtype, self.device, window)
            for kind, window in self._windows.items()
        }
        layout: dict[str, Any] = next(iter(each.values()))
        if len(each) > 1:
            layout["attention_mask"] = {kind: part["attention_mask"] for kind, part in each.items()}
        return layout

    @torch.inference_mode()
    def commit(self, past: int, path: list[int]) -> None:
        """Keep the accepted nodes' cache rows behind the `past` tokens that were cached before `verify`."""
        self.last.path = path
        self.cache.keep(past, path)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next is true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def top_k(self, k: int, nodes: IntArray | None = None) -> TopK:
        """Behind each node of the last tree, or `nodes` of it alone; behind the prompt's last token after `prefill`."""
        last = self.last
        if last.tree is None:
            return top_k_rows(np.array([len(last.hidden) - 1]), last.logits, k)
        rows = slice(None) if nodes is None else nodes
        places = np.arange(len(last.tree))[rows]
        if last.top_k is not None and k <= last.top_k.tokens.shape[1]:
            return TopK(places, last.top_k.tokens[rows, :k], last.top_k.probs[rows, :k])
        logits = last.logits if nodes is None else last.logits[torch.from_numpy(nodes)]
        return top_k_rows(places, logits, k, None if last.peaks is None else last.peaks[rows])

    @torch.inference_mode()
    def top_k_in_prompt(self, places: IntArray, k: int, among: IntArray | None = None) -> TopK:
        """Behind the prompt's tokens at `places`, at least one, after `prefill`: one more product with the model's
        head, some rows at a time, since a row of logits is as long as the vocabulary.

        Args:
            among: (s,) increasing, the tokens that are looked at, and that probabilities are shared among: as many
                times cheaper as there are fewer of them; None for the vocabulary.

        Raises:
            ValueError: the model does something with its logits that is not known here.
        """
        rows = None if among is None else torch.from_numpy(among).to(self.device)
        if not self._knows_head and not self._finds_head():
            raise ValueError(
                f"{type(self.model).__name__} changes its logits behind the head in a way that is not known here, "
                "so nothing can be said of its prompt: take a drafter that reads tokens, or blend_logits_answer"
            )
        blocks = [places[start : start + PROMPT_ROWS] for start in range(0, len(places), PROMPT_ROWS)]
        parts = [top_k_rows(block, self._head(self.last.hidden[block], rows), k) for block in blocks]
        found = TopK(*map(np.concatenate, zip(*parts, strict=True)))
        return found if among is None else found._replace(tokens=among[found.tokens])

    def knows_head(self) -> bool:
        """Whether a prompt's logits can be had of its states (`top_k_in_prompt`); reads a token to find out."""
        if not self._knows_head:
            self.prefill(np.zeros(1, np.int64))
            self.forget()
        return self._knows_head or self._finds_head()

    @torch.inference_mode()
    def _finds_head(self) -> bool:
        """Whether `_head` gives the last forward's logits."""
        own, said = self._head(self.last.hidden[-1:]).float(), self.last.logits[-1:].float()
        self._knows_head = torch.allclose(own, said, rtol=0.02, atol=0.02 * float(said.abs().max()))
        return self._knows_head

    def _head(self, hidden: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (n, V) of last hidden states (n, H), scaled and capped as the model's own forward does; of the tokens
        `rows` (s,) alone, (n, s), by these rows of a head that is a plain product.
        """
        config, head = self.model.config.get_text_config(), self.model.get_output_embeddings()
        if rows is not None and type(head) is torch.nn.Linear:
            logits = F.linear(hidden, head.weight[rows], None if head.bias is None else head.bias[rows])
        else:
            logits = head(hidden) if rows is None else head(hidden)[:, rows]
        logits = logits / (getattr(config, "logits_scaling", None) or 1)  # Granite
        logits = logits * (getattr(config, "logit_scale", None) or 1)  # Cohere
        cap = getattr(config, "final_logit_softcapping", None)  # Gemma 2
        return cap * torch.tanh(logits / cap) if cap else logits

    @torch.inference_mode()
    def near_tie(self, ids: list[int], candidates: list[int]) -> tuple[float, bool]:
        """Whether the choice among `candidates` after `ids` (l,) may fall either way by rounding alone.

        Returns:
            The distance of the lowest candidate's logit from the largest logit of all, and whether it lies within a few
            steps of the model's precision. In single precision nothing is excused.
        """
        self.forget()
        logits = self._forward(torch.tensor([ids]), logits_to_keep=1)[-1].float()
        gap = float(logits.max() - logits[candidates].min())
        if self.model.dtype == torch.float32:
            return gap, False
        # Each logit is rounded to the model's precision; sums in another order differ by a few such steps.
        return gap, gap <= 4 * torch.finfo(self.model.dtype).eps * float(logits.max().abs())

    def _greedy(self, tree: DraftTree, ids: torch.Tensor, **kwargs: Any) -> IntArray:
        """(m,) the largest logit's token after each node of the tree, whose tokens go in as `ids`."""
        logits = self._forward(ids, **kwargs)
        choices = check_finite(greedy(logits).cpu().numpy(), self.model)
        self.last = Forward(tree, self._hidden, logits, choices)
        return self.last.choices

    def _forward(self, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Logits (m, vocabulary) of the tokens (1, m) that follow the cached text."""
        # What any causal model of transformers calls its decoder gives the head its input. The hook goes at once: a
        # model outlives its targets, and one left behind would keep their caches alive.
        with self.model.get_decoder().register_forward_hook(self._keep_hidden):
            output = self.model(input_ids=ids.to(self.device), **with_cache(self.model, self.cache), **kwargs)
        return self._of_nodes(output.logits)

    def _of_nodes(self, states: torch.Tensor) -> torch.Tensor:
        """The nodes' own (m, *) out of what a forward gave, (1, m, *)."""
        return states[0]

    def _keep_hidden(self, module: Any, args: Any, output: Any) -> None:
        self._hidden = self._of_nodes(output.last_hidden_state)
