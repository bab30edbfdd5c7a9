"""The blend's escape fitted on recorded answers by exact replay, and its calibration. What its parts
are worth: experiment=ablation_blend. Accept lengths are over all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from joblib import Parallel, delayed

from ngram_trie.bench.metrics import ALL
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, answers
from ngram_trie.blend.variants import BlendBigramDrafter, BlendDrafter, BlendWarmDrafter
from ngram_trie.cli.app import run
from ngram_trie.drafter import Drafter
from ngram_trie.report.explorer import walk
from ngram_trie.report.plots import calibration_figure, save_figure
from ngram_trie.report.run_folder import save_csv
from ngram_trie.store import arrays as built

ESCAPES = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0]
FOLDS = 5
BINS = [0, *2.0 ** np.arange(-8, -2), 0.375, 0.5, 0.625, 0.75, 0.875, 1.01]


def replayed(drafter: Drafter, traces: Sequence[Trace]) -> pd.DataFrame:
    """One row a turn: its keys and the accept lengths of its steps."""
    rows = [(*trace.key[:3], replay(drafter, trace).accept_lengths) for trace in traces]
    return pd.DataFrame(rows, columns=["dataset", "question_id", "turn", "accepted"])


def replay_all(drafters: Mapping[Any, Drafter], traces: Sequence[Trace]) -> dict[Any, pd.DataFrame]:
    frames = Parallel(n_jobs=-1)(delayed(replayed)(drafter, traces) for drafter in drafters.values())
    return dict(zip(drafters, frames, strict=True))


def accept_length(frame: pd.DataFrame) -> float:
    steps = list(chain.from_iterable(frame.accepted))
    return float(np.mean(steps)) if steps else np.nan


def by_dataset(frame: pd.DataFrame) -> dict[str, float]:
    return {ALL: accept_length(frame)} | {name: accept_length(part) for name, part in frame.groupby("dataset")}


def fit_table(frames: Mapping[float, pd.DataFrame]) -> pd.DataFrame:
    """One row an escape, and "held out"; questions are dealt to the folds in turn."""
    first = next(iter(frames.values()))
    questions = {question: index % FOLDS for index, question in enumerate(dict.fromkeys(first.question_id))}
    fold = first.question_id.map(questions)
    chosen = []
    for number in range(FOLDS):
        best = max(frames, key=lambda escape: accept_length(frames[escape][fold != number]))
        print(f"part {number + 1} of {FOLDS} by the others: escape {best:g}")
        chosen.append(frames[best][fold == number])
    rows = {f"{escape:g}": by_dataset(frame) for escape, frame in frames.items()}
    rows["held out"] = by_dataset(pd.concat(chosen))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("escape").reset_index()


def recorded_nodes(trace: Trace) -> list[tuple[float, bool]]:
    """How likely the blend held each drafted node to be, and whether it was accepted."""
    return [
        (float(step.tree.probs[node]), node in step.path)
        for step in walk(BlendDrafter(), trace)
        if step.tree.probs is not None  # else there was no room for a draft
        for node in range(1, len(step.tree))
    ]


def calibration_table(traces: Iterable[Trace]) -> pd.DataFrame:
    """One row a bin of predicted probability: its mean, the share that was accepted, and how many nodes there were."""
    nodes = chain.from_iterable(Parallel(n_jobs=-1)(delayed(recorded_nodes)(trace) for trace in traces))
    frame = pd.DataFrame(nodes, columns=["predicted", "observed"]).astype(float)
    groups = frame.groupby(pd.cut(frame.predicted, BINS, right=False), observed=True)
    table = groups.agg(predicted=("predicted", "mean"), observed=("observed", "mean"), nodes=("observed", "size"))
    return table.reset_index(drop=True)


def write(source: Path, output: Path) -> None:
    """Replay, print, and write everything to `output`:

    fit.csv          accept length over the escape; "held out": of each fifth of the questions, by the escape that was
                     best on the other four
    calibration.csv  predicted and observed acceptance of nodes; calibration.png draws it
    manifest.json

    Raises:
        ValueError: no answers to replay.
    """
    traces = answers(source)
    config = {"script": "fit_blend", "traces": source.name, "escapes": ESCAPES}
    manifest = make_manifest(config, "replay", built.digest(source))
    output.mkdir(parents=True, exist_ok=True)

    def save(name: str, frame: pd.DataFrame) -> None:
        save_csv(frame, output / f"{name}.csv")
        print(f"\n{name}\n{frame.round(3).to_string(index=False)}")

    blends: dict[str, Callable[..., Drafter]] = {
        "blend": BlendDrafter,
        "blend_bigram": functools.partial(BlendBigramDrafter, answers=str(source)),
        "blend_warm": BlendWarmDrafter,
    }
    fits = {
        name: fit_table(replay_all({escape: make(escape=escape) for escape in ESCAPES}, traces))
        for name, make in blends.items()
    }
    save("fit", pd.concat(fits, names=["method"]).reset_index("method"))
    calibration = calibration_table(traces)
    save("calibration", calibration)
    save_figure(calibration_figure(calibration), output / "calibration.png")
    manifest.write(output / "manifest.json")


def main(
    traces: Annotated[Path, typer.Argument(help="recorded answers, such as traces.jsonl of a live run")],
    output: Annotated[Path, typer.Argument(help="folder for the tables and the manifest")],
) -> None:
    """Fit the blend's escape on recorded answers, and compare its probabilities with what was accepted, by replay.

    Writes to OUTPUT fit.csv, calibration.csv with its figure, and manifest.json; docs/blend.md explains them.

        python -m scripts.studies.fit_blend TRACES OUTPUT
    """
    write(traces, output)
    print(f"\nWritten: {output}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
