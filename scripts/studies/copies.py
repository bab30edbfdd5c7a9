"""When drafting pays: speedup over how much of an answer is copied, of live runs of several models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import matplotlib
import pandas as pd
import typer
from matplotlib.figure import Figure

from ngram_trie.bench.metrics import to_frame
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.app import run as run_command
from ngram_trie.report.plots import STYLE, line_style, plain_axes, save_figure
from ngram_trie.report.run_folder import RunFolder, save_csv

#: Tokens of an answer are copied that end an n-gram of this length which the prompt or the answer has before.
LENGTH = 4


def share_of_copies(prompt: Sequence[int], output: Sequence[int]) -> float:
    """Of the answer's n-grams of `LENGTH` tokens, the share that the text holds further ahead; nan of a shorter one."""
    text, seen, copied = [*prompt, *output], set(), 0
    for end in range(LENGTH, len(text) + 1):
        ngram = tuple(text[end - LENGTH : end])
        copied += end >= len(prompt) + LENGTH and ngram in seen
        seen.add(ngram)
    return copied / (len(output) - LENGTH + 1) if len(output) >= LENGTH else float("nan")


def answers(run: RunFolder, methods: Sequence[str]) -> pd.DataFrame:
    """One row a question of a live run with its traces: model, data set, share of copies, and per method the decoding
    speedup over vanilla, X_speedup, and tokens per step, X_tokens.
    """
    shares = {
        (trace.prompt.dataset, trace.prompt.question_id, trace.prompt.turn): share_of_copies(
            trace.prompt.ids.tolist(), trace.output_ids
        )
        for trace in read_traces(run.path / "traces.jsonl")
    }
    frame, keys = to_frame(run.records), ["task", "question_id", "turn"]
    seconds = frame.pivot_table(index=keys, columns="method", values="decode_seconds", aggfunc="sum")
    emitted, steps = (
        frame.pivot_table(index=keys, columns="method", values=name, aggfunc="sum")
        for name in ("num_emitted", "num_steps")
    )
    found = pd.DataFrame({"copied": pd.Series(shares)}).reindex(seconds.index)
    found.insert(0, "model", run.model)
    for method in (name for name in methods if name in seconds):
        found[f"{method}_speedup"] = seconds["vanilla"] / seconds[method]
        found[f"{method}_tokens"] = emitted[method] / steps[method]
    return found.rename_axis(index={"task": "dataset"}).reset_index()


@matplotlib.rc_context(STYLE)
def figure_of(frame: pd.DataFrame, method: str) -> Figure:
    """A point an answer, models apart; lines through the means of fifths of the answers."""
    figure = Figure(figsize=(6.9, 2.8), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True)
    for index, (model, part) in enumerate(frame.groupby("model", sort=False)):
        looks = line_style(index)
        fifths = pd.qcut(part.copied, 5, labels=False, duplicates="drop")
        for panel, name in zip(axes, ("speedup", "tokens"), strict=True):
            values = part[f"{method}_{name}"]
            panel.plot(part.copied, values, ls="", marker=looks["marker"], color=looks["color"], ms=2.5, alpha=0.35)
            means = values.groupby(fifths).mean()
            panel.plot(part.copied.groupby(fifths).mean(), means, label=model if name == "speedup" else None, **looks)
    for panel, label in zip(axes, ("decoding speedup over plain steps", "tokens per step"), strict=True):
        panel.set(xlabel=f"share of {LENGTH}-grams that the text had before", ylabel=label, yscale="log")
        panel.yaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
        panel.yaxis.set_minor_formatter(lambda tick, _: f"{tick:g}" if tick in (0.7, 1.5, 2, 3, 5) else "")
        panel.axhline(1, color="0.6", lw=0.6)
        plain_axes(panel, "both")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def main(
    folders: Annotated[list[Path], typer.Argument(help="of live runs, with their traces.jsonl")],
    output: Annotated[Path, typer.Option(help="folder for copies.csv, copies_by_task.csv and copies.png")],
    method: Annotated[str, typer.Option(help="that is drawn")] = "blend_logits",
    methods: Annotated[
        str, typer.Option(help="in the tables, with commas")
    ] = "ngram_trie,pld,suffix,blend_logits,library",
) -> None:
    """Draw speedup over the share of copies in answers, and say means by task.

    python -m scripts.studies.copies results/local/*/table1 --output results/local/copies
    """
    frame = pd.concat([answers(RunFolder(folder), methods.split(",")) for folder in folders], ignore_index=True)
    output.mkdir(parents=True, exist_ok=True)
    means = frame.groupby(["model", "dataset"], sort=False).mean(numeric_only=True).drop(columns="turn").reset_index()
    save_csv(frame, output / "copies.csv")
    save_csv(means, output / "copies_by_task.csv")
    save_figure(figure_of(frame, method), output / "copies.png")
    print(means.round(2).to_string(index=False))
    print(f"written: {output / 'copies.csv'}, copies_by_task.csv and copies.png")


if __name__ == "__main__":
    run_command(main)
