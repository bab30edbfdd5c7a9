"""The figures, from frames of rows: dots for Table 1, heatmaps and lines for sweeps, bars.

A function takes rows, of one model and method unless it says otherwise, and returns a Figure; only `save_figure` writes
a file. Figures are built without pyplot, so they leave no global state behind and draw the same in a notebook, a test
or a script. No metric is computed here. Nothing is told by colour alone.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from ngram_trie.bench.metrics import group_order

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
    "position": "position in the draft",
    "billions": "billions of parameters",
}


def panel_grid(count: int) -> tuple[int, int]:
    """Lines and columns of `count` panels: one line of up to 3, then two, then as many as 4 abreast need."""
    lines = 1 if count <= 3 else max(2, math.ceil(count / 4))
    return lines, math.ceil(count / lines)


def dataset_name(dataset: str, width: int | None = None) -> str:
    """A dataset's name to be read, wrapped at `width` characters."""
    name = dataset.replace("_", " ")
    return name if width is None else textwrap.fill(name, width)


def plain_axes(axes: Axes, grid: Literal["both", "x", "y"] | None, named: Literal["x", "y"] | None = None) -> None:
    """Pale lines behind what is drawn, and short ticks; none along the axis of names."""
    if grid:
        axes.grid(axis=grid, color="0.9", lw=0.5)
        axes.set_axisbelow(True)
    axes.tick_params(length=2, width=0.6)
    if named:
        axes.tick_params(axis=named, length=0)
    if named == "y":
        axes.spines["left"].set_visible(False)


def share_limits(panels: Sequence[Axes]) -> None:
    """The same numbers along all horizontal axes."""
    lows, highs = zip(*(axes.get_xlim() for axes in panels), strict=True)
    for axes in panels:
        axes.set_xlim(min(lows), max(highs))


def errors_of(points: pd.DataFrame, value: str) -> np.ndarray | None:
    """(2, k) distances to the ends of the intervals; None without such columns."""
    ends = [f"{value}_low", f"{value}_high"]
    if not set(ends) <= set(points):
        return None
    return np.abs(points[ends].sub(points[value], axis=0).to_numpy(float)).T


def save_figure(figure: Figure, path: Path) -> Path:
    """Write `figure` as the suffix of `path` says: png at 200 dpi, pdf or svg; the same bytes for the same figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dated: dict[str, Any] = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=200, metadata=dated.get(path.suffix))
    return path


#: Rows of the headline figure, and panels of single tasks that fit beside the pooled one.
MOST_ROWS, MOST_TASKS = 10, 5
#: Colour and marker of each group of methods, `metrics.GROUPS`; others look like the last.
_GROUP_LOOKS = {
    "baseline": ("0.35", "D"), "cold": (BLUE, "o"), "warm": ("#b03a2e", "^"), "preloaded": ("#1e8449", "s"),
    "trained": ("#6c3483", "P"), "": (OCHRE, "X"),
}  # fmt: skip
#: What the headline always shows: plain decoding, the paper's method, and prompt lookup as transformers has it.
_ALWAYS = ("vanilla", "ngram_trie", "hf_prompt_lookup")
_MARKED = {"vanilla": "vanilla (plain decoding)", "ngram_trie": "ngram_trie (the paper)"}


@matplotlib.rc_context(STYLE)
def speedup_figure(frame: pd.DataFrame, tasks: bool = True) -> Figure:
    """Speedup with 95% intervals and accept length of each method, a row each: the tasks, all of them pooled with the
    numbers, and accept lengths.

    Methods stand group by group (`metrics.GROUPS`), which are not ranked against each other, and within a group the
    fastest first; those without a speed come last. Open markers are outside systems with a loop of their own.

    Args:
        frame: rows of `table1.table1` for one model, datasets in the order they are to be drawn, the pooled one last;
            those of the corrected protocol are drawn.
        tasks: whether each task has a panel, too; more than MOST_TASKS have none.
    """
    rows = frame[frame.protocol == "corrected"]
    *single, pooled = rows.dataset.unique()
    single = single if tasks and len(single) <= MOST_TASKS else []
    whole = rows[rows.dataset == pooled].sort_values("speedup", ascending=False, na_position="last", kind="stable")
    whole = whole.sort_values("group", key=lambda groups: groups.map(group_order), kind="stable").set_index("method")
    places, headings = _places(whole.group)
    height, has_control = max(places) + 1, any(row.lossless.is_control for row in whole.itertuples())
    titles = {
        dataset: textwrap.fill(dataset_name(dataset), 12, break_long_words=False) for dataset in [*single, pooled]
    }
    around = 0.73 + 0.12 * max(title.count("\n") + 1 for title in titles.values()) + 0.2 * has_control
    figure = Figure(figsize=(TEXT_WIDTH, around + 0.145 * height), layout="constrained")
    panels = figure.subplots(
        1, len(single) + 2, sharey=True, squeeze=False, width_ratios=[*[1] * len(single), 1.9, 1.2]
    )[0]
    looks = [_marker(row.group, row.lossless.is_control) for row in whole.itertuples()]
    for (dataset, title), axes in zip(titles.items(), panels, strict=False):
        part = rows[rows.dataset == dataset].set_index("method").reindex(whole.index)
        _dots(axes, places, part.speedup.to_numpy(), errors_of(part, "speedup"), looks)
        axes.set_title(f"{title}\n({part.num_prompts.max():.0f} prompts)")
    share_limits(panels[:-1])
    *_, speeds, lengths = panels
    _numbers(speeds, places, whole.speedup, "{:.2f}x")
    _dots(lengths, places, whole.accept_length.to_numpy(), None, looks)
    _numbers(lengths, places, whole.accept_length, "{:.2f}")
    lengths.set_title(f"{dataset_name(pooled)}\naccept length")
    for axes in panels:
        for method, place in zip(whole.index, places, strict=True):
            if method in _MARKED:
                axes.axhspan(place - 0.5, place + 0.5, color="0.92", lw=0, zorder=0)
    panels[0].set_yticks([*places, *headings.values()], [*(_MARKED.get(name, name) for name in whole.index), *headings])
    panels[0].set_ylim(height - 0.4, -0.6)
    for label in panels[0].get_yticklabels():
        label.set_weight("bold" if label.get_text() in (*headings, *_MARKED.values()) else "normal")
    speeds.set_xlabel("speedup over vanilla\n(ratio of tokens/s)")
    lengths.set_xlabel("tokens per\nverification step")
    if has_control:
        hollow = Line2D([], [], label="open: outside system, own loop", **_marker("cold", True))
        figure.legend(handles=[hollow], loc="outside lower left")
    return figure


def headline(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of at most MOST_ROWS methods: `_ALWAYS`, the fastest of each group, and the fastest of the others, over
    all datasets under the corrected protocol.
    """
    whole = frame[(frame.protocol == "corrected") & (frame.dataset == frame.dataset.unique()[-1])]
    whole = whole.sort_values("speedup", ascending=False, kind="stable")
    first = [*(whole[whole.method == name] for name in _ALWAYS), whole.drop_duplicates("group"), whole]
    chosen = list(dict.fromkeys(name for part in first for name in part.method))[:MOST_ROWS]
    return frame[frame.method.isin(chosen)]


def _places(groups: pd.Series) -> tuple[list[int], dict[str, int]]:
    """The line of each method, and of the heading above each group; vanilla, alone in its own, has none."""
    places: list[int] = []
    headings: dict[str, int] = {}
    line = 0
    for at, group in enumerate(groups):
        if (at == 0 or group != groups.iloc[at - 1]) and group != "baseline":
            headings[group or "other"] = line
            line += 1
        places.append(line)
        line += 1
    return places, headings


def _marker(group: str, outside: bool) -> dict[str, Any]:
    colour, marker = _GROUP_LOOKS.get(group, _GROUP_LOOKS[""])
    face = "white" if outside else colour
    return {"marker": marker, "ms": 3.5, "color": colour, "mfc": face, "mew": 1, "ls": "none"}


def _dots(
    axes: Axes, places: list[int], values: np.ndarray, errors: np.ndarray | None, looks: list[dict[str, Any]]
) -> None:
    """One dot a method, top to bottom; a value that is nan leaves its line empty."""
    axes.axvline(1, color="0.35", lw=0.8, ls=(0, (4, 2)), zorder=1)
    plain_axes(axes, "x", named="y")
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    for line, (place, value) in enumerate(zip(places, values, strict=True)):
        error = None if errors is None or np.isnan(errors[:, line]).any() else errors[:, [line]]
        axes.errorbar(value, place, xerr=error, elinewidth=1, capsize=1.5, **looks[line])


def _numbers(axes: Axes, places: list[int], values: pd.Series, form: str) -> None:
    """The values in a column at the right edge."""
    for place, value in zip(places, values, strict=True):
        if not math.isnan(value):
            beside = axes.get_yaxis_transform()
            axes.text(1.02, place, form.format(value), transform=beside, va="center_baseline", size=6.5)


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
    """
    down, across = fields
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
    """
    frame = frame if "series" in frame else frame.assign(series="")
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
                errors = errors_of(points, value)
                known = None if errors is None else np.nan_to_num(errors)
                axes.errorbar(points[x], points[value], yerr=known, elinewidth=0.8, capsize=2, **line_style(index))
        ticks = sorted(part[x].unique())
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
        axes.set_title(name)
        axes.set_xlabel(AXIS_LABELS.get(x, x.replace("_", " ")))
    share_limits(panels)
    drawn = ", 95%\N{NO-BREAK SPACE}interval" if errors_of(frame, value) is not None else ""
    panels[0].set_ylabel(textwrap.fill(label + drawn, 29))
    handles = [Line2D([], [], label=dataset_name(dataset), **line_style(i)) for i, dataset in enumerate(datasets)]
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
    axes.loglog(shown.predicted, shown.observed, **line_style(0))
    axes.set_xlabel("predicted probability of acceptance")
    axes.set_ylabel("share of the nodes that was accepted")
    return figure


def line_style(index: int) -> dict[str, Any]:
    colour = _LINE_COLOURS[index % len(_LINE_COLOURS)]
    face = "white" if index % 2 else colour
    return {"marker": _MARKERS[index % 7], "ls": _LINES[index % 4], "color": colour, "mfc": face, "ms": 4, "lw": 1.1}


_HATCHES = (("0.80", ""), ("0.95", "/////"), ("0.60", ""), ("0.95", "....."), ("0.80", "\\\\\\\\\\"), ("0.95", "xxxxx"))


@matplotlib.rc_context(STYLE)
def accept_length_figure(frame: pd.DataFrame) -> Figure:
    """How often a verification step emits 1, 2, 3, ... tokens (the paper's Figure 4); all panels share their axes.

    Args:
        frame: rows `model, method, dataset, accept_length, share, num_steps`: the share, from 0 to 1, of a panel's
            `num_steps` steps that emit that number of tokens.
    """
    datasets = frame.dataset.unique()
    lines, columns = panel_grid(len(datasets))
    ticks = np.arange(frame.accept_length.min(), frame.accept_length.max() + 1)
    size = (TEXT_WIDTH * min(1, (columns + 0.3) / 3.3), 0.6 + 1.2 * lines)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for number, axes in enumerate(panels.flat):
        if number >= len(datasets):
            axes.remove()
            continue
        part = frame[frame.dataset == datasets[number]]
        axes.bar(part.accept_length, 100 * part.share, width=0.75, color="0.55", ec="0.2", lw=0.6)
        plain_axes(axes, "y")
        axes.set_title(f"{dataset_name(datasets[number], 24)}\n({part.num_steps.max():,.0f} steps)")
        if number + columns >= len(datasets):
            axes.tick_params(labelbottom=True)  # nothing below it carries the numbers of its shared axis
    panels[0, 0].set_xticks(ticks[:: math.ceil(len(ticks) * columns / 36)])
    panels[0, 0].set_xlim(ticks[0] - 0.6, ticks[-1] + 0.6)
    panels[0, 0].yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.suptitle(", ".join([*frame.model.unique(), *frame.method.unique()]), weight="bold")
    figure.supxlabel("accept length (tokens emitted per verification step)")
    figure.supylabel("share of steps (%)")
    return figure


@matplotlib.rc_context(STYLE)
def time_split_figure(frame: pd.DataFrame) -> Figure:
    """What a step's drafting time is spent on (the paper's Figure 5): a bar for each dataset, its total at the end.

    Args:
        frame: rows `dataset, part, microseconds` per step, parts in the order they are to be stacked; a dataset without
            a part spent nothing on it.
    """
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
    plain_axes(axes, None, named="y")
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
    """
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


def _bar(index: int) -> dict[str, Any]:
    """A grey and hatches that no other of the first six has."""
    grey, hatch = _HATCHES[index % len(_HATCHES)]
    return {"fc": grey, "hatch": hatch, "ec": "0.25", "lw": 0.6}
