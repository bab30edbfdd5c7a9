"""N-Grammys' Table 1 and Figures 1 to 5 on one model (make reproduce-ngrammys)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import hydra
import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure

from ngram_trie.baselines.ngrammys import Extend, MixedNgrams
from ngram_trie.bench import config as configuration
from ngram_trie.bench.live import BASELINE, LosslessError, part_hashes
from ngram_trie.bench.metrics import ALL, to_frame
from ngram_trie.bench.models import identity
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import PromptRecord, RunManifest, read_records
from ngram_trie.bench.replay import replay
from ngram_trie.bench.schemas import Model, Run
from ngram_trie.bench.traces import Trace, answers, select
from ngram_trie.cli.app import name_in
from ngram_trie.cli.app import run as run_command
from ngram_trie.methods import is_synthetic
from ngram_trie.prompt import Prompt
from ngram_trie.report import markup
from ngram_trie.report import table1 as table1_rows
from ngram_trie.report.blocks import Tables
from ngram_trie.report.plots import heatmap_figure, line_figure, save_figure, share_figure
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store.files import PAPER, content_hash, place
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.targets.load import choose_device, load_model
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import RowsNetwork
from ngram_trie.tree import DraftTree, IntArray
from scripts import build_ngram_tables, run

# The paper's grid of 35 cells (section 5), the query lengths of its footnote 4, and sizes for its other figures.
GRID_K, GRID_W = [1, 5, 10, 20, 25], [2, 4, 6, 8, 10, 12, 14]
QUERIES = [1, 2, 3]
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
MEASURES = ("tokens accepted of the row", "rank of the accepted row", "rows that the context fills")


def compose(model: str, datasets: Sequence[str], *overrides: str) -> Run:
    """The project's configuration with `datasets`, all below `datasets:`, and more overrides."""
    sets = [f"+dataset@datasets.{name}={name}" for name in datasets]
    with hydra.initialize_config_dir(str(configuration.CONFIGS), version_base="1.3"):
        return configuration.checked(hydra.compose("config", [f"model={model}", *sets, *overrides]))


def methods_overrides(methods: Mapping[str, Mapping[str, object]], tables: Path) -> list[str]:
    """Overrides for `methods`, all with the same tables: name -> {"method": config, field: value, ...}."""
    lines = []
    for name, fields in methods.items():
        lines += [f"+method@methods.{name}={fields['method']}", f"methods.{name}.tables={tables}"]
        lines += [f"methods.{name}.{field}={value}" for field, value in fields.items() if field != "method"]
    return lines


def mixed(k: int, w: int, tables: Path, **fields: object) -> dict[str, object]:
    """The mixed strategy as one of `methods_overrides`."""
    return {"method": "ngrammys_mixed", "k": k, "w": w, "extend": extension(tables, w), **fields}


def grid_overrides(tables: Path) -> list[str]:
    """Overrides for the mixed strategy over k x w, with as many rows as there are tables for."""
    ks = [k for k in GRID_K if k <= NgramTables.open(tables).k]
    extend = extension(tables, max(GRID_W))
    method = ["method=ngrammys_mixed", f"method.tables={tables}", f"method.extend={extend}"]
    return [*method, f"grid={{k: {ks}, w: {GRID_W}}}"]


def extension(tables: Path, longest: int) -> Extend:
    """How a bigram becomes a row: as the model goes on, where the tables hold rows of `longest` tokens."""
    return "model" if NgramTables.open(tables).w >= longest else "bigram"


def ensure_tables(model: str, about: Model) -> Path:
    """The folder of the model's n-gram tables; built unless they are there and the model's own."""
    folder = build_ngram_tables.FOLDER / about.name
    try:
        fits = NgramTables.open(folder).model == identity(about)
    except (FileNotFoundError, ValueError):
        fits = False
    if not fits:
        build_ngram_tables.main(model, folder)
    return folder


def write_part(
    folder: Path, settings: Mapping[str, object], config: Run, prompts: str, frame: pd.DataFrame, figure: Figure
) -> None:
    """Write data, figure and, last, the manifest of a part that is no run of `scripts.run`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_csv(frame, folder / "data.csv")
    save_figure(figure, folder / "figure.png")
    about = {"ngrammys": folder.name, **settings}
    manifest = make_manifest(about, identity(config.model), content_hash(prompts), config.model.device)
    manifest.write(folder / "manifest.json")


def rows_tree(k: int, w: int, rng: np.random.Generator, vocabulary: int) -> DraftTree:
    """k rows of w random tokens that share nothing but the root."""
    parents = np.arange(-1, k * w)
    if w:  # else the root alone, a plain step
        parents[np.arange(k) * w + 1] = 0
    return DraftTree(rng.integers(vocabulary, size=k * w + 1), parents)


def slowdowns(target: TargetModel, num_calls: int = 5) -> pd.DataFrame:
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
                started = perf_counter()
                built = target.verify(tree).build_seconds
                seconds[turn, number] = perf_counter() - started - built
                target.cache.truncate(context)
        frame = pd.DataFrame(cells, columns=["k", "w"]).assign(context=context, call_ms=1e3 * np.median(seconds[1:], 0))
        frames.append(frame.assign(slowdown=frame.call_ms / frame.call_ms[0]))
    return pd.concat(frames)[["context", "k", "w", "call_ms", "slowdown"]]


def figure1(folder: Path, config: Run) -> None:
    """Measure and draw `slowdowns`."""
    options = {name: getattr(config.model, name) for name in ("path", "dtype", "device", "revision", "attention")}
    model = load_model(**options)
    frame = slowdowns(TargetModel(model, MAX_DRAFT, config.model.context_limit, RowsNetwork(model)))
    drawn = frame[frame.w > 0].assign(dataset=[f"{context} cached tokens" for context in frame[frame.w > 0].context])
    label = "slowdown of a model call over k rows of w + 1 tokens (ratio to a plain step)"
    settings = {"model": configuration.resolve(config)["model"], "calls": [CALL_K, CALL_W, CALL_CONTEXTS]}
    figure = heatmap_figure(drawn, "slowdown", label, "lowest", ("k", "w"))
    write_part(folder, settings, config, "random tokens", frame, figure)


def figure2(folder: Path, replayed: Sequence[str], tables: Path, model: str) -> None:
    """Replay the model's own n-grams over k, as far as the tables hold them, and draw their tokens per call."""
    kinds: dict[str, dict[str, object]] = {
        "unigram": {"method": "ngrammys_unigram"},
        "unigram (pseudo code)": {"method": "ngrammys_unigram", "ranking": "code"},
        "bigram": {"method": "ngrammys_bigram"},
        "extended bigram, w = 2": {"method": "ngrammys_extended", "w": 2},
        "extended bigram, w = 3": {"method": "ngrammys_extended", "w": 3},
    }
    held = NgramTables.open(tables).k
    methods = {
        f"kind{i}_{k}": {**fields, "k": k}
        for i, fields in enumerate(kinds.values())
        for k in TOP_K
        if k <= held or fields["method"] == "ngrammys_unigram"
    }
    run.measure(compose(model, [], *replayed, f"output={folder}", *methods_overrides(methods, tables)))
    frame = pd.read_csv(folder / "table.csv")
    frame = frame[frame.dataset != ALL]
    labels = {f"kind{i}": label for i, label in enumerate(kinds)}
    kind = frame.method.str.split("_", expand=True)
    drawn = frame.assign(series=frame.dataset, dataset=kind[0].map(labels), k=kind[1].astype(int))
    drawn = drawn[["series", "dataset", "k", "accept_length"]]
    save_csv(drawn, folder / "data.csv")
    label = "accept length (tokens per call)"
    save_figure(line_figure(drawn, "k", "accept_length", label, log2=False), folder / "figure.png")


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
        self._proposed, _ = self.rows(self.text)
        return super().propose(budget)

    def observe(self, new_ids: Sequence[int]) -> None:
        if self._proposed is not None:
            emitted = np.array(new_ids)[: self.w]
            same = (self._proposed[:, : len(emitted)] == emitted).cumprod(axis=1).sum(axis=1)
            rank = int(same.argmax()) + 1 if same.max() else 0
            self.steps.append((self.num_context, rank, int(same.max())))
            self._proposed = None  # the last step of an answer may have no room for a draft
        super().observe(new_ids)


def allocation(traces: Sequence[Trace], drafter: Observed) -> pd.DataFrame:
    """Figure 4: rows `measure, dataset, source, number, share`: of all steps of a data set the share in which a row
    from `source` (the context, the model) had `number` tokens accepted or stood at that rank, or in which the context
    filled `number` of the k rows.
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


def figure4(folder: Path, traces: Path, chosen: Mapping[str, Any], tables: Path, config: Run) -> None:
    """Replay the answers with (10, 10) and draw `allocation`."""
    k, w = DEFAULT
    extend = extension(tables, w)
    drafter = Observed(tables=str(tables), k=k, w=w, extend=extend)
    groups = select(answers(traces), chosen["categories"] or None, chosen["parity"])
    frame = allocation(list(chain.from_iterable(groups.values())), drafter)
    settings = {"k": k, "w": w, "extend": extend, "parts": part_hashes({"mixed": drafter}), **chosen}
    write_part(folder, settings, config, traces.read_text(encoding="utf-8"), frame, share_figure(frame))


def replays(
    model: str,
    traces: Path,
    output: Path,
    tables: Path,
    config: Run,
    categories: Sequence[str] = (),
    parity: str | None = None,
) -> None:
    """The parts that need no model: what the tables and the context are worth in tokens per call, exactly.

    Args:
        traces: recorded answers; of these the ones to questions of `categories` (all if none) and `parity`.
    """
    chosen = [f"engine.categories={list(categories) or 'null'}", f"engine.parity={parity or 'null'}"]
    replayed = ["engine=replay", f"engine.traces={traces}", *chosen, f"engine.max_draft={MAX_DRAFT}"]
    figure2(output / "figure2", replayed, tables, model)
    figure4(output / "figure4", traces, {"categories": list(categories), "parity": parity}, tables, config)
    run.measure(compose(model, [], *replayed, f"output={output / 'figure5'}", *grid_overrides(tables)))
    queries = methods_overrides({f"mixed_q{q}": mixed(*DEFAULT, tables, q=q) for q in QUERIES}, tables)
    run.measure(compose(model, [], *replayed, f"output={output / 'query'}", *queries))


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
    frame = table1_rows.table1(to_frame(records), "corrected", records[0].model, device, datasets=datasets)
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
    lossless = table1_rows.agreements(frame)
    tables = Tables(measured, (), published, PAPER_WARNING, lossless)
    return markup.plain_text(markup.write(folder, frame, tables, is_synthetic(records[0].model)))


def reproduce(
    model: str,
    datasets: Sequence[str],
    output: Path,
    tune_limit: int | None,
    report_limit: int | None,
    repeats: int,
) -> str:
    """All of it; returns Table 1 as text.

    Args:
        model, datasets: names of configs/model and configs/dataset.
        tune_limit, report_limit: odd and even questions of each data set; None for all.
        repeats: of Table 1's runs.
    """

    def measure(name: str, parity: str, limit: int | None, verify: str, repeats: int, methods: list[str]) -> Path:
        chosen = {"parity": parity, "limit": limit or "null"}
        limits = [f"datasets.{each}.{field}={value}" for each in datasets for field, value in chosen.items()]
        engine = [f"engine.max_draft={MAX_DRAFT}", f"engine.verify={verify}", f"measure.repeats={repeats}"]
        run.measure(compose(model, datasets, *engine, *methods, *limits, f"output={output / name}"))
        return output / name

    config = compose(model, datasets)
    config = configuration.changed(config, model={"device": str(choose_device(config.model.device))})
    tables = ensure_tables(model, config.model)
    figure1(output / "figure1", config)
    best = best_cells(measure("figure3", "odd", tune_limit, "rows", 1, grid_overrides(tables)))
    extend = extension(tables, max(*GRID_W, DEFAULT[1]))
    cells = {cell_name(k, w): mixed(k, w, tables, extend=extend) for k, w in [DEFAULT, *best.values()]}
    cells[REPEATED] = mixed(*DEFAULT, tables, extend="bigram")
    methods = methods_overrides(cells, tables)
    runs = {kind: measure(kind, "even", report_limit, kind, repeats, methods) for kind in ("rows", "tree")}
    text = table1(output / "table1", runs, best, datasets)
    replays(model, runs["rows"] / "traces.jsonl", output, tables, config)
    return text


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
    Finished runs are skipped.

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
        config = compose(model, [], "model.device=cpu")
        replays(model, traces, folder, ensure_tables(model, config.model), config, categories, "even")
        print(f"Written: figure2, figure4, figure5 and query in {folder}")
        return
    print(reproduce(model, datasets, folder, tune_limit, report_limit, repeats))
    print(f"Written: figure1 to figure5, query and table1 in {folder}")


if __name__ == "__main__":
    run_command(main, also=(LosslessError,))
