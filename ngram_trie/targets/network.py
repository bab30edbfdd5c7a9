"""What runs behind a target: a network, which keeps nothing of a text, and the texts that it has read.

Shapes: l = tokens of a prompt, m = tree nodes, H = hidden size, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ngram_trie.decoding import Seen
from ngram_trie.drafter import TopK
from ngram_trie.tree import DraftTree, IntArray


class Text(Protocol):
    """Keys and values of one text: as many rows in every layer as it has tokens. A network makes its own kind.

    Attributes:
        length: tokens that are kept.
    """

    length: int

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens."""

    def keep(self, past: int, path: list[int]) -> None:
        """Keep the first `past` tokens and, moved right behind them, the nodes in `path` (increasing) of the tree that
        was read last.
        """


class States(NamedTuple):
    """Of some tokens, on the device: the last hidden states, as the head reads them, and logits."""

    hidden: torch.Tensor
    logits: torch.Tensor


@dataclass(kw_only=True)
class Forward(Seen):
    """What one forward of the target gave, on its device; the next one overwrites it. After a prompt it is that of a
    tree of one node, which was accepted: the prompt's last token.

    Attributes:
        tree: what was verified, m nodes.
        hidden: (m, H) the last hidden states, as the language-model head reads them.
        logits: (m, V).
        path: node indices that were accepted, the root first; known once they are committed.
        prompt: (l, H) the hidden states of a prompt that was just read, else None.
        peaks: of a network for CPUs, `peaks_of` the logits, by which the choices were found.
        top_k: where the step itself found them, the likeliest tokens behind every node.
    """

    tree: DraftTree
    hidden: torch.Tensor
    logits: torch.Tensor
    path: list[int] = field(default_factory=list)
    prompt: torch.Tensor | None = None
    peaks: np.ndarray | None = None
    top_k: TopK | None = None


class Network(Protocol):
    """Computes what a model's own modules compute: with these, packed for a CPU, or in graphs on a GPU. It is kept with
    the model and holds no text, so that several targets may read with it in turn.
    """

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """Smallest and largest step, in tokens, of groups that cost the same, ascending from (1, 1); between two groups
        costs grow evenly, and so they do beyond the last.
        """

    def text(self, capacity: int) -> Text:
        """An empty text with room for this many tokens."""

    def read(self, text: Any, ids: IntArray) -> States:
        """Read a prompt (l,) into an empty text: hidden states (l, H), logits of the last token (1, V). The device need
        not be done with it.
        """

    def step(self, text: Any, tree: DraftTree, top_k: int) -> Forward:
        """Read a tree behind the text; of its choices, those are -1 whose logits are not finite (`greedy`). A network
        may find the `top_k` likeliest tokens behind each node on the way.
        """

    def capture(self, text: Any, max_nodes: int, length: int, top_k: int) -> int:
        """Prepare steps of up to `max_nodes` nodes behind texts of up to `length` tokens, before a clock runs; returns
        how many there are. Forgets the text.
        """


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """(m,) the largest logit's token of each row (m, V), on its device; -1 where that logit is not finite. argmax takes
    NaN for the largest, so a row with one is found by the logit that was chosen.
    """
    chosen = logits.argmax(-1, keepdim=True)
    return torch.where(logits.gather(-1, chosen).isfinite(), chosen, -1)[:, 0]
