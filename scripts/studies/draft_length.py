"""An adaptive draft length beside fixed ones: what it chose, what steps cost, and how fast each was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import matplotlib
import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ngram_trie.bench.measures import SPEEDUP
from ngram_trie.bench.metrics import ALL, draft_nodes, milliseconds_per_step, to_frame
from ngram_trie.bench.pairwise import pairwise
from ngram_trie.cli.app import run as run_command
from ngram_trie.report.plots import STYLE, line_style, plain_axes, save_figure
from ngram_trie.report.run_folder import RunFolder, save_csv

#: Of the phases, what a step takes without its drafting.
STEP = ("verify", "commit")


def lengths(run: RunFolder) -> pd.DataFrame:
    """One row a data set, method and size, `auto` or the k of METHOD_k: decoding speedup over vanilla, and the
    adaptive length's over this one, with 95% intervals; nodes and milliseconds of a step.
    """
    frame, rows = to_frame(run.records), []
    decoding = frame.assign(seconds=frame.decode_seconds)
    names = list(frame.method.unique())
    for method in (name for name in names if any(re.fullmatch(rf"{name}_\d+", other) for other in names)):
        sizes = [name for name in names if name == method or re.fullmatch(rf"{method}_\d+", name)]
        pairs = pairwise(decoding[decoding.method.isin(["vanilla", *sizes])], [SPEEDUP], [*sizes, "vanilla"])
        for dataset, found in pairs.groupby("dataset", sort=False):
            part = frame if dataset == ALL else frame[frame.dataset == dataset]
            for name in sizes:
                answers = part[part.method == name]
                plain = found[(found.a == name) & (found.b == "vanilla")].iloc[0]
                ahead = found[(found.a == method) & (found.b == name)]
                row = {"dataset": dataset, "method": method, "size": name.removeprefix(f"{method}_")}
                row |= {"speedup": plain.ratio, "speedup_low": plain.low, "speedup_high": plain.high}
                if not ahead.empty:
                    row |= dict(
                        zip(("auto_over_it", "low", "high"), ahead.iloc[0][["ratio", "low", "high"]], strict=True)
                    )
                row |= {"nodes": draft_nodes(answers), "step_ms": milliseconds_per_step(answers, STEP)}
                rows.append(row)
    return pd.DataFrame(rows).replace({"size": dict.fromkeys(names, "auto")})


@matplotlib.rc_context(STYLE)
def figure_of(frame: pd.DataFrame, run: RunFolder, plain_ms: float) -> Figure:
    """Speed over the size, costs of steps, and for each method the sizes that were chosen over the longest answer."""
    frame, methods = frame[frame.dataset == frame.dataset.iloc[-1]], list(frame.method.unique())
    figure = Figure(figsize=(6.9, 3 + 0.8 * len(methods)), layout="constrained")
    grid = figure.add_gridspec(1 + len(methods), 2, height_ratios=[3.5, *[1] * len(methods)])
    speed, costs = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    for index, method in enumerate(methods):
        part, looks = frame[frame.method == method], line_style(index)
        fixed, auto = part[part["size"] != "auto"], part[part["size"] == "auto"].iloc[0]
        speed.plot(fixed["size"].astype(int), fixed.speedup, label=method, **looks)
        speed.axhline(auto.speedup, color=looks["color"], ls=looks["ls"], lw=0.8)
        costs.plot(fixed.nodes, fixed.step_ms / plain_ms, **looks)
        record = max((r for r in run.records if r.method == method), key=lambda r: len(r.output_ids))
        axes = figure.add_subplot(grid[1 + index, :])
        places = np.cumsum([1, *record.accept_lengths[:-1]])
        axes.vlines(places, 0, record.tree_sizes, color="0.7", lw=1.2)
        axes.plot(places, np.array(record.accept_lengths) - 1, ".", color=looks["color"], ms=3)
        axes.set_title(f"{method}, {record.dataset} {record.question_id}", loc="left")
        plain_axes(axes, "y")
        axes.set_xlabel("place in the answer, tokens" if index == len(methods) - 1 else "")
    figure.axes[2].set_ylabel("drafted (bars),\naccepted (dots)")
    sizes = sorted(frame[frame["size"] != "auto"]["size"].astype(int).unique())
    speed.set(xscale="log", xlabel="nodes of a draft; lines across: adaptive", ylabel="decoding speedup")
    speed.xaxis.set_major_locator(FixedLocator(sizes))
    speed.xaxis.set_minor_locator(NullLocator())
    speed.xaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
    costs.set(xlabel="nodes drafted per step, mean", ylabel="time of a step, in plain steps")
    for axes in (speed, costs):
        plain_axes(axes, "both")
    figure.legend(loc="outside lower center", ncols=len(methods), handlelength=3)
    return figure


def main(
    folder: Annotated[Path, typer.Argument(help="of a run of experiment=draft_length")],
    output: Annotated[Path | None, typer.Argument(help="for draft_length.csv and .png; the run's folder")] = None,
) -> None:
    """Draw what an adaptive length chose, what steps cost, and how fast it was beside each fixed length.

    python -m scripts.studies.draft_length results/local/smollm2-135m/draft_length
    """
    run = RunFolder(folder)
    frame, output = lengths(run), output or folder
    answers = to_frame(run.records)
    output.mkdir(parents=True, exist_ok=True)
    plain_ms = milliseconds_per_step(answers[answers.method == "vanilla"], STEP)
    save_csv(frame, output / "draft_length.csv")
    save_figure(figure_of(frame, run, plain_ms), output / "draft_length.png")
    print(frame.round(3).to_string(index=False))
    print(f"written: {output / 'draft_length.csv'} and .png")


if __name__ == "__main__":
    run_command(main, "nothing was written")
