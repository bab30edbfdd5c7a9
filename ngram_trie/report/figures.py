"""What all figures share: their style, the names of axes and panels, checks of their rows, and saving.

`dot_plots`, `heatmaps`, `line_charts` and `bar_charts` draw: their functions take a frame of rows and return a Figure;
only `save_figure` writes a file. Figures are built without pyplot, so they leave no global state behind and draw the
same in a notebook, a test or a script. No metric is computed in them. Nothing is told by colour alone.
"""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any, Literal

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

TEXT_WIDTH = 6.9  # inches, both columns of a two-column paper
STYLE: Any = {  # matplotlib types the keys as one long Literal
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7,
    "figure.titlesize": 7.5,
    "figure.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "ngram-trie",
}
BLUE, OCHRE = "#1b4f72", "#b9770e"
#: What fields of numbers are called along an axis.
AXIS_LABELS = {
    "n": "n-gram length $n$",
    "prefix_len": "prefix length $L_p$",
    "num_draft": "draft nodes per step (num_draft)",
    "k": "rows of a batch $k$",
    "w": "drafted tokens of a row $w$",
}


def check_rows(frame: pd.DataFrame, *columns: str, unique: list[str]) -> None:
    """Raise ValueError unless `frame` has rows, all `columns`, and one row for each value of `unique`."""
    missing = [column for column in columns if column not in frame]
    if missing:
        raise ValueError(f"no column {', '.join(missing)}; the frame has {', '.join(map(str, frame.columns))}")
    if frame.empty:
        raise ValueError("no rows to draw")
    again = frame.duplicated(unique)
    if again.any():
        cell = ", ".join(f"{name}={frame.loc[again, name].iloc[0]}" for name in unique)
        raise ValueError(f"two rows for {cell}; a figure shows one model and method")


def panel_grid(count: int) -> tuple[int, int]:
    """Lines and columns of `count` panels: one line of up to 3, then two, then as many as 4 abreast need."""
    lines = 1 if count <= 3 else max(2, math.ceil(count / 4))
    return lines, math.ceil(count / lines)


def dataset_name(dataset: str, width: int | None = None) -> str:
    """A dataset's name to be read, wrapped at `width` characters."""
    name = dataset.replace("_", " ")
    return name if width is None else textwrap.fill(name, width)


def plain_axes(axes: Axes, grid: Literal["both", "y"]) -> None:
    """Pale lines behind what is drawn, and short ticks."""
    axes.grid(axis=grid, color="0.9", lw=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=2, width=0.6)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write `figure` as the suffix of `path` says: png at 200 dpi, pdf or svg; the same bytes for the same figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dated: dict[str, Any] = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=200, metadata=dated.get(path.suffix))
    return path
