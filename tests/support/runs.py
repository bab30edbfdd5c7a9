"""Runs: as they are left behind, without running one; a small replay; and the script in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.bench.measures import ACCEPT_LENGTH, SPEEDUP, Value
from ngram_trie.bench.replay import Replay
from ngram_trie.bench.traces import Trace
from ngram_trie.drafters import NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.report.blocks import Block, Tables, save
from ngram_trie.store.files import PROJECT
from support.teacher_forced import MANIFEST


def write_run(folder: Path, model: str, speedup: float) -> None:
    """A live Table 1 of one model, as a GPU run would leave it; records are kept elsewhere."""
    folder.mkdir(parents=True)
    rows = {
        "vanilla": [{SPEEDUP: Value(1.0, 1.0, 1.0), ACCEPT_LENGTH: Value(1.0)}],
        "<script>x</script>": [{SPEEDUP: Value(speedup, 1, 2, 1), ACCEPT_LENGTH: Value(2.0, rank=2)}],
    }
    block = Block(f"{model}, corrected protocol", ["spec_bench_rag"], rows, ["First note."])
    save(Tables([block], published=[replace(block, title="Table 1")]), folder)
    config = {"model": {"name": model}, "engine": {"name": "live"}, "paper_tables": [1]}
    started = "2030-01-02T03:04:05+00:00"
    replace(MANIFEST, config=config, dirty=True, started=started).write(folder / "manifest.json")


def small_replay(count: int, config: dict[str, Any], **fields: Any) -> Replay:
    """Of `count` recorded answers of three tokens, without drafts; `fields` are further ones of the manifest."""
    items = [Trace("m", Prompt(np.array([1, 2, 3]), {}, "d", f"q{i}"), [4, 5, 6]) for i in range(count)]
    manifest = replace(MANIFEST, config=config, **fields)
    return Replay(manifest, "m", {"none": NoDraft()}, {item.key: item for item in items}, ["d"], 1, num_jobs=1)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scripts.run", *arguments]


def run_script(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`scripts.run`, to its end; what it printed is in the result."""
    return subprocess.run(
        command(*arguments), cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False, **options
    )
