"""All runs below any number of folders as one sortable table, each row with the manifest that its numbers are from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ngram_trie.metrics import ALL, group_order
from ngram_trie.site.audit import commit
from ngram_trie.site.gathered import MANIFEST, Entry, Folder, manifest_of, number_entry

COLUMNS = [
    "model", "dataset", "group", "method", "speedup [95%]", "predicted speedup", "accept length", "tokens/s", "prompts",
    "lossless", "engine", "device", "manifest",
]  # fmt: skip


class Run(NamedTuple):
    """A run's manifest, its place on the page and its rows.

    Attributes:
        name: its folder as the reader gave it.
        id: of the manifest on the page.
    """

    name: str
    id: str
    model: str
    manifest: str
    rows: list[list[Entry]]


def leaderboard(folders: Sequence[Path]) -> dict[str, Any]:
    """What the leaderboard's template shows.

    Args:
        folders: runs, or folders of runs.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no run with a table lies in one of them.
    """
    runs: list[Run] = []
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; give folders of runs, such as results/local")
        found = list(_runs(folder, len(runs)))
        if not found:
            raise ValueError(f"{folder}: no run with table.csv and {MANIFEST} in it; `ngram-trie run` writes them")
        runs += found
    rows = [(run, row) for run in runs for row in run.rows]
    rows.sort(key=lambda each: _order(each[1]))
    return {
        "columns": COLUMNS,
        "rows": rows,
        "runs": runs,
        "models": sorted({row[0].text for _, row in rows}),
        "datasets": sorted({row[1].text for _, row in rows}, key=lambda name: (name != ALL, name)),
        "groups": sorted({row[2].text for _, row in rows}, key=group_order),
    }


def _order(row: list[Entry]) -> tuple[Any, ...]:
    """By model, the pooled data first, by group, and the fastest first."""
    model, dataset, group, _, measured, predicted, *_ = row
    speed = measured if measured.is_number else predicted
    return model.text, dataset.text != ALL, dataset.text, group_order(group.text), -speed.key if speed.is_number else 0


def _runs(root: Path, number: int) -> Iterator[Run]:
    for path in sorted(root.rglob("table.csv")):
        manifest = manifest_of(path.parent / MANIFEST)
        frame = pd.read_csv(path) if manifest and path.stat().st_size else None
        if frame is None or manifest is None or not {"method", "dataset", "accept_length"} <= set(frame):
            continue
        folder = Folder(path.parent.name, path.parent.parent, manifest, {})
        if "protocol" in frame:
            frame = frame[frame.protocol == "corrected"]
        number += 1
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        shown = [_row(row, folder, manifest) for row in frame.to_dict("records")]
        yield Run(str(path.parent), f"manifest-{number}", folder.model, text, shown)


def _row(row: Mapping[Any, Any], folder: Folder, manifest: Mapping[str, Any]) -> list[Entry]:
    def number(name: str, decimals: int | None = 2, unit: str = "") -> Entry:
        entry = number_entry(row.get(name, float("nan")), decimals)
        return Entry(entry.text + unit, key=entry.key) if entry.is_number else entry

    speed, low = number("speedup", unit="x"), row.get("speedup_low", float("nan"))
    if speed.is_number and pd.notna(low):
        speed = Entry(speed.text, f"[{low:.2f}, {row['speedup_high']:.2f}]", key=speed.key)
    texts = [folder.model, row["dataset"], row.get("group", "-"), row["method"]]
    return [
        *(Entry(str(text)) for text in texts),
        speed,
        number("predicted_speedup", unit="x"),
        number("accept_length"),
        number("tokens_per_second", 1),
        number("num_prompts", None),
        Entry(str(row.get("lossless", "replay")) if folder.engine != "replay" else "by construction"),
        Entry(folder.engine or "-"),
        Entry(str(manifest.get("device", "-"))),
        Entry(f"{manifest.get('run', '-')}, {commit(manifest)}"),
    ]
