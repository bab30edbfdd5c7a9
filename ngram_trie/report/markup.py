"""How tables are printed: as Markdown and as text for a terminal.

Measured numbers come first, then readings side by side, then the paper's own, each group under its own heading.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ngram_trie.report import blocks
from ngram_trie.report.blocks import MEASURED, PUBLISHED, WORDS, Block, Cell, Tables


def _value(cell: Cell, marks: Sequence[str], block: Block) -> str:
    if not math.isfinite(cell.value):
        return "-"
    number = str(cell.value) if isinstance(cell.value, int) else f"{cell.value:.{block.decimals}f}"
    return marks[cell.value_rank].format(f"{number}{block.unit}")


def _interval(cell: Cell) -> str:
    return f"[{cell.low:.2f}, {cell.high:.2f}]" if math.isfinite(cell.low) else ""


def _accept(cell: Cell, marks: Sequence[str]) -> str:
    if not math.isfinite(cell.accept_length):
        return ""
    return f"({marks[cell.accept_rank].format(f'{cell.accept_length:.2f}')})"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


_PLAIN = ("{}", "{}", "{}")
_MARKDOWN = ("{}", "**{}**", "*{}*")
CELLS = ("value", "interval", "accept_length")


def markdown_table(block: Block, cells: Sequence[str] = CELLS) -> str:
    """The rows of a block in Markdown, without title and notes.

    Args:
        cells: of CELLS, what to print of each.
    """
    lines = []
    for (label, row), lead in zip(block.rows.items(), leads(block), strict=True):
        texts = [dict(zip(CELLS, parts(cell, block, _MARKDOWN), strict=True)) for cell in row]
        shown = [_join(*(text[name] for name in cells)) for text in texts]
        if list(cells) == ["accept_length"]:
            shown = [text.strip("()") for text in shown]
        lines.append([label, *lead, *shown])
    return pipe_table([block.corner, *block.lead, *block.columns], lines)


def pipe_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def leads(block: Block) -> list[tuple[str, ...]]:
    """The texts between name and cells, row by row."""
    return list(zip(*block.lead.values(), strict=True)) if block.lead else [()] * len(block.rows)


def parts(cell: Cell, block: Block, marks: Sequence[str] = _PLAIN) -> tuple[str, str, str]:
    """The texts of CELLS, empty where they are not known; a value that is not known is "-"."""
    return _value(cell, marks, block), _interval(cell), _accept(cell, marks)


def markdown(tables: Tables) -> str:
    """All blocks in Markdown with their notes; below the heading of published ones, the warning. Best bold, then
    italic.
    """

    def render(block: Block) -> str:
        lines = [f"{note}  " for note in notes(block)]
        return "\n".join([f"### {block.title}", "", markdown_table(block), "", *lines, ""])

    text = []
    for heading, group in tables.groups():
        warning = [tables.warning, ""] if heading == PUBLISHED else []
        text += [f"## {heading}", "", *warning, *map(render, group)]
    return "\n".join(text)


def notes(block: Block, best: str = "**bold**", second: str = "*italic*") -> list[str]:
    """The notes of a block and, where a cell is marked, what the marks mean."""
    cells = [cell for row in block.rows.values() for cell in row]
    if not any(cell.value_rank or cell.accept_rank for cell in cells):
        return block.notes
    return [*block.notes, WORDS["notes"]["marks"].format(best=best, second=second, other=block.best_of)]


def plain_text(tables: Tables, width: int = 120) -> str:
    """The same as plain text for a terminal `width` characters wide; columns that do not fit go below."""
    marks = ("{}", "{}*", "{}+")
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    for heading, group in tables.groups():
        if heading != MEASURED:
            console.rule(heading)
        if heading == PUBLISHED:
            console.print(tables.warning)
        for block in group:
            fitting = max(1, (width - 40) // 14)
            for start in range(0, len(block.columns), fitting):
                shown = slice(start, start + fitting)
                table = Table(box=SIMPLE_HEAD, title=block.title, title_justify="left", padding=(0, 1, 0, 0))
                table.add_column(block.corner, overflow="fold")
                for name in [*([] if start else block.lead), *block.columns[shown]]:
                    table.add_column(name.replace("_", " "), overflow="fold")
                for (label, row), lead in zip(block.rows.items(), leads(block), strict=True):
                    texts = [_value(c, marks, block) + _below(_accept(c, marks), _interval(c)) for c in row[shown]]
                    table.add_row(label, *([] if start else lead), *texts)
                console.print(table)
            for line in notes(block, "*", "+"):
                console.print(Padding(line, (0, 0, 0, 2)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _below(accept: str, interval: str) -> str:
    """What stands behind a value, the interval on a line of its own."""
    return f"{f' {accept}' * bool(accept)}{f'{chr(10)}{interval}' * bool(interval)}"


def write(folder: Path, frame: pd.DataFrame, tables: Tables, synthetic: bool = False, name: str = blocks.TABLE) -> str:
    """Write table.csv (`frame`, measured rows only), table.json (the blocks) and table.md; returns the blocks as text.

    Args:
        synthetic: of a model for which `methods.is_synthetic`.
        name: of the files, in place of "table".
    """
    if synthetic:
        tables = blocks.as_synthetic(tables, frame.dataset.unique())
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    blocks.save(tables, folder, name)
    (folder / f"{name}.md").write_text(markdown(tables), encoding="utf-8")
    return plain_text(tables)
