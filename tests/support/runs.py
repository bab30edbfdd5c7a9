"""Folders of runs as they are left behind, without running one."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from ngram_trie.metrics import Agreement
from ngram_trie.report.blocks import Block, Cell, Tables, save


def write_run(folder: Path, model: str, speedup: float, bug: bool = False) -> None:
    """A live Table 1 of one model, as a GPU run would leave it; records are kept elsewhere."""
    folder.mkdir(parents=True)
    methods = [("vanilla", 1.0, 1.0), ("ngram_trie", speedup, 2.0), ("ngram_trie_released", speedup, 2.0)]
    rows = [
        {"model": model, "method": method, "dataset": dataset, "speedup": value, "speedup_low": value - 0.1,
         "speedup_high": value + 0.1, "accept_length": length, "num_prompts": 80, "num_failures": 0,
         "baseline": "vanilla", "protocol": protocol, "device": "a GPU",
         "lossless": "baseline" if method == "vanilla" else "79/80, 1 tie"}
        for protocol in ("corrected", "released")
        for method, value, length in methods
        for dataset in ("spec_bench_summarization", "spec_bench_rag", "triviaqa", "hagrid", "all")
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "table.csv", index=False)
    rows_shown = {"vanilla": [Cell(1.0, 1.0, 1.0, 1.0)], "<script>x</script>": [Cell(speedup, 1, 2, 2.0, 1, 2)]}
    lossless = dict.fromkeys(("ngram_trie", "ngram_trie_released"), Agreement(79, 0 if bug else 1, int(bug)))
    block = Block(f"{model}, corrected protocol", ["spec_bench_rag"], rows_shown, ["First note."])
    save(Tables([block], lossless=lossless | {"vanilla": Agreement(is_baseline=True)}), folder)
    config = {"model": {"name": model}, "engine": {"name": "live"}, "paper_tables": [1]}
    manifest = {"run": "0123", "config": config, "commit": "f" * 40, "dirty": True, "device": "a GPU", "versions": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"started": "2030-01-02T03:04:05+00:00"}))
