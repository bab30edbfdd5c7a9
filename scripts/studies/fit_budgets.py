"""The constants of `budget=auto` (`budget.rule`), chosen for each method on odd questions by predicted speed."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from ngram_trie.bench import config as configuration
from ngram_trie.bench import cost, metrics
from ngram_trie.bench.config import check_values
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.prepare import prepare
from ngram_trie.bench.records import PromptRecord, RecordKey, RunManifest
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.methods import ConfigError, build, class_of, sizes
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store.files import relative, write_atomically

Constants = Mapping[str, float]
#: Where the search begins for a drafter that says how likely its nodes are, and what is tried of each constant in turn.
BEGIN: Constants = {"power": 1.0, "discount": 1.0, "caution": 1.25}
TRIED: Mapping[str, Sequence[float]] = {
    "power": (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0),
    "discount": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "caution": (1.0, 1.25, 1.5, 2.0),
}
#: Of constants whose speeds differ by no larger share, the one nearest to where the search stands is taken; of numbers
#: of nodes the smallest.
NO_DIFFERENCE = 0.001
#: What is tried for any other.
NUM_NODES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
#: Of a cell: speed, tokens per pass and nodes per pass.
TOLD = ("predicted_speedup", "accept_length", "draft_nodes")


def fit(config: DictConfig) -> tuple[dict[str, Constants], pd.DataFrame, RunManifest]:
    """Choose the constants of every configured method, on odd questions alone.

    A drafter that says how likely its nodes are has three: one after the other is varied, the others as they are best
    so far. Any other method has one, its number of nodes. The best is that of the largest predicted speed
    (NO_DIFFERENCE) over all questions: what plain steps cost over what the method's steps cost under `cost`, prefill in
    both, drafting times in neither, so that the same answers always give the same constants.

    Returns:
        The constants by method; a row for everything that was tried, in order: method, constants, TOLD; and the
        manifest of what was run.

    Raises:
        ConfigError: none of the methods has a size.
    """
    config = _on_odd_questions(config)
    methods = {
        name: method for name, method in configuration.named(config, "method", "methods").items() if sizes(method, 1)
    }
    if not methods:
        raise ConfigError("none of the methods has a size that could be chosen")
    scored = {name: class_of(method).scores_nodes for name, method in methods.items()}
    best: dict[str, Constants] = {name: BEGIN if scored[name] else {} for name in methods}
    rows: list[dict[str, Any]] = []
    for constant, values in {"num_nodes": NUM_NODES, **TRIED}.items():
        cells = [
            (name, {**best[name], constant: value})
            for name in methods
            if scored[name] == (constant in BEGIN)
            for value in values
        ]
        if not cells:
            continue
        told, manifest = _replayed(config, methods, cells)
        rows += told
        for name in {row["method"] for row in told}:
            own = [row for row in told if row["method"] == name]
            enough = max(row["predicted_speedup"] for row in own) * (1 - NO_DIFFERENCE)
            as_good = [row for row in own if row["predicted_speedup"] >= enough]
            begin = best[name].get(constant, 0)
            chosen = min(as_good, key=lambda row: abs(row[constant] - begin))
            best[name] = {each: chosen[each] for each in (BEGIN if scored[name] else ["num_nodes"])}
    run = {row["method"] for row in rows}
    return {name: constants for name, constants in best.items() if name in run}, pd.DataFrame(rows), manifest


def _on_odd_questions(config: DictConfig) -> DictConfig:
    config = copy.deepcopy(config)
    parts = (
        [config.engine] if "parity" in config.engine else configuration.named(config, "dataset", "datasets").values()
    )
    for part in parts:
        OmegaConf.update(part, "parity", "odd", force_add=True)
    return config


def _replayed(
    config: DictConfig, methods: Mapping[str, DictConfig], cells: Sequence[tuple[str, Constants]]
) -> tuple[list[dict[str, Any]], RunManifest]:
    """A row for each cell, a method with constants, and the manifest of the run that they were. A method that could not
    be run, as its package is not there, has none; the manifest says so.
    """
    curve: CostCurve = build(config.cost, "cost")
    config = copy.deepcopy(config)
    OmegaConf.set_struct(config, False)
    config.methods = {}
    names = [f"{name}[{','.join(f'{k}={v:g}' for k, v in constants.items())}]" for name, constants in cells]
    for cell, (name, constants) in zip(names, cells, strict=True):
        config.methods[cell] = OmegaConf.merge(methods[name], {"name": cell})
        configuration.give_size(config, config.methods[cell], constants, max(NUM_NODES))
    engine = prepare(config)
    known: dict[RecordKey, PromptRecord] = {}
    sums: dict[str, list[Mapping[str, float]]] = {cell: [] for cell in names}
    for record in tqdm(engine.answers(engine.keys, known), total=len(engine.keys), unit="answer", dynamic_ncols=True):
        if record.key in known:
            continue
        if config.engine.name != "replay":  # a replay needs no earlier answers, and has many
            known[record.key] = record
        if record.method in sums and not record.failure:
            (row,) = cost.predict([record], curve)[cost.COLUMNS].to_dict("records")
            sums[record.method].append({"num_nodes": sum(record.tree_sizes), **row})
    rows = []
    for cell, (name, constants) in zip(names, cells, strict=True):
        if not sums[cell]:
            continue
        total = pd.DataFrame(sums[cell]).sum()
        speed = (total.vanilla + total.prefill) / (total.verify + total.prefill)
        told = speed, metrics.ratio_of(total.num_emitted, total.num_steps), total.num_nodes / total.num_steps
        rows.append({"method": name, **constants, **dict(zip(TOLD, told, strict=True))})
    return rows, engine.manifest


def write(config: DictConfig, output: Path) -> str:
    """Fit and write constants.json (which `budget.constants` names), tried.csv and manifest.json to `output`. Constants
    of other methods that are there stay, if they were chosen under the same costs; returns a table of the chosen.

    Raises:
        ConfigError: the constants there were chosen under other costs.
    """
    path, under = output / "constants.json", configuration.costs(config)
    kept: dict[str, Any] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cost": under, "methods": {}}
    )
    if kept["cost"] != under:
        raise ConfigError(f"{path}: chosen under other costs ({kept['cost']}); give another output=FOLDER")
    best, tried, manifest = fit(config)
    output.mkdir(parents=True, exist_ok=True)
    kept["methods"] |= best
    write_atomically(path, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    save_csv(tried, output / "tried.csv")
    manifest.write(output / "manifest.json")
    rows = []
    for name, constants in best.items():
        same = (tried[list(constants)] == pd.Series(constants)).all(axis=1)
        rows.append(tried[(tried.method == name) & same].iloc[0])
    return pd.DataFrame(rows).round(3).to_string(index=False)


ABOUT = """Choose the constants of budget=auto for every method on odd questions, by predicted speed under `cost`.

Writes to output=FOLDER constants.json, for budget.constants=FILE, and tried.csv, the result of every value tried.

  python -m scripts.studies.fit_budgets experiment=drafters engine=replay engine.traces=FILE output=FOLDER
"""


def main(config: DictConfig) -> None:
    """Everything one resolved config asks for."""
    check_values(config)
    if not config.output:
        raise ConfigError("output: give the folder that the constants go to, output=FOLDER")
    print(write(config, Path(config.output)))
    print(f"written: {relative(str(Path(config.output).absolute()))}")


if __name__ == "__main__":
    hydra_app(main, ABOUT, interrupted="nothing was written")
