"""Bars: accept lengths of steps and of contexts, where drafted tokens come from, and what drafting time is spent on."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ngram_trie.report.figures import STYLE, TEXT_WIDTH, check_rows, dataset_name, panel_grid, plain_axes

_HATCHES = (("0.80", ""), ("0.95", "/////"), ("0.60", ""), ("0.95", "....."), ("0.80", "\\\\\\\\\\"), ("0.95", "xxxxx"))


@matplotlib.rc_context(STYLE)
def accept_length_figure(frame: pd.DataFrame) -> Figure:
    """How often a verification step emits 1, 2, 3, ... tokens (the paper's Figure 4); all panels share their axes.

    Args:
        frame: rows `model, dataset, accept_length, share`: the share, from 0 to 1, of the steps that emit that number
            of tokens. Optional `num_steps`, the number of steps of the panel, shown in its title, and `method`, one.

    Raises:
        ValueError: no rows, a missing column, two rows for one bar, or a share that is not from 0 to 1.
    """
    check_rows(frame, "model", "dataset", "accept_length", "share", unique=["model", "dataset", "accept_length"])
    if not frame.share.between(0, 1).all():
        raise ValueError("share must lie between 0 and 1, not in percent")
    models, datasets = frame.model.unique(), frame.dataset.unique()
    # several models: each starts a line of its own, so that tasks stand below each other
    lines, columns = panel_grid(len(datasets)) if len(models) == 1 or len(datasets) > 4 else (1, len(datasets))
    ticks = np.arange(frame.accept_length.min(), frame.accept_length.max() + 1)
    size = (TEXT_WIDTH * min(1, (columns + 0.3) / 3.3), 0.6 + 1.2 * lines * len(models))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines * len(models), columns, sharex=True, sharey=True, squeeze=False)
    used = np.zeros(panels.shape, bool)
    for (model, dataset), part in frame.groupby(["model", "dataset"], sort=False):
        place = list(models).index(model) * lines * columns + list(datasets).index(dataset)
        axes = panels.flat[place]
        used.flat[place] = True
        axes.bar(part.accept_length, 100 * part.share, width=0.75, color="0.55", ec="0.2", lw=0.6)
        plain_axes(axes, "y")
        steps = f"\n({part.num_steps.max():,.0f} steps)" if "num_steps" in part else ""
        axes.set_title(dataset_name(dataset, 24) + steps)
    panels[0, 0].set_xticks(ticks[:: math.ceil(len(ticks) * columns / 36)])
    panels[0, 0].set_xlim(ticks[0] - 0.6, ticks[-1] + 0.6)
    panels[0, 0].yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    for (line, column), axes in np.ndenumerate(panels):
        if not used[line, column]:
            axes.remove()
            continue
        if not used[line + 1 :, column].any():
            axes.tick_params(labelbottom=True)  # nothing below it carries the numbers of its shared axis
        if len(models) > 1 and not used[line, :column].any():
            axes.set_ylabel(textwrap.fill(models[line // lines], 18), weight="bold")
    if len(models) == 1:
        figure.suptitle(", ".join([models[0], *(frame.method.unique() if "method" in frame else [])]), weight="bold")
    figure.supxlabel("accept length (tokens emitted per verification step)")
    figure.supylabel("share of steps (%)")
    return figure


@matplotlib.rc_context(STYLE)
def time_split_figure(frame: pd.DataFrame) -> Figure:
    """What a step's drafting time is spent on (the paper's Figure 5): a bar for each dataset, its total at the end.

    Args:
        frame: rows `dataset, part, microseconds` per step, parts in the order they are to be stacked; a dataset without
            a part spent nothing on it.

    Raises:
        ValueError: no rows, a missing column, two rows for one part, or a time that is unknown or below 0.
    """
    check_rows(frame, "dataset", "part", "microseconds", unique=["dataset", "part"])
    if not (frame.microseconds >= 0).all():
        raise ValueError("microseconds must be known and not below 0")
    datasets, parts = frame.dataset.unique(), frame.part.unique()
    grid = frame.pivot(index="dataset", columns="part", values="microseconds").reindex(datasets)[parts].fillna(0)
    totals = grid.sum(axis=1)
    shares = 100 * grid.div(totals.where(totals > 0, 1), axis=0)
    figure = Figure(figsize=(TEXT_WIDTH, 0.75 + 0.27 * len(datasets)), layout="constrained")
    axes = figure.subplots()
    ends = np.zeros(len(datasets))
    for index, part in enumerate(parts):
        share, look = shares[part].to_numpy(), _bar(index)
        axes.barh(range(len(datasets)), share, left=ends, height=0.68, label=part, **look)
        for row, (end, size) in enumerate(zip(ends, share, strict=True)):
            if size >= 5:  # else narrower than its own number
                patch = {"fc": look["fc"], "ec": "none", "pad": 1}  # no hatches behind the number
                x = end + size / 2
                axes.text(x, row, f"{size:.0f}%", ha="center", va="center_baseline", size=7, bbox=patch)
        ends += share
    for row, total in enumerate(totals):
        number = f"{total:,.0f}" if total >= 100 else f"{total:.1f}"
        axes.text(101, row, f"{number} µs per step", va="center_baseline")
    axes.set_yticks(range(len(datasets)), [dataset_name(dataset) for dataset in datasets])
    axes.set_xlim(0, 100)
    axes.set_ylim(len(datasets) - 0.5, -0.5)
    axes.tick_params(length=2, width=0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("share of the drafting time (%)")
    figure.legend(loc="outside upper center", ncols=min(5, len(parts)), handlelength=2.5)
    return figure


@matplotlib.rc_context(STYLE)
def share_figure(frame: pd.DataFrame) -> Figure:
    """How often a number was counted, as bars stacked by where it came from: a line of panels for each measure, a
    column for each dataset (N-Grammys' Figure 4).

    Args:
        frame: rows `measure, dataset, source, number, share`, the share from 0 to 1; measures, datasets and sources in
            the order they are to be drawn.

    Raises:
        ValueError: no rows, a missing column, or two rows for one bar.
    """
    keys = ["measure", "dataset", "source", "number"]
    check_rows(frame, *keys, "share", unique=keys)
    measures, datasets, sources = frame.measure.unique(), frame.dataset.unique(), list(frame.source.unique())
    figure = Figure(figsize=(TEXT_WIDTH, 0.5 + 1.25 * len(measures)), layout="constrained")
    halves = figure.subfigures(len(measures), 1, squeeze=False)[:, 0]
    for measure, half in zip(measures, halves, strict=True):
        panels = half.subplots(1, len(datasets), sharex=True, sharey=True, squeeze=False)[0]
        rows = frame[frame.measure == measure]
        numbers = np.arange(rows.number.min(), rows.number.max() + 1)
        highest = 0.0
        for dataset, axes in zip(datasets, panels, strict=True):
            ends = np.zeros(len(numbers))
            for index, source in enumerate(sources):
                part = rows[(rows.dataset == dataset) & (rows.source == source)].set_index("number").share
                height = 100 * part.reindex(numbers).fillna(0).to_numpy()
                axes.bar(numbers, height, bottom=ends, width=0.75, **_bar(index))
                ends += height
            highest = max(highest, float(ends.max()))
            plain_axes(axes, "y")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            if measure == measures[0]:
                axes.set_title(dataset_name(dataset, 24))
        panels[0].set_ylim(0, 1.08 * highest or 1)
        half.supxlabel(measure, size=STYLE["axes.labelsize"])
        panels[0].set_ylabel("share of steps (%)")
    handles = [Rectangle((0, 0), 1, 1, label=source, **_bar(index)) for index, source in enumerate(sources)]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(sources), handlelength=2.5)
    return figure


@matplotlib.rc_context(STYLE)
def context_quality_figure(frame: pd.DataFrame) -> Figure:
    """Accept length of one method on each task, a bar for each context (the paper's Table 4, drawn).

    Args:
        frame: rows `dataset, context, accept_length`, tasks and contexts in the order they are to be drawn.

    Raises:
        ValueError: no rows, a missing column, or two rows for one bar.
    """
    check_rows(frame, "dataset", "context", "accept_length", unique=["dataset", "context"])
    datasets, contexts = frame.dataset.unique(), frame.context.unique()
    grid = frame.pivot(index="dataset", columns="context", values="accept_length").reindex(datasets)
    width = 0.8 / len(contexts)
    size = (TEXT_WIDTH * min(1, 0.15 + 0.17 * len(datasets)), 2.2)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    for index, context in enumerate(contexts):
        places = np.arange(len(datasets)) + (index - (len(contexts) - 1) / 2) * width
        bars = axes.bar(places, grid[context], width, label=context, **_bar(index))
        lengths = ["" if np.isnan(length) else f"{length:.2f}" for length in grid[context]]
        axes.bar_label(bars, lengths, padding=1.5, size=6)
    axes.axhline(1, color="0.35", lw=0.8, ls=(0, (4, 2)))
    axes.set_xticks(range(len(datasets)), [dataset_name(dataset, 16) for dataset in datasets])
    axes.tick_params(length=2, width=0.6)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("accept length\n(tokens emitted per verification step)")
    figure.legend(loc="outside upper center", ncols=len(contexts), handlelength=2.5)
    return figure


def _bar(index: int) -> dict[str, Any]:
    """A grey and hatches that no other of the first six has."""
    grey, hatch = _HATCHES[index % len(_HATCHES)]
    return {"fc": grey, "hatch": hatch, "ec": "0.25", "lw": 0.6}
