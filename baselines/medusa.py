"""Medusa-1 (Cai et al. 2024, arXiv 2401.10774): heads on the frozen target that predict the tokens after the next.

Shapes: H = hidden size, V = vocabulary, h = heads, d = depth of a node (1 below the root), r = rank of a token.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import init_empty_weights
from torch import nn

from ngram_trie.baselines.checkpoints import fill, locate, read_config, read_tensors, weight_parts
from ngram_trie.drafter import Drafter, Traits, check_choice, check_int, check_place
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree, FloatArray

Ranks = tuple[int, ...]

#: The static tree that Medusa and Hydra publish for Vicuna-7B, the likeliest nodes first: each as the ranks (digits) of
#: the tokens on its path.
_PUBLISHED = (
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 "
    "011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070"
)
PUBLISHED_TREE: tuple[Ranks, ...] = tuple(tuple(map(int, path)) for path in _PUBLISHED.split())


def likely_tree(accuracies: Sequence[Sequence[float]], num_nodes: int) -> tuple[Ranks, ...]:
    """The `num_nodes` nodes that are most likely accepted (Medusa, section 2.3.3): best first, by the product of the
    accuracies on the path, as if they were independent.

    Args:
        accuracies: [d - 1][r], how often the token of rank r is right at depth d.
    """
    frontier: list[tuple[float, Ranks]] = [(-accuracies[0][0], (0,))]
    chosen: list[Ranks] = []
    while frontier and len(chosen) < num_nodes:
        minus, path = heapq.heappop(frontier)
        chosen.append(path)
        head = accuracies[len(path) - 1]
        if path[-1] + 1 < len(head):  # its next sibling
            before = minus / head[path[-1]] if head[path[-1]] else 0.0
            heapq.heappush(frontier, (before * head[path[-1] + 1], (*path[:-1], path[-1] + 1)))
        if len(path) < len(accuracies):  # its first child
            heapq.heappush(frontier, (minus * accuracies[len(path)][0], (*path, 0)))
    return tuple(chosen)


class TreeLayout:
    """A tree of ranks, ready to be filled with tokens: nodes by depth, parents before children.

    Attributes:
        parents: (m,) as in `DraftTree`, the root included.
        ranks: (m,) rank of each node's token among the candidates at its place; 0 for the root.
        levels: for each depth the indices of its nodes.
        probs: (m,) path probabilities by the accuracies, as `likely_tree` takes them; None without.
    """

    def __init__(self, paths: Sequence[Ranks], accuracies: Sequence[Sequence[float]] | None = None) -> None:
        paths = [(), *sorted(paths, key=len)]
        index = {path: node for node, path in enumerate(paths)}
        self.parents = np.array([-1, *(index[path[:-1]] for path in paths[1:])], np.int64)
        self.ranks = np.array([0, *(path[-1] for path in paths[1:])], np.int64)
        depths = np.array([len(path) for path in paths])
        self.levels = [np.flatnonzero(depths == depth) for depth in range(1, depths.max() + 1)]
        self.probs: FloatArray | None = None
        if accuracies:
            self.probs = np.ones(len(paths))
            for node in range(1, len(paths)):
                edge = accuracies[depths[node] - 1][self.ranks[node]]
                self.probs[node] = self.probs[self.parents[node]] * edge


class ResBlock(nn.Module):
    """x + SiLU(W x): (.., H) to (.., H); the identity before training."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.silu(self.linear(x))


class MedusaHeads(nn.ModuleList):
    """One head for each token after the next, with the published names: `{h}.0.linear.weight` (H, H),
    `{h}.0.linear.bias` (H,), `{h}.1.weight` (V, H).
    """

    def __init__(self, num_heads: int, hidden_size: int, vocab_size: int) -> None:
        heads = (
            nn.Sequential(ResBlock(hidden_size), nn.Linear(hidden_size, vocab_size, bias=False))
            for _ in range(num_heads)
        )
        super().__init__(heads)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (h, .., V) after hidden states (.., H)."""
        return torch.stack([head(hidden) for head in self])


class HeadDrafter(Drafter):
    """What Medusa and Hydra share: weights beside the target, a tree of ranks, the target's hidden states.

    Args:
        heads: folder or hub id of the weights.
        revision: of the hub id.
        num_heads: how many of the stored heads are used.
        tree: "published", the static tree of 63 nodes; "likely", the `num_draft` nodes that the accuracies in the
            weights' config.json (`head_accuracies`) promise the most of.
        num_draft: most nodes; `propose` takes its budget where that is smaller. None for all of the published tree.
    """

    traits = Traits(state="trained", reads="hidden states")
    module: Any  # the heads, once they are bound
    _model: Any = None  # that they were loaded for

    def __init__(
        self,
        *,
        heads: str,
        revision: str | None = None,
        num_heads: int = 4,
        tree: str = "published",
        num_draft: int | None = None,
    ) -> None:
        check_place("heads", heads, " or a hub id")
        check_int("num_heads", num_heads, 1)
        check_choice("tree", tree, ("published", "likely"))
        if num_draft is not None or tree == "likely":
            check_int("num_draft", num_draft, 1)
        self.heads, self.revision, self.num_heads = heads, revision, num_heads
        self.tree, self.num_draft = tree, num_draft

    def weights(self) -> Mapping[str, str | None]:
        return {self.heads: self.revision}

    def parts(self) -> Mapping[Path, str]:
        return weight_parts(
            self.heads, self.revision, "`python -m scripts.studies.tiny.train heads` trains the tiny model's"
        )

    def bind(self, target: TargetModel) -> None:
        """Load the heads onto the target's device, in its precision; once for a model, whose cache may grow.

        Raises:
            FileNotFoundError, ValueError: no weights, or not for this target.
        """
        self.target = target
        if target.model is self._model:
            return
        folder = locate(self.heads, self.revision)
        # Of the buffers only the place changes: rotary frequencies do not survive half precision.
        self.module = self.load(read_tensors(folder), folder).to(target.device).eval()
        accuracies = None
        if self.tree == "likely":
            accuracies = read_config(folder).get("head_accuracies")
            if not accuracies:
                raise ValueError(f"{folder}: its config.json has no head_accuracies; use tree=published")
        self._likely = accuracies and accuracies[: self.num_heads]
        self._layouts: dict[int, TreeLayout] = {}
        self._model = target.model

    def layout(self, budget: int) -> TreeLayout:
        """The tree of at most `budget` nodes."""
        if budget not in self._layouts:
            if self._likely:
                paths = likely_tree(self._likely, budget)
            else:
                paths = tuple(path for path in PUBLISHED_TREE if len(path) <= self.num_heads)[:budget]
            self._layouts[budget] = TreeLayout(paths, self._likely)
        return self._layouts[budget]

    @torch.inference_mode()
    def propose(self, budget: int) -> DraftTree:
        layout = self.layout(min(budget, len(PUBLISHED_TREE) if self.num_draft is None else self.num_draft))
        tokens = np.empty(len(layout.parents), np.int64)
        tokens[0] = self.root
        self.fill_in(tokens, layout)
        return DraftTree(tokens, layout.parents, probs=layout.probs)

    @abstractmethod
    def load(self, tensors: dict[str, torch.Tensor], folder: Path) -> nn.Module:
        """The heads with these weights, in the target's precision, on its device."""

    def check_stored(self, num_stored: int, folder: Path) -> None:
        """Raises:
        ValueError: `folder` holds fewer heads than are asked for.
        """
        if num_stored < self.num_heads:
            raise ValueError(f"num_heads={self.num_heads}: {folder} holds {num_stored}")

    @abstractmethod
    def fill_in(self, tokens: np.ndarray, layout: TreeLayout) -> None:
        """Write the drafted tokens (m,) below the root, which is there already."""


class Medusa(HeadDrafter):
    """Medusa-1: head k reads the hidden state of the last accepted token and predicts the k-th token after the root;
    the tree takes every combination of their best tokens that its layout names (section 2.1.2).

    The published heads of Vicuna-7B are five, of which the release uses four, with a static tree of 63 nodes.
    """

    def load(self, tensors: dict[str, torch.Tensor], folder: Path) -> nn.Module:
        numbers = {key: int(key.partition(".")[0]) for key in tensors if key[0].isdigit()}
        self.check_stored(len(set(numbers.values())), folder)
        config = self.target.model.config.get_text_config()
        with init_empty_weights():
            heads = MedusaHeads(self.num_heads, config.hidden_size, config.vocab_size)
        used = {key: value for key, value in tensors.items() if numbers.get(key, 0) < self.num_heads}
        fill(heads, used, folder, self.target.model.dtype, self.target.device)
        return heads

    def fill_in(self, tokens: np.ndarray, layout: TreeLayout) -> None:
        last = self.target.last
        logits = self.module(last.hidden[last.path[-1]])
        for level, scores in zip(layout.levels, logits, strict=False):
            ranks = layout.ranks[level]
            best = scores.topk(int(ranks.max()) + 1).indices.cpu().numpy()
            tokens[level] = best[ranks]
