"""Tables of results inside README and docs, filled in from table.json.

A page names the table between two comments; what stands between them is written by `fill`:

    <!-- table: results/embedded/table1/table.json; rows: vanilla | ngram_trie = n-gram trie; cells: value -->
    <!-- end -->

After the path, each optional, separated by ";":
    block: part of the block's title; the first measured block unless given.
    rows, columns: which and in which order, separated by "|"; all unless given. A row is named by its label or by its
        first word, the method. "name = text" shows it as the text.
    cells: of value, interval, accept_length; all unless given.
    corner: header of the first column.
    marks: "none" leaves out what marks the best of the whole table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ngram_trie.config import near
from ngram_trie.files import PROJECT
from ngram_trie.report.blocks import read
from ngram_trie.report.markup import CELLS, markdown_table

OPTIONS = ("block", "rows", "columns", "cells", "corner", "marks")
_MARKED = re.compile(r"(<!-- table: ([^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill(text: str, root: Path = PROJECT) -> str:
    """The same page with every table between markers written anew.

    Args:
        root: what the paths of tables are relative to.

    Raises:
        FileNotFoundError: a table.json is not there.
        ValueError: an unknown option, block, row, column or part of a cell.
    """
    return _MARKED.sub(lambda found: f"{found[1]}{markdown_of(found[2], root)}\n{found[4]}", text)


def pages(root: Path = PROJECT) -> list[Path]:
    """README.md and the pages of docs."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def fill_pages(root: Path = PROJECT) -> list[Path]:
    """Fill `pages`; returns those that changed."""
    changed = []
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        if (filled := fill(text, root)) != text:
            page.write_text(filled, encoding="utf-8")
            changed.append(page)
    return changed


def markdown_of(marker: str, root: Path = PROJECT) -> str:
    """The table that a marker asks for; see the head of this module."""
    name, *parts = [part.strip() for part in marker.split(";")]
    options = {}
    for part in parts:
        option, _, value = part.partition(":")
        if option not in OPTIONS:
            raise ValueError(f"table {name}: no option {option!r}; {near(option, OPTIONS)}")
        options[option] = value.strip()
    tables = read(root / name)
    blocks = [block for _, group in tables.groups() for block in group]
    titles = [block.title for block in blocks]
    block = next((each for each in blocks if options.get("block", "") in each.title), None)
    if block is None:
        raise ValueError(f"table {name}: no block {options['block']!r}; {near(options['block'], titles)}")
    cells = options.get("cells", " ".join(CELLS)).replace("|", " ").split()
    if unknown := [cell for cell in cells if cell not in CELLS]:
        raise ValueError(f"table {name}: no part {unknown[0]!r} of a cell; {near(unknown[0], CELLS)}")
    rows = _chosen(f"table {name}, rows", options.get("rows"), list(block.rows))
    columns = _chosen(f"table {name}, columns", options.get("columns"), block.columns)
    places = [block.columns.index(column) for column, _ in columns]
    chosen = {shown: [block.rows[label][place] for place in places] for label, shown in rows}
    if options.get("marks") == "none":
        chosen = {name: [replace(cell, value_rank=0, accept_rank=0) for cell in row] for name, row in chosen.items()}
    corner = options.get("corner", block.corner)
    return markdown_table(replace(block, columns=[s for _, s in columns], rows=chosen, corner=corner), cells)


def _chosen(what: str, asked: str | None, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a label and how it is shown."""
    if asked is None:
        return [(label, label) for label in labels]
    chosen = []
    for part in asked.split("|"):
        name, _, shown = (each.strip() for each in part.partition("="))
        known = {re.split("[ †]", label)[0]: label for label in labels} | {label: label for label in labels}
        if name not in known:
            raise ValueError(f"{what}: no {name!r}; {near(name, list(known))}")
        chosen.append((known[name], shown or known[name]))
    return chosen
