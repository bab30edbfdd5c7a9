"""The notebooks run from top to bottom over the committed results; one of them shows the papers' pictures in git."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ngram_trie.store.files import PROJECT

#: Committed with its outputs, for those who read it on GitHub.
SHOWN = "sweeps"
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted((PROJECT / "notebooks").glob("*.ipynb"))}


def test_all_four_are_there() -> None:
    assert list(NOTEBOOKS) == ["case_study", "drafter_in_30_lines", "results", "sweeps"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_from_top_to_bottom_and_shows_a_figure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    resources = {"metadata": {"path": str(PROJECT / "notebooks")}}
    done = NotebookClient(nbformat.from_dict(NOTEBOOKS[name]), timeout=300, resources=resources).execute()
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any({"image/png", "image/svg+xml"} & set(output.get("data", {})) for output in outputs)
    if name == SHOWN:
        assert written(done.cells) == written(NOTEBOOKS[name].cells), "run it again: its results changed"


def written(cells: Sequence[Any]) -> list[str]:
    """What the cells print, tables and text; pictures depend on the fonts at hand."""
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.get("text") or output.data.get("text/markdown", "") for output in outputs]


def test_the_papers_pictures_are_in_git_small() -> None:
    file = PROJECT / "notebooks" / f"{SHOWN}.ipynb"
    outputs = [output for cell in NOTEBOOKS[SHOWN].cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if {"image/png", "image/svg+xml"} & set(output.get("data", {}))]
    assert len(pictures) >= 9 and file.stat().st_size < 300_000
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert PROJECT.as_posix() not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_others_are_committed_without_outputs_and_none_defines_a_function(name: str) -> None:
    code = [cell for cell in NOTEBOOKS[name].cells if cell.cell_type == "code"]
    has_outputs = any(cell.outputs or cell.execution_count for cell in code)
    assert name == SHOWN or not has_outputs, "commit it without its outputs"
    assert "def " not in "".join(cell.source for cell in code if "(HistoryDrafter)" not in cell.source)


def test_the_drafter_has_30_lines_and_takes_part_in_the_comparison() -> None:
    code = [cell.source for cell in NOTEBOOKS["drafter_in_30_lines"].cells if cell.cell_type == "code"]
    (drafter,) = [source for source in code if "(HistoryDrafter)" in source]
    assert len(drafter.splitlines()) <= 30
    assert '"two_copies": TwoCopies()' in "".join(code)
