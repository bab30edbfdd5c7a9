"""Several runs in one table: the settings in which they differ are its rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie.bench import metrics
from ngram_trie.bench.metrics import ALL, group_order
from ngram_trie.bench.records import is_sealed, records_file
from ngram_trie.report import markup, sweeps
from ngram_trie.report.blocks import WORDS, Tables
from ngram_trie.report.derive import notes_of, speed_of, write_sweep
from ngram_trie.report.run_folder import RunFolder, flatten

#: Data sets with a block of their own where runs have several methods, if there are any; the others are in table.csv.
SHOWN = ("summarization", "rag", ALL)
#: Names that stand for all settings of their part, and what nobody tells runs apart by.
NAMES, UNASKED = ("model.name", "dataset.name", "method.name", "budget"), ("parts.", "paper_tables", "output")
RULES = ("published", "equal", "auto")


def budget_name(config: Mapping[str, Any]) -> str:
    """A run's budget in words: "published", "8 nodes", "auto"; "8 nodes, chain"."""
    budget = config["budget"]
    size = f"{budget['num_nodes']} nodes" if budget["rule"] == "equal" else str(budget["rule"])
    return f"{size}, {config['shape']}" if "shape" in config else size


def collect(folder: Path, runs: Sequence[RunFolder] | None = None) -> list[Tables]:
    """One table, written to `folder`, of `runs`, or of all runs below it, such as the cells of a Hydra multirun. Live,
    forced and replayed runs are never in one table: where there are several kinds, each has its own, in a folder of its
    name.

    Raises:
        FileNotFoundError: there are no runs.
        ValueError: the runs differ in no setting, their prompts differ for no reason that a setting says, none is
            complete, or a file is a link.
    """
    is_sealed(folder)
    if runs is None:
        found = [RunFolder(path.parent) for path in sorted(folder.rglob("manifest.json"))]
        begun = [run for run in found if (file := records_file(run.path)).exists() and file.stat().st_size]
        for run in begun:
            if run.manifest.shard and not records_file(run.path.parent).exists():
                whole = run.path.parent
                raise ValueError(f"{whole}: its shards are not joined: ngram-trie derive {whole}")
        # a grid has a table of its own
        runs = [run for run in begun if not run.config["grid"] and not run.manifest.shard]
    if not runs:
        raise FileNotFoundError(f"{folder}: no runs in it or below it that make a table together")
    kinds: dict[str, list[RunFolder]] = {}
    for run in runs:
        kinds.setdefault(str(run.config["engine"]["name"]), []).append(run)
    if len(kinds) == 1:
        return _collected(folder, runs)
    return [table for kind, part in kinds.items() for table in _collected(folder / kind, part)]


def _collected(folder: Path, runs: Sequence[RunFolder]) -> list[Tables]:
    """The tables of runs of one kind. Errors as in `collect`."""
    settings = [_settings(run) for run in runs]
    names = told_apart_by(settings)
    if not names:
        raise ValueError(f"{folder}: its {len(runs)} runs differ in no setting that a table could be spanned by")
    if len({run.manifest.prompts for run in runs}) > 1 and not _changes_prompts(names):
        where = "; ".join(f"{run.path.name} {run.manifest.prompts}" for run in runs)
        raise ValueError(f"{folder}: its runs have other prompts, and are not compared: {where}")
    are_complete, notes = _complete(runs)
    chosen = list(compress(zip(runs, settings, strict=True), are_complete))
    chosen.sort(key=lambda pair: [_place(name, pair[1].get(name)) for name in names])
    is_single = all("method.name" in setting for setting in settings)
    fields = {name: _short(name) for name in names if name not in ("dataset.name", "method.name")}
    frames = []
    for run, setting in chosen:
        own = [setting["method.name"]] if is_single else None
        frame = sweeps.cell_table(run.frame, run.is_measured, own)
        frames.append(frame.assign(**{short: setting.get(name, "-") for name, short in fields.items()}))
    frame, last = pd.concat(frames, ignore_index=True), chosen[-1][0]
    by_dataset = "dataset.name" in names
    if by_dataset:  # "all" would be what each run was asked, under one name
        frame = frame[frame.dataset != ALL]
    devices = sorted({run.manifest.device for run, _ in chosen})
    notes = [*notes_of(last, [run for run, _ in chosen]), f"{len(chosen)} runs on {'; '.join(devices)}.", *notes]
    several = not is_single or "method.name" in names
    models = ", ".join(dict.fromkeys(run.model for run, _ in chosen))
    if not several and fields:
        numbers = sorted({number for run, _ in chosen for number in run.config["paper_tables"]})
        title = f"{models}, {chosen[0][1]['method.name']}"
        return write_sweep(last, folder, frame, list(fields.values()), title, notes, numbers)
    if "budget" in fields:
        notes = [WORDS["notes"]["budgets"], *notes]
    has_shown = not by_dataset and set(SHOWN[:-1]) & set(frame.dataset)
    shown = frame[frame.dataset.isin(SHOWN)] if has_shown else frame
    shown = shown.sort_values("group", key=lambda groups: groups.map(group_order), kind="stable")
    groups = shown.drop_duplicates("method").set_index("method").group
    blocks = sweeps.grid_blocks(shown, ["method", *fields.values()], speed_of(frame), models, notes)
    if len(fields) == 1:  # else a row is more than a method
        blocks = [replace(block, lead={"group": [groups[method] for method in block.rows]}) for block in blocks]
    return [markup.write(folder, frame, Tables(blocks), any(run.is_synthetic for run, _ in chosen))]


def _settings(run: RunFolder) -> dict[str, Any]:
    """A run's settings by dotted names, its budget in words; those of its parts that have a name after the names."""
    config = {name: value for name, value in run.manifest.config.items() if name not in ("budget", "shape")}
    flat = flatten(config)
    if "budget" in run.manifest.config:
        flat["budget"] = budget_name(run.manifest.config)
    first = {name: flat[name] for name in NAMES if name in flat}
    return first | {name: value for name, value in flat.items() if not name.startswith(UNASKED)}


def told_apart_by(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that tell runs apart: those that differ between runs which all settings before them have in common.
    What follows from a model's or a method's name is not among them.
    """
    names: list[str] = []
    groups = [list(settings)]
    for name in dict.fromkeys(name for setting in settings for name in setting):
        split = [list(_by_value(group, name).values()) for group in groups]
        if any(len(parts) > 1 for parts in split):
            names.append(name)
            groups = [part for parts in split for part in parts]
    return names


def _by_value(group: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[Mapping[str, Any]]]:
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for setting in group:
        parts.setdefault(repr(setting.get(name)), []).append(setting)
    return parts


def _changes_prompts(names: Sequence[str]) -> bool:
    """Whether one of these settings changes the prompts."""
    return any(name.startswith(("dataset", "model", "engine", "measure", "noise")) for name in names)


def _place(name: str, value: Any) -> tuple[Any, ...]:
    """What a setting's values are sorted by: published budgets first, numbers by size, texts behind them."""
    if name == "budget":
        size = str(value).partition(" ")[0]
        rule = RULES.index("equal" if size.isdigit() else size.rstrip(","))
        return 0, rule, int(size) if size.isdigit() else 0, str(value)
    is_number = isinstance(value, int | float)
    return int(not is_number), value if is_number else 0, 0, str(value)


def _short(name: str) -> str:
    """What a setting's column is called: a method's field by its own name, a model by "model"."""
    return name.removeprefix("method.").removesuffix(".name") if name.count(".") == 1 else name


def _complete(runs: Sequence[RunFolder]) -> tuple[list[bool], list[str]]:
    """Which runs have every answer that their manifests or the other runs of the same prompts know of, and a note that
    names the rest.
    """
    about = [*metrics.PROMPT, "repeat", "session"]
    answered = [set(run.frame[about].itertuples(index=False, name=None)) for run in runs]
    every: dict[str, set[tuple[object, ...]]] = {}
    for run, keys in zip(runs, answered, strict=True):
        every.setdefault(run.manifest.prompts, set()).update(keys)
    counts = list(zip(runs, answered, strict=True))
    are_complete = [run.is_complete and keys == every[run.manifest.prompts] for run, keys in counts]
    most = max(run.manifest.num_records or len(every[run.manifest.prompts]) for run in runs)
    left = [pair for pair, is_whole in zip(counts, are_complete, strict=True) if not is_whole]
    listed = ", ".join(f"{run.path.name} {len(keys)}" for run, keys in left)
    if not any(are_complete):
        raise ValueError(f"none of the {len(runs)} runs has all {most} answers, so none can be compared: {listed}")
    return are_complete, [f"Left out, since they are not complete; of {most} answers they have: {listed}."] * bool(left)
