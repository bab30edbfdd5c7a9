"""Tables of results inside README and docs, filled in from table.json, pairwise.csv and other CSV files.

A page names the table between two comments, the first of one or more lines; what stands between them is written by
`fill`:

    <!-- table: results/table1/tiny/table.json; rows: vanilla | ngram_trie = n-gram trie; cells: speedup -->
    <!-- end -->

After the path, each optional, separated by ";":
    rows, columns: which and in which order, separated by "|"; all unless given. A row is named by its label or by its
        first word, the method. "name = text" shows it as the text. Of the columns before the cells ("group", "nodes")
        all are shown where no columns are asked for, else those that are.
    cells: of the first block's measures and "interval"; all unless given.
    corner: header of the first column.
    marks: "none" leaves out what marks the best.

Two methods compared:

    <!-- pairwise: results/table1/smollm2-docs-epyc/pairwise.csv; pairs: blend/suffix | blend/pld -->
    <!-- end -->

    pairs: "a/b", one line each: their speedup over all data sets.

Rows of any CSV file:

    <!-- csv: results/speed/smollm2-epyc/steps.csv; columns: backend | ms = milliseconds; where: context == 256 -->
    <!-- end -->

    columns: which and in which order, separated by "|"; all unless given. "name = text" shows it as the text.
    where: which rows, as pandas' `query` reads it; all unless given.
    digits: of fractions, behind the point; 2 unless given. Whole numbers stay whole, what is missing stays empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ngram_trie.bench import pairwise
from ngram_trie.bench.measures import SPEEDUP
from ngram_trie.bench.metrics import ALL
from ngram_trie.methods import near
from ngram_trie.report.blocks import read, unmarked
from ngram_trie.report.markup import INTERVAL, markdown_table, pipe_table
from ngram_trie.store.files import PROJECT

OPTIONS = ("rows", "columns", "cells", "corner", "marks")
PAIRWISE_OPTIONS = ("pairs",)
CSV_OPTIONS = ("columns", "where", "digits")
_MARKED = re.compile(r"(<!-- (table|pairwise|csv): (.*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill(text: str, root: Path = PROJECT) -> str:
    """The same page with every table between markers written anew.

    Args:
        root: what the paths of tables are relative to.

    Raises:
        FileNotFoundError: a file that is named is not there.
        ValueError: an unknown option, row, column, part of a cell or pair, or no rows.
    """
    writers = {"table": markdown_of, "pairwise": pairwise_of, "csv": csv_of}
    return _MARKED.sub(lambda found: f"{found[1]}{writers[found[2]](found[3], root)}\n{found[5]}", text)


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
    name, options = _options("table", marker, OPTIONS)
    tables = read(root / name)
    block = next(block for _, group in tables.groups() for block in group)
    parts = [*block.measures, INTERVAL]
    cells = options["cells"].replace("|", " ").split() if "cells" in options else parts
    if unknown := [cell for cell in cells if cell not in parts]:
        raise ValueError(f"table {name}: no part {unknown[0]!r} of a cell; {near(unknown[0], parts)}")
    rows = _chosen(f"table {name}, rows", options.get("rows"), list(block.rows))
    asked = _chosen(f"table {name}, columns", options.get("columns"), [*block.lead, *block.columns])
    columns = [each for each in asked if each[0] in block.columns]
    places = [block.columns.index(column) for column, _ in columns]
    lines = [list(block.rows).index(label) for label, _ in rows]
    lead = {shown: [block.lead[header][line] for line in lines] for header, shown in asked if header in block.lead}
    chosen = {shown: [block.rows[label][place] for place in places] for label, shown in rows}
    if options.get("marks") == "none":
        chosen = {name: [unmarked(cell) for cell in row] for name, row in chosen.items()}
    corner = options.get("corner", block.corner)
    measures = [cell for cell in cells if cell != INTERVAL]
    shown = replace(
        block, columns=[text for _, text in columns], rows=chosen, corner=corner, lead=lead, measures=measures
    )
    return markdown_table(shown, INTERVAL in cells)


def pairwise_of(marker: str, root: Path = PROJECT) -> str:
    """The comparisons that a marker asks for; see the head of this module."""
    name, options = _options("pairwise", marker, PAIRWISE_OPTIONS)
    rows = pd.read_csv(root / name)
    rows, lines = rows[(rows.measure == SPEEDUP) & (rows.dataset == ALL)], []
    if rows.empty:
        raise ValueError(f"pairwise {name}: no speedup over all data sets")
    for pair in options.get("pairs", "").split("|"):
        a, _, b = (each.strip() for each in pair.partition("/"))
        row = pairwise.between(rows, a, b).iloc[0]
        p = "below 0.0001" if row.p_holm < 1e-4 else f"{row.p_holm:.4f}"
        verdict = "significant" if row.significant else "not separated"
        verdict += ", exploratory" if row.get("family") == pairwise.EXPLORATORY else ""
        lines.append([f"`{a}` / `{b}`", f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]", p, verdict])
    return pipe_table(["speedup", "ratio [95% interval]", "p, Holm", "verdict"], lines)


def csv_of(marker: str, root: Path = PROJECT) -> str:
    """The rows that a marker asks for; see the head of this module."""
    name, options = _options("csv", marker, CSV_OPTIONS)
    table = pd.read_csv(root / name)
    if where := options.get("where"):
        table = table.query(where)
    if table.empty:
        raise ValueError(f"csv {name}: no rows where {where}")
    chosen = _chosen(f"csv {name}, columns", options.get("columns"), list(map(str, table.columns)))
    fraction = f".{options.get('digits', '2')}f"

    def cell(value: object, is_whole: bool) -> str:
        if pd.isna(value):
            return ""
        return format(value, fraction) if isinstance(value, float) and not is_whole else str(value)

    # a column of whole numbers is whole, one with fractions has the same digits throughout
    parts = [table[column].convert_dtypes() for column, _ in chosen]
    cells = [[cell(value, part.dtype == "Int64") for value in part] for part in parts]
    return pipe_table([shown for _, shown in chosen], zip(*cells, strict=True))


def _options(kind: str, marker: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The file that a marker names, and its options."""
    name, *parts = [part.strip() for part in marker.split(";")]
    options = {}
    for part in parts:
        option, _, value = part.partition(":")
        if option not in known:
            raise ValueError(f"{kind} {name}: no option {option!r}; {near(option, known)}")
        options[option] = value.strip()
    return name, options


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
