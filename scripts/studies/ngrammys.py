"""N-Grammys' Table 1 and Figures 1 and 4 on one model (make reproduce-ngrammys)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure

from ngram_trie.baselines.ngrammys import MixedNgrams
from ngram_trie.bench import config as configuration
from ngram_trie.bench.live import BASELINE, LosslessError, part_hashes
from ngram_trie.bench.metrics import ALL, to_frame
from ngram_trie.bench.models import identity
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import PromptRecord, RunManifest, read_records, records_file
from ngram_trie.bench.replay import replay
from ngram_trie.bench.schemas import Replay, Run
from ngram_trie.bench.traces import Trace, answers, select
from ngram_trie.cli.app import run as run_command
from ngram_trie.cli.overrides import composed
from ngram_trie.methods import is_synthetic
from ngram_trie.prompt import Prompt
from ngram_trie.report import markup
from ngram_trie.report import table1 as table1_rows
from ngram_trie.report.blocks import Tables
from ngram_trie.report.plots import heatmap_figure, save_figure, share_figure
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store.files import PAPER, content_hash
from ngram_trie.targets.load import choose_device, load_model
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import RowsNetwork
from ngram_trie.tree import DraftTree, IntArray
from scripts import run

# Sizes for Figure 1.
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


def write_part(
    folder: Path, settings: Mapping[str, object], config: Run, prompts: str, frame: pd.DataFrame, figure: Figure
) -> None:
    """Write data, figure and, last, the manifest of a part that is no run of `scripts.run`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_csv(frame, folder / "data.csv")
    save_figure(figure, folder / "figure.png")
    about = {"ngrammys": folder.name, **settings}
    manifest = make_manifest(
        about, identity(config.model), content_hash(prompts), str(choose_device(config.model.device))
    )
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
    options = {name: getattr(config.model, name) for name in ("path", "dtype", "revision", "attention")}
    model = load_model(**options, device=str(choose_device(config.model.device)))
    frame = slowdowns(TargetModel(model, MAX_DRAFT, config.model.context_limit, RowsNetwork(model)))
    drawn = frame[frame.w > 0].assign(dataset=[f"{context} cached tokens" for context in frame[frame.w > 0].context])
    label = "slowdown of a model call over k rows of w + 1 tokens (ratio to a plain step)"
    settings = {"model": configuration.resolve(config)["model"], "calls": [CALL_K, CALL_W, CALL_CONTEXTS]}
    figure = heatmap_figure(drawn, "slowdown", label, "lowest", ("k", "w"))
    write_part(folder, settings, config, "random tokens", frame, figure)


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


def figure4(folder: Path, config: Run) -> None:
    """Replay the answers of a replay's configuration with its method and draw `allocation`."""
    method = config.plain["methods"]["mixed_10_10"]
    fields = {name: method[name] for name in ("k", "w", "extend")}
    drafter = Observed(tables=method["tables"], **fields)
    assert isinstance(config.engine, Replay)
    chosen = {"categories": list(config.engine.categories or ()), "parity": config.engine.parity}
    traces = Path(config.engine.traces)
    groups = select(answers(traces), config.engine.categories, config.engine.parity)
    frame = allocation(list(chain.from_iterable(groups.values())), drafter)
    settings = {**fields, "parts": part_hashes({"mixed": drafter}), **chosen}
    write_part(folder, settings, config, traces.read_text(encoding="utf-8"), frame, share_figure(frame))


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
    for record in read_records(records_file(folder)):
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


def reproduce(folder: Path, config: Run, overrides: Sequence[str]) -> str:
    """Figure 1, and Table 1, which it returns as text, of the fastest cells of Figure 3."""
    figure1(folder / "figure1", config)
    best = best_cells(folder / "figure3")
    cells = []
    for k, w in dict.fromkeys(best.values()):
        if (k, w) != DEFAULT:  # which is in the experiment
            name = cell_name(k, w)
            cells.append(f"+method@methods.{name}=ngrammys_mixed")
            cells += [f"methods.{name}.{field}={value}" for field, value in (("name", name), ("k", k), ("w", w))]
    runs = {kind: folder / kind for kind in ("rows", "tree")}
    for kind, path in runs.items():
        lines = [f"engine.verify={kind}", f"output={path}", *cells, *overrides]
        run.measure(composed(["experiment=ngrammys_table1", *lines]))
    return table1(folder / "table1", runs, best, list(config.datasets))


def main(
    folder: Annotated[Path, typer.Argument(help="Holds figure3; the other parts go there.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="of all parts")] = None,
) -> None:
    """N-Grammys' Table 1 and Figure 1, or, with engine=replay, Figure 4. The other figures are runs of
    configs/experiment/ngrammys.yaml. Finished runs are skipped.

    figure1: how much slower a model call over k rows of w + 1 tokens is than a plain step, by cached tokens.
    rows, tree: on the even questions vanilla, (k, w) = (10, 10) with both ways to extend the bigram, and each data
    set's fastest cell of figure3, (k*, w*); verified as rows, as published, and as one merged tree.
    table1: those two, beside the paper's table.
    figure4: how much of (10, 10) each source drafts, and how much of that is accepted, of recorded answers.

      python -m scripts.studies.ngrammys results/local/ngrammys
      python -m scripts.studies.ngrammys results/local/ngrammys engine=replay engine.traces=FILE
    """
    config = composed(["experiment=ngrammys_table1", *(overrides or [])])
    if config.engine.name == "replay":
        figure4(folder / "figure4", config)
    else:
        print(reproduce(folder, config, overrides or []))


if __name__ == "__main__":
    run_command(main, also=(LosslessError,))
