"""Data sets as their configs build them, from files that a test writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ngram_trie.methods import build, choices, settings_of


def configured(name: str, **fields: object) -> Any:
    """The set of `configs/dataset/NAME.yaml` with other fields."""
    return build(OmegaConf.merge(settings_of(choices()["dataset"][name]), fields), f"dataset {name}")


def write_lines(path: Path, rows: list[Any]) -> str:
    """A file with a row a line; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
