"""N-Grammys' Table 1 and Figures 1 to 4 on one model (make reproduce-ngrammys).

  python -m scripts.reproduce_ngrammys
  python -m scripts.reproduce_ngrammys --model mistral_7b_instruct --datasets mt_bench humaneval gsm8k

Its tables of n-grams are built where there are none. Then, each in a folder below --output and skipped if it is done:
- figure1: how much slower a model call over k rows of w + 1 tokens is than a plain step, by cached tokens;
- figure3: speedup of the mixed strategy over k x w, verified as rows, on the odd questions;
- rows, tree: on the even questions vanilla, (k, w) = (10, 10), with both ways to extend the bigram, and each data set's
  fastest cell of figure3, (k*, w*); verified as rows, as published, and as one merged tree;
- table1: those two, beside the paper's table;
- figure2: tokens per call over k of the model's own n-grams, by replay of the even questions' answers;
- figure4: what (10, 10) drafts from where and how much of it is accepted, by the same replay.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import hydra
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import DictConfig

from ngram_trie import config as configuration
from ngram_trie.baselines.ngrammys import MixedNgrams
from ngram_trie.cli.shell import Parser, name_of, one_line_errors, positive
from ngram_trie.engines import live as runner
from ngram_trie.engines.live import BASELINE
from ngram_trie.engines.provenance import device_manifest
from ngram_trie.engines.replay import replay
from ngram_trie.engines.traces import Trace, read_traces
from ngram_trie.files import PAPER, PROJECT, content_hash, fingerprint
from ngram_trie.metrics import ALL
from ngram_trie.ngram_tables import NgramTables
from ngram_trie.prompt import Prompt
from ngram_trie.records import PromptRecord, RunManifest, read_records
from ngram_trie.report import figures, markup
from ngram_trie.report import table1 as table1_rows
from ngram_trie.targets.load import choose_device, load_model
from ngram_trie.targets.rows import RowsTarget
from ngram_trie.tree import DraftTree, IntArray
from scripts import build_ngram_tables, run

# The paper's grid (section 5; Figure 3 has no w = 12), and sizes for its other figures.
GRID_K, GRID_W = [1, 5, 10, 20, 25], [2, 4, 6, 8, 10, 14]
TOP_K = [1, 2, 5, 10, 15, 20, 25]
CALL_K, CALL_W, CALL_CONTEXTS = [1, 2, 4, 8, 16, 32], [1, 3, 7, 11, 15], [25, 100, 500]
DEFAULT = (10, 10)
#: (10, 10) with the other of the paper's two ways to extend a bigram.
REPEATED = "mixed_repeated"
#: The largest draft: 32 rows of 15 tokens.
MAX_DRAFT = 480
PAPER_WARNING = (
    "Published in 'The N-Grammys: Accelerating Autoregressive Inference with Learning-Free Batched Speculation', not "
    "measured here: other models, other hardware (one A100 40GB), its data sets (MT-Bench, HumanEval, GSM8K). Not "
    "comparable line by line."
)
PAPER_LABELS = {
    "lookahead": "lookahead (as reported there)",
    "rest": "rest (as reported there)",
    "mixed_10_10": "mixed (10, 10)",
    "mixed_best": "mixed (k*, w*)",
}


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


def ensure_tables(model: str, about: DictConfig) -> Path:
    """The folder of the model's n-gram tables; built unless they are there and the model's own."""
    folder = build_ngram_tables.FOLDER / about.name
    try:
        fits = NgramTables.open(folder).model == fingerprint(about.path, about.revision)
    except (FileNotFoundError, ValueError):
        fits = False
    if not fits:
        build_ngram_tables.main(model, folder)
    return folder


def rows_tree(k: int, w: int, rng: np.random.Generator, vocabulary: int) -> DraftTree:
    """k rows of w random tokens that share nothing but the root."""
    parents = np.arange(-1, k * w)
    if w:  # else the root alone, a plain step
        parents[np.arange(k) * w + 1] = 0
    return DraftTree(rng.integers(vocabulary, size=k * w + 1), parents)


def slowdowns(target: RowsTarget, num_calls: int = 5) -> pd.DataFrame:
    """Figure 1: rows `context, k, w, call_ms, slowdown`, medians of `num_calls` calls in an order that is drawn anew in
    every round; laying the rows out is not part of a call.
    """
    rng, vocabulary = np.random.default_rng(0), target.model.config.vocab_size
    cells = [(1, 0), *((k, w) for k in CALL_K for w in CALL_W)]
    frames = []
    for context in CALL_CONTEXTS:
        target.prefill(rng.integers(5, vocabulary, context))
        seconds = np.empty((num_calls + 1, len(cells)))
        for turn in range(num_calls + 1):  # the first warms up
            for number in rng.permutation(len(cells)):
                k, w = cells[number]
                tree = rows_tree(k, w, rng, vocabulary)
                target.synchronize()
                started, built = perf_counter(), target.build_seconds
                target.verify(tree)
                seconds[turn, number] = perf_counter() - started - (target.build_seconds - built)
                target.cache.truncate(context)
        frame = pd.DataFrame(cells, columns=["k", "w"]).assign(context=context, call_ms=1e3 * np.median(seconds[1:], 0))
        frames.append(frame.assign(slowdown=frame.call_ms / frame.call_ms[0]))
    return pd.concat(frames)[["context", "k", "w", "call_ms", "slowdown"]]


def figure1(folder: Path, config: DictConfig) -> None:
    """Measure and draw `slowdowns`."""
    settings = {"model": configuration.resolve(config)["model"], "calls": [CALL_K, CALL_W, CALL_CONTEXTS]}
    options = {name: config.model[name] for name in ("path", "dtype", "device", "revision", "attention")}
    manifest = make_manifest("figure1", settings, config, "random tokens")
    if is_done(folder, manifest):
        return
    target = RowsTarget(load_model(**options), MAX_DRAFT, config.model.context_limit)
    frame = slowdowns(target)
    drawn = frame[frame.w > 0].assign(dataset=[f"{context} cached tokens" for context in frame[frame.w > 0].context])
    label = "slowdown of a model call over k rows of w + 1 tokens (ratio to a plain step)"
    finish(folder, manifest, frame, figures.heatmap_figure(drawn, "slowdown", label, "lowest", ("k", "w")))


class Observed(MixedNgrams):
    """The mixed strategy, noting for every step how many rows the context gave and which row was accepted.

    Attributes:
        steps: (context rows, rank of the accepted row from 1 or 0 for none, its accepted tokens) of each step.
    """

    steps: list[tuple[int, int, int]]

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._proposed: IntArray | None = None

    def propose(self, budget: int) -> DraftTree:
        text = self.text
        self._proposed, self._num_context = self.rows(text), len(self.context_rows(text))
        return super().propose(budget)

    def observe(self, new_ids: Sequence[int]) -> None:
        if self._proposed is not None:
            emitted = np.array(new_ids)[: self.w]
            same = (self._proposed[:, : len(emitted)] == emitted).cumprod(axis=1).sum(axis=1)
            rank = int(same.argmax()) + 1 if same.max() else 0
            self.steps.append((self._num_context, rank, int(same.max())))
            self._proposed = None  # the last step of an answer may have no room for a draft
        super().observe(new_ids)


MEASURES = ("tokens accepted of the row", "rank of the accepted row", "rows that the context fills")


def allocation(traces: Sequence[Trace], drafter: Observed) -> pd.DataFrame:
    """Figure 4: rows `measure, dataset, source, number, share`: of all steps of a data set the share in which a row
    from `source` (the context, the model) had so many tokens accepted or stood at such a rank, or in which the context
    filled so many of the k rows.
    """
    frames = []
    for dataset in dict.fromkeys(trace.prompt.dataset for trace in traces):
        drafter.steps = []
        for trace in traces:
            if trace.prompt.dataset == dataset:
                replay(drafter, trace, MAX_DRAFT)
        steps = pd.DataFrame(drafter.steps, columns=["context", "rank", "tokens"])
        steps["source"] = np.where(steps["rank"] > steps.context, "model", "context")
        accepted = steps[steps["rank"] > 0]
        for measure, part, column in zip(
            MEASURES, (accepted, accepted, steps), ("tokens", "rank", "context"), strict=True
        ):
            sources = part.source if column != "context" else pd.Series("context", part.index, name="source")
            shares = part.groupby([sources, part[column].rename("number")]).size() / len(steps)
            frames.append(shares.rename("share").reset_index().assign(measure=measure, dataset=dataset))
    frame = pd.concat(frames)[["measure", "dataset", "source", "number", "share"]]
    return frame.sort_values("measure", key=lambda names: names.map(MEASURES.index), kind="stable")


def figure4(folder: Path, traces_path: Path, tables_folder: Path, config: DictConfig) -> None:
    """Replay the answers with (10, 10) and draw `allocation`."""
    k, w = DEFAULT
    traces = [trace for trace in read_traces(traces_path) if len(trace.output_ids) > 1]
    drafter = Observed(tables=str(tables_folder), k=k, w=w)
    manifest = make_manifest(
        "figure4", {"k": k, "w": w, "parts": runner.part_hashes({"mixed": drafter})}, config, traces_path
    )
    if not is_done(folder, manifest):
        frame = allocation(traces, drafter)
        finish(folder, manifest, frame, figures.share_figure(frame))


def make_manifest(name: str, settings: Mapping[str, object], config: DictConfig, prompts: Path | str) -> RunManifest:
    """The manifest of a part that is no run of `scripts.run`."""
    return device_manifest(
        {"ngrammys": name, **settings},
        fingerprint(config.model.path, config.model.revision),
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
    figures.save_figure(figure, folder / "figure.png")
    manifest.write(folder / "manifest.json")


def best_cells(folder: Path) -> dict[str, tuple[int, int]]:
    """(k*, w*) of each data set: the cell of a sweep with the largest speedup."""
    frame = pd.read_csv(folder / "table.csv")
    frame = frame[(frame.dataset != ALL) & frame.speedup.notna()]
    best = frame.loc[frame.groupby("dataset", sort=False).speedup.idxmax()]
    return {row.dataset: (int(row.k), int(row.w)) for row in best.itertuples()}


def cell_name(k: int, w: int) -> str:
    return f"mixed_{k}_{w}"


def relabelled(folder: Path, suffix: str, best: Mapping[str, tuple[int, int]]) -> Iterator[PromptRecord]:
    """The records of a run under the names of Table 1: each data set's own best cell becomes "mixed (k*, w*)"."""
    for record in read_records(folder / "records.jsonl"):
        labels = {
            BASELINE: BASELINE,
            cell_name(*DEFAULT): "mixed (10, 10)",
            REPEATED: "mixed (10, 10), bigram repeated",
        }
        names = [labels[record.method]] if record.method in labels else []
        if record.method == cell_name(*best[record.dataset]):
            names = [*names, "mixed (k*, w*)"]
        for name in names:
            yield dataclasses.replace(record, method=name + suffix, baseline=BASELINE + suffix)


def table1(folder: Path, runs: Mapping[str, Path], best: Mapping[str, tuple[int, int]], datasets: Sequence[str]) -> str:
    """Table 1 of the runs "rows" and "tree", beside the paper's; returns it as text."""
    records = [record for kind, path in runs.items() for record in relabelled(path, f", {kind}", best)]
    manifests = {kind: RunManifest.read(path / "manifest.json") for kind, path in runs.items()}
    device, repeats = next(iter(manifests.values())).device, max(record.repeat for record in records) + 1
    frame = table1_rows.table1(records, "corrected", records[0].model, device, datasets=datasets)
    cells = ", ".join(f"{name} ({k}, {w})" for name, (k, w) in best.items())
    notes = [
        "The model's rows go on as the model does, greedily; bigram repeated: with the bigram's best, again and again.",
        f"(k*, w*), the fastest cell on the odd questions: {cells}. Reported are the even ones.",
        "rows: verified as k rows of w + 1 tokens, as published; tree: the same drafts as one tree, shared prefixes "
        "merged. Each against a vanilla of its own run.",
        f"Runs {', '.join(f'{kind} {manifest.run}' for kind, manifest in manifests.items())}.",
    ]
    paper = pd.read_csv(PAPER / "ngrammys_table1.csv")
    paper = paper.rename(columns={"strategy": "method", "tokens_per_call": "accept_length"})
    published = [
        table1_rows.block(part, str(model), {m: PAPER_LABELS[m] for m in PAPER_LABELS if m in set(part.method)}, [])
        for model, part in paper.groupby("model", sort=False)
    ]
    measured = list(table1_rows.measured_blocks(frame, repeats, notes))
    return markup.write(folder, frame, measured, published, PAPER_WARNING)


def figure2(folder: Path, traces: Path, tables_folder: Path, model: str) -> None:
    """Replay the model's own n-grams over k and draw their tokens per call."""
    kinds: dict[str, dict[str, object]] = {
        "unigram": {"method": "ngrammys_unigram"},
        "unigram (pseudo code)": {"method": "ngrammys_unigram", "ranking": "code"},
        "bigram": {"method": "ngrammys_bigram"},
        "extended bigram, w = 2": {"method": "ngrammys_extended", "w": 2},
        "extended bigram, w = 3": {"method": "ngrammys_extended", "w": 3},
    }
    methods = {f"kind{i}_{k}": {**fields, "k": k} for i, fields in enumerate(kinds.values()) for k in TOP_K}
    replayed = ["engine=replay", f"engine.traces={traces}", f"engine.max_draft={MAX_DRAFT}"]
    run.measure(compose(model, [], *replayed, f"output={folder}", *methods_overrides(methods, tables_folder)))
    frame = pd.read_csv(folder / "table.csv")
    frame = frame[frame.dataset != ALL]
    labels = {f"kind{i}": label for i, label in enumerate(kinds)}
    kind = frame.method.str.split("_", expand=True)
    drawn = frame.assign(series=frame.dataset, dataset=kind[0].map(labels), k=kind[1].astype(int))
    drawn = drawn[["series", "dataset", "k", "accept_length"]]
    drawn.to_csv(folder / "data.csv", index=False, float_format="%.5g", lineterminator="\n")
    label = "accept length (tokens per call)"
    figures.save_figure(figures.line_figure(drawn, "k", "accept_length", label, log2=False), folder / "figure.png")


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
        grid_k, grid_w: figure3's rows and columns.
    """

    def limits(parity: str, limit: int | None) -> list[str]:
        ends = [(f"datasets.{name}.parity={parity}", f"datasets.{name}.limit={limit or 'null'}") for name in datasets]
        return [override for pair in ends for override in pair]

    config = compose(model, datasets)
    config.model.device = str(choose_device(config.model.device))
    tables_folder = ensure_tables(model, config.model)
    figure1(output / "figure1", config)
    live = [f"engine.max_draft={MAX_DRAFT}"]
    grid = f"grid={{k: {list(grid_k)}, w: {list(grid_w)}}}"
    sweep = [*live, "engine.verify=rows", "method=ngrammys_mixed", f"method.tables={tables_folder}", grid]
    sweep.append("measure.repeats=1")
    run.measure(compose(model, datasets, *sweep, *limits("odd", tune_limit), f"output={output / 'figure3'}"))
    best = best_cells(output / "figure3")
    cells: dict[str, dict[str, object]] = {
        cell_name(k, w): {"method": "ngrammys_mixed", "k": k, "w": w} for k, w in [DEFAULT, *best.values()]
    }
    k, w = DEFAULT
    cells[REPEATED] = {"method": "ngrammys_mixed", "k": k, "w": w, "extend": "bigram"}
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
    text = table1(output / "table1", runs, best, datasets)
    traces = runs["rows"] / "traces.jsonl"
    figure2(output / "figure2", traces, tables_folder, model)
    figure4(output / "figure4", traces, tables_folder, config)
    return text


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument(
        "--model", type=name_of("model"), default="embedded_general", metavar="NAME", help="of configs/model"
    )
    parser.add_argument(
        "--datasets",
        type=name_of("dataset"),
        nargs="+",
        default=["chat", "code", "math"],
        metavar="NAME",
        help="of configs/dataset",
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: results/local/ngrammys/MODEL")
    parser.add_argument("--tune-limit", type=positive, default=6, metavar="N", help="odd questions of each data set")
    parser.add_argument(
        "--report-limit", type=positive, metavar="N", help="even questions of each data set (default: all)"
    )
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="of Table 1's runs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    output = options.output or PROJECT / "results" / "local" / "ngrammys" / options.model
    with one_line_errors(also=(runner.LosslessError,)):
        print(
            reproduce(
                options.model, options.datasets, output, options.tune_limit, options.report_limit, options.repeats
            )
        )
    print(f"Written: figure1 to figure4 and table1 in {output}")


if __name__ == "__main__":
    main()
