"""Tables inside pages: what a marker asks for, and that README and docs hold what their tables say today."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_trie.files import PROJECT
from ngram_trie.report.blocks import Block, Cell, Tables, read, save
from ngram_trie.report.embed import fill, markdown_of, pages
from ngram_trie.report.markup import markdown

ROWS = {"vanilla": [Cell(1.0), Cell(1)], "trie (warm)†": [Cell(1.5, 1.25, 1.75, 2.5, 1), Cell()]}
TABLES = Tables([Block("tiny, corrected", ["rag", "all"], ROWS, ["a note"])], published=[Block("theirs", ["rag"], {})])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save(TABLES, tmp_path)
    return tmp_path


def test_blocks_are_read_as_they_were_written(root: Path) -> None:
    tables = read(root / "table.json")
    assert markdown(tables) == markdown(TABLES)
    assert tables.measured[0].rows["trie (warm)†"][0] == ROWS["trie (warm)†"][0]


@pytest.mark.parametrize("path", sorted((PROJECT / "results").rglob("table.md")), ids=lambda path: path.parent.name)
def test_every_committed_table_is_rendered_from_its_blocks(path: Path) -> None:
    if "local" not in path.parts:
        assert markdown(read(path.with_suffix(".json"))) == path.read_text(encoding="utf-8")


def test_a_page_is_filled_between_its_markers(root: Path) -> None:
    marker = "<!-- table: table.json; rows: trie = the trie; columns: all | rag = RAG; cells: value interval -->"
    page = f"before\n{marker}\nold\n<!-- end -->\nafter\n<!-- table: table.json -->\n<!-- end -->\n"
    filled = fill(page, root)
    assert filled == (
        f"before\n{marker}\n| method | all | RAG |\n|---|---|---|\n| the trie | - | **1.50x** [1.25, 1.75] |\n"
        "<!-- end -->\nafter\n<!-- table: table.json -->\n| method | rag | all |\n|---|---|---|\n"
        "| vanilla | 1.00x | 1x |\n| trie (warm)† | **1.50x** [1.25, 1.75] (2.50) | - |\n<!-- end -->\n"
    )
    assert fill(filled, root) == filled


def test_marks_are_left_out_and_accept_lengths_alone_have_no_brackets(root: Path) -> None:
    assert "| 1.50x (2.50) |" in markdown_of("table.json; marks: none; cells: value accept_length", root)
    assert "| 2.50 |" in markdown_of("table.json; cells: accept_length", root)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("; row: trie", "table table.json: no option 'row'; did you mean rows? "),
        ("; block: released", "table table.json: no block 'released'; "),
        ("; rows: tries", "table table.json, rows: no 'tries'; did you mean trie? "),
        ("; columns: ra", "table table.json, columns: no 'ra'; did you mean rag? "),
        ("; cells: values", "table table.json: no part 'values' of a cell; did you mean value? "),
    ],
)
def test_a_marker_that_asks_for_what_is_not_there(root: Path, marker: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        markdown_of(f"table.json{marker}", root)
    assert str(error.value).startswith(message)


def test_pages_hold_their_tables_as_they_are_today() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert fill(text) == text, f"{page.name}: make derive fills its tables"
