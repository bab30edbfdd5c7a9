"""N-Grammys' Table 1 and Figures 1 to 5 on one model (make reproduce-ngrammys)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeAlias

import hydra
import pandas as pd
import typer
from matplotlib.figure import Figure
from omegaconf import DictConfig

from ngram_trie.baselines.ngrammys import Extend
from ngram_trie.bench import config as configuration
from ngram_trie.bench.live import LosslessError, part_hashes
from ngram_trie.bench.metrics import ALL
from ngram_trie.bench.models import identity
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import RunManifest
from ngram_trie.bench.traces import Trace, answers, select
from ngram_trie.cli.app import name_in
from ngram_trie.cli.app import run as run_command
from ngram_trie.report.plots import heatmap_figure, line_figure, save_figure, share_figure
from ngram_trie.store.files import content_hash, place
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.targets.load import choose_device, load_model
from ngram_trie.targets.rows import RowsTarget
from scripts import build_ngram_tables, run
from scripts.studies import ngrammys_parts as parts

# The paper's grid of 35 cells (section 5), the query lengths of its footnote 4, and sizes for its other figures.
GRID_K, GRID_W = [1, 5, 10, 20, 25], [2, 4, 6, 8, 10, 12, 14]
Grid: TypeAlias = tuple[Sequence[int], Sequence[int]]
QUERIES = [1, 2, 3]
TOP_K = [1, 2, 5, 10, 15, 20, 25]


def compose(model: str, datasets: Sequence[str], *overrides: str) -> DictConfig:
    """The project's configuration with `datasets`, all below `datasets:`, and more overrides."""
    sets = [f"+dataset@datasets.{name}={name}" for name in datasets]
    with hydra.initialize_config_dir(str(configuration.CONFIGS), version_base="1.3"):
        return hydra.compose("config", [f"model={model}", *sets, *overrides])


def methods_overrides(methods: Mapping[str, Mapping[str, object]], tables_folder: Path) -> list[str]:
    """Overrides for `methods`, all with the same tables: name -> {"method": config, field: value, ...}."""
    lines = []
    for name, fields in methods.items():
        lines += [f"+method@methods.{name}={fields['method']}", f"methods.{name}.tables={tables_folder}"]
        lines += [f"methods.{name}.{field}={value}" for field, value in fields.items() if field != "method"]
    return lines


def grid_overrides(tables_folder: Path, grid: Grid) -> list[str]:
    """Overrides for the mixed strategy over k x w, with as many rows as there are tables for."""
    ks, ws = grid
    extend = extension(tables_folder, max(ws))
    ks = [k for k in ks if k <= NgramTables.open(tables_folder).k]
    method = ["method=ngrammys_mixed", f"method.tables={tables_folder}", f"method.extend={extend}"]
    return [*method, f"grid={{k: {ks}, w: {list(ws)}}}"]


def ensure_tables(model: str, about: DictConfig) -> Path:
    """The folder of the model's n-gram tables; built unless they are there and the model's own."""
    folder = build_ngram_tables.FOLDER / about.name
    try:
        fits = NgramTables.open(folder).model == identity(about)
    except (FileNotFoundError, ValueError):
        fits = False
    if not fits:
        build_ngram_tables.main(model, folder)
    return folder


def figure1(folder: Path, config: DictConfig) -> None:
    """Measure and draw `slowdowns`."""
    settings = {
        "model": configuration.resolve(config)["model"],
        "calls": [parts.CALL_K, parts.CALL_W, parts.CALL_CONTEXTS],
    }
    options = {name: config.model[name] for name in ("path", "dtype", "device", "revision", "attention")}
    manifest = part_manifest("figure1", settings, config, "random tokens")
    if is_done(folder, manifest):
        return
    target = RowsTarget(load_model(**options), parts.MAX_DRAFT, config.model.context_limit)
    frame = parts.slowdowns(target)
    drawn = frame[frame.w > 0].assign(dataset=[f"{context} cached tokens" for context in frame[frame.w > 0].context])
    label = "slowdown of a model call over k rows of w + 1 tokens (ratio to a plain step)"
    finish(folder, manifest, frame, heatmap_figure(drawn, "slowdown", label, "lowest", ("k", "w")))


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Answers to replay: those in `traces` to questions of `categories` (all if none) and `parity`."""

    traces: Path
    categories: Sequence[str] = ()
    parity: str | None = None

    def overrides(self, folder: Path) -> list[str]:
        """Of a replay into `folder`."""
        chosen = [f"engine.categories={list(self.categories) or 'null'}", f"engine.parity={self.parity or 'null'}"]
        sizes = [f"engine.max_draft={parts.MAX_DRAFT}", f"output={folder}"]
        return ["engine=replay", f"engine.traces={self.traces}", *chosen, *sizes]

    def answers(self) -> list[Trace]:
        """Those with a step to replay."""
        groups = select(answers(self.traces), list(self.categories) or None, self.parity)
        return list(chain.from_iterable(groups.values()))


def extension(tables_folder: Path, longest: int) -> Extend:
    """How a bigram becomes a row: as the model goes on, where the tables hold rows of `longest` tokens."""
    return "model" if NgramTables.open(tables_folder).w >= longest else "bigram"


def figure4(folder: Path, recorded: Recorded, tables_folder: Path, config: DictConfig) -> None:
    """Replay the answers with (10, 10) and draw `allocation`."""
    k, w = parts.DEFAULT
    extend = extension(tables_folder, w)
    drafter = parts.Observed(tables=str(tables_folder), k=k, w=w, extend=extend)
    chosen = {"categories": list(recorded.categories), "parity": recorded.parity}
    settings = {"k": k, "w": w, "extend": extend, "parts": part_hashes({"mixed": drafter}), **chosen}
    manifest = part_manifest("figure4", settings, config, recorded.traces)
    if not is_done(folder, manifest):
        frame = parts.allocation(recorded.answers(), drafter)
        finish(folder, manifest, frame, share_figure(frame))


def part_manifest(name: str, settings: Mapping[str, object], config: DictConfig, prompts: Path | str) -> RunManifest:
    """The manifest of a part that is no run of `scripts.run`."""
    return make_manifest(
        {"ngrammys": name, **settings},
        identity(config.model),
        content_hash(prompts.read_text(encoding="utf-8") if isinstance(prompts, Path) else prompts),
        config.model.device,
    )


def is_done(folder: Path, manifest: RunManifest) -> bool:
    """Whether `folder` holds what this manifest would lead to."""
    path = folder / "manifest.json"
    return path.exists() and RunManifest.read(path).run == manifest.run


def finish(folder: Path, manifest: RunManifest, frame: pd.DataFrame, figure: Figure) -> None:
    """Write data, figure and, last, the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "data.csv", index=False, float_format="%.5g", lineterminator="\n")
    save_figure(figure, folder / "figure.png")
    manifest.write(folder / "manifest.json")


def figure5(folder: Path, recorded: Recorded, tables_folder: Path, model: str, grid: Grid) -> None:
    """Replay the mixed strategy over k x w: tokens per call, exactly."""
    run.measure(compose(model, [], *recorded.overrides(folder), *grid_overrides(tables_folder, grid)))


def query(folder: Path, recorded: Recorded, tables_folder: Path, model: str) -> None:
    """Replay (10, 10) with longer queries for the context's rows."""
    k, w = parts.DEFAULT
    fields = {"method": "ngrammys_mixed", "k": k, "w": w, "extend": extension(tables_folder, w)}
    methods = {f"mixed_q{q}": {**fields, "q": q} for q in QUERIES}
    run.measure(compose(model, [], *recorded.overrides(folder), *methods_overrides(methods, tables_folder)))


def figure2(folder: Path, recorded: Recorded, tables_folder: Path, model: str) -> None:
    """Replay the model's own n-grams over k, as far as the tables hold them, and draw their tokens per call."""
    kinds: dict[str, dict[str, object]] = {
        "unigram": {"method": "ngrammys_unigram"},
        "unigram (pseudo code)": {"method": "ngrammys_unigram", "ranking": "code"},
        "bigram": {"method": "ngrammys_bigram"},
        "extended bigram, w = 2": {"method": "ngrammys_extended", "w": 2},
        "extended bigram, w = 3": {"method": "ngrammys_extended", "w": 3},
    }
    tables = NgramTables.open(tables_folder)
    methods = {
        f"kind{i}_{k}": {**fields, "k": k}
        for i, fields in enumerate(kinds.values())
        for k in TOP_K
        if k <= tables.k or fields["method"] == "ngrammys_unigram"
    }
    run.measure(compose(model, [], *recorded.overrides(folder), *methods_overrides(methods, tables_folder)))
    frame = pd.read_csv(folder / "table.csv")
    frame = frame[frame.dataset != ALL]
    labels = {f"kind{i}": label for i, label in enumerate(kinds)}
    kind = frame.method.str.split("_", expand=True)
    drawn = frame.assign(series=frame.dataset, dataset=kind[0].map(labels), k=kind[1].astype(int))
    drawn = drawn[["series", "dataset", "k", "accept_length"]]
    drawn.to_csv(folder / "data.csv", index=False, float_format="%.5g", lineterminator="\n")
    label = "accept length (tokens per call)"
    save_figure(line_figure(drawn, "k", "accept_length", label, log2=False), folder / "figure.png")


def reproduce(
    model: str,
    datasets: Sequence[str],
    output: Path,
    tune_limit: int | None,
    report_limit: int | None,
    repeats: int,
    grid_k: Sequence[int] = GRID_K,
    grid_w: Sequence[int] = GRID_W,
) -> str:
    """All of it; returns Table 1 as text.

    Args:
        model, datasets: names of configs/model and configs/dataset.
        tune_limit, report_limit: odd and even questions of each data set; None for all.
        repeats: of Table 1's runs.
        grid_k, grid_w: figure3's and figure5's rows and columns.
    """

    def limits(parity: str, limit: int | None) -> list[str]:
        ends = [(f"datasets.{name}.parity={parity}", f"datasets.{name}.limit={limit or 'null'}") for name in datasets]
        return [override for pair in ends for override in pair]

    config = compose(model, datasets)
    config.model.device = str(choose_device(config.model.device))
    tables_folder = ensure_tables(model, config.model)
    figure1(output / "figure1", config)
    live = [f"engine.max_draft={parts.MAX_DRAFT}"]
    sweep = [*live, "engine.verify=rows", *grid_overrides(tables_folder, (grid_k, grid_w)), "measure.repeats=1"]
    run.measure(compose(model, datasets, *sweep, *limits("odd", tune_limit), f"output={output / 'figure3'}"))
    best = parts.best_cells(output / "figure3")
    extend = extension(tables_folder, max(*grid_w, parts.DEFAULT[1]))
    cells: dict[str, dict[str, object]] = {
        parts.cell_name(k, w): {"method": "ngrammys_mixed", "k": k, "w": w, "extend": extend}
        for k, w in [parts.DEFAULT, *best.values()]
    }
    k, w = parts.DEFAULT
    cells[parts.REPEATED] = {"method": "ngrammys_mixed", "k": k, "w": w, "extend": "bigram"}
    runs = {}
    for verify in ("rows", "tree"):
        runs[verify] = output / verify
        shared = [
            *live,
            f"engine.verify={verify}",
            f"measure.repeats={repeats}",
            *methods_overrides(cells, tables_folder),
        ]
        run.measure(compose(model, datasets, *shared, *limits("even", report_limit), f"output={runs[verify]}"))
    text = parts.table1(output / "table1", runs, best, datasets)
    replays(model, Recorded(runs["rows"] / "traces.jsonl"), output, tables_folder, config, (grid_k, grid_w))
    return text


def replays(model: str, recorded: Recorded, output: Path, tables_folder: Path, config: DictConfig, grid: Grid) -> None:
    """The parts that need no model: what the tables and the context are worth in tokens per call, exactly."""
    figure2(output / "figure2", recorded, tables_folder, model)
    figure4(output / "figure4", recorded, tables_folder, config)
    figure5(output / "figure5", recorded, tables_folder, model, grid)
    query(output / "query", recorded, tables_folder, model)


def main(
    model: Annotated[str, typer.Option(help="of configs/model", callback=name_in("model"))] = "tiny_general",
    datasets: Annotated[
        list[str], typer.Option(help="of configs/dataset; once for each", callback=name_in("dataset"))
    ] = ["chat", "code", "math"],  # noqa: B006
    output: Annotated[Path | None, typer.Option(help="default: results/local/ngrammys/MODEL")] = None,
    tune_limit: Annotated[int, typer.Option(min=1, help="odd questions of each data set")] = 6,
    report_limit: Annotated[int | None, typer.Option(min=1, help="even questions of each; all if none")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="of Table 1's runs")] = 3,
    traces: Annotated[Path | None, typer.Option(help="recorded answers: replay them, and run no model")] = None,
    categories: Annotated[list[str], typer.Option(help="of the recorded answers; once for each; all if none")] = [],  # noqa: B006
) -> None:
    """Build the model's tables of n-grams if they are missing, then measure each part into a folder below --output.
    Finished parts are skipped.

    figure1: how much slower a model call over k rows of w + 1 tokens is than a plain step, by cached tokens.
    figure3: speedup of the mixed strategy over k x w, verified as rows, on the odd questions.
    rows, tree: on the even questions vanilla, (k, w) = (10, 10) with both ways to extend the bigram, and each data
    set's fastest cell of figure3, (k*, w*); verified as rows, as published, and as one merged tree.
    table1: those two, beside the paper's table.
    figure2: tokens per call over k of the model's own n-grams, by replay of the even questions' answers.
    figure4: how much of (10, 10) each source drafts, and how much of that is accepted, by the same replay.
    figure5, query: tokens per call over k x w, and of (10, 10) with longer queries, by the same replay.

        python -m scripts.studies.ngrammys
        python -m scripts.studies.ngrammys --model mistral_7b_instruct --datasets mt_bench --datasets gsm8k

    With --traces it makes only figure2, figure4, figure5 and query, from the model's own recorded answers to questions
    with even numbers. Where the tables hold fewer rows than figure2 and figure5 ask for, these points are left out;
    rows longer than the tables' are continued by repeated bigrams.

        python -m scripts.studies.ngrammys --model smollm2_135m --traces answers.jsonl --categories math_reasoning
    """
    folder = output or place("results/local/ngrammys") / model
    if traces:
        config = compose(model, [])
        config.model.device = "cpu"
        recorded = Recorded(traces, categories, "even")
        replays(model, recorded, folder, ensure_tables(model, config.model), config, (GRID_K, GRID_W))
        print(f"Written: figure2, figure4, figure5 and query in {folder}")
        return
    print(reproduce(model, datasets, folder, tune_limit, report_limit, repeats))
    print(f"Written: figure1 to figure5, query and table1 in {folder}")


if __name__ == "__main__":
    run_command(main, also=(LosslessError,))
