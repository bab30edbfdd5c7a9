"""Sweeps: one method at every combination of some of its fields, and the paper's Tables 2, 3, 5 and 6 made of them.

A grid is measured as one run with a method for each cell, so that live cells are interleaved prompt by prompt like the
methods of Table 1, and share one vanilla.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ngram_trie.bench import cost, metrics
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.metrics import ALL
from ngram_trie.bench.pairwise import ACCEPT_LENGTH as _ACCEPT
from ngram_trie.bench.records import PromptRecord
from ngram_trie.report.blocks import WORDS, Block, Cell
from ngram_trie.store.files import PAPER

REPLAY_COLUMNS = [
    "method", "group", "dataset", "accept_length", "accept_length_macro", "num_prompts", "num_steps", "draft_nodes",
    "propose_us_median", "propose_us_p99", "index_ms_median", "predicted_speedup",
]  # fmt: skip
LIVE_COLUMNS = [
    "speedup", "speedup_low", "speedup_high", "speedup_session_sd", "tokens_per_second", "trie_ms", "inference_ms",
]  # fmt: skip


def cell_table(
    records: Collection[PromptRecord],
    curve: CostCurve | None,
    live: bool,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    cells: Mapping[str, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """One row for each method and dataset and one with dataset "all", REPLAY_COLUMNS; a dataset without records keeps
    its row, of nan and num_prompts 0.

    Args:
        records: of one run.
        curve: what steps cost; without one `predicted_speedup` is nan. It follows from answers, trees and the curve
            alone; the drafter's time, which is measured, stands in columns of its own.
        live: also LIVE_COLUMNS: the measured speedup over vanilla, and milliseconds a step of drafting and laying out
            the tree (trie_ms) and of forward and cache (inference_ms).
        methods, datasets: which, and in which order; those of the records unless given.
        cells: method -> fields of its cell; the fields become columns.
    """
    frame = metrics.to_frame(records)
    predicted = cost.predict(records, curve) if curve else None
    groups = {method: metrics.group(part) for method, part in frame.groupby("method", sort=False)}
    rows = []
    for method in methods or list(frame.method.unique()):
        for dataset in [*(datasets or frame.dataset.unique()), ALL]:
            part = frame if dataset == ALL else frame[frame.dataset == dataset]
            ours = part[part.method == method]
            row = {
                "method": method,
                "group": groups.get(method, "-"),
                "dataset": dataset,
                **{n: f(ours) for n, f in _CELL_METRICS.items()},
            }
            if predicted is not None:
                chosen = predicted[predicted.method == method]
                chosen = chosen if dataset == ALL else chosen[chosen.dataset == dataset]
                row |= {"predicted_speedup": cost.explain(chosen, drafting=False)["predicted_speedup"]}
            if live:
                ratio, low, high = metrics.speedup(part, method)
                row |= {"speedup": ratio, "speedup_low": low, "speedup_high": high}
                row |= {"speedup_session_sd": metrics.session_speedups(part, method).std()}
                row |= {name: function(ours) for name, function in _LIVE_METRICS.items()}
            rows.append(row | dict((cells or {}).get(method, {})))
    axes = list(next(iter(cells.values()))) if cells else []
    return pd.DataFrame(rows).reindex(columns=REPLAY_COLUMNS + (LIVE_COLUMNS if live else []) + axes)


_CELL_METRICS = {
    "accept_length": metrics.accept_length,
    "accept_length_macro": metrics.accept_length_macro,
    "num_prompts": metrics.num_prompts,
    "num_steps": metrics.num_steps,
    "draft_nodes": metrics.draft_nodes,
    "propose_us_median": lambda frame: metrics.propose_us(frame, 0.5),
    "propose_us_p99": lambda frame: metrics.propose_us(frame, 0.99),
    "index_ms_median": metrics.index_ms,
}
_LIVE_METRICS = {
    "tokens_per_second": metrics.tokens_per_second,
    "trie_ms": lambda frame: metrics.milliseconds_per_step(frame, ("draft", "build")),
    "inference_ms": lambda frame: (
        metrics.milliseconds_per_step(frame, ("verify", "commit")) - metrics.milliseconds_per_step(frame, ("build",))
    ),
}


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's sweeps: which fields span it, what it prints, on which data sets.

    Attributes:
        fields: rows, and columns if there are two; with one field the data sets are the columns.
        datasets: of ours, those that there are; without any of them all that there are.
        measured: columns of `cell_table` to print, the first one that has values; or all of them (`every`).
        printed: columns of the paper's CSV and their units.
    """

    fields: tuple[str, ...]
    datasets: tuple[str, ...]
    measured: dict[str, str]
    printed: dict[str, str]
    note: str
    every: bool = False


_SPEED = {"speedup": "x", "predicted_speedup": "x"}
_TASKS = ("summarization", "rag", "open_qa", "attributed_qa")
_THROUGHPUT = {"tokens_per_second": ""}
_TIMES = {"trie_ms": "", "inference_ms": ""}
PAPER_TABLES = {
    2: PaperTable(("n", "prefix_len"), ("rag",), _SPEED, _THROUGHPUT, "The paper prints tokens per second."),
    3: PaperTable(("num_draft",), ("summarization", "rag"), _SPEED, {"speedup": "x"}, "The paper prints speedups."),
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
    unit: str = "x",
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
    blocks = []
    for dataset, part in frame.groupby("dataset", sort=False) if two else [("", frame)]:
        cells: dict[tuple[str, str], Cell] = {}
        for row in part.to_dict("records"):
            name = ", ".join(str(row[field]) for field in down)
            accept = row.get("accept_length", math.nan) if value != "accept_length" else math.nan
            low, high = row.get(f"{value}_low", math.nan), row.get(f"{value}_high", math.nan)
            ranks = ((marks or {}).get((row["dataset"], each, row.get("method", "")), 0) for each in (value, _ACCEPT))
            cells[name, str(row[across])] = Cell(row[value], low, high, accept, *ranks)
        columns = list(dict.fromkeys(column for _, column in cells))
        rows = {name: [cells.get((name, column), Cell()) for column in columns] for name, _ in cells}
        heading = ", ".join(filter(None, [title, str(dataset), WORDS["titles"].get(value, value)]))
        best_of = "method of its group" if fields == ["method"] else "cell"
        blocks.append(Block(heading, columns, rows, list(notes), corner, unit, best_of))
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
    nodes, times = (
        [f"{number:.1f}" if math.isfinite(number) else "-" for number in rows[name]]
        for name in ("draft_nodes", "propose_us_median")
    )
    return replace(block, lead={"group": list(rows.group), "nodes": nodes, "drafting (µs)": times})


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
        blocks += grid_blocks(
            shown, table.fields, value, table.measured[value], f"{title}, Table {number}", notes, marks
        )
    return blocks


def paper_blocks(number: int) -> list[Block]:
    """The paper's Table `number` as it is printed."""
    table, rows = PAPER_TABLES[number], pd.read_csv(PAPER / f"table{number}.csv")
    blocks = []
    for model, part in rows.groupby("model", sort=False):
        for value, unit in table.printed.items():
            part_blocks = grid_blocks(part, table.fields, value, unit, f"Table {number}, {model}", [table.note])
            blocks += [
                replace(b, title=b.title.replace(WORDS["titles"][value], (WORDS["titles"] | WORDS["printed"])[value]))
                for b in part_blocks
            ]
    return blocks


def best_cells(frame: pd.DataFrame, fields: Sequence[str], value: str) -> str:
    """In words, for each data set the cell with the largest `value`."""
    rows = frame[frame[value].notna()]
    if rows.empty:
        return ""
    best = rows.loc[rows.groupby("dataset", sort=False)[value].idxmax()]
    listed = "; ".join(
        f"{row['dataset']} {', '.join(f'{f}={row[f]}' for f in fields)} ({row[value]:.2f})"
        for _, row in best.iterrows()
    )
    return f"Largest {WORDS['titles'].get(value, value)}: {listed}."
