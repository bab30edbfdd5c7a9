"""Tables as data: blocks of cells, and `table.json`, in which they lie beside the rendered table.md.

Measured numbers and the paper's never share a block. `compared` blocks alone hold both; there each column names its
source.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ngram_trie.bench.measures import ACCEPT_LENGTH, MEASURES, SPEEDUP, Value
from ngram_trie.bench.metrics import Agreement

PAPER_WARNING = (
    "Published in 'Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding', not measured here: other "
    "models, other hardware (one RTX 4090), not comparable line by line."
)
#: Of the files that a table is written to, and of one over the answers that do not loop (`metrics.loops`).
TABLE, WITHOUT_LOOPS = "table", "table_without_loops"
JSON = f"{TABLE}.json"
#: What follows the name of a data set whose text is of the project's own making (`methods.is_synthetic`).
SYNTHETIC = "synthetic"
#: What tables and figures say.
WORDS = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text(encoding="utf-8"))


#: `pairwise.standings`: what is named best, by data set, measure and method.
Marks = Mapping[tuple[str, str, str], int]
#: What one cell shows: its measures by name.
Cell = dict[str, Value]


@dataclass(frozen=True)
class Block:
    """One printed table: a line for each row (a method, an n), a column for each dataset or L_p, notes below.

    Attributes:
        corner: header of the first column: what the rows are.
        measures: names of those that a cell prints, in order, the first with its interval.
        best_of: what a marked cell is above every other of.
        lead: texts that stand between a row's name and its cells: header -> one for each row.
    """

    title: str
    columns: list[str]
    rows: dict[str, list[Cell]]
    notes: list[str] = field(default_factory=list)
    corner: str = "method"
    measures: Sequence[str] = (SPEEDUP, ACCEPT_LENGTH)
    best_of: str = "method of its group"
    lead: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tables:
    """All blocks of one table.

    Attributes:
        measured: this project's numbers.
        compared: readings of the same cell side by side.
        published: a paper's numbers, below `warning`.
        lossless: of each method, over all datasets of clean contexts, how its answers compare with vanilla's.
    """

    measured: Sequence[Block]
    compared: Sequence[Block] = ()
    published: Sequence[Block] = ()
    warning: str = PAPER_WARNING
    lossless: Mapping[str, Agreement] = field(default_factory=dict)

    def groups(self) -> Iterator[tuple[str, Sequence[Block]]]:
        """Heading and blocks of each group that has any."""
        for heading, blocks in zip(HEADINGS, (self.measured, self.compared, self.published), strict=True):
            if blocks:
                yield heading, blocks


MEASURED, COMPARED, PUBLISHED = HEADINGS = ("Measured", "Readings side by side", "The paper's own numbers")


def cell_of(
    row: pd.Series | Mapping[str, Any], measures: Sequence[str], dataset: str, method: str, marks: Marks | None = None
) -> Cell:
    """The cell of one row of a table, whose columns are `measures.row_of`'s; what it does not have is not known.

    Args:
        marks: what is named best.
    """
    nan = math.nan
    return {
        name: Value(
            row.get(name, nan),
            row.get(f"{name}_low", nan),
            row.get(f"{name}_high", nan),
            (marks or {}).get((dataset, name, method), 0),
        )
        for name in measures
    }


def leads_of(rows: pd.DataFrame, is_measured: bool = True) -> dict[str, list[str]]:
    """The measures that lead a row (`Measure.lead`), as texts by their titles."""
    kinds = ("all",) if is_measured else ("all", "replay")
    shown = [measure for name, measure in MEASURES.items() if measure.lead in kinds and name in rows]
    return {measure.title: [measure.text(value) for value in rows[measure.name]] for measure in shown}


def as_synthetic(tables: Tables, datasets: Iterable[str]) -> Tables:
    """The same with the measured columns, and the titles that name a data set, called synthetic, and nothing marked as
    best.
    """
    known = set(datasets)

    def name(text: str) -> str:
        dataset, colon, rest = text.partition(":")
        return f"{dataset} ({SYNTHETIC}){colon}{rest}" if dataset in known else text

    def renamed(block: Block) -> Block:
        rows = {name(label): [unmarked(cell) for cell in row] for label, row in block.rows.items()}
        title = ", ".join(map(name, block.title.split(", ")))
        notes = [*block.notes, WORDS["notes"]["synthetic"]]
        return replace(block, title=title, columns=[*map(name, block.columns)], rows=rows, notes=notes)

    measured, compared = ([renamed(block) for block in part] for part in (tables.measured, tables.compared))
    return replace(tables, measured=measured, compared=compared)


def save(tables: Tables, folder: Path, name: str = TABLE) -> None:
    """Write NAME.json: numbers to ten significant digits, what is not known left out, one line a row."""
    parts = []
    for group in ("measured", "compared", "published"):
        blocks = ",\n".join(_block_json(block) for block in getattr(tables, group))
        parts.append(f'"{group}": [\n{blocks}]')
    parts.append(f'"warning": {json.dumps(tables.warning)}')
    agreements = ",\n".join(
        f"{json.dumps(method)}: {json.dumps(vars(each))}" for method, each in tables.lossless.items()
    )
    parts.append(f'"lossless": {{{agreements}}}')
    (folder / f"{name}.json").write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def _block_json(block: Block) -> str:
    head = json.dumps({each.name: getattr(block, each.name) for each in fields(Block) if each.name != "rows"})
    rows = [
        f"{json.dumps(label)}: {json.dumps([_cell_json(cell) for cell in row])}" for label, row in block.rows.items()
    ]
    return head[:-1] + ', "rows": {\n' + ",\n".join(rows) + "}}"


def unmarked(cell: Cell) -> Cell:
    """The same, with nothing named best."""
    return {measure: value._replace(rank=0) for measure, value in cell.items()}


def _cell_json(cell: Cell) -> dict[str, list[float | None]]:
    """Value, ends of the interval and rank of each measure that is known, without what is missing at the end."""
    found = {}
    for measure, value in cell.items():
        numbers = [_number(number) for number in value[:3]] + [value.rank or None]
        while numbers and numbers[-1] is None:
            numbers.pop()
        if numbers:
            found[measure] = numbers
    return found


def _number(value: float) -> float | None:
    """To ten significant digits; None of what is not known."""
    if isinstance(value, int):
        return value
    return float(f"{value:.10g}") if math.isfinite(value) else None


def _value(numbers: Sequence[float | None]) -> Value:
    first, low, high, rank = (*numbers, None, None, None)[:4]
    value, low, high = (math.nan if number is None else number for number in (first, low, high))
    return Value(value, low, high, int(rank or 0))


def read(path: Path) -> Tables:
    """The tables of a table.json.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the file holds something else.
    """

    def block(about: dict[str, Any]) -> Block:
        rows = {
            label: [{measure: _value(numbers) for measure, numbers in cell.items()} for cell in row]
            for label, row in about.pop("rows").items()
        }
        return Block(**about, rows=rows)

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        groups = {name: [block(each) for each in found[name]] for name in ("measured", "compared", "published")}
        lossless = {method: Agreement(**counts) for method, counts in found["lossless"].items()}
        return Tables(**groups, warning=found["warning"], lossless=lossless)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the tables of a run ({error!r}); `make derive` writes them") from None
