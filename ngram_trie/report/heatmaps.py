"""Sweeps over two fields, such as n and L_p: a grid of shaded numbers for each data set."""

from __future__ import annotations

import math
import textwrap
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ngram_trie.report.figures import AXIS_LABELS, STYLE, TEXT_WIDTH, check_rows, dataset_name, panel_grid

LEAST_SPAN = 0.05  # of a heatmap's scale: smaller differences are not to look large
_SHADES = matplotlib.colormaps["cividis_r"]  # perceptually even, also in grey and to the colour-blind


@matplotlib.rc_context(STYLE)
def heatmap_figure(
    frame: pd.DataFrame,
    value: str,
    label: str,
    best: Literal["highest", "lowest"] | None = "highest",
    fields: tuple[str, str] = ("n", "prefix_len"),
) -> Figure:
    """A grid of numbers, such as n x L_p, for each dataset. The shade is a cell's ratio to the best of its panel, on
    one scale for all panels: tasks differ more than cells do. The best is bold; an outline runs around all cells that
    its paired interval does not tell from it, where that is known.

    Args:
        frame: rows `dataset`, the two `fields` and the column `value`, one a cell; datasets in the order they are to
            be drawn. A cell that is missing or nan shows a dash. Optional `<value>_tied`: whether the cell's paired
            interval with the best one of its dataset holds 1.
        value: column to draw.
        label: what the numbers are, with the unit.
        best: which end of the scale is best; "lowest" for times; None to mark none, and to shade by the highest.
        fields: columns of numbers that span the grid: down, and across.

    Raises:
        ValueError: no rows, a missing column, or two rows for one cell (several models or methods).
    """
    down, across = fields
    check_rows(frame, "dataset", *fields, value, unique=["dataset", *fields])
    datasets = frame.dataset.unique()
    lines, columns = panel_grid(len(datasets))
    tied = f"{value}_tied" if best and f"{value}_tied" in frame else None
    tops = frame.groupby("dataset")[value].transform("min" if best == "lowest" else "max")
    frame = frame.assign(_ratio=frame[value] / tops)
    low, high = _range(frame._ratio.to_numpy(float))
    scale = Normalize(1, max(high, 1 + LEAST_SPAN)) if best == "lowest" else Normalize(min(low, 1 - LEAST_SPAN), 1)
    height = 0.75 + lines * (0.42 + 0.185 * frame[down].nunique())
    figure = Figure(figsize=(TEXT_WIDTH * min(1, (columns + 0.6) / 3.6), height), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for dataset, axes in zip(datasets, panels, strict=False):
        part = frame[frame.dataset == dataset]
        grids = {
            name: part.pivot(index=down, columns=across, values=name).sort_index().sort_index(axis=1)
            for name in (value, "_ratio", *([tied] if tied else []))
        }
        wins = grids["_ratio"].to_numpy(float) == 1 if best else None
        _cells(axes, grids[value], grids["_ratio"].to_numpy(float), scale, wins)
        if tied:
            _outline(axes, grids[tied].fillna(False).to_numpy(bool))
        axes.set_title(dataset_name(dataset, 24))
    for axes in panels[len(datasets) :]:
        axes.remove()
    marks = f"; bold: {best}" if best else ""
    marks += "\noutlined: cells that the best one's paired 95% interval does not tell from it" if tied else ""
    figure.suptitle("\n".join(textwrap.fill(line, 40 * columns) for line in f"{label}{marks}".split("\n")))
    bar = figure.colorbar(ScalarMappable(scale, _SHADES), ax=panels[: len(datasets)], fraction=0.04, aspect=30)
    bar.set_label(f"ratio to the panel's {best or 'highest'}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, width=0.6)
    figure.supxlabel(AXIS_LABELS.get(across, across))
    figure.supylabel(AXIS_LABELS.get(down, down))
    return figure


def _cells(axes: Axes, grid: pd.DataFrame, ratios: np.ndarray, scale: Normalize, wins: np.ndarray | None) -> None:
    """The numbers of one grid, rows downwards, each on the shade of its ratio."""
    values = grid.to_numpy(float)
    axes.pcolormesh(
        np.arange(values.shape[1] + 1) - 0.5,
        np.arange(values.shape[0] + 1) - 0.5,
        np.ma.masked_invalid(ratios),
        cmap=_SHADES,
        norm=scale,
        edgecolors="white",
        linewidth=0.8,
    )
    low, high = _range(values)
    decimals = 1 if max(abs(low), abs(high)) >= 100 else 3 if high - low < 0.1 else 2
    for (row, column), number in np.ndenumerate(values):
        if np.isnan(number):
            text, colour = "–", "black"
        else:
            text = f"{number:.{decimals}f}"
            colour = _ink(_SHADES(scale(ratios[row, column])))
        weight = "bold" if wins is not None and wins[row, column] else "normal"
        axes.text(column, row, text, ha="center", va="center_baseline", size=6.5, color=colour, weight=weight)
    axes.set_xticks(range(len(grid.columns)), [f"{name:g}" for name in grid.columns])
    axes.set_yticks(range(len(grid.index)), [f"{name:g}" for name in grid.index])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _ink(colour: Any) -> str:
    """Black or white, whichever reads better on a colour: at least 4.5:1 (WCAG 2)."""
    linear = [(part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4) for part in colour[:3]]
    return "white" if np.dot(linear, (0.2126, 0.7152, 0.0722)) < 0.179 else "black"


def _outline(axes: Axes, chosen: np.ndarray) -> None:
    """A line around the chosen cells, between them and all others."""
    around = np.pad(chosen, 1)
    edges = []
    for row, column in np.argwhere(chosen):
        left, right, top, bottom = column - 0.5, column + 0.5, row - 0.5, row + 0.5
        sides = {
            (0, -1): [(left, top), (left, bottom)],
            (0, 1): [(right, top), (right, bottom)],
            (-1, 0): [(left, top), (right, top)],
            (1, 0): [(left, bottom), (right, bottom)],
        }
        edges += [line for (down, across), line in sides.items() if not around[row + 1 + down, column + 1 + across]]
    axes.add_collection(LineCollection(edges, colors="black", linewidths=1.4, capstyle="projecting", clip_on=False))


def _range(values: np.ndarray) -> tuple[float, float]:
    """Lowest and highest number; nan where there is none."""
    known = values[~np.isnan(values)]
    return (known.min(), known.max()) if known.size else (math.nan, math.nan)
