"""The target model: a stock `AutoModelForCausalLM` that verifies a whole draft tree in one forward.

Nothing of the model is copied or patched. A tree goes in as a flat list of tokens with an attention mask over the cache
and the tree (paper, section 3.2, "Model Verification") and with position ids = cached length + depth (equation 6).

Shapes: b = 1 batch, h = key-value heads, c = cache capacity, p = cached tokens, m = tree nodes, d = head size.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache, DynamicLayer

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
        super().lazy_initialization(key_states, value_states)
        batch, heads, _, size = key_states.shape
        self.keys = key_states.new_empty(batch, heads, self.capacity, size)
        self.values = value_states.new_empty(batch, heads, self.capacity, value_states.shape[-1])

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

    def __init__(self, num_layers: int, capacity: int) -> None:
        self.capacity = capacity
        super().__init__(layers=[PreallocatedLayer(capacity) for _ in range(num_layers)])

    @property
    def length(self) -> int:
        """p: number of cached tokens."""
        return int(self.layers[0].length)

    def truncate(self, length: int) -> None:
        for layer in self.layers:
            layer.length = length

    def keep(self, past: int, path: list[int]) -> None:
        """Keep the first `past` rows and, moved right behind them, those of the tree nodes in `path` (increasing)."""
        # A path that is the front of the tree (always so for a chain) already lies where it belongs.
        if path[-1] != len(path) - 1:
            rows = torch.tensor(path, device=self.layers[0].keys.device) + past
            for layer in self.layers:
                for buffer in (layer.keys, layer.values):
                    # index_select copies, so that source and destination rows may overlap
                    buffer[:, :, past : past + len(path)] = buffer.index_select(2, rows)
        self.truncate(past + len(path))


class TargetModel:
    """Greedy next tokens of a causal language model, for prompts and for draft trees.

    Args:
        model: any causal model of transformers that takes 4D masks and a cache (Llama and Qwen2 are tested), in
            evaluation mode, with eager or SDPA attention.
        max_draft: the largest number of draft nodes that `verify` will be given; sizes the cache.
        context_limit: largest number of tokens of prompt and output together; the model's own by default.
    """

    def __init__(self, model: PreTrainedModel, max_draft: int = 256, context_limit: int | None = None) -> None:
        self.model = model.eval()
        self.device = model.device
        self.context_limit = min(
            context_limit or model.config.max_position_embeddings, model.config.max_position_embeddings
        )
        self.max_draft = max_draft
        self.cache = KVCache(model.config.num_hidden_layers, self.context_limit + max_draft)

    @torch.inference_mode()
    def prefill(self, prompt_ids: IntArray) -> int:
        """Read the prompt (l,) into an empty cache; returns the first output token."""
        self.cache.truncate(0)
        logits = self._forward(torch.from_numpy(prompt_ids)[None], logits_to_keep=1)
        return int(logits[-1].argmax())

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> IntArray:
        """One forward over the tree's m nodes; returns the greedy next token after each node, (m,).

        The nodes' keys and values stay behind the cached text until `commit` says which of them were accepted.
        """
        if tree.num_draft == 0:  # a plain step: no mask needed
            logits = self._forward(torch.from_numpy(tree.tokens)[None])
        else:
            past, nodes = self.cache.length, len(tree)
            mask = torch.zeros(1, 1, nodes, past + nodes, dtype=self.model.dtype)
            hidden = ~torch.from_numpy(tree.ancestor_mask)
            mask[0, 0, :, past:].masked_fill_(hidden, torch.finfo(self.model.dtype).min)
            logits = self._forward(
                torch.from_numpy(tree.tokens)[None],
                attention_mask=mask.to(self.device),
                position_ids=(torch.from_numpy(tree.depths) + past)[None].to(self.device),
            )
        return logits.argmax(-1).cpu().numpy()

    @torch.inference_mode()
    def commit(self, past: int, path: list[int]) -> None:
        """Keep the accepted nodes' cache rows behind the `past` tokens that were cached before `verify`."""
        self.cache.keep(past, path)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next is true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def near_tie(self, ids: list[int]) -> tuple[float, bool]:
        """How near the greedy choice after `ids` (l,) was to a tie: the difference of the two largest logits, and
        whether rounding in the model's precision explains another choice. In single precision nothing is excused.
        """
        self.cache.truncate(0)
        top = self._forward(torch.tensor([ids]), logits_to_keep=1)[-1].float().topk(2).values
        gap = float(top[0] - top[1])
        if self.model.dtype == torch.float32:
            return gap, False
        # Each logit is rounded to the model's precision; sums in another order differ by a few such steps.
        return gap, gap <= 8 * torch.finfo(self.model.dtype).eps * float(top[0].abs())

    def _forward(self, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Logits (m, vocabulary) of the tokens (1, m) that follow the cached text."""
        output = self.model(input_ids=ids.to(self.device), past_key_values=self.cache, use_cache=True, **kwargs)
        return output.logits[0]


def load_model(
    path: str, dtype: str = "float32", device: str = "auto", revision: str | None = None, attention: str = "sdpa"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load model and tokenizer from a folder or from the hub; no code from the checkpoint is run and no pickle is read.

    Args:
        path: a folder or a hub id.
        device: "auto" takes the GPU where there is one.
        attention: "sdpa" or "eager" (flash attention 2 takes no custom mask).

    Raises:
        FileNotFoundError: nothing to load; the message says what to do.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
        model = AutoModelForCausalLM.from_pretrained(
            path, revision=revision, dtype=dtype, attn_implementation=attention, use_safetensors=True
        )
    except OSError as error:
        reason = str(error).splitlines()[0]
        hint = (
            "`make train-embedded` makes the embedded model" if Path(path).parent.exists() else "is the hub reachable?"
        )
        raise FileNotFoundError(f"model {path!r} cannot be loaded ({hint}): {reason}") from error
    return model.to(device).eval(), tokenizer


def fingerprint(path: str) -> str:
    """Hash of the weights in a folder, so that a run is never continued with others; hub ids stand for themselves."""
    files = sorted(Path(path).glob("*.safetensors"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes() if file.stat().st_size < 1 << 30 else str(file.stat().st_size).encode())
    return digest.hexdigest()[:16] if files else path
