"""The figure of Table 1: a row of dots for each method."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ngram_trie.bench.metrics import group_order
from ngram_trie.report.figures import BLUE, OCHRE, STYLE, TEXT_WIDTH, dataset_name

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
def speedup_figure(frame: pd.DataFrame, protocol: str = "corrected", tasks: bool = True) -> Figure:
    """Speedup with 95% intervals and accept length of each method, a row each: the tasks, all of them pooled with the
    numbers, and accept lengths.

    Methods stand group by group (`metrics.GROUPS`), which are not ranked against each other, and within a group the
    fastest first; those without a speed come last. Open markers are outside systems with a loop of their own.

    Args:
        frame: rows of `table1.table1` for one model, datasets in the order they are to be drawn, the pooled one last.
        protocol: which of the frame's rows to draw.
        tasks: whether each task has a panel, too; more than MOST_TASKS have none.

    Raises:
        ValueError: no rows of this protocol, or several models.
    """
    rows = frame[frame.protocol == protocol]
    if rows.model.nunique() != 1:
        raise ValueError(f"{rows.model.nunique()} models under protocol {protocol!r}; a figure shows one")
    *single, pooled = rows.dataset.unique()
    single = single if tasks and len(single) <= MOST_TASKS else []
    whole = rows[rows.dataset == pooled].sort_values("speedup", ascending=False, na_position="last", kind="stable")
    whole = whole.sort_values("group", key=_group_places, kind="stable").set_index("method")
    places, headings = _places(whole.group)
    height = max(places) + 1
    figure = Figure(figsize=(TEXT_WIDTH, 0.85 + 0.145 * height), layout="constrained")
    panels = figure.subplots(
        1, len(single) + 2, sharey=True, squeeze=False, width_ratios=[*[1] * len(single), 1.9, 1.2]
    )[0]
    looks = [_marker(row.group, row.lossless.is_control) for row in whole.itertuples()]
    for dataset, axes in zip([*single, pooled], panels, strict=False):
        part = rows[rows.dataset == dataset].set_index("method").reindex(whole.index)
        errors = np.abs(part[["speedup_low", "speedup_high"]].sub(part.speedup, axis=0)).to_numpy().T
        _dots(axes, places, part.speedup.to_numpy(), errors, looks)
        title = textwrap.fill(dataset_name(dataset), 12, break_long_words=False)
        axes.set_title(f"{title}\n({part.num_prompts.max():.0f} prompts)")
    for axes in panels[:-1]:
        axes.set_xlim(*_shared_limits(panels[:-1]))
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
    if any(row.lossless.is_control for row in whole.itertuples()):
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


def _group_places(groups: pd.Series) -> pd.Series:
    return groups.map(group_order)


def _marker(group: str, outside: bool) -> dict[str, Any]:
    colour, marker = _GROUP_LOOKS.get(group, _GROUP_LOOKS[""])
    face = "white" if outside else colour
    return {"marker": marker, "ms": 3.5, "color": colour, "mfc": face, "mew": 1, "ls": "none"}


def _dots(
    axes: Axes, places: list[int], values: np.ndarray, errors: np.ndarray | None, looks: list[dict[str, Any]]
) -> None:
    """One dot a method, top to bottom; a value that is nan leaves its line empty."""
    axes.axvline(1, color="0.35", lw=0.8, ls=(0, (4, 2)), zorder=1)
    axes.grid(axis="x", color="0.9", lw=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=2, width=0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    for line, (place, value) in enumerate(zip(places, values, strict=True)):
        error = None if errors is None or np.isnan(errors[:, line]).any() else errors[:, [line]]
        axes.errorbar(value, place, xerr=error, elinewidth=1, capsize=1.5, **looks[line])


def _shared_limits(panels: Any) -> tuple[float, float]:
    lows, highs = zip(*(axes.get_xlim() for axes in panels), strict=True)
    return min(lows), max(highs)


def _numbers(axes: Axes, places: list[int], values: pd.Series, form: str) -> None:
    """The values in a column at the right edge."""
    for place, value in zip(places, values, strict=True):
        if not math.isnan(value):
            beside = axes.get_yaxis_transform()
            axes.text(1.02, place, form.format(value), transform=beside, va="center_baseline", size=6.5)
