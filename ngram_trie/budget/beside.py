"""Copies beside a trained drafter: at each step that of the two drafts which is expected to emit more.

Engines that run both ask the copies first, or from a length of match on. A draft that says how likely its nodes are
needs neither rule: it can be held against what the trained drafter has had accepted so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from ngram_trie.tree import DraftTree


@dataclass
class TrainedRate:
    """How many of a trained drafter's tokens a step accepts: a running mean over the steps in which it drafted.

    Attributes:
        mean: what is expected before anything was seen, and then what was seen.
        weight: of each new step; on odd questions of recorded answers 0.02 to 0.1 give the same.
    """

    mean: float = 2.0
    weight: float = 0.05

    def update(self, num_accepted: int) -> None:
        """Take note of a step in which it drafted."""
        self.mean += self.weight * (num_accepted - self.mean)


def expected_accepted(draft: DraftTree) -> float:
    """How many nodes of a draft are accepted if its probabilities are right; 0 of an empty one.

    Raises:
        ValueError: it does not say how likely its nodes are.
    """
    if draft.probs is None:
        raise ValueError("the draft does not say how likely its nodes are (DraftTree.probs)")
    return float(draft.probs[1:].sum())


def choose(copies: DraftTree, trained_rate: float, trained_cost: float = 0.0) -> bool:
    """Whether the next step should verify `copies`, rather than ask the trained drafter.

    Args:
        copies: a draft with probabilities, of the blend, say, whose drafting costs next to nothing.
        trained_rate: tokens of the trained drafter that a step accepts (`TrainedRate.mean`).
        trained_cost: what its drafting takes, in steps; 0 compares tokens alone, more compares tokens per second.
    """
    return (1 + expected_accepted(copies)) * (1 + trained_cost) >= 1 + trained_rate
