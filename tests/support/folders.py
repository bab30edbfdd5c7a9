"""Results folders to judge, as runs would leave them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie.files import PROJECT


def copy_paper(root: Path) -> Path:
    """The printed numbers in a results folder of their own."""
    shutil.copytree(PROJECT / "results" / "paper", root / "paper")
    return root


def write_folder(folder: Path, model: str, engine: str, files: dict[str, list[dict[str, Any]]]) -> None:
    """Data files by name, with the manifest of a run of `model`."""
    folder.mkdir(parents=True)
    for name, rows in files.items():
        pd.DataFrame(rows).to_csv(folder / name, index=False)
    config = {"model": {"name": model}, "engine": {"name": engine}}
    about = {"run": "1", "config": config, "commit": None, "dirty": None, "device": "d", "versions": {}, "started": ""}
    (folder / "manifest.json").write_text(json.dumps(about))
