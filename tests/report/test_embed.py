"""Tables inside pages: what a marker asks for, and that README and docs hold what their tables say today."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ngram_trie.bench.measures import ACCEPT_LENGTH, SPEEDUP, Value
from ngram_trie.bench.pairwise import between
from ngram_trie.report.blocks import Block, Tables, read, save
from ngram_trie.report.embed import fill, markdown_of, pairwise_of
from ngram_trie.report.markup import markdown
from ngram_trie.store.files import PROJECT

ROWS = {
    "vanilla": [{SPEEDUP: Value(1.0)}, {SPEEDUP: Value(1)}],
    "trie (warm)†": [{SPEEDUP: Value(1.5, 1.25, 1.75, 1), ACCEPT_LENGTH: Value(2.5)}, {}],
}
TABLES = Tables([Block("tiny, corrected", ["rag", "all"], ROWS, ["a note"])], published=[Block("theirs", ["rag"], {})])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save(TABLES, tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", sorted((PROJECT / "results").rglob("table.json")), ids=lambda path: path.parent.name)
def test_every_committed_table_is_rendered_from_its_blocks(path: Path) -> None:
    if "local" not in path.parts:
        assert markdown(read(path)) == path.with_suffix(".md").read_text(encoding="utf-8")


def test_a_page_is_filled_between_its_markers(root: Path) -> None:
    marker = "<!-- table: table.json; rows: trie = the trie; columns: all | rag = RAG; cells: speedup interval -->"
    page = f"before\n{marker}\nold\n<!-- end -->\nafter\n<!-- table: table.json -->\n<!-- end -->\n"
    filled = fill(page, root)
    assert filled == (
        f"before\n{marker}\n| method | all | RAG |\n|---|---|---|\n| the trie | - | **1.50x** [1.25, 1.75] |\n"
        "<!-- end -->\nafter\n<!-- table: table.json -->\n| method | rag | all |\n|---|---|---|\n"
        "| vanilla | 1.00x | 1x |\n| trie (warm)† | **1.50x** [1.25, 1.75] (2.50) | - |\n<!-- end -->\n"
    )
    assert fill(filled, root) == filled


def test_marks_are_left_out_and_accept_lengths_alone_have_no_brackets(root: Path) -> None:
    assert "| 1.50x (2.50) |" in markdown_of("table.json; marks: none; cells: speedup accept_length", root)
    assert "| 2.50 |" in markdown_of("table.json; cells: accept_length", root)


def test_columns_before_the_cells_follow_their_rows(tmp_path: Path) -> None:
    rows = {"vanilla": [{SPEEDUP: Value(1.0)}], "trie (warm)†": [{SPEEDUP: Value(1.5)}]}
    block = Block("t", ["rag (synthetic)"], rows)
    lead = {"group": ["baseline", "warm"], "nodes": ["0.0", "7.5"]}
    save(Tables([replace(block, lead=lead)]), tmp_path)
    assert markdown(read(tmp_path / "table.json")).count("| warm | 7.5 | 1.50x |") == 1
    every = markdown_of("table.json; rows: trie | vanilla", tmp_path)
    assert every.splitlines()[0] == "| method | group | nodes | rag (synthetic) |"
    assert every.splitlines()[2:] == ["| trie (warm)† | warm | 7.5 | 1.50x |", "| vanilla | baseline | 0.0 | 1.00x |"]
    some = markdown_of("table.json; rows: trie; columns: rag = RAG | nodes = nodes a step", tmp_path)
    assert some.splitlines()[::2] == ["| method | nodes a step | RAG |", "| trie (warm)† | 7.5 | 1.50x |"]


OTHERS = "exploratory"
PAIRWISE = pd.DataFrame(
    [
        ("all", "speedup", "planned", "pld", "trie", "cold", "warm", 0.8, 0.5, 1.25, 0.01, 0.02, False, 0.8, 1.0),
        ("rag", "speedup", OTHERS, "pld", "trie", "cold", "warm", 0.5, 0.4, 0.625, 1e-7, 1e-6, True, 0.5, 0.5),
        ("rag", "accept_length", OTHERS, "pld", "trie", "cold", "warm", 2.0, 1.0, 4.0, 1.0, 1.0, False, 2.0, 2.0),
    ],
    columns=[
        "dataset", "measure", "family", "a", "b", "group_a", "group_b", "ratio", "low", "high", "p", "p_holm",
        "significant", "session_min", "session_max",
    ],
)  # fmt: skip


def test_two_methods_compared_either_way_round(tmp_path: Path) -> None:
    PAIRWISE.to_csv(tmp_path / "pairwise.csv", index=False)
    found = pairwise_of("pairwise.csv; pairs: pld/trie | trie / pld", tmp_path).splitlines()
    assert found[0] == "| speedup | ratio [95% interval] | p, Holm | verdict |"
    assert found[2:] == [
        "| `pld` / `trie` | 0.800 [0.500, 1.250] | 0.0200 | not separated |",
        "| `trie` / `pld` | 1.250 [0.800, 2.000] | 0.0200 | not separated |",
    ]
    surer = PAIRWISE.assign(family=OTHERS, p_holm=1e-6, significant=True)
    surer.to_csv(tmp_path / "surer.csv", index=False)
    line = "| `pld` / `trie` | 0.800 [0.500, 1.250] | below 0.0001 | significant, exploratory |"
    assert pairwise_of("surer.csv; pairs: pld/trie", tmp_path).splitlines()[2] == line
    turned = between(PAIRWISE, "trie", "pld").iloc[0]
    assert (turned.group_a, turned.session_min, turned.session_max) == ("warm", 1.0, 1.25)
    page = "<!-- pairwise: pairwise.csv; pairs: pld/trie -->\n<!-- end -->\n"
    assert fill(page, tmp_path).splitlines()[3] == found[2]
    assert fill(fill(page, tmp_path), tmp_path) == fill(page, tmp_path)
    for marker, message in (
        ("pairs: pld/tri", "pld and tri are not compared; the methods are pld, trie"),
        ("pair: pld/trie", "no option 'pair'; did you mean pairs?"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            pairwise_of(f"pairwise.csv; {marker}", tmp_path)
