"""The blend's constants fitted on recorded answers, and what each of its parts is worth; all by exact replay. Accept
lengths are over all steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from ngram_trie import built
from ngram_trie.blend.background import Background
from ngram_trie.blend.variants import BlendBigramDrafter, BlendDrafter, BlendWarmDrafter
from ngram_trie.drafter import Drafter
from ngram_trie.engines.provenance import make_manifest
from ngram_trie.engines.replay import Watched, replay
from ngram_trie.engines.traces import Trace, answers
from ngram_trie.metrics import ALL
from ngram_trie.prompt import Prompt
from ngram_trie.report.figures import save_figure
from ngram_trie.report.line_charts import calibration_figure
from ngram_trie.report.run_folder import save_csv

ESCAPES = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0]
FOLDS = 5
ABLATION: dict[str, dict[str, Any]] = {
    "blend": {},
    "escape 1 (method C)": {"escape": 1.0},
    "only tokens that followed the last one": {"num_frequent": 0},
    "only those, escape 1: plain PPM": {"num_frequent": 0, "escape": 1.0},
    "16 frequent tokens": {"num_frequent": 16},
    "32 frequent tokens": {"num_frequent": 32},
    "256 frequent tokens": {"num_frequent": 256},
    "orders to 1": {"max_order": 1},
    "orders to 2": {"max_order": 2},
    "orders to 4": {"max_order": 4},
    "orders to 16": {"max_order": 16},
    "64 latest occurrences": {"max_occurrences": 64},
    "1024 latest occurrences": {"max_occurrences": 1024},
}


class WithoutCounts:
    """A background that does not say how frequent tokens are elsewhere."""

    def background(self, prompt: Prompt) -> Background:
        background: Background = super().background(prompt)  # type: ignore[misc]
        return background._replace(counts=background.counts[:0], total=0, common=background.common[:0])


class BigramWithoutCounts(WithoutCounts, BlendBigramDrafter):
    pass


class WarmWithoutCounts(WithoutCounts, BlendWarmDrafter):
    pass


def over_answers(source: Path) -> dict[str, Drafter]:
    """The blends over answers, without one of their parts, or with another size of it."""
    own = str(source)
    return {
        "blend_bigram": BlendBigramDrafter(answers=own),
        "blend_bigram, no frequent tokens of other answers": BigramWithoutCounts(answers=own),
        "blend_bigram, 4 successors": BlendBigramDrafter(answers=own, k=4),
        "blend_bigram, 25 successors": BlendBigramDrafter(answers=own, k=25),
        "blend_warm": BlendWarmDrafter(),
        "blend_warm, no frequent tokens of other answers": WarmWithoutCounts(),
        "blend_warm, 16 earlier occurrences": BlendWarmDrafter(max_earlier=16),
        "blend_warm, 128 earlier occurrences": BlendWarmDrafter(max_earlier=128),
        "blend_warm, 4096 tokens": BlendWarmDrafter(max_tokens=4096),
        "blend_warm, 16384 tokens": BlendWarmDrafter(max_tokens=16384),
        "blend_warm, all other answers from the start": BlendWarmDrafter(answers=own),
    }


#: Of the columns, what is printed.
SHOWN = (
    "escape", "blend", "method", "num_draft", "nodes", "predicted", "observed", ALL, "summarization", "rag",
)  # fmt: skip
BINS = [0, *2.0 ** np.arange(-8, -2), 0.375, 0.5, 0.625, 0.75, 0.875, 1.01]


def replayed(drafter: Drafter, traces: Sequence[Trace]) -> pd.DataFrame:
    """One row a turn: its keys, accept lengths and tree sizes of its steps.

    Raises:
        AssertionError: the loop did not give the recorded tokens.
    """
    rows = []
    for trace in traces:
        result = replay(drafter, trace)
        if result.output_ids != trace.output_ids:
            raise AssertionError(f"{type(drafter).__name__} on {trace.key}: the loop did not give the recorded tokens")
        rows.append((*trace.key, len(trace.prompt.ids), result.accept_lengths, result.tree_sizes))
    return pd.DataFrame(rows, columns=["dataset", "question_id", "turn", "prompt", "accepted", "nodes"])


def replay_all(drafters: Mapping[Any, Drafter], traces: Sequence[Trace]) -> dict[Any, pd.DataFrame]:
    frames = Parallel(n_jobs=-1)(delayed(replayed)(drafter, traces) for drafter in drafters.values())
    return dict(zip(drafters, frames, strict=True))


def accept_length(frame: pd.DataFrame) -> float:
    steps = list(chain.from_iterable(frame.accepted))
    return float(np.mean(steps)) if steps else np.nan


def mean_nodes(frame: pd.DataFrame) -> float:
    return float(np.mean(list(chain.from_iterable(frame.nodes))))


def by_dataset(frame: pd.DataFrame, value: Callable[[pd.DataFrame], float] = accept_length) -> dict[str, float]:
    return {ALL: value(frame)} | {name: value(part) for name, part in frame.groupby("dataset")}


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
    watched = Watched(BlendDrafter())
    lengths = replay(watched, trace).accept_lengths
    nodes, start = [], 1  # behind the token that prefill gave
    for tree, length in zip(watched.proposed, lengths, strict=False):
        assert tree.probs is not None
        reached, accepted = 0, set()
        for token in trace.output_ids[start : start + length]:
            children = np.flatnonzero((tree.parents == reached) & (tree.tokens == token))
            if not len(children):
                break
            reached = int(children[0])
            accepted.add(reached)
        nodes += [(float(tree.probs[node]), node in accepted) for node in range(1, len(tree))]
        start += length
    return nodes


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
    ablation.csv     the blends without one of their parts, or with another size of it
    calibration.csv  predicted and observed acceptance of nodes; calibration.png draws it
    manifest.json

    Raises:
        ValueError: no answers to replay.
    """
    traces = answers(source)
    config = {"script": "fit_blend", "traces": source.name, "escapes": ESCAPES, "ablation": ABLATION}
    manifest = make_manifest(config, "replay", built.digest(source))
    output.mkdir(parents=True, exist_ok=True)

    def save(name: str, frame: pd.DataFrame) -> None:
        save_csv(frame, output / f"{name}.csv")
        columns = [column for column in frame if column in SHOWN]
        print(f"\n{name}\n{frame[columns].round(3).to_string(index=False)}")

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
    drafters: dict[Any, Drafter] = {name: BlendDrafter(**fields) for name, fields in ABLATION.items()}
    parts = replay_all(drafters | over_answers(source), traces)
    save("ablation", pd.DataFrame([{"blend": n, "nodes": mean_nodes(f)} | by_dataset(f) for n, f in parts.items()]))
    calibration = calibration_table(traces)
    save("calibration", calibration)
    save_figure(calibration_figure(calibration), output / "calibration.png")
    manifest.write(output / "manifest.json")
