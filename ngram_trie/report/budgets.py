"""The same methods under several budgets, side by side: from the tables of runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie.bench.metrics import ALL, group_order
from ngram_trie.report import markup
from ngram_trie.report.blocks import WORDS, Tables
from ngram_trie.report.run_folder import RunFolder
from ngram_trie.report.sweeps import grid_blocks

#: Data sets with a block of their own, where there are any; the others are in table.csv.
SHOWN = ("summarization", "rag", ALL)
VALUES = ("accept_length", "predicted_speedup", "speedup")


def label(config: Mapping[str, Any]) -> str:
    """A run's budget in words: "published", "8 nodes", "auto"; "8 nodes, chain"."""
    budget = config["budget"]
    size = f"{budget['num_nodes']} nodes" if budget["rule"] == "equal" else str(budget["rule"])
    return f"{size}, {config['shape']}" if "shape" in config else size


def found(folder: Path) -> dict[str, Path]:
    """The runs right below `folder` by their budget, in the order published, equal (fewest nodes first), auto,
    chains behind the trees of their budget; empty unless there are two or more and they differ in budget or shape.
    """
    configs = {path.parent: RunFolder(path.parent).manifest.config for path in folder.glob("*/manifest.json")}
    runs = {path: config for path, config in configs.items() if "budget" in config and (path / "table.csv").exists()}
    rules = ["published", "equal", "auto"]

    def place(path: Path) -> tuple[int, int, bool]:
        budget = runs[path]["budget"]
        return rules.index(budget["rule"]), budget.get("num_nodes", 0), "shape" in runs[path]

    by_label = {label(runs[path]): path for path in sorted(runs, key=place)}
    return by_label if len(by_label) == len(runs) > 1 else {}


def write(folder: Path) -> str:
    """Lay the tables of `found` runs side by side: table.csv (every row, with its budget) and table.md of `folder`; a
    block for each of SHOWN, methods down, budgets across. Returns them as text.
    """
    runs = found(folder)
    frame = pd.concat([pd.read_csv(path / "table.csv").assign(budget=name) for name, path in runs.items()])
    frame = frame[frame.protocol == "corrected"] if "protocol" in frame else frame
    value = next(name for name in reversed(VALUES) if name in frame)
    shown = frame[frame.dataset.isin(SHOWN)]
    shown = shown.sort_values("group", key=lambda groups: groups.map(group_order), kind="stable")
    groups = shown.drop_duplicates("method").set_index("method").group
    notes = [WORDS["notes"]["budgets"]]
    blocks = [
        replace(block, lead={"group": [groups[method] for method in block.rows]})
        for block in grid_blocks(shown, ["method", "budget"], value, notes=notes)
    ]
    synthetic = any(RunFolder(path).is_synthetic for path in runs.values())
    return markup.write(folder, frame, Tables(blocks), synthetic)
