"""What steps of a network cost on this machine, for an adaptive draft length: timed once, before the first answer, and
kept in the user's cache for every later process.

Sizes and two lengths take turns, and of each the least time counts, since what disturbs a clock makes times longer.
Behind the longer text the smallest and the largest size are enough: what it adds grows with a step's tokens. A text
needs no tokens for that: what lies in its rows decides no time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import llvmlite.binding
import numpy as np
import torch
from transformers import PreTrainedModel

from ngram_trie.budget.compiling import num_compiled
from ngram_trie.store.files import cache_folder, content_hash, version_of, write_atomically
from ngram_trie.targets.network import Network
from ngram_trie.tree import DraftTree, FloatArray

#: Cached tokens behind which steps are timed, where the text has room; few lengths, so that few are timed at all.
LENGTHS = (64, 1024)
#: Seconds for which steps are timed, twice as many on a machine that has other work; how often each size is at least,
#: and how many of the latest times count.
LIMIT, LEAST, LATEST = 0.5, 2, 4
#: Largest ratio of the two shortest steps of any size on a machine with nothing else to do.
QUIET = 1.25
#: Whoever waits longer than this, in seconds, is told what for.
SILENT = 1.0


@dataclass(frozen=True)
class MeasuredCosts:
    """Seconds of steps that were timed; linear between and beyond.

    Attributes:
        sizes: (g, 2) smallest and largest step, in tokens, of groups that cost the same.
        lengths: (c,) one or two lengths of the text, in tokens.
        seconds: (c, g).
    """

    sizes: Sequence[Sequence[int]]
    lengths: Sequence[int]
    seconds: Sequence[Sequence[float]]

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> FloatArray:
        """(k,) seconds of steps over `nodes` drafted nodes behind `contexts` cached tokens."""
        tokens, sizes = np.asarray(list(nodes), float) + 1, np.ravel(self.sizes)
        found = []
        for each in self.seconds:
            seconds = np.repeat(np.maximum.accumulate(each), 2)
            slope = (seconds[-1] - seconds[-3]) / (sizes[-1] - sizes[-3]) if len(sizes) > 2 else 0.0
            found.append(np.interp(tokens, sizes, seconds) + slope * np.maximum(0, tokens - sizes[-1]))
        if len(found) == 1:
            return np.asarray(found[0], float)
        share = (np.asarray(list(contexts), float) - self.lengths[0]) / (self.lengths[1] - self.lengths[0])
        return np.asarray(found[0] + np.maximum(share, 0) * np.maximum(found[1] - found[0], 0), float)


_KNOWN: dict[str, MeasuredCosts] = {}


def step_costs(
    model: PreTrainedModel, network: Network, text: Any, room: int, max_nodes: int, top_k: int
) -> MeasuredCosts:
    """`MeasuredCosts` of a network, timed now where this user's cache has none; the same object in one process.

    Args:
        text: one of the network's, which forgets what it holds.
        room: tokens that it may hold before a step.
        max_nodes: the largest step.
        top_k: likeliest tokens that steps find behind each node, as in `Network.step`.
    """
    sizes = [(least, min(most, max_nodes)) for least, most in network.sizes if least <= max_nodes]
    if sizes[-1][1] < max_nodes < network.sizes[-1][1]:
        sizes.append((max_nodes, max_nodes))
    # the deepest node of a step stands behind the text
    lengths = [length for length in LENGTHS if length + max_nodes.bit_length() <= room] or [1]
    is_gpu = model.device.type == "cuda"
    top_k = top_k if is_gpu else 0  # only graphs find them on the way
    device = torch.cuda.get_device_name(model.device) if is_gpu else llvmlite.binding.get_host_cpu_name()
    shape = [[*weight.shape] for weight in model.parameters()]
    versions = [version_of(package) for package in ("ngram-trie", "torch")]
    what = [type(network).__name__, shape, str(model.dtype), sizes, lengths, top_k]
    key = content_hash([what, device, os.cpu_count(), torch.get_num_threads(), versions])
    if key not in _KNOWN:
        file = cache_folder() / "steps" / f"{key}.json"
        try:
            _KNOWN[key] = MeasuredCosts(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            _KNOWN[key], is_quiet = timed(network, text, sizes, lengths, top_k)
            with contextlib.suppress(OSError):  # the next process times them, too
                if is_quiet:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(file, json.dumps(asdict(_KNOWN[key])))
    return _KNOWN[key]


def binary_tree(num_draft: int, rng: np.random.Generator, vocab_size: int) -> DraftTree:
    """A full binary tree of random tokens: something to verify."""
    nodes = np.arange(num_draft + 1)
    return DraftTree(rng.integers(vocab_size, size=len(nodes)), np.where(nodes > 0, (nodes - 1) // 2, -1))


@torch.inference_mode()
def timed(
    network: Network, text: Any, sizes: Sequence[tuple[int, int]], lengths: Sequence[int], top_k: int
) -> tuple[MeasuredCosts, bool]:
    """Steps of these sizes, and whether the machine had nothing else to do meanwhile; of a slow model behind the
    shortest text alone.
    """
    rng = np.random.default_rng(0)

    def seconds_of(tokens: int, length: int) -> float:
        text.truncate(length)
        tree, prepared = binary_tree(tokens - 1, rng, 5), -1
        while prepared != (prepared := num_compiled()):  # a step that compiles or captures something says nothing
            started = perf_counter()
            network.step(text, tree, top_k)
            seconds = perf_counter() - started
        return seconds

    seconds_of(1, 0)  # numba does not tell of all that it compiles
    if seconds_of(1, 0) * LEAST * len(sizes) > SILENT:
        print(f"timing steps of this model, once (kept in {cache_folder()})", file=sys.stderr)
    most, ends = [most for _, most in sizes], sorted({sizes[0][1], sizes[-1][1]})
    laps: dict[int, dict[int, deque[float]]] = {
        length: {size: deque(maxlen=LATEST) for size in (ends if number else most)}
        for number, length in enumerate(lengths)
    }
    spent = 0.0
    for lap in itertools.count():
        begun = [length for length in lengths if laps[length][most[0]]]
        shortest = [sorted(times)[:LEAST] for length in begun for times in laps[length].values()]
        is_timed = bool(begun) and all(len(times) == LEAST for times in shortest)
        is_quiet = is_timed and all(times[-1] < QUIET * times[0] for times in shortest)
        if is_timed and spent > (LIMIT if is_quiet else 2 * LIMIT):
            break
        turn = lengths[lap % len(lengths)]
        length = turn if spent < LIMIT else min(begun, key=lambda each: len(laps[each][most[0]]))
        for size in rng.permutation([*laps[length]]).tolist():
            spent += (seconds := seconds_of(size, length))
            laps[length][size].append(seconds)
    text.truncate(0)
    found = [[min(laps[lengths[0]][size]) for size in most]]
    for length in begun[1:]:
        added = [max(0.0, min(laps[length][size]) - min(laps[lengths[0]][size])) for size in ends]
        found.append((found[0] + np.interp(most, ends, added)).tolist())
    return MeasuredCosts(sizes, begun, found), is_quiet
