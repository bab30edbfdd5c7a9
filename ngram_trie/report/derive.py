"""From a run's records to what is shown: tables (CSV, Markdown, LaTeX, text), phases, predictions and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ngram_trie import cost, metrics, quality
from ngram_trie.config import grid_cells
from ngram_trie.cost import CostCurve
from ngram_trie.files import place
from ngram_trie.records import PromptRecord, RunManifest, read_records
from ngram_trie.report import figures, markup, sweeps, table1
from ngram_trie.report.blocks import Block, Tables

#: Where curves of this machine are looked for: what the user measured, then what the project ships.
CALIBRATIONS = (place("results/local/calibration"), place("results/embedded/calibration"))


def write(folder: Path, methods: list[str] | None = None, datasets: list[str] | None = None) -> str:
    """Derive everything from `records.jsonl` and `manifest.json` in `folder`; returns the tables as text.

    Args:
        methods, datasets: order of rows and columns; that of the configuration, then of the records, unless given.

    Raises:
        FileNotFoundError: the folder holds no records.
        ValueError: they are none of this version's.
    """
    path = folder / "records.jsonl"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no records; `python -m scripts.run` or `make reproduce-table1` writes them")
    records, manifest = list(read_records(path)), RunManifest.read(folder / "manifest.json")
    if not records and _is_measured(manifest):
        raise ValueError(f"{path} is empty: nothing has been measured yet")
    live = _is_measured(manifest)
    curve = curve_for(manifest)
    if datasets is None and (categories := manifest.config["engine"].get("categories")):
        datasets = [categories] if isinstance(categories, str) else list(categories)
    methods = methods or method_order(manifest, records)
    if records:
        distribution = metrics.accept_length_distribution(records)
        save_csv(distribution, folder / "accept_lengths.csv")
        tries = distribution[distribution.method == "ngram_trie"]
        if len(tries):
            figures.save_figure(figures.accept_length_figure(tries), folder / "accept_lengths.png")
    if manifest.config["grid"]:
        return _write_grid(folder, records, manifest, curve, datasets)
    if not live:
        return _write_replay(folder, records, manifest, curve, methods, datasets)
    return _write_live(folder, records, manifest, curve, methods, datasets)


def _is_measured(manifest: RunManifest) -> bool:
    """Whether a run's seconds are a model's; those of a replay are predicted."""
    return bool(manifest.config["engine"]["name"] != "replay")


def write_quality(
    folder: Path,
    references: Mapping[tuple[str, str, int], quality.Reference],
    decode: Callable[[list[int]], str],
) -> None:
    """Score the answers in `folder` and write quality.csv there, where `write` finds it; see `quality.score`.

    Raises:
        FileNotFoundError: the folder holds no records.
        KeyError: an answer to a question that is not among the references.
    """
    save_csv(quality.score(read_records(folder / "records.jsonl"), references, decode), folder / "quality.csv")


def method_order(manifest: RunManifest, records: Sequence[PromptRecord]) -> list[str]:
    """The methods with records, as the configuration lists them, each vanilla before the first compared with it."""
    baselines = {record.method: record.baseline for record in records}
    named = [*(manifest.config.get("methods") or {}), *baselines]
    order = [each for name in named if name in baselines for each in (baselines[name], name)]
    return [name for name in dict.fromkeys(order) if name in baselines]


def curve_for(manifest: RunManifest) -> CostCurve | None:
    """What steps cost on the run's device: of a replay the curve it was given, of a live run one measured there."""
    if "cost" in manifest.config:
        # By what it holds, never by the `_target_` it names: a manifest may be somebody else's.
        given = {name: value for name, value in manifest.config["cost"].items() if name != "_target_"}
        return CostCurve.read(place(given["folder"])) if "folder" in given else cost.assumed_curve(**given)
    return next((CostCurve.read(folder) for folder in CALIBRATIONS if cost.holds_for(folder, manifest)), None)


def _write_live(
    folder: Path,
    records: list[PromptRecord],
    manifest: RunManifest,
    curve: CostCurve | None,
    methods: list[str] | None,
    datasets: list[str] | None,
) -> str:
    """Table 1: speedups under both protocols, quality, where the time goes, and how far the cost model is right."""
    repeats = max(record.repeat for record in records) + 1
    frame = pd.concat([
        table1.table1(records, protocol, records[0].model, manifest.device, methods, datasets)
        for protocol in metrics.PROTOCOLS
    ])  # fmt: skip
    published, compared = [], []
    if 1 in manifest.config["paper_tables"]:
        published, compared = list(table1.paper_blocks()), [table1.readings_block(frame)]
        save_csv(table1.readings(frame), folder / "readings.csv")
    missing = [
        f"{name.capitalize()}: {why}"
        for name, why in manifest.environment.items()
        if name.startswith(("not run", "cut"))
    ]
    measured = list(table1.measured_blocks(frame, repeats, missing))
    if (path := folder / "quality.csv").exists():
        scores = pd.read_csv(path, dtype={"question_id": str})
        frame = table1.with_quality(frame, scores)
        measured += table1.quality_blocks(frame, scores)
    text = markup.write(folder, frame, Tables(measured, compared, published, lossless=table1.agreements(frame)))
    save_csv(metrics.phases(metrics.to_frame(records)), folder / "phases.csv")
    first = next(iter(table1.contexts(frame.dataset).values()))  # of several contexts: there is room for one
    figures.save_figure(figures.speedup_figure(frame[frame.dataset.isin(first)]), folder / "figure.png")
    if curve:
        predicted = cost.predicted_and_measured(records, curve)
        save_csv(predicted, folder / "predicted.csv")
        text += f"\nPredicted from accept lengths and the cost curve ({curve.name}), and measured:\n"
        text += predicted.round(3).to_string(index=False) + "\n"
    corrected = frame[frame.protocol == "corrected"]
    return text + _write_contexts(folder, corrected, "speedup", _notes(manifest, curve, records), manifest)


def _write_replay(
    folder: Path,
    records: list[PromptRecord],
    manifest: RunManifest,
    curve: CostCurve | None,
    methods: list[str] | None,
    datasets: list[str] | None,
) -> str:
    """One row for each method and category; categories with noise have an "all" of their own, as in `tables.table1`."""
    names = datasets or list(dict.fromkeys(record.dataset for record in records))
    parts = []
    for context, part in (table1.contexts(names) or {metrics.CLEAN: names}).items():
        own = [record for record in records if metrics.task_and_context(record.dataset)[1] == context]
        cells = sweeps.cell_table(own, curve, live=False, methods=methods, datasets=part)
        parts.append(cells.replace({"dataset": {table1.ALL: table1.pooled(context)}}))
    frame = pd.concat(parts)
    order = list(frame.method.unique())
    frame = frame.sort_values("method", key=lambda each: each.map(order.index), kind="stable", ignore_index=True)
    notes = _notes(manifest, curve, records)
    blocks = sweeps.grid_blocks(frame, ["method"], "predicted_speedup", notes=notes)
    text = markup.write(folder, frame, Tables(blocks))
    return text + _write_contexts(folder, frame, "predicted_speedup", notes, manifest)


def _write_contexts(folder: Path, frame: pd.DataFrame, value: str, notes: Sequence[str], manifest: RunManifest) -> str:
    """Table 4, where it is asked for: every method on every task with clean and with noisy contexts.

    Args:
        frame: rows of the run's own table, with a column `value` to print.
    """
    if 4 not in manifest.config["paper_tables"] or frame.empty:
        return ""
    frame, paper = table1.by_context(frame), table1.paper_contexts()
    notes = [*notes, table1.CONTEXT_NOTE, *filter(None, [table1.context_change(frame)])]
    contradiction = table1.paper_contexts_note(paper)
    published = [
        block
        for model, part in paper.groupby("model")
        for block in _context_blocks(part, "speedup", f"Table 4, {model}", [contradiction])
    ]
    tries = frame[(frame.method == "ngram_trie") & frame.accept_length.notna()]
    if len(tries):
        figures.save_figure(figures.context_quality_figure(tries), folder / "table4" / "figure.png")
    models = frame.model.unique() if "model" in frame else []
    measured = _context_blocks(frame, value, ", ".join([*models, "Table 4"]), notes)
    return "\n" + markup.write(folder / "table4", frame, Tables(measured, published=published))


def _context_blocks(frame: pd.DataFrame, value: str, title: str, notes: Sequence[str]) -> list[Block]:
    """A line for each method and context."""
    lines = frame.assign(**{"method, context": frame.method + ", " + frame.context})
    return sweeps.grid_blocks(lines, ["method, context"], value, title=title, notes=notes)


def _write_grid(
    folder: Path,
    records: list[PromptRecord],
    manifest: RunManifest,
    curve: CostCurve | None,
    datasets: list[str] | None,
) -> str:
    """A sweep that was measured as one run."""
    live = _is_measured(manifest)
    cells = grid_cells(manifest.config["method"]["name"], manifest.config["grid"])
    frame = sweeps.cell_table(records, curve, live, list(cells), datasets, cells)
    title = f"{records[0].model if records else 'no traces'}, {manifest.config['method']['name']}"
    notes = _notes(manifest, curve, records)
    return _write_sweep(folder, frame, list(manifest.config["grid"]), title, notes, manifest.config["paper_tables"])


def gather(folder: Path) -> str:
    """One sweep out of all the runs below `folder`, each of one method, such as the jobs of a Hydra multirun: what they
    were told differently becomes the rows and columns.

    Raises:
        FileNotFoundError: there are no runs.
        ValueError: the runs do not differ in anything that a table could be spanned by.
    """
    shards = {path.parent: RunManifest.read(path) for path in sorted(folder.rglob("manifest.json"))}
    shards = {path: manifest for path, manifest in shards.items() if (path / "records.jsonl").exists()}
    if not shards:
        raise FileNotFoundError(f"{folder}: no runs in it or below it")
    settings = [flatten(manifest.config["method"]) for manifest in shards.values() if "method" in manifest.config]
    fields = (
        [name for name in settings[0] if len({str(setting.get(name)) for setting in settings}) > 1] if settings else []
    )
    if len(settings) < len(shards) or not fields:
        raise ValueError(f"{folder}: its {len(shards)} runs are not a sweep over fields of one method")
    frames, all_records = [], []
    for (path, manifest), setting in zip(shards.items(), settings, strict=True):
        records, live = list(read_records(path / "records.jsonl")), _is_measured(manifest)
        frame = sweeps.cell_table(records, curve_for(manifest), live, [setting["name"]])
        frames.append(frame.assign(**{name: setting[name] for name in fields}))
        all_records += records
    devices = sorted({manifest.device for manifest in shards.values()})
    notes = [*_notes(manifest, curve_for(manifest), all_records), f"{len(shards)} runs on {'; '.join(devices)}."]
    frame = pd.concat(frames).sort_values(fields, kind="stable").reset_index(drop=True)
    title = f"{all_records[0].model if all_records else 'no traces'}, {settings[0]['name']}"
    numbers = sorted({number for manifest in shards.values() for number in manifest.config["paper_tables"]})
    return _write_sweep(folder, frame, fields, title, notes, numbers)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one mapping with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


_LABELS = {
    "accept_length": "accept length (tokens per step)",
    "speedup": "speedup over vanilla (ratio of tokens/s)",
    "predicted_speedup": "predicted speedup over vanilla (ratio of tokens/s)",
    "trie_ms": "drafting and laying out the tree (ms per step)",
}


def _write_sweep(
    folder: Path, frame: pd.DataFrame, fields: list[str], title: str, notes: list[str], paper_tables: Sequence[int]
) -> str:
    """A table for each of the paper's that the sweep answers, one of its own, and a figure of every measured value."""
    values = ["accept_length", "speedup" if "speedup" in frame else "predicted_speedup"]
    parts = frame[frame.dataset != table1.ALL]
    notes = [*notes, *filter(None, (sweeps.best_cells(parts, fields, value) for value in values))]
    if (
        "speedup" in frame
        and fields == ["num_draft"]
        and (best := sweeps.best_cells(parts, fields, "predicted_speedup"))
    ):
        notes.append(f"What the cost curve recommends for this device: {best}")
    own = sweeps.grid_blocks(frame, fields, values[1], title=title, notes=notes)
    texts = [markup.write(folder, frame, Tables(own))]
    for number in paper_tables:
        if number in sweeps.PAPER_TABLES and (blocks := sweeps.measured_blocks(number, frame, title, notes)):
            tables = Tables(blocks, published=sweeps.paper_blocks(number))
            texts.append(markup.write(folder / f"table{number}", frame, tables))
    for value in values + [value for value in ("trie_ms",) if value in frame]:
        label = _LABELS[value]
        if len(fields) == 2 and all(_is_a_size(parts[field]) for field in fields):
            winner: Literal["lowest", "highest"] = "lowest" if value == "trie_ms" else "highest"
            drawn = figures.heatmap_figure(parts, value, label, winner, (fields[0], fields[1]))
            figures.save_figure(drawn, folder / f"{value}.png")
        elif len(fields) == 1 and _is_a_size(parts[fields[0]]):
            figures.save_figure(figures.line_figure(parts, fields[0], value, label), folder / f"{value}.png")
    return "\n".join(texts[1:] or texts)


def _is_a_size(values: pd.Series) -> bool:
    """Whether a field is a number above 0 everywhere; only those have an axis that doubles."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values.tolist()
    )


def _notes(manifest: RunManifest, curve: CostCurve | None, records: Sequence[PromptRecord]) -> list[str]:
    """What a reader must know of a sweep or a replay."""
    turns = {(r.dataset, r.question_id, r.turn) for r in records if not r.failure}
    counts: dict[str, int] = {}
    for dataset, *_ in turns:
        counts[dataset] = counts.get(dataset, 0) + 1
    prompts = f"Prompts: {', '.join(f'{name} {count}' for name, count in sorted(counts.items())) or 'none'}."
    failures = sum(1 for record in records if record.failure)
    failed = f" Failed and left out: {failures}." if failures else ""
    if _is_measured(manifest):
        kind = f"Cell: speedup over vanilla [95% interval] (accept length), measured on {manifest.device}."
    else:
        kind = (
            f"Cell: predicted speedup (accept length). Replay of {manifest.config['engine']['traces']}: accept lengths "
            f"are exact, speed is predicted for {curve.name if curve else 'no device'}; drafting times measured on "
            f"{manifest.device}."
        )
    return [kind, prompts + failed]


def save_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
