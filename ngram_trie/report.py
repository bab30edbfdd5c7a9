"""From a run's records to what is shown: table (CSV, Markdown, LaTeX, text), phases and figure."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ngram_trie import figures, metrics, tables
from ngram_trie.records import RunManifest, read_records


def write(folder: Path, methods: list[str] | None = None, datasets: list[str] | None = None) -> str:
    """Derive everything from `records.jsonl` and `manifest.json` in `folder`; returns the table as text.

    Args:
        methods, datasets: order of rows and columns; that of the records unless given.

    Raises:
        FileNotFoundError: the folder holds no records.
    """
    path = folder / "records.jsonl"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no records; `python -m scripts.run` or `make reproduce-table1` writes them")
    if not (records := list(read_records(path))):
        raise ValueError(f"{path} is empty: nothing has been measured yet")
    manifest = RunManifest.read(folder / "manifest.json")
    repeats = max(record.repeat for record in records) + 1
    frame = pd.concat([
        tables.table1(records, protocol, records[0].model, manifest.device, methods, datasets)
        for protocol in metrics.PROTOCOLS
    ])  # fmt: skip
    paper = tables.PAPER if manifest.config.get("paper_block") else None
    tables.write_table(frame, folder, repeats, paper)
    phases = metrics.phases(metrics.to_frame(records))
    phases.to_csv(folder / "phases.csv", index=False, float_format="%.4g", lineterminator="\n")
    figures.save_figure(figures.speedup_figure(frame), folder / "figure.png")
    return tables.text_table(frame, repeats, paper)
