"""How tables are printed: as Markdown, as LaTeX (booktabs) and as text for a terminal.

Measured numbers come first, then readings side by side, then the paper's own, each group under its own heading.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from ngram_trie.report import blocks
from ngram_trie.report.blocks import MEASURED, PUBLISHED, WORDS, Block, Cell, Tables


def _value(cell: Cell, marks: Sequence[str], block: Block, unit: str | None = None) -> str:
    if not math.isfinite(cell.value):
        return "-"
    number = str(cell.value) if isinstance(cell.value, int) else f"{cell.value:.{block.decimals}f}"
    return marks[cell.value_rank].format(f"{number}{block.unit if unit is None else unit}")


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
    header = [block.corner, *block.lead, *block.columns]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for (label, row), lead in zip(block.rows.items(), leads(block), strict=True):
        texts = [dict(zip(CELLS, parts(cell, block, _MARKDOWN), strict=True)) for cell in row]
        shown = [_join(*(text[name] for name in cells)) for text in texts]
        if list(cells) == ["accept_length"]:
            shown = [text.strip("()") for text in shown]
        lines.append(f"| {' | '.join([label, *lead, *shown])} |")
    return "\n".join(lines)


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


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$^\dagger$",
})  # fmt: skip


def latex(tables: Tables) -> str:
    """The same in LaTeX, to be \\input; needs booktabs and graphicx. Best bold, second best underlined."""
    marks = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")

    def render(block: Block, heading: str) -> str:
        lines = []
        unit = block.unit.translate(_LATEX).replace("x", r"$\times$")
        for (label, cells), lead in zip(block.rows.items(), leads(block), strict=True):
            shown = [
                _join(_value(cell, marks, block, unit), rf"{{\scriptsize {_interval(cell)}}}", _accept(cell, marks))
                for cell in cells
            ]
            line = " & ".join([*(text.translate(_LATEX) for text in (label, *lead)), *shown]).replace(
                r" {\scriptsize }", ""
            )
            lines.append(rf"    {line} \\")
        header = (
            " & ".join([block.corner.capitalize(), *block.lead, *block.columns]).replace("&", "\0").translate(_LATEX)
        )
        caption = f"{heading} {block.title}. {' '.join(notes(block, 'bold', 'underlined'))}".translate(_LATEX)
        return "\n".join([
            r"\begin{table*}[t]",
            r"  \centering",
            r"  \resizebox{\textwidth}{!}{%",
            rf"  \begin{{tabular}}{{l{'c' * len([*block.lead, *block.columns])}}}",
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

    text = []
    for heading, group in tables.groups():
        published = heading == PUBLISHED
        caption = f"{heading}. {tables.warning}" if published else f"{heading}:"
        text += [f"% {heading}{': not measured here' if published else ''}"]
        text += [render(block, caption) for block in group]
    return "\n".join(text)


def plain_text(tables: Tables, width: int = 120) -> str:
    """The same as plain text for a terminal `width` characters wide; columns that do not fit go below."""
    marks = ("{}", "{}*", "{}+")

    def render(block: Block) -> str:
        columns = [[block.corner, *block.rows]]  # printed column by column; a cell may hold several lines
        columns += [[name, *texts] for name, texts in block.lead.items()]
        for index, name in enumerate(block.columns):
            cells = [row[index] for row in block.rows.values()]
            shown = [
                f"{_join(_value(cell, marks, block), _accept(cell, marks))}\n{_interval(cell)}".rstrip()
                for cell in cells
            ]
            columns.append(["\n".join(textwrap.wrap(name.replace("_", " "), 14)), *shown])
        lines = notes(block, "*", "+")
        wrapped = [textwrap.fill(line, width, initial_indent="  ", subsequent_indent="    ") for line in lines]
        return "\n".join([block.title, *_grid(columns, width), *wrapped, ""])

    def headed(*lines: str) -> list[str]:
        return ["=" * width, *lines, "=" * width, ""]

    text = []
    for heading, group in tables.groups():
        warning = textwrap.wrap(tables.warning, width) if heading == PUBLISHED else []
        text += [*(headed(heading, *warning) if heading != MEASURED else []), *map(render, group)]
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


def write(folder: Path, frame: pd.DataFrame, tables: Tables, synthetic: bool = False, name: str = blocks.TABLE) -> str:
    """Write table.csv (`frame`, measured rows only), table.json (the blocks), and the blocks as table.md, table.tex and
    table.txt; returns the last one's text.

    Args:
        synthetic: of a model for which `config.is_synthetic`.
        name: of the files, in place of "table".
    """
    if synthetic:
        tables = blocks.as_synthetic(tables, frame.dataset.unique())
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    blocks.save(tables, folder, name)
    writers: dict[str, Callable[[Tables], str]] = {"md": markdown, "tex": latex, "txt": plain_text}
    texts = {suffix: writer(tables) for suffix, writer in writers.items()}
    for suffix, text in texts.items():
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return texts["txt"]
