"""From a run's records to what is shown: tables (CSV, JSON, Markdown), phases, predictions and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

from ngram_trie.bench import cost, metrics, pairwise
from ngram_trie.bench.config import grid_cells
from ngram_trie.bench.measures import ACCEPT_LENGTH, MEASURES, PREDICTED, SPEEDUP, acceptance
from ngram_trie.bench.records import SUMS
from ngram_trie.report import markup, sweeps, table1
from ngram_trie.report.blocks import SYNTHETIC, WITHOUT_LOOPS, WORDS, Block, Marks, Tables
from ngram_trie.report.plots import (
    accept_length_figure,
    headline,
    heatmap_figure,
    line_figure,
    save_figure,
    speedup_figure,
)
from ngram_trie.report.run_folder import RunFolder, save_csv

PAIRWISE, PAIRWISE_WITHOUT_LOOPS, LOOPS = "pairwise.csv", "pairwise_without_loops.csv", "loops.csv"
#: Methods of the figure of acceptance by draft position: those that have most tokens accepted.
MOST_LINES = 8


def write(run: RunFolder | Path, datasets: list[str] | None = None, without_loops: bool = False) -> list[Tables]:
    """Derive everything from the records and the manifest of a run, into its folder; returns the tables.

    Args:
        run: a run, or its folder.
        datasets: order of columns; that of the records unless given.
        without_loops: also the run's own table without the prompts whose answer loops, in files of that name.

    Raises:
        FileNotFoundError: the folder holds no records.
        ValueError: they are of another version, or nothing has been measured yet.
    """
    run = run if isinstance(run, RunFolder) else RunFolder(run)
    datasets = datasets or run.datasets()
    marks = _write_pairwise(run, PAIRWISE)
    save_csv(metrics.loop_shares(run.frame), run.path / LOOPS)
    if without_loops and (rest := run.without_loops):
        _write_without_loops(run, rest, datasets)
    if run.records:
        distribution = metrics.accept_length_distribution(run.records)
        save_csv(distribution, run.path / "accept_lengths.csv")
        tries = distribution[distribution.method == "ngram_trie"]
        if len(tries):
            save_figure(accept_length_figure(_named(run, tries)), run.path / "accept_lengths.png")
        _write_acceptance(run)
    if run.config["grid"]:
        return _write_grid(run, datasets)
    return (_write_live if run.is_measured else _write_replay)(run, datasets, marks)


def main_tables(tables: Sequence[Tables]) -> str:
    """What a terminal has room for: of a run's tables those of its own measurement, as text. All of them are in the
    folder.
    """
    own = [block for part in tables for block in part.measured if "released protocol" not in block.title]
    return markup.plain_text(Tables(own))


def _write_acceptance(run: RunFolder) -> None:
    """Acceptance by draft position: a table of all methods, and a figure of those of the headline."""
    found = acceptance(run.frame)
    if found.empty or run.config["grid"]:
        return
    save_csv(found, run.path / "acceptance.csv")
    pooled = acceptance(run.frame.assign(dataset=", ".join(run.frame.dataset.unique())))
    best = pooled.groupby("method", sort=False).joint.sum().sort_values(ascending=False, kind="stable").index
    lines = pooled[pooled.method.isin(best[:MOST_LINES])].drop(columns="dataset").rename(columns={"method": "dataset"})
    drawn = lines.melt(["dataset", "position"], ["joint", "conditional"], "series", "share")
    drawn = drawn.assign(series=drawn.series + f" ({SYNTHETIC})" * run.is_synthetic)
    label = "share of drafts whose token is accepted"
    save_figure(line_figure(drawn, "position", "share", label, log2=False), run.path / "acceptance.png")


def _write_without_loops(run: RunFolder, rest: RunFolder, datasets: list[str]) -> None:
    """The run's own table again, from the `rest` of its records, without the prompts whose answer loops."""
    marks = _write_pairwise(rest, PAIRWISE_WITHOUT_LOOPS)
    note = _loops_note(run, "loops_out")
    if run.config["grid"]:
        frame, fields = _cells(rest, datasets), list(run.config["grid"])
        title, notes = _sweep_title(run), [*notes_of(rest), *note]
        blocks = sweeps.grid_blocks(frame, fields, speed_of(frame), title=title, notes=notes, marks=marks)
    elif run.is_measured:
        frame, blocks = _live_table(rest, run.methods(), datasets, marks, note, ["corrected"])
    else:
        frame, blocks = _replay_table(rest, run.methods(), datasets, marks, note)
    blocks = [replace(block, title=f"{block.title}, without loops") for block in blocks]
    markup.write(run.path, frame, Tables(blocks), run.is_synthetic, WITHOUT_LOOPS)


def _loops_note(run: RunFolder, where: str = "loops_in") -> list[str]:
    """In words, which share of the answers loops, if any does.

    Args:
        where: of WORDS, what is said of the table without them, if there is one.
    """
    shares = metrics.loop_shares(run.frame)
    shares = shares[shares.num_looping > 0]
    if shares.empty:
        return []
    listed = ", ".join(
        f"{row.dataset} {row.num_looping} of {row.num_prompts} ({row.share:.1%})" for row in shares.itertuples()
    )
    note = WORDS["notes"]["loops"].format(shares=listed)
    return [f"{note} {WORDS['notes'][where]}" if run.without_loops else note]


def _write_pairwise(run: RunFolder, name: str) -> Marks:
    """The pairs that are planned and those with ours, pairwise.csv; returns what is named best. Every other pair is
    shown by `ngram-trie compare`.
    """
    pairs = run.pairs
    is_ours = pairs.a.str.startswith(pairwise.OURS) | pairs.b.str.startswith(pairwise.OURS)
    is_shown = (pairs.family != pairwise.EXPLORATORY) | is_ours
    if is_shown.any():
        save_csv(pairs[is_shown], run.path / name)
    return pairwise.standings(run.pairs)


def _named(run: RunFolder, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows for a figure, the data sets called synthetic where they are."""
    return frame.assign(dataset=frame.dataset + f" ({SYNTHETIC})") if run.is_synthetic else frame


def _write_live(run: RunFolder, datasets: list[str], marks: Marks) -> list[Tables]:
    """Table 1: speedups under both protocols, quality, where the time goes, and how far the cost model is right."""
    frame, measured = _live_table(run, run.methods(), datasets, marks, _loops_note(run))
    published, compared = [], []
    if 1 in run.config["paper_tables"]:
        published, compared = list(table1.paper_blocks()), [table1.readings_block(frame)]
        save_csv(table1.readings(frame), run.path / "readings.csv")
    if run.scores is not None:
        frame = table1.with_quality(frame, run.scores)
        measured = [*measured, *table1.quality_blocks(frame, run.scores)]
    tables = Tables(measured, compared, published, lossless=table1.agreements(frame))
    tables = markup.write(run.path, frame, tables, run.is_synthetic)
    save_csv(metrics.phases(run.frame), run.path / "phases.csv")
    save_figure(speedup_figure(_drawn(run, frame)), run.path / "figure.png")
    save_figure(headline_figure(run, frame), run.path / "headline.png")
    if run.curve:
        save_csv(cost.predicted_and_measured(run.records, run.curve), run.path / "predicted.csv")
    return [tables, *_write_contexts(run, frame[frame.protocol == "corrected"], "speedup")]


def _drawn(run: RunFolder, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a figure: methods that ran, in the first context, for there is room for one."""
    rows = _named(run, frame[frame.dataset.isin(next(iter(table1.contexts(frame).values())))])
    return rows[rows.group != table1.NOT_RUN] if (rows.group != table1.NOT_RUN).any() else rows


def headline_figure(run: RunFolder, frame: pd.DataFrame | None = None) -> Figure:
    """A live run's picture, of the rows of its table; without them, of its records."""
    frame = _live_table(run, run.methods(), run.datasets(), {}, [])[0] if frame is None else frame
    return speedup_figure(headline(_drawn(run, frame)), tasks=False)


def _live_table(
    run: RunFolder,
    methods: list[str],
    datasets: list[str],
    marks: Marks,
    notes: Sequence[str],
    protocols: Sequence[str] = metrics.PROTOCOLS,
) -> tuple[pd.DataFrame, list[Block]]:
    """Speedups: rows of `table1.table1`, and the blocks to print, with `notes` below the usual ones."""
    repeats, left_out = int(run.frame["repeat"].max()) + 1, run.left_out()
    methods = list(dict.fromkeys([*methods, *left_out]))
    frame = pd.concat([
        table1.table1(run.frame, protocol, run.model, run.manifest.device, methods, datasets) for protocol in protocols
    ])  # fmt: skip
    frame.loc[frame.method.isin(left_out), "group"] = table1.NOT_RUN
    reasons = [f"Not run: {name}: {why}" for name, why in (run.not_run() | left_out).items()]
    below = [
        *notes,
        *reasons,
        *_said(run, "missing", "cut", "room", "resumed", "per shard", "parts"),
        *_interim_note(run),
    ]
    return frame, list(table1.measured_blocks(frame, repeats, below, marks))


def _write_replay(run: RunFolder, datasets: list[str], marks: Marks) -> list[Tables]:
    """One row for each method and category."""
    frame, blocks = _replay_table(run, run.methods(), datasets, marks, _loops_note(run))
    tables = markup.write(run.path, frame, Tables(blocks), run.is_synthetic)
    return [tables, *_write_contexts(run, frame, "predicted_speedup")]


def _replay_table(
    run: RunFolder, methods: list[str], datasets: list[str], marks: Marks, notes: Sequence[str]
) -> tuple[pd.DataFrame, list[Block]]:
    """As `_live_table`; categories with noise have an "all" of their own, as in `table1.table1`."""
    parts = []
    tasks = dict(zip(run.frame.dataset, run.frame.task, strict=True))
    for context, part in (table1.contexts(run.frame, datasets) or {metrics.CLEAN: datasets}).items():
        cells = sweeps.cell_table(run.frame[run.frame.context == context], False, methods, part)
        cells = cells.assign(task=cells.dataset.map(lambda name: tasks.get(name, name)), context=context)
        parts.append(cells.replace({"dataset": {table1.ALL: metrics.pooled(context)}}))
    frame = pd.concat(parts)
    order = list(frame.method.unique())
    frame = frame.sort_values("method", key=lambda each: each.map(order.index), kind="stable", ignore_index=True)
    return frame, [sweeps.methods_block(frame, "predicted_speedup", [*notes_of(run), *notes], marks)]


def _write_contexts(run: RunFolder, frame: pd.DataFrame, value: str) -> list[Tables]:
    """Table 4, where it is asked for: every method on every task with clean and with noisy contexts.

    Args:
        frame: rows of the run's own table, with a column `value` to print.
    """
    if 4 not in run.config["paper_tables"] or frame.empty:
        return []
    frame, paper = table1.by_context(frame), table1.paper_contexts()
    notes = [*notes_of(run), WORDS["notes"]["contexts"], *filter(None, [table1.context_change(frame)])]
    contradiction = table1.paper_contexts_note(paper)
    published = [
        block
        for model, part in paper.groupby("model")
        for block in _context_blocks(part, "speedup", f"Table 4, {model}", [contradiction])
    ]
    models = frame.model.unique() if "model" in frame else []
    measured = _context_blocks(frame, value, ", ".join([*models, "Table 4"]), notes)
    tables = Tables(measured, published=published)
    return [markup.write(run.path / "table4", frame, tables, run.is_synthetic)]


def _context_blocks(frame: pd.DataFrame, value: str, title: str, notes: Sequence[str]) -> list[Block]:
    """A line for each method and context."""
    lines = frame.assign(**{"method, context": frame.method + ", " + frame.context})
    return sweeps.grid_blocks(lines, ["method, context"], value, title=title, notes=notes)


def _write_grid(run: RunFolder, datasets: list[str]) -> list[Tables]:
    """A sweep that was measured as one run."""
    fields, numbers = list(run.config["grid"]), run.config["paper_tables"]
    notes = [*notes_of(run), *_loops_note(run)]
    return write_sweep(run, run.path, _cells(run, datasets), fields, _sweep_title(run), notes, numbers, run.pairs)


def _sweep_title(run: RunFolder) -> str:
    return f"{run.model}, {run.config['method']['name']}"


def speed_of(frame: pd.DataFrame) -> str:
    """The column of `sweeps.cell_table` that says how fast a cell is."""
    return next(name for name in (SPEEDUP, PREDICTED, ACCEPT_LENGTH) if name in frame)


def _cells(run: RunFolder, datasets: list[str]) -> pd.DataFrame:
    """The rows of a sweep that was measured as one run."""
    cells = grid_cells(run.config["method"]["name"], run.config["grid"])
    return sweeps.cell_table(run.frame, run.is_measured, list(cells), datasets, cells)


def write_sweep(
    run: RunFolder,
    folder: Path,
    frame: pd.DataFrame,
    fields: list[str],
    title: str,
    notes: list[str],
    paper_tables: Sequence[int],
    pairs: pd.DataFrame | None = None,
) -> list[Tables]:
    """A table for each of the paper's that the sweep answers, one of its own, and a figure of every measured value.

    Args:
        pairs: rows of `pairwise.pairwise` between the cells, where they were measured in one run.
    """
    marks = {} if pairs is None else pairwise.standings(pairs)
    values = ["accept_length", speed_of(frame)]
    parts = frame[frame.dataset != table1.ALL]
    if not run.is_synthetic:
        notes = [*notes, *filter(None, (sweeps.best_cells(parts, fields, value) for value in values))]
        recommended = sweeps.best_cells(parts, fields, "predicted_speedup")
        if "speedup" in frame and fields == ["num_draft"] and recommended:
            notes.append(f"What the cost curve recommends for this device: {recommended}")
    own = sweeps.grid_blocks(frame, fields, values[1], title=title, notes=notes, marks=marks)
    written = [markup.write(folder, frame, Tables(own), run.is_synthetic)]
    for number in paper_tables:
        if number in sweeps.PAPER_TABLES and (blocks := sweeps.measured_blocks(number, frame, title, notes, marks)):
            tables = Tables(blocks, published=sweeps.paper_blocks(number))
            written.append(markup.write(folder / f"table{number}", frame, tables, run.is_synthetic))
    shown = _named(run, parts)
    for value in values + [value for value in ("trie_ms",) if value in frame]:
        if pairs is not None and value in set(pairs.measure):
            shown = shown.assign(**{f"{value}_tied": pairwise.tied_with_best(pairs, parts, value)})
        _sweep_figure(folder, shown, fields, value, marked=not run.is_synthetic)
    return written[1:] or written


def _sweep_figure(folder: Path, frame: pd.DataFrame, fields: Sequence[str], value: str, marked: bool) -> None:
    """Of one value, where its fields are sizes: a heatmap of two, a line over one.

    Args:
        marked: whether the best cells are.
    """
    if not all(_is_a_size(frame[field]) for field in fields):
        return
    label = MEASURES[value].label or MEASURES[value].title
    if len(fields) == 2:
        winner: Literal["lowest", "highest"] = "lowest" if value == "trie_ms" else "highest"
        drawn = heatmap_figure(frame, value, label, winner if marked else None, (fields[0], fields[1]))
    elif len(fields) == 1:
        drawn = line_figure(frame, fields[0], value, label)
    else:
        return
    save_figure(drawn, folder / f"{value}.png")


def _is_a_size(values: pd.Series) -> bool:
    """Whether a field is a number above 0 everywhere; only those have an axis that doubles."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values.tolist()
    )


def notes_of(run: RunFolder, runs: Sequence[RunFolder] = ()) -> list[str]:
    """What a reader must know of a sweep or a replay; of several `runs`, the last one and the records of all."""
    frame = pd.concat([each.frame for each in runs or [run]])
    counts = metrics.answered(frame).drop_duplicates(metrics.PROMPT).dataset.value_counts()
    prompts = f"Prompts: {', '.join(f'{name} {count}' for name, count in sorted(counts.items())) or 'none'}."
    failures = int(frame.failure.notna().sum())
    failed = f" Failed and left out: {failures}." if failures else ""
    if run.is_measured:
        kind = f"Cell: speedup over vanilla [95% interval] (accept length), measured on {run.manifest.device}."
    else:
        device = run.curve.name if run.curve else "no device"
        kind = (
            f"Cell: predicted speedup (accept length). Replay of {run.config['engine']['traces']}: accept lengths "
            f"are exact, speed is predicted from them, the sizes of trees and the costs of {device}, without the "
            f"drafter's time, so it repeats to its last digit. Drafting times are measured ({run.manifest.device}) and "
            "stand apart: drafting (µs) in the table, propose_us in table.csv."
        )
    return [kind, prompts + failed, *_said(run, "per shard"), *_interim_note(run)]


def _said(run: RunFolder, *about: str) -> list[str]:
    """What the manifest says of the run, in sentences."""
    return [f"{name.capitalize()}: {what}" for name, what in run.manifest.environment.items() if name.startswith(about)]


def _interim_note(run: RunFolder) -> list[str]:
    """In words, what is there of a run that was not finished, so that nothing vouches for its files."""
    if run.is_sealed:
        return []
    count = run.manifest.num_records
    of = f" of {count}" if count else ""
    return [f"Interim: {len(run.records)}{of} answers are there, and the run has not ended (no {SUMS})."]
