"""Measure the backends of a CPU, and the library against transformers' own generate, in one run (make bench-cpu).

  python -m scripts.bench_cpu model=smollm2_135m dataset=docs_rag dataset.limit=6 dataset.parity=even output=FOLDER

Writes products.csv (all matrix products of a step, by library), steps.csv (time of a step by its tokens, relative to
reading all weights once), answers.csv (seconds per answer against `model.generate`, prefill included) and a manifest.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from omegaconf import DictConfig

from ngram_trie import config as configuration
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.engines import cpu_bench
from ngram_trie.engines.live import Live
from ngram_trie.engines.prepare import cached_model, prepare, settle
from ngram_trie.files import write_atomically
from ngram_trie.prompt import Prompt
from ngram_trie.targets import choose
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.packed import PackedTarget

SIZES = (1, 2, 4, 8, 16, 32)
CONTEXTS = (256, 1024)
NUM_TOKENS, ROUNDS = 128, 2


def bench(config: DictConfig) -> Path:
    """Load, measure, write; returns the folder."""
    settle(config)
    if config.model.device != "cpu":
        raise configuration.ConfigError(f"model.device={config.model.device}: this measures a CPU")
    engine = prepare(config)
    assert isinstance(engine, Live)
    prompts = [item.ids for item in engine.items.values() if isinstance(item, Prompt)]
    options = {name: config.model[name] for name in ("dtype", "device", "attention")}
    model = cached_model(*choose.source(config.model), config.model.weights == "random", **options)
    products = cpu_bench.products(model, SIZES, ROUNDS)
    targets = {"stock": TargetModel(model, 64, 2048), "packed": PackedTarget(model, 64, 2048)}
    parts = [
        cpu_bench.steps(targets, SIZES, context, ROUNDS).assign(context=context)
        for context in CONTEXTS
        if context + 64 < targets["stock"].context_limit
    ]
    steps = pd.concat(parts, ignore_index=True)
    answers = cpu_bench.answers(model, prompts, NUM_TOKENS, ROUNDS)
    folder = Path(config.output or configuration.PROJECT / "results" / "local" / "bench_cpu")
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("products", products), ("steps", steps), ("answers", answers)):
        write_atomically(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.4g"))
    engine.manifest.write(folder / "manifest.json")
    print(f"{engine.model}, {engine.manifest.device}\n")
    print(products.pivot(index="library", columns="rows", values="of_reading").round(2).to_string())
    print("\nAll products of a step of this many rows, relative to reading all weights once.\n")
    print(steps.round(2).to_string(index=False))
    print(f"\n{len(prompts)} prompts of {engine.datasets[0]}, at most {NUM_TOKENS} tokens, {ROUNDS} rounds\n")
    print(answers.round(3).to_string(index=False))
    print(f"\nwritten: {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(bench, __doc__, interrupted="nothing was written")
