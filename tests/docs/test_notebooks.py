"""The notebooks run from top to bottom over the committed results, and are committed without outputs."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from ngram_trie.store.files import PROJECT

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


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_is_committed_without_outputs_and_defines_no_function(name: str) -> None:
    code = [cell for cell in NOTEBOOKS[name].cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "commit it without its outputs"
    assert "def " not in "".join(cell.source for cell in code if "(HistoryDrafter)" not in cell.source)


def test_the_drafter_has_30_lines_and_takes_part_in_the_comparison() -> None:
    code = [cell.source for cell in NOTEBOOKS["drafter_in_30_lines"].cells if cell.cell_type == "code"]
    (drafter,) = [source for source in code if "(HistoryDrafter)" in source]
    assert len(drafter.splitlines()) <= 30
    assert '"two_copies": TwoCopies()' in "".join(code)
