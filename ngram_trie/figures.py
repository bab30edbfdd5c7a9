"""Figures from the rows of Table 1. Functions take data and return a Figure; only `save_figure` writes a file.

Figures are built without pyplot, so they leave no global state behind and draw the same in a notebook, a test or a
script. Nothing is told by colour alone.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

TEXT_WIDTH = 6.9  # inches, both columns of a two-column paper
STYLE: Any = {  # matplotlib types the keys as one long Literal
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "ngram-trie",
}
LOOP, OUTSIDE = "#1b4f72", "#b9770e"


def speedup_figure(frame: pd.DataFrame, protocol: str = "corrected") -> Figure:
    """Speedup (top, with 95% intervals) and accept length (bottom) of each method, a panel for each dataset.

    Circles share the project's loop; open squares are outside systems with a loop of their own.

    Args:
        frame: rows of `tables.table1` for one model, methods and datasets in the order they are to be drawn.
        protocol: which of the frame's rows to draw.

    Raises:
        ValueError: no rows of this protocol, or several models.
    """
    rows = frame[frame.protocol == protocol]
    if rows.model.nunique() != 1:
        raise ValueError(f"{rows.model.nunique()} models under protocol {protocol!r}; a figure shows one")
    datasets, methods = rows.dataset.unique(), rows.method.unique()
    outside = set(rows.method[rows.lossless.str.startswith("control")])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(TEXT_WIDTH, 1.5 + 0.32 * len(methods)), layout="constrained")
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.15, 1])[:, 0]  # room for the titles
        panels = [
            half.subplots(1, len(datasets), sharex=True, sharey=True, squeeze=False)[0] for half in (upper, lower)
        ]
        for dataset, top, bottom in zip(datasets, *panels, strict=True):
            part = rows[rows.dataset == dataset].set_index("method").reindex(methods)
            errors = np.abs(part[["speedup_low", "speedup_high"]].sub(part.speedup, axis=0)).to_numpy().T
            _dots(top, part.speedup.to_numpy(), errors, outside=part.index.isin(outside))
            _dots(bottom, part.accept_length.to_numpy(), None, outside=part.index.isin(outside))
            name = textwrap.fill(dataset.replace("_", " "), 16)
            top.set_title(f"{name}\n({part.num_prompts.max():.0f} prompts)")
        for first, *_ in panels:
            first.set_yticks(range(len(methods)), methods)
            first.set_ylim(len(methods) - 0.5, -0.5)
        upper.supxlabel("speedup over vanilla (ratio of tokens/s), 95% interval", size=STYLE["axes.labelsize"])
        lower.supxlabel("accept length (tokens emitted per verification step)", size=STYLE["axes.labelsize"])
        if outside:
            handles = [Line2D([], [], label=label, **_marker(own)) for own, label in _KINDS.items()]
            figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


_KINDS = {False: "in the project's loop", True: "outside system, own loop"}


def _marker(outside: bool) -> dict[str, Any]:
    colour = OUTSIDE if outside else LOOP
    face = "white" if outside else colour
    return {"marker": "s" if outside else "o", "ms": 3.5, "color": colour, "mfc": face, "mew": 1, "ls": "none"}


def _dots(axes: Axes, values: np.ndarray, errors: np.ndarray | None, outside: np.ndarray) -> None:
    """One dot a method, top to bottom; a value that is nan leaves its line empty."""
    axes.axvline(1, color="0.35", lw=0.8, ls=(0, (4, 2)), zorder=1)
    axes.grid(color="0.9", lw=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=2, width=0.6)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    for line, value in enumerate(values):
        error = None if errors is None or np.isnan(errors[:, line]).any() else errors[:, [line]]
        axes.errorbar(value, line, xerr=error, elinewidth=1, capsize=2, **_marker(outside[line]))


def save_figure(figure: Figure, path: Path) -> Path:
    """Write `figure` as the suffix of `path` says (png at 200 dpi, pdf, svg), the same bytes for the same figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dated: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".pdf": {"CreationDate": None},
        ".svg": {"Date": None},
    }
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=200, metadata=dated.get(path.suffix))
    return path
