"""Sweeps: one method at every combination of some of its fields, and the paper's Tables 2, 3, 5 and 6 made of them.

A grid is measured as one run with a method for each cell, so that live cells are interleaved prompt by prompt like the
methods of Table 1, and share one vanilla.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ngram_trie.bench import metrics
from ngram_trie.bench.measures import ACCEPT_LENGTH, PREDICTED, SPEEDUP, known, measure, row_of
from ngram_trie.bench.metrics import ALL
from ngram_trie.report.blocks import WORDS, Block, Cell, cell_of, leads_of
from ngram_trie.store.files import PAPER

#: Columns beside the measures, and the counts behind them.
ABOUT, COUNTS = ["method", "group", "dataset"], ["num_prompts", "num_steps"]


def cell_table(
    frame: pd.DataFrame,
    is_measured: bool,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    cells: Mapping[str, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """One row for each method and dataset and one with dataset "all", of those without noise where there are any:
    ABOUT, the measures that are `known`, COUNTS; a dataset without records keeps its row, of nan and num_prompts 0.

    Args:
        frame: answers of one run, see `metrics.to_frame`.
        is_measured: whether their seconds are a model's.
        methods, datasets: which, and in which order; those of the answers unless given.
        cells: method -> fields of its cell; the fields become columns.
    """
    groups = {method: metrics.group(part) for method, part in frame.groupby("method", sort=False)}
    measures, clean = known(frame, is_measured), frame[frame.context == metrics.CLEAN]
    pooled, rows = clean if len(clean) else frame, []
    for method in methods or list(frame.method.unique()):
        for dataset in [*(datasets or frame.dataset.unique()), ALL]:
            part = pooled if dataset == ALL else frame[frame.dataset == dataset]
            ours = part[part.method == method]
            about = {"method": method, "group": groups.get(method, "-"), "dataset": dataset}
            counts = {"num_prompts": metrics.num_prompts(ours), "num_steps": metrics.num_steps(ours)}
            rows.append(about | row_of(part, method, measures) | counts | dict((cells or {}).get(method, {})))
    return pd.DataFrame(rows, columns=None if rows else [*ABOUT, *COUNTS])


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's sweeps: which fields span it, what it prints, on which data sets.

    Attributes:
        fields: rows, and columns if there are two; with one field the data sets are the columns.
        datasets: of ours, those that there are; without any of them all that there are.
        measured: measures to print, the first one that has values; or all of them (`every`).
        printed: those that the paper prints.
    """

    fields: tuple[str, ...]
    datasets: tuple[str, ...]
    measured: tuple[str, ...]
    printed: tuple[str, ...]
    note: str
    every: bool = False


_SPEED = (SPEEDUP, PREDICTED)
_TASKS = ("summarization", "rag", "open_qa", "attributed_qa")
_THROUGHPUT = ("tokens_per_second",)
_TIMES = ("trie_ms", "inference_ms")
PAPER_TABLES = {
    2: PaperTable(("n", "prefix_len"), ("rag",), _SPEED, _THROUGHPUT, "The paper prints tokens per second."),
    3: PaperTable(("num_draft",), ("summarization", "rag"), _SPEED, (SPEEDUP,), "The paper prints speedups."),
    5: PaperTable(("n", "prefix_len"), _TASKS, _SPEED, _THROUGHPUT, "The paper prints tokens per second."),
    6: PaperTable(
        ("n", "prefix_len"), ("summarization",), _TIMES, _TIMES,
        "The paper does not say of what these are averages; what is measured here is per verification step.",
        every=True,
    ),
}  # fmt: skip
_CORNERS: dict[tuple[str, ...], str] = {("n", "prefix_len"): "n \\ L_p"}


def grid_blocks(
    frame: pd.DataFrame,
    fields: Sequence[str],
    value: str,
    title: str = "",
    notes: Iterable[str] = (),
    marks: Mapping[tuple[str, str, str], int] | None = None,
) -> list[Block]:
    """Blocks of the column `value`, with its interval and the accept length where `frame` has them.

    Two fields: one block for each data set, the first field down, the second across. One field: one block, the field
    down, the data sets across. More fields: all but the last one down.

    Args:
        frame: rows with `dataset`, the fields and `value`, and `method` where there are marks.
        marks: `pairwise.standings`: what is named best.
    """
    two = len(fields) > 1
    down, across = (list(fields[:-1]), fields[-1]) if two else (list(fields), "dataset")
    corner = _CORNERS.get(tuple(fields), " \\ ".join([", ".join(down), across]) if two else ", ".join(down))
    shown = list(dict.fromkeys([value, ACCEPT_LENGTH])) if ACCEPT_LENGTH in frame else [value]
    blocks = []
    for dataset, part in frame.groupby("dataset", sort=False) if two else [("", frame)]:
        cells: dict[tuple[str, str], Cell] = {}
        for row in part.to_dict("records"):
            name = ", ".join(str(row[field]) for field in down)
            cells[name, str(row[across])] = cell_of(row, shown, row["dataset"], row.get("method", ""), marks)
        columns = list(dict.fromkeys(column for _, column in cells))
        rows = {name: [cells.get((name, column), {}) for column in columns] for name, _ in cells}
        heading = ", ".join(filter(None, [title, str(dataset), measure(value).title]))
        best_of = "method of its group" if fields == ["method"] else "cell"
        blocks.append(Block(heading, columns, rows, list(notes), corner, shown, best_of))
    return blocks


def methods_block(
    frame: pd.DataFrame, value: str, notes: Iterable[str], marks: Mapping[tuple[str, str, str], int]
) -> Block:
    """The rows of `cell_table` as a block of methods, group by group, with what they draft and what that takes them."""
    order = frame.group.map(metrics.group_order)
    frame = frame.assign(order=order).sort_values("order", kind="stable")
    (block,) = grid_blocks(frame, ["method"], value, notes=notes, marks=marks)
    # any data set's pooled row tells of all
    rows = frame[frame.task == ALL].drop_duplicates("method").set_index("method").loc[list(block.rows)]
    return replace(block, lead={"group": list(rows.group)} | leads_of(rows, is_measured=False))


def measured_blocks(
    number: int,
    frame: pd.DataFrame,
    title: str,
    notes: Iterable[str] = (),
    marks: Mapping[tuple[str, str, str], int] | None = None,
) -> list[Block]:
    """The counterpart of the paper's Table `number` from rows of `cell_table`; empty where the sweep is another one."""
    table = PAPER_TABLES[number]
    if not set(table.fields) <= set(frame.columns):
        return []
    rows = frame[frame.dataset != ALL]
    if set(table.datasets) & set(rows.dataset):
        rows = rows[rows.dataset.isin(table.datasets)]
    values = [v for v in table.measured if v in rows and rows[v].notna().any()]
    blocks = []
    for value in values if table.every else values[:1]:
        shown = rows.drop(columns="accept_length") if table.every else rows
        blocks += grid_blocks(shown, table.fields, value, f"{title}, Table {number}", notes, marks)
    return blocks


def paper_blocks(number: int) -> list[Block]:
    """The paper's Table `number` as it is printed."""
    table, rows = PAPER_TABLES[number], pd.read_csv(PAPER / f"table{number}.csv")
    blocks = []
    for model, part in rows.groupby("model", sort=False):
        for value in table.printed:
            part_blocks = grid_blocks(part, table.fields, value, f"Table {number}, {model}", [table.note])
            own = measure(value).title
            blocks += [replace(b, title=b.title.replace(own, WORDS["printed"].get(value, own))) for b in part_blocks]
    return blocks


def best_cells(frame: pd.DataFrame, fields: Sequence[str], value: str) -> str:
    """In words, for each data set the cell with the largest `value`."""
    rows = frame[frame[value].notna()] if value in frame else frame[:0]
    if rows.empty:
        return ""
    best = rows.loc[rows.groupby("dataset", sort=False)[value].idxmax()]
    listed = "; ".join(
        f"{row['dataset']} {', '.join(f'{f}={row[f]}' for f in fields)} ({row[value]:.2f})"
        for _, row in best.iterrows()
    )
    return f"Largest {measure(value).title}: {listed}."
