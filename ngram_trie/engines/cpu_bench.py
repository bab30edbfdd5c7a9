"""What steps and answers take on a CPU, as ratios of one run: how near to the memory's limit the backends come, and
what a person gets who calls the library in place of `model.generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel

from ngram_trie.engines.step_costs import measure_steps
from ngram_trie.generate import Budget, Speculator
from ngram_trie.metrics import interval, resampled
from ngram_trie.targets import few_rows
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import IntArray

#: Reading the weights once is one row of the table of steps.
READ = "read all weights"
#: The packed backend's own products.
OWN = "tiles of the packed backend"
#: What answers are compared with.
GENERATE = "transformers: generate"


@torch.inference_mode()
def read_seconds(model: PreTrainedModel, laps: int = 5) -> float:
    """Seconds to read each weight once, summing it up; the median of some laps."""
    taken = []
    for _ in range(laps):
        started = perf_counter()
        for weight in model.parameters():
            weight.sum()
        taken.append(perf_counter() - started)
    return float(np.median(taken))


#: A library's products of `x` (q, in) with all weights, made ready before.
Products = Callable[[Mapping[int, torch.Tensor]], object]


def libraries(weights: Sequence[torch.Tensor]) -> dict[str, Products]:
    """What multiplies a few rows with weights (out, in), by name: what this build of PyTorch has, and the packed
    backend. Each is given rows for every width that a weight has.
    """
    onednn, mkl = torch.ops.mkldnn, torch.ops.mkl
    found: dict[str, Products] = {
        "F.linear": lambda rows: [F.linear(rows[w.shape[1]], w) for w in weights],
        "weight @ rows.T": lambda rows: [w @ rows[w.shape[1]].T for w in weights],
    }
    if hasattr(onednn, "_linear_pointwise"):
        laid_out = [onednn._reorder_linear_weight(w, 8) for w in weights]
        found["oneDNN, packed"] = lambda rows: [
            onednn._linear_pointwise(rows[w.shape[1]], packed, None, "none", [], "")
            for w, packed in zip(weights, laid_out, strict=True)
        ]
    if hasattr(mkl, "_mkl_linear"):
        reordered = [mkl._mkl_reorder_linear_weight(w, 16) for w in weights]
        found["MKL, packed"] = lambda rows: [
            mkl._mkl_linear(rows[w.shape[1]], packed, w, None, len(rows[w.shape[1]]))
            for w, packed in zip(weights, reordered, strict=True)
        ]
    panels = [few_rows.packed(w).numpy() for w in weights]
    no_bias, nothing, threads = np.empty(0, np.float32), np.empty((0, 0), np.float32), few_rows.num_threads()
    found[OWN] = lambda rows: [
        few_rows.product(rows[w.shape[1]].numpy(), each, no_bias, nothing, len(w), threads)
        for w, each in zip(weights, panels, strict=True)
    ]
    return found


@torch.inference_mode()
def products(model: PreTrainedModel, sizes: Sequence[int], rounds: int, laps: int = 5) -> pd.DataFrame:
    """Milliseconds of all of a step's products by library and number of rows, and relative to reading the weights;
    medians over rounds in which the libraries take turns.
    """
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    ways = libraries([weight.detach() for weight in weights])
    taken: dict[tuple[str, int], list[float]] = {(name, size): [] for name in ways for size in sizes}
    rng = np.random.default_rng(0)
    reads = []
    for _ in range(rounds):
        for name in rng.permutation(list(ways)):
            reads.append(read_seconds(model))
            for size in sizes:
                rows = {width: torch.randn(size, width) for width in {weight.shape[1] for weight in weights}}
                for lap in range(laps + 1):
                    started = perf_counter()
                    ways[name](rows)
                    if lap:  # the first chooses kernels
                        taken[name, size].append(perf_counter() - started)
    read = float(np.median(reads))
    medians = {key: float(np.median(each)) for key, each in taken.items()}
    return pd.DataFrame(
        [
            {"library": name, "rows": size, "ms": 1e3 * seconds, "of_reading": seconds / read}
            for (name, size), seconds in medians.items()
        ]
    )


def steps(targets: Mapping[str, TargetModel], sizes: Sequence[int], context: int, rounds: int) -> pd.DataFrame:
    """Milliseconds of steps of `sizes` tokens behind `context` cached ones, by backend; medians over rounds in which
    the backends and reading take turns. Columns: backend, tokens, ms, and, relative to that backend's own plain step
    and to reading all weights once, of_plain and of_reading.
    """
    walls: dict[str, list[np.ndarray]] = {name: [] for name in targets}
    reads = []
    model = next(iter(targets.values())).model
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for name in rng.permutation(list(targets)):
            reads.append(read_seconds(model))
            walls[name].append(measure_steps(targets[name], sizes, [context], 1).wall[:, 0])
    read = 1e3 * float(np.median(reads))
    rows = [{"backend": READ, "tokens": 0, "ms": read}]
    for name, laps in walls.items():
        taken = 1e3 * np.median(laps, axis=0)
        rows += [
            {"backend": name, "tokens": size, "ms": ms, "of_plain": ms / taken[0]}
            for size, ms in zip(sizes, taken, strict=True)
        ]
    table = pd.DataFrame(rows)
    return table.assign(of_reading=table.ms / read)


def ways(model: PreTrainedModel, num_tokens: int) -> dict[str, Callable[[IntArray], list[int]]]:
    """From a prompt to its answer, by name: transformers alone, and the library."""

    def generate(**options: int) -> Callable[[IntArray], list[int]]:
        def answer(ids: IntArray) -> list[int]:
            inputs = torch.from_numpy(ids)[None]
            mask = torch.ones_like(inputs)
            output = model.generate(inputs, attention_mask=mask, do_sample=False, max_new_tokens=num_tokens, **options)
            return output[0, len(ids) :].tolist()

        return answer

    def speculate(drafter: str, num_draft: int | None = None) -> Callable[[IntArray], list[int]]:
        budget: Budget = "auto" if num_draft is None else "fixed"
        speculator = Speculator(model, drafter, num_draft=num_draft, budget=budget)
        return lambda ids: speculator(ids, do_sample=False, max_new_tokens=num_tokens)[0]

    return {
        GENERATE: generate(),
        "transformers: prompt_lookup_num_tokens=10": generate(prompt_lookup_num_tokens=10),
        "speculative_generate, no drafts": speculate("vanilla"),
        "speculative_generate, pld, 8 nodes": speculate("pld", 8),
        "speculative_generate, ngram_trie, 8 nodes": speculate("ngram_trie", 8),
        "speculative_generate, blend, 8 nodes": speculate("blend", 8),
        "speculative_generate, as it comes": speculate("blend"),
    }


def answers(model: PreTrainedModel, prompts: Sequence[IntArray], num_tokens: int, rounds: int) -> pd.DataFrame:
    """Seconds per answer of each way, and its speed against `generate` with a 95% interval (paired bootstrap over the
    prompts); the ways take turns prompt by prompt. `same` is the share of answers with exactly generate's tokens.
    """
    asked = ways(model, num_tokens)
    names = list(asked)
    taken = np.empty((len(names), len(prompts), rounds))
    same = np.zeros(len(names))
    rng = np.random.default_rng(0)
    with tqdm(total=taken.size + len(names), unit="answer", desc="answers", mininterval=1) as progress:
        for name in names:  # compiles, packs, allocates
            asked[name](prompts[0])
            progress.update()
        for turn in range(rounds):
            for place, ids in enumerate(prompts):
                given = {}
                for number in rng.permutation(len(names)):
                    started = perf_counter()
                    given[number] = asked[names[number]](ids)
                    taken[number, place, turn] = perf_counter() - started
                    progress.update()
                same += [given[number] == given[0] for number in range(len(names))]
    seconds = taken.mean(2)  # (ways, prompts)
    draws = resampled(len(prompts), 1)[:, :, 0]
    low, high = interval((draws @ seconds[0]) / (draws @ seconds.T).T)
    return pd.DataFrame(
        {
            "way": names,
            "seconds": seconds.mean(1),
            "speedup": seconds[0].sum() / seconds.sum(1),
            "low": low,
            "high": high,
            "same": same / (len(prompts) * rounds),
        }
    )


def library(
    model: PreTrainedModel, prompts: Sequence[IntArray], num_tokens: int, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds (prompts, 2, rounds) of `generate` and of the library with its defaults, which take turns, and whether
    (prompts,) the tokens were the same each time.
    """
    every = ways(model, num_tokens)
    asked = [every[GENERATE], every["speculative_generate, as it comes"]]
    taken, same = np.empty((len(prompts), 2, rounds)), np.ones(len(prompts), bool)
    rng = np.random.default_rng(0)
    for way in asked:  # compiles, packs, allocates
        way(prompts[0])
    for turn in range(rounds):
        for place, ids in enumerate(tqdm(prompts, desc=f"round {turn + 1} of {rounds}", unit="prompt")):
            given: dict[int, list[int]] = {}
            for number in rng.permutation(2):
                started = perf_counter()
                given[int(number)] = asked[number](ids)
                taken[place, number, turn] = perf_counter() - started
            same[place] &= given[0] == given[1]
    return taken, same
