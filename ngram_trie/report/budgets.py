"""The same methods under several budgets, side by side: from the tables of runs that differ in nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie.metrics import ALL, group_order
from ngram_trie.records import RunManifest
from ngram_trie.report import markup
from ngram_trie.report.blocks import JSON, TABLE, WITHOUT_LOOPS, WORDS, Tables, read
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
    """The runs right below `folder` by their budget, in the order published, equal (fewest nodes first), auto, learned,
    chains behind the trees of their budget; empty unless there are two or more and they differ in budget or shape.
    """
    configs = {path.parent: RunManifest.read(path).config for path in folder.glob("*/manifest.json")}
    runs = {path: config for path, config in configs.items() if "budget" in config and (path / "table.csv").exists()}
    rules = ["published", "equal", "auto", "learned"]

    def place(path: Path) -> tuple[int, int, bool]:
        budget = runs[path]["budget"]
        return rules.index(budget["rule"]), budget.get("num_nodes", 0), "shape" in runs[path]

    by_label = {label(runs[path]): path for path in sorted(runs, key=place)}
    return by_label if len(by_label) == len(runs) > 1 else {}


def write(folder: Path) -> str:
    """Lay the tables of `found` runs side by side: table.csv (every row, with its budget) and table.md of `folder`; a
    block for each of SHOWN, methods down, budgets across; and those without loops, where all runs have one. Returns the
    tables over all answers as text.
    """
    runs = found(folder)
    if all((path / f"{WITHOUT_LOOPS}.csv").exists() for path in runs.values()):
        _write(folder, runs, WITHOUT_LOOPS)
    return _write(folder, runs, TABLE)


def _write(folder: Path, runs: Mapping[str, Path], table: str) -> str:
    frame = pd.concat([pd.read_csv(path / f"{table}.csv").assign(budget=name) for name, path in runs.items()])
    frame = frame[frame.protocol == "corrected"] if "protocol" in frame else frame
    value = next(name for name in reversed(VALUES) if name in frame)
    shown = frame[frame.dataset.isin(SHOWN)]
    shown = shown.sort_values("group", key=lambda groups: groups.map(group_order), kind="stable")
    groups = shown.drop_duplicates("method").set_index("method").group
    suffix = ", without loops" if table == WITHOUT_LOOPS else ""
    said = WORDS["notes"]["lower_bounds"].partition(":")[0]
    below = [note for path in runs.values() for block in read(path / JSON).measured for note in block.notes]
    notes = [WORDS["notes"]["budgets"], *dict.fromkeys(note for note in below if note.startswith(said))]
    blocks = [
        replace(block, title=block.title + suffix, lead={"group": [groups[method] for method in block.rows]})
        for block in grid_blocks(shown, ["method", "budget"], value, notes=notes)
    ]
    synthetic = any(RunFolder(path).is_synthetic for path in runs.values())
    return markup.write(folder, frame, Tables(blocks), synthetic, table)
