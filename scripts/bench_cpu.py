"""Measure the backends of a CPU, and the library against transformers' own generate, in one run (make bench-cpu).

  python -m scripts.bench_cpu model=smollm2_135m dataset=docs_rag dataset.limit=6 dataset.parity=even output=FOLDER

Writes steps.csv (time of a step by its tokens, relative to reading all weights once), answers.csv (seconds per answer
against `model.generate`, prefill included), first.csv (seconds until the library's first answer in a new process, with
nothing compiled yet and with all of it) and a manifest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig
from tqdm import tqdm
from transformers import PreTrainedModel

from ngram_trie import methods
from ngram_trie.bench import config as configuration
from ngram_trie.bench import models
from ngram_trie.bench.live import Live
from ngram_trie.bench.metrics import interval, resampled
from ngram_trie.bench.prepare import cached_model, prepare, settle
from ngram_trie.bench.step_costs import measure_steps
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.generate import Budget, Speculator
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import cache_folder, write_atomically
from ngram_trie.targets.cpu import CpuTarget
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import IntArray

SIZES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (256, 1024)
NUM_TOKENS, ROUNDS = 128, 2
#: Reading the weights once is one row of the table of steps.
READ = "read all weights"
#: What answers are compared with.
GENERATE = "transformers: generate"
#: A new process: the seconds of the first answer, its model loaded.
FIRST = """
import sys, time
from ngram_trie import load_pretrained, speculative_generate
model, _ = load_pretrained(sys.argv[1])
ids = list(map(int, sys.argv[3].split(",")))
start = time.perf_counter()
speculative_generate(model, ids, do_sample=False, max_new_tokens=int(sys.argv[2]))
print(time.perf_counter() - start)
"""


def first_answer(path: str, prompt: IntArray, num_tokens: int) -> pd.DataFrame:
    """Seconds until the library's first answer, columns `compiled` ("nothing", "all") and `seconds`."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models").symlink_to(cache_folder() / "models")  # converting a GGUF file is not meant
        for state in ("nothing", "all"):
            told = subprocess.run(
                [sys.executable, "-c", FIRST, path, str(num_tokens), ",".join(map(str, prompt))],
                capture_output=True, text=True, check=True, env={**os.environ, "NGRAM_TRIE_CACHE": folder},
            )  # fmt: skip
            rows.append({"compiled": state, "seconds": float(told.stdout.split()[-1])})
    return pd.DataFrame(rows)


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


def bench(config: DictConfig) -> Path:
    """Load, measure, write; returns the folder."""
    settle(config)
    if config.model.device != "cpu":
        raise methods.ConfigError(f"model.device={config.model.device}: this measures a CPU")
    engine = prepare(config)
    assert isinstance(engine, Live)
    prompts = [item.ids for item in engine.items.values() if isinstance(item, Prompt)]
    options = {name: config.model[name] for name in ("dtype", "device", "attention")}
    model = cached_model(*models.source(config.model), config.model.weights == "random", **options)
    targets = {"stock": TargetModel(model, 64, 2048), "cpu": CpuTarget(model, 64, 2048)}
    parts = [
        steps(targets, SIZES, context, ROUNDS).assign(context=context)
        for context in CONTEXTS
        if context + 64 < targets["stock"].context_limit
    ]
    table = pd.concat(parts, ignore_index=True)
    told = answers(model, prompts, NUM_TOKENS, ROUNDS)
    first = first_answer(models.source(config.model)[0], prompts[0], NUM_TOKENS)
    folder = Path(config.output or configuration.PROJECT / "results" / "local" / "bench_cpu")
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in (("steps", table), ("answers", told), ("first", first)):
        write_atomically(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.4g"))
    engine.manifest.write(folder / "manifest.json")
    print(f"{engine.model}, {engine.manifest.device}\n")
    print(table.round(2).to_string(index=False))
    print(f"\n{len(prompts)} prompts of {engine.datasets[0]}, at most {NUM_TOKENS} tokens, {ROUNDS} rounds\n")
    print(told.round(3).to_string(index=False))
    print(f"\nthe first answer of a new process, at most {NUM_TOKENS} tokens, loading not counted\n")
    print(first.round(1).to_string(index=False))
    print(f"\nwritten: {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(bench, __doc__, interrupted="nothing was written")
