"""What a step's drafting time is spent on (the paper's Figure 5): finding the match in the trie, making a draft tree of
what follows it, and building the tree's attention mask and positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import pandas as pd
import torch

from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.engines.replay import replay
from ngram_trie.engines.traces import Trace
from ngram_trie.targets.model import tree_attention
from ngram_trie.tree import DraftTree

PARTS = ("trie search", "draft processing", "tree attention")


class TimedTrie(NgramTrieDrafter):
    """The n-gram trie, with the seconds of each part of its steps in `laps`."""

    laps: list[tuple[float, float, float]]

    def propose(self, budget: int) -> DraftTree:
        text = self.text
        started = perf_counter()
        self._trie.match(text)
        searched = perf_counter()
        tree = super().propose(budget)
        drafted = perf_counter()
        if tree.num_draft:  # a plain step needs no mask
            tree_attention(tree, len(text) - 1, torch.float32, "cpu")
        built = perf_counter()
        search = searched - started
        # Drafting searches once more, so the second search is taken off.
        self.laps.append((search, max(drafted - searched - search, 0.0), built - drafted))
        return tree


def time_split(traces: Sequence[Trace], drafter: TimedTrie) -> pd.DataFrame:
    """Rows `dataset, part, microseconds, num_steps`: means over the steps of each data set."""
    rows = []
    torch.set_num_threads(1)  # masks are small
    drafter.laps = []
    replay(drafter, traces[0])  # compiled code is loaded at its first call
    for dataset in dict.fromkeys(trace.prompt.dataset for trace in traces):
        drafter.laps = []
        for trace in traces:
            if trace.prompt.dataset == dataset:
                replay(drafter, trace)
        means = pd.DataFrame(drafter.laps, columns=PARTS).mean() * 1e6
        rows += [(dataset, part, means[part], len(drafter.laps)) for part in PARTS]
    return pd.DataFrame(rows, columns=["dataset", "part", "microseconds", "num_steps"])
