"""SPACE (Yi et al. 2024, arXiv 2402.11809): a target fine-tuned to guess several tokens at once from mask tokens. One
forward verifies the last guesses and makes the next ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.baselines.checkpoints import weight_parts
from ngram_trie.drafter import Drafter, Traits, check_int, check_place
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

#: As published, and as the fine-tuned models know them.
NUM_MASKS = 5


class Space(Drafter):
    """SPACE's parallel decoding (section 3.2): the candidates are a chain, and behind the root and each of them stand
    `num_masks` mask tokens. Whichever candidate turns out to be the last one accepted, what the model says at the masks
    behind it are the candidates of the next step. With k masks that is (k + 1)^2 tokens a forward: 36 as published.

    In the tree the masks are probes: each group hangs below its candidate, so that tree attention shows it just the
    text before it, at the positions that the masks stand for.

    The method comes with its own target (`own_model`) and is compared with that model's own vanilla.

    Args:
        model: folder or hub id of the fine-tuned target; it takes the run's tokenizer.
        mask_id: its mask token.
        num_masks: k, candidates of a step; fewer where the budget is below (k + 1)^2 - 1 nodes.
        revision: of the hub id.
    """

    traits = Traits(state="trained", reads="choices at mask tokens")

    def __init__(self, *, model: str, mask_id: int, num_masks: int = NUM_MASKS, revision: str | None = None) -> None:
        check_place("model", model, " or a hub id")
        check_int("mask_id", mask_id, 0)
        check_int("num_masks", num_masks, 1)
        self.traits = replace(self.traits, own_model=model, own_revision=revision)
        self.model, self.revision = model, revision
        self.mask_id, self.num_masks = mask_id, num_masks

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The most masks k with (k + 1)^2 - 1 <= num_nodes, no more than the 5 that such a model is trained with."""
        return {"num_masks": min(max(math.isqrt(num_nodes + 1) - 1, 1), NUM_MASKS)}

    def weights(self) -> Mapping[str, str | None]:
        return {self.model: self.revision}

    def parts(self) -> Mapping[Path, str]:
        return weight_parts(
            self.model, self.revision, "`python -m scripts.studies.tiny.train space` trains the tiny one"
        )

    def bind(self, target: TargetModel) -> None:
        """Raises:
        ValueError: the model has no such mask token.
        """
        if self.mask_id >= (size := target.model.config.get_text_config().vocab_size):
            raise ValueError(f"mask_id={self.mask_id}: {self.model} has {size} tokens")
        self.target = target

    def propose(self, budget: int) -> DraftTree:
        num_masks = self.num_masks
        while (num_masks + 1) ** 2 - 1 > budget:
            num_masks -= 1
        if not num_masks:
            return DraftTree.root_only(self.root)
        candidates = self._guesses()[:num_masks]
        size = len(candidates) + 1
        masks = np.full((size, num_masks), self.mask_id, np.int64)
        # Each group is a chain below its candidate.
        above = size + np.arange(size * num_masks, dtype=np.int64).reshape(size, num_masks) - 1
        above[:, 0] = np.arange(size)
        chain = np.arange(-1, size - 1, dtype=np.int64)
        tokens = np.concatenate([[self.root], candidates, masks.ravel()]).astype(np.int64)
        return DraftTree(tokens, np.concatenate([chain, above.ravel()]), probes=masks.size)

    def _guesses(self) -> list[int]:
        """What the last forward said at the masks behind the last accepted token; nothing after a prefill."""
        last = self.target.last
        parents, first_probe = last.tree.parents, len(last.tree) - last.tree.probes
        node, guesses = last.path[-1], []
        while len(below := first_probe + np.flatnonzero(parents[first_probe:] == node)):
            node = int(below[0])
            guesses.append(int(last.choices[node]))
        return guesses
