"""Hydra (Ankner et al. 2024, arXiv 2402.05109): Medusa's heads made to depend on the tokens drafted before.

Shapes: H = hidden size, V = vocabulary, h = heads, n = nodes that are continued at once.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from ngram_trie.baselines.checkpoints import fill, read_config
from ngram_trie.baselines.medusa import HeadDrafter, ResBlock, TreeLayout
from ngram_trie.prompt import Prompt
from ngram_trie.targets.internals import with_cache
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.stock import KVCache


class ConditionedBlock(nn.Module):
    """R x + SiLU(W x): (.., c H) to (.., H), the hidden state and c - 1 token embeddings to one state."""

    def __init__(self, size: int, num_inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_inputs * size, size)
        self.res_connection = nn.Linear(num_inputs * size, size)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.res_connection(x) + nn.functional.silu(self.linear(x))


class HydraHeads(nn.Module):
    """Hydra++'s heads with the published names: `prefix_embeding_layer` (spelt so), one decoder layer of the target's
    architecture over its hidden states; `hydra_mlp.{h}.1` (`ConditionedBlock`, h + 2 inputs) and `.3`, `.5`, `.7`,
    which share their weights; `hydra_lm_head.{h}.1` with a bias. The even numbers are dropout there.

    Args:
        config: of the target.
        num_heads, num_layers: heads, and blocks in each.
        prefix_norm: whether the prefix layer ends with a norm.
    """

    def __init__(
        self, config: PreTrainedConfig, backbone: type, num_heads: int, num_layers: int, prefix_norm: bool
    ) -> None:
        super().__init__()
        size = config.hidden_size
        one_layer = copy.deepcopy(config)
        one_layer.num_hidden_layers, one_layer.vocab_size, one_layer.pad_token_id = 1, 1, None
        if getattr(one_layer, "layer_types", None):
            one_layer.layer_types = one_layer.layer_types[:1]
        self.prefix_embeding_layer: PreTrainedModel = backbone(one_layer)
        del self.prefix_embeding_layer.embed_tokens  # it is given embeddings
        if not prefix_norm:
            self.prefix_embeding_layer.norm = nn.Identity()
        self.hydra_mlp = nn.ModuleList()
        self.hydra_lm_head = nn.ModuleList()
        for head in range(num_heads):
            shared = [ResBlock(size)] * (num_layers - 1)
            blocks = [block for each in (ConditionedBlock(size, head + 2), *shared) for block in (nn.Identity(), each)]
            self.hydra_mlp.append(nn.Sequential(*blocks))
            self.hydra_lm_head.append(nn.Sequential(nn.Identity(), nn.Linear(size, config.vocab_size)))

    def prefix(self, hidden: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """The target's hidden states (b, l, H) after the prefix layer, of the same shape."""
        return self.prefix_embeding_layer(inputs_embeds=hidden, **kwargs).last_hidden_state

    def logits(self, head: int, inputs: torch.Tensor) -> torch.Tensor:
        """(.., V) after (.., (head + 2) H): the prefix state and the embeddings of the root and of `head` drafts."""
        return self.hydra_lm_head[head](self.hydra_mlp[head](inputs))


class Hydra(HeadDrafter):
    """Hydra++ with a static tree: head k predicts the k-th token after the root from the prefix state of the last
    accepted token and from the embeddings of the root and of the tokens drafted before it on the same path (section 3).

    The prefix layer reads the hidden states of all text, so it has a cache of its own: one layer of keys and values.
    """

    def load(self, tensors: dict[str, torch.Tensor], folder: Path) -> nn.Module:
        prefix = "prefix_embeding_layer."
        # The release stores the module's whole state: the target's embedding, one that it never reads, and rotary
        # frequencies, which follow from the config.
        extra = ("input_embed_fn.weight", f"{prefix}embed_tokens.weight")
        tensors = {
            key: value
            for key, value in tensors.items()
            if key not in extra and not key.endswith(".rotary_emb.inv_freq")
        }

        def numbers(name: str, place: int) -> set[int]:
            return {int(key.split(".")[place]) for key in tensors if key.startswith(f"{name}.")}

        self.check_stored(len(numbers("hydra_mlp", 1)), folder)
        config, backbone = self.target.model.config, type(self.target.model.base_model)
        # Blocks that share their weights may be stored once; then only the config knows how many there are.
        num_layers = read_config(folder).get("hydra_num_layers") or len(numbers("hydra_mlp.0", 2))
        with init_empty_weights(include_buffers=False):
            heads = HydraHeads(config, backbone, self.num_heads, num_layers, f"{prefix}norm.weight" in tensors)
        if num_layers > 1:
            for key in [key for key in heads.state_dict() if key not in tensors]:
                parts = key.split(".")
                if parts[0] == "hydra_mlp" and (stored := ".".join([*parts[:2], "3", *parts[3:]])) in tensors:
                    tensors[key] = tensors[stored]
        unused = {f"{name}.{head}." for name in ("hydra_mlp", "hydra_lm_head") for head in range(self.num_heads, 99)}
        tensors = {key: value for key, value in tensors.items() if not key.startswith(tuple(unused))}
        fill(heads, tensors, folder, self.target.model.dtype, self.target.device)
        self._embed = self.target.model.get_input_embeddings()
        return heads

    def bind(self, target: TargetModel) -> None:
        super().bind(target)
        self._cache = KVCache(1, target.context_limit)

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._cache.truncate(0)

    def fill_in(self, tokens: np.ndarray, layout: TreeLayout) -> None:
        last = self.target.last
        hidden = last.hidden[last.path] if last.prompt is None else last.prompt
        # Inputs are kept for the nodes of one level: the path's states and embeddings, side by side.
        heads: HydraHeads = self.module
        state = heads.prefix(hidden[None], **with_cache(heads.prefix_embeding_layer, self._cache))[0, -1]
        inputs = torch.cat([state, self._embed(torch.tensor(tokens[0], device=state.device))])[None]
        above = np.zeros(1, np.int64)  # the nodes that `inputs` belong to, in their order
        for head, level in enumerate(layout.levels):
            parents, ranks = np.searchsorted(above, layout.parents[level]), layout.ranks[level]
            best = heads.logits(head, inputs).topk(int(ranks.max()) + 1).indices
            tokens[level] = best.cpu().numpy()[parents, ranks]
            if head + 1 < len(layout.levels):
                above = np.intersect1d(level, layout.parents[layout.levels[head + 1]])
                rows = np.searchsorted(level, above)
                drafted = torch.from_numpy(tokens[above]).to(state.device)
                inputs = torch.cat([inputs[torch.from_numpy(parents[rows])], self._embed(drafted)], dim=-1)
