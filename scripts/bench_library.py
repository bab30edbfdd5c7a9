"""Measure the library's defaults against transformers' own generate, prompt by prompt (make bench-library).

  python -m scripts.bench_library model=smollm2_135m dataset=docs_rag dataset.limit=12 output=FOLDER

Both decode greedily with the same weights, dtype and threads. They take turns in random order, after one answer each
that is not counted. Writes library.csv (per prompt: seconds with prefill, speedup with its 95% interval over the
rounds, whether all tokens were the same) and a manifest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from omegaconf import DictConfig

from ngram_trie import config as configuration
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.engines import cpu_bench
from ngram_trie.engines.live import Live
from ngram_trie.engines.prepare import cached_model, prepare, settle
from ngram_trie.files import write_atomically
from ngram_trie.metrics import interval, resampled
from ngram_trie.prompt import Prompt
from ngram_trie.targets import choose

ROUNDS = 5


def bench(config: DictConfig) -> Path:
    """Load, measure, write; returns the folder."""
    settle(config)
    engine = prepare(config)
    assert isinstance(engine, Live)
    asked = {key: item for key, item in engine.items.items() if isinstance(item, Prompt)}
    options = {name: config.model[name] for name in ("dtype", "device", "attention")}
    model = cached_model(*choose.source(config.model), config.model.weights == "random", **options)
    taken, same = cpu_bench.library(
        model, [prompt.ids for prompt in asked.values()], config.measure.max_new_tokens, ROUNDS
    )
    draws = resampled(ROUNDS, 1)[:, :, 0]
    rows = []
    for key, seconds, is_same in zip(asked, taken, same, strict=True):
        low, high = interval((draws @ seconds[0]) / (draws @ seconds[1]))
        means = seconds.mean(1)
        rows.append([key[1], *means, means[0] / means[1], float(low), float(high), is_same])
    columns = ["prompt", "generate_seconds", "library_seconds", "speedup", "low", "high", "same"]
    table = pd.DataFrame(rows, columns=columns)
    folder = Path(config.output or configuration.PROJECT / "results" / "local" / "bench_library")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "library.csv", table.to_csv(index=False, float_format="%.4g"))
    engine.manifest.write(folder / "manifest.json")
    print(table.round(3).to_string(index=False))
    print(f"\nslowest prompt {table.speedup.min():.2f}, geometric mean {np.exp(np.log(table.speedup).mean()):.2f}")
    print(f"tokens the same: {'all' if table.same.all() else 'NOT ALL'}; written: {folder}")
    return folder


if __name__ == "__main__":
    hydra_app(bench, __doc__, interrupted="nothing was written")
