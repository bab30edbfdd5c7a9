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

from ngram_trie.bench import measures
from ngram_trie.bench.measures import Value
from ngram_trie.report import blocks
from ngram_trie.report.blocks import MEASURED, PUBLISHED, WORDS, Block, Cell, Tables

_PLAIN = ("{}", "{}", "{}")
_MARKDOWN = ("{}", "**{}**", "*{}*")
INTERVAL = "interval"


def markdown_table(block: Block, intervals: bool = True) -> str:
    """The rows of a block in Markdown, without title and notes."""
    lines = [
        [label, *lead, *(" ".join(filter(None, parts(cell, block, _MARKDOWN, intervals))) for cell in row)]
        for (label, row), lead in zip(block.rows.items(), leads(block), strict=True)
    ]
    return pipe_table([block.corner, *block.lead, *block.columns], lines)


def pipe_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def count(number: int, noun: str) -> str:
    """So many, in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def leads(block: Block) -> list[tuple[str, ...]]:
    """The texts between name and cells, row by row."""
    return list(zip(*block.lead.values(), strict=True)) if block.lead else [()] * len(block.rows)


def parts(cell: Cell, block: Block, marks: Sequence[str] = _PLAIN, intervals: bool = True) -> tuple[str, str, str]:
    """The texts of the block's first measure, "-" where it is not known, of its interval and, in brackets, of the other
    measures; each empty where there is nothing to say.
    """
    texts = {
        name: marks[value.rank].format(measures.measure(name).text(value.value))
        for name in block.measures
        if math.isfinite((value := cell.get(name, Value())).value) or name == block.measures[0]
    }
    first, *others = texts.values()
    ends = cell.get(block.measures[0], Value())
    interval = f"[{ends.low:.2f}, {ends.high:.2f}]" if intervals and math.isfinite(ends.low) else ""
    return first, interval, f"({', '.join(others)})" if others else ""


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
    if not any(value.rank for cell in cells for value in cell.values()):
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
                    texts = [parts(cell, block, marks) for cell in row[shown]]
                    # the interval has a line of its own
                    cells = ["\n".join(filter(None, [f"{value} {rest}".rstrip(), ends])) for value, ends, rest in texts]
                    table.add_row(label, *([] if start else lead), *cells)
                console.print(table)
            for line in notes(block, "*", "+"):
                console.print(Padding(line, (0, 0, 0, 2)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def write(
    folder: Path, frame: pd.DataFrame, tables: Tables, synthetic: bool = False, name: str = blocks.TABLE
) -> Tables:
    """Write table.csv (`frame`, measured rows only), table.json (the blocks) and table.md; returns what they show.

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
    return tables
