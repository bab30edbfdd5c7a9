"""How tables are printed: blocks of cells as Markdown, as LaTeX (booktabs) and as text for a terminal.

Measured numbers stand in blocks of their own; the paper's follow under their own heading and never share a block, or a
row of the CSV, with measured ones. The one exception stands between the two under a heading of its own: readings of the
same cell side by side, each column saying which it is.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A value (mostly a speedup), its 95% interval and the accept length; nan is not printed. A rank is 1 (best), 2
    (second) or 0.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    accept_length: float = math.nan
    value_rank: int = 0
    accept_rank: int = 0


@dataclass(frozen=True)
class Block:
    """One printed table: a line for each row (a method, an n), a column for each dataset or L_p, notes below.

    Attributes:
        corner: what the rows are, the header of the first column.
        unit: what follows a value: "x" for a speedup, "%" for a share.
        best_of: what the marked cells are the best of.
    """

    title: str
    columns: list[str]
    rows: dict[str, list[Cell]]
    notes: list[str] = field(default_factory=list)
    corner: str = "method"
    unit: str = "x"
    best_of: str = "a column"


def ranks(values: pd.Series) -> list[int]:
    """1 for the best, 2 for the second best, as printed, so that equal numbers rank equal; 0 where nothing differs."""
    printed = values.round(2)
    distinct = sorted(printed.dropna().unique(), reverse=True)
    if len(distinct) < 2:
        return [0] * len(values)
    return [{distinct[0]: 1, distinct[1]: 2}.get(value, 0) for value in printed]


COMPARED_HEADING = "Readings side by side"
PAPER_HEADING = "The paper's own numbers"
PAPER_WARNING = (
    "Published in 'Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding', not measured here: other "
    "models, other hardware (one RTX 4090), not comparable line by line."
)


def _value(cell: Cell, marks: Sequence[str], unit: str) -> str:
    return marks[cell.value_rank].format(f"{cell.value:.2f}{unit}") if math.isfinite(cell.value) else "-"


def _interval(cell: Cell) -> str:
    return f"[{cell.low:.2f}, {cell.high:.2f}]" if math.isfinite(cell.low) else ""


def _accept(cell: Cell, marks: Sequence[str]) -> str:
    if not math.isfinite(cell.accept_length):
        return ""
    return f"({marks[cell.accept_rank].format(f'{cell.accept_length:.2f}')})"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def markdown(
    measured: Iterable[Block],
    published: Iterable[Block] = (),
    warning: str = PAPER_WARNING,
    compared: Iterable[Block] = (),
) -> str:
    """Blocks in Markdown: what was measured, what is `compared` column by column, and then, below `warning`, what was
    published. Best bold, then italic.
    """
    marks = ("{}", "**{}**", "*{}*")

    def render(block: Block) -> str:
        lines = [f"### {block.title}", ""]
        lines += [f"| {block.corner} | {' | '.join(block.columns)} |", "|---" * (len(block.columns) + 1) + "|"]
        for label, cells in block.rows.items():
            shown = [_join(_value(cell, marks, block.unit), _interval(cell), _accept(cell, marks)) for cell in cells]
            lines.append(f"| {label} | {' | '.join(shown)} |")
        return "\n".join(
            [*lines, "", *(f"{note}  " for note in [*block.notes, *_ranking(block, "**bold**", "*italic*")]), ""]
        )

    text = ["## Measured", "", *map(render, measured)]
    if shown := [*map(render, compared)]:
        text += [f"## {COMPARED_HEADING}", "", *shown]
    if shown := [*map(render, published)]:
        text += [f"## {PAPER_HEADING}", "", warning, "", *shown]
    return "\n".join(text)


def _ranking(block: Block, best: str, second: str) -> list[str]:
    """The note on what the marks mean, where a cell is marked."""
    cells = [cell for row in block.rows.values() for cell in row]
    if not any(cell.value_rank or cell.accept_rank for cell in cells):
        return []
    apart = ", value and accept length apart" if any(cell.accept_rank for cell in cells) else ""
    return [f"Best of {block.best_of} {best}, second best {second}{apart}."]


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$^\dagger$",
})  # fmt: skip


def latex(
    measured: Iterable[Block],
    published: Iterable[Block] = (),
    warning: str = PAPER_WARNING,
    compared: Iterable[Block] = (),
) -> str:
    """The same in LaTeX, to be \\input; needs booktabs and graphicx. Best bold, second best underlined."""
    marks = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")

    def render(block: Block, heading: str) -> str:
        lines = []
        unit = block.unit.translate(_LATEX).replace("x", r"$\times$")
        for label, cells in block.rows.items():
            shown = [
                _join(_value(cell, marks, unit), rf"{{\scriptsize {_interval(cell)}}}", _accept(cell, marks))
                for cell in cells
            ]
            line = " & ".join([label.translate(_LATEX), *shown]).replace(r" {\scriptsize }", "")
            lines.append(rf"    {line} \\")
        header = " & ".join([block.corner.capitalize(), *block.columns]).replace("&", "\0").translate(_LATEX)
        notes = [*block.notes, *_ranking(block, "bold", "underlined")]
        caption = f"{heading} {block.title}. {' '.join(notes)}".translate(_LATEX)
        return "\n".join([
            r"\begin{table*}[t]",
            r"  \centering",
            r"  \resizebox{\textwidth}{!}{%",
            rf"  \begin{{tabular}}{{l{'c' * len(block.columns)}}}",
            r"    \toprule",
            rf"    {header.replace(chr(0), '&')} \\",
            r"    \midrule",
            *lines,
            r"    \bottomrule",
            r"  \end{tabular}}",
            rf"  \caption{{{caption}}}",
            r"\end{table*}",
            "",
        ])  # fmt: skip

    text = ["% Measured", *(render(block, "Measured:") for block in measured)]
    if shown := [render(block, f"{COMPARED_HEADING}:") for block in compared]:
        text += [f"% {COMPARED_HEADING}", *shown]
    if shown := [render(block, f"{PAPER_HEADING}. {warning}") for block in published]:
        text += [f"% {PAPER_HEADING}: not measured here", *shown]
    return "\n".join(text)


def plain_text(
    measured: Iterable[Block],
    published: Iterable[Block] = (),
    warning: str = PAPER_WARNING,
    compared: Iterable[Block] = (),
    width: int = 120,
) -> str:
    """The same as plain text for a terminal `width` characters wide; columns that do not fit go below."""
    marks = ("{}", "{}*", "{}+")

    def render(block: Block) -> str:
        columns = [[block.corner, *block.rows]]  # printed column by column; a cell may hold several lines
        for index, name in enumerate(block.columns):
            cells = [row[index] for row in block.rows.values()]
            shown = [
                f"{_join(_value(cell, marks, block.unit), _accept(cell, marks))}\n{_interval(cell)}".rstrip()
                for cell in cells
            ]
            columns.append(["\n".join(textwrap.wrap(name.replace("_", " "), 14)), *shown])
        notes = [*block.notes, *_ranking(block, "*", "+")]
        wrapped = [textwrap.fill(note, width, initial_indent="  ", subsequent_indent="    ") for note in notes]
        return "\n".join([block.title, *_grid(columns, width), *wrapped, ""])

    def headed(*lines: str) -> list[str]:
        return ["=" * width, *lines, "=" * width, ""]

    text = [*map(render, measured)]
    if shown := [*map(render, compared)]:
        text += [*headed(COMPARED_HEADING), *shown]
    if shown := [*map(render, published)]:
        text += [*headed(PAPER_HEADING, *textwrap.wrap(warning, width)), *shown]
    return "\n".join(text)


def _grid(columns: list[list[str]], width: int) -> Iterator[str]:
    """Lines of a table given by columns of equally many cells; the first column is repeated when the rest must fold."""
    first, *rest = columns
    widths = [max(len(line) for cell in column for line in cell.split("\n")) + 2 for column in columns]
    fitting = 1
    while fitting < len(rest) and sum(widths[: fitting + 2]) <= width:
        fitting += 1
    rule = "-" * sum(widths[: fitting + 1])
    yield rule
    for number, row in enumerate(zip(first, *rest[:fitting], strict=True)):
        cells = [cell.split("\n") for cell in row]
        for line in range(max(len(cell) for cell in cells)):
            texts = [cell[line] if line < len(cell) else "" for cell in cells]
            yield "".join(text.ljust(size) for text, size in zip(texts, widths, strict=False)).rstrip()
        if number == 0:
            yield rule
    yield rule
    if rest[fitting:]:
        yield from _grid([first, *rest[fitting:]], width)


def write(
    folder: Path,
    frame: pd.DataFrame,
    measured: Sequence[Block],
    published: Sequence[Block] = (),
    warning: str = PAPER_WARNING,
    compared: Sequence[Block] = (),
) -> str:
    """Write table.csv (measured rows only), table.md, table.tex and table.txt; returns the last one's text."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "table.csv", index=False, float_format="%.6g", lineterminator="\n")
    text = plain_text(measured, published, warning, compared)
    (folder / "table.md").write_text(markdown(measured, published, warning, compared), encoding="utf-8")
    (folder / "table.tex").write_text(latex(measured, published, warning, compared), encoding="utf-8")
    (folder / "table.txt").write_text(text, encoding="utf-8")
    return text
