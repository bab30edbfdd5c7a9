"""Folders of runs as they are left behind, without running one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ngram_trie.report.blocks import Block, Cell, Tables, save
from support.teacher_forced import MANIFEST


def write_run(folder: Path, model: str, speedup: float) -> None:
    """A live Table 1 of one model, as a GPU run would leave it; records are kept elsewhere."""
    folder.mkdir(parents=True)
    rows = {"vanilla": [Cell(1.0, 1.0, 1.0, 1.0)], "<script>x</script>": [Cell(speedup, 1, 2, 2.0, 1, 2)]}
    block = Block(f"{model}, corrected protocol", ["spec_bench_rag"], rows, ["First note."])
    save(Tables([block], published=[replace(block, title="Table 1")]), folder)
    config = {"model": {"name": model}, "engine": {"name": "live"}, "paper_tables": [1]}
    started = "2030-01-02T03:04:05+00:00"
    replace(MANIFEST, config=config, dirty=True, started=started).write(folder / "manifest.json")
