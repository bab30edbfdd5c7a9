"""Lines: a sweep over one field, and observed over predicted acceptance."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from ngram_trie.report.figures import AXIS_LABELS, BLUE, OCHRE, STYLE, TEXT_WIDTH, check_rows, dataset_name, plain_axes

# 7 markers and 4 line styles have no common factor: 28 lines before two look the same
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_LINE_COLOURS = (BLUE, OCHRE, "0.35")


@matplotlib.rc_context(STYLE)
def line_figure(frame: pd.DataFrame, x: str, value: str, label: str, log2: bool = True) -> Figure:
    """`value` over `x`, one line for each dataset, a panel for each series on one scale.

    Args:
        frame: rows `dataset`, `x` and `value`, one a point; optional `<value>_low` and `<value>_high`, drawn as 95%
            intervals where they are known; optional `series` (such as "this run" and "paper").
        x: column of numbers along the axis; its ticks are the values that a panel holds.
        value: column to draw.
        label: what the numbers are, with the unit.
        log2: whether `x` doubles from tick to tick.

    Raises:
        ValueError: no rows, a missing column, two rows for one point, or `x` not above 0 on the doubling axis.
    """
    has_series = "series" in frame
    frame = frame if has_series else frame.assign(series="")
    check_rows(frame, "dataset", x, value, unique=["series", "dataset", x])
    if log2 and not (frame[x] > 0).all():
        raise ValueError(f"{x} must be above 0 for an axis that doubles; pass log2=False")
    series, datasets = frame.series.unique(), list(frame.dataset.unique())
    width = TEXT_WIDTH * min(1, 0.1 + 0.45 * len(series))
    legend_columns = max(1, min(len(datasets), int(width / (0.7 + 0.06 * max(map(len, datasets))))))
    height = 2.1 + 0.15 * math.ceil(len(datasets) / legend_columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(1, len(series), sharey=True, squeeze=False)[0]
    for name, axes in zip(series, panels, strict=True):
        part = frame[frame.series == name]
        if log2:
            axes.set_xscale("log", base=2)
        plain_axes(axes, "both")
        for index, dataset in enumerate(datasets):
            points = part[part.dataset == dataset].sort_values(x)
            if not points.empty:
                errors = _errors(points, value)
                axes.errorbar(points[x], points[value], yerr=errors, elinewidth=0.8, capsize=2, **_line(index))
        ticks = sorted(part[x].unique())
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
        axes.set_title(name)
        axes.set_xlabel(AXIS_LABELS.get(x, x.replace("_", " ")))
    lows, highs = zip(*(axes.get_xlim() for axes in panels), strict=True)
    for axes in panels:
        axes.set_xlim(min(lows), max(highs))
    drawn = ", 95%\N{NO-BREAK SPACE}interval" if _errors(frame, value) is not None else ""
    panels[0].set_ylabel(textwrap.fill(label + drawn, 29))
    handles = [Line2D([], [], label=dataset_name(dataset), **_line(i)) for i, dataset in enumerate(datasets)]
    figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns, handlelength=3.5)
    return figure


@matplotlib.rc_context(STYLE)
def calibration_figure(frame: pd.DataFrame) -> Figure:
    """Observed over predicted acceptance on logarithmic axes, beside the diagonal on which they agree.

    Args:
        frame: rows `predicted` and `observed`, one a bin of nodes; bins that observed none are not drawn.
    """
    shown = frame[frame.observed > 0]
    figure = Figure(figsize=(TEXT_WIDTH / 2, TEXT_WIDTH / 2), layout="constrained")
    axes = figure.subplots()
    axes.grid(color="0.9", lw=0.5)
    axes.set_axisbelow(True)
    axes.axline((1, 1), (0.1, 0.1), color="0.6", lw=0.8)
    axes.loglog(shown.predicted, shown.observed, **_line(0))
    axes.set_xlabel("predicted probability of acceptance")
    axes.set_ylabel("share of the nodes that was accepted")
    return figure


def _line(index: int) -> dict[str, Any]:
    colour = _LINE_COLOURS[index % len(_LINE_COLOURS)]
    face = "white" if index % 2 else colour
    return {"marker": _MARKERS[index % 7], "ls": _LINES[index % 4], "color": colour, "mfc": face, "ms": 4, "lw": 1.1}


def _errors(points: pd.DataFrame, value: str) -> np.ndarray | None:
    """(2, k) distances to the ends of the intervals, 0 where they are not known; None without such columns."""
    ends = [f"{value}_low", f"{value}_high"]
    if not set(ends) <= set(points):
        return None
    return np.nan_to_num(np.abs(points[ends].sub(points[value], axis=0)).to_numpy(float)).T
