"""The notebooks run from top to bottom over the committed results, and were committed with their outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from ngram_trie.files import PROJECT

NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


def test_all_four_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["accept_lengths", "case_study", "sweep_heatmaps", "table1"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    committed = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in committed), "commit it with its outputs: make notebooks"
    pictures = sum("image/png" in output.get("data", {}) for cell in committed for output in cell.outputs)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    again = sum(
        "image/png" in output.get("data", {})
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert again == pictures >= 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_names_no_machine_and_defines_no_metric(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "/home" not in text and "/work" not in text
    assert "def " not in "".join(
        cell.source for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"
    )
