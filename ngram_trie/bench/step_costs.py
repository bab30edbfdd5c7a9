"""What a step costs on a device, apart from any table: reading the weights, steps by size and length, the host's part.

Shapes: s = sizes of steps in nodes, c = contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from tqdm import tqdm

from ngram_trie.bench.cost import CostCurve
from ngram_trie.decoding import verify_greedy
from ngram_trie.targets.costs import binary_tree
from ngram_trie.targets.cuda_graph import GraphNetwork
from ngram_trie.targets.model import TargetModel


@torch.inference_mode()
def read_seconds(target: TargetModel, laps: int = 3) -> float:
    """Seconds to read each weight of the model once, summing it up; the median of some laps after a first one."""
    taken = []
    for _ in range(1 + laps):
        target.synchronize()
        started = perf_counter()
        for weight in target.model.parameters():
            weight.sum()
        target.synchronize()
        taken.append(perf_counter() - started)
    return float(np.median(taken[1:]))


@dataclass(frozen=True)
class Steps:
    """Medians of steps at every size and context, seconds.

    Attributes:
        sizes: (s,) nodes of the trees, the root counted; contexts: (c,) cached tokens.
        wall: (s, c) verifying a tree and keeping its longest path, as the loop does it, up to the host's having the
            choices; what the copies of kept rows take beyond that is in the next step, as in the loop.
        device: (s, c) of these the forward alone, replayed without the host in between; nan where it was not taken.
        prefill: (c,).
        reading: of reading all weights once, beside these steps: a machine's memory changes its speed.
    """

    sizes: Sequence[int]
    contexts: Sequence[int]
    wall: np.ndarray
    device: np.ndarray
    prefill: np.ndarray
    reading: float

    def curve(self, name: str) -> CostCurve:
        """As a curve over drafted nodes, for `cost=measured`."""
        nodes = [size - 1 for size in self.sizes]
        return CostCurve(name, nodes, self.contexts, self.wall.tolist(), self.contexts, self.prefill.tolist())


def room_for(num_draft: int) -> int:
    """Tokens that a context must leave free for the longest path of a binary tree of this many drafted nodes."""
    return (num_draft + 1).bit_length() + 1


def measure_steps(
    target: TargetModel, sizes: Sequence[int], contexts: Sequence[int], rounds: int = 5, steps: int = 6,
    title: str = "steps",
) -> Steps:  # fmt: skip
    """Medians over all steps of all rounds. A step verifies a binary tree and commits its longest path. The order of
    contexts and sizes is drawn anew in every round, so that a machine that slows down for a while slows no size more
    than another.
    """
    rng, vocab_size = np.random.default_rng(0), target.model.config.get_text_config().vocab_size
    wall = np.empty((len(sizes), len(contexts), rounds, steps))
    prefill, reading = np.empty((len(contexts), rounds)), np.empty(rounds)
    device = np.full((len(sizes), len(contexts)), np.nan)
    with tqdm(total=(rounds + 1) * len(contexts), unit="context", desc=title, mininterval=1) as progress:
        for turn in range(-1, rounds):  # the first warms up; the last overwrites what it wrote
            reading[turn] = read_seconds(target)
            for column in rng.permutation(len(contexts)):
                context = contexts[column]
                target.synchronize()
                started = perf_counter()
                target.prefill(rng.integers(5, vocab_size, context))
                prefill[column, turn] = perf_counter() - started
                for row in rng.permutation(len(sizes)):
                    for step in range(steps):
                        target.cache.truncate(context)
                        tree = binary_tree(sizes[row] - 1, rng, vocab_size)
                        path = tree.path_to(len(tree) - 1)
                        started = perf_counter()
                        verify_greedy(tree, target.verify(tree).choices)
                        target.commit(context, path)
                        wall[row, column, turn, step] = perf_counter() - started
                if isinstance(target.network, GraphNetwork) and turn == rounds - 1:
                    for row, size in enumerate(sizes):
                        target.cache.truncate(context)
                        device[row, column] = target.network.forward_seconds(target.cache, size)
                progress.update()
    medians = np.median(prefill, axis=1), float(np.median(reading))
    return Steps(sizes, contexts, np.median(wall, axis=(2, 3)), device, *medians)
