"""The figures draw what the rows hold, without warnings, and save to the same bytes."""

from __future__ import annotations

import math
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.text import Text

from ngram_trie.bench.metrics import Agreement
from ngram_trie.report import table1
from ngram_trie.report.plots import (
    LEAST_SPAN,
    TEXT_WIDTH,
    accept_length_figure,
    headline,
    heatmap_figure,
    line_figure,
    save_figure,
    speedup_figure,
    time_split_figure,
)

VALUES = {"vanilla": (1.0, 1.0), "fast": (2.0, 2.5), "hf_prompt_lookup": (1.5, 1.8), "failed": (math.nan, math.nan)}
GROUPS = {"vanilla": "baseline", "fast": "warm", "hf_prompt_lookup": "cold", "failed": "warm"}


def rows(model: str = "toy", datasets: tuple[str, ...] = ("qa", "spec_bench_summarization", "all")) -> pd.DataFrame:
    made = [
        {
            "model": model, "method": method, "group": GROUPS[method], "dataset": dataset, "speedup": speed,
            "speedup_low": speed * 0.9,
            "speedup_high": speed * 1.1, "accept_length": accept, "num_prompts": 8, "protocol": protocol,
            "lossless": Agreement(8, is_control=method.startswith("hf")),
        }
        for protocol, (method, (speed, accept)), dataset in product(table1.metrics.PROTOCOLS, VALUES.items(), datasets)
    ]  # fmt: skip
    return pd.DataFrame(made, columns=table1.COLUMNS)


@pytest.mark.slow
def test_every_kind_of_file_has_the_same_bytes_again(tmp_path: Path) -> None:
    for suffix in ("png", "pdf", "svg"):
        first, second = (save_figure(speedup_figure(rows()), tmp_path / f"{i}" / f"f.{suffix}") for i in range(2))
        assert first.read_bytes() == second.read_bytes() and first.stat().st_size > 5000


def test_a_panel_for_each_task_one_for_all_with_its_numbers_and_one_for_accept_lengths() -> None:
    figure = speedup_figure(rows())
    assert [title(axes) for axes in figure.axes] == [
        "qa (8 prompts)",
        "spec bench summarization (8 prompts)",
        "all (8 prompts)",
        "all accept length",
    ]
    *_, speeds, lengths = figure.axes
    # group by group below its heading, the fastest first and what failed last
    labels = {tick.get_position()[1]: tick.get_text() for tick in figure.axes[0].get_yticklabels()}
    assert [labels[place] for place in sorted(labels)] == [
        "vanilla (plain decoding)", "cold", "hf_prompt_lookup", "warm", "fast", "failed",
    ]  # fmt: skip
    assert words(speeds) == ["1.00x", "1.50x", "2.00x"] and words(lengths) == ["1.00", "1.80", "2.50"]
    assert [text.get_position()[1] for text in speeds.texts] == [0, 2, 4]
    assert len(speedup_figure(rows(datasets=(*"abcdef", "all"))).axes) == 2  # no room for six tasks
    assert len(speedup_figure(rows(), tasks=False).axes) == 2


def test_dots_stand_at_the_values_and_groups_and_outside_loops_look_apart() -> None:
    top = speedup_figure(rows()).axes[0]
    dots = [container.lines[0] for container in top.containers]
    assert [dot.get_xdata()[0] for dot in dots[:3]] == [1.0, 1.5, 2.0]
    assert [dot.get_marker() for dot in dots] == ["D", "o", "^", "^"]
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True, False, False]
    assert len({dot.get_color() for dot in dots}) == 3
    low, high = top.containers[2].lines[2][0].get_segments()[0][:, 0]
    assert (low, high) == pytest.approx((1.8, 2.2))


def test_the_headline_holds_ten_rows_of_every_group_and_the_papers_method() -> None:
    many = [rows()]
    for i in range(20):
        part = rows()
        part = part[part.method == "hf_prompt_lookup"]
        many.append(part.assign(method=f"cold_{i}", speedup=3 + i / 10, lossless=Agreement(8)))
    slow = rows()[rows().method == "fast"]
    many.append(slow.assign(method="ngram_trie", group="cold", speedup=0.5))
    many.append(slow.assign(method="stored", group="preloaded", speedup=0.4))
    chosen = set(headline(pd.concat(many, ignore_index=True)).method)
    assert len(chosen) == 10
    assert {"vanilla", "ngram_trie", "hf_prompt_lookup", "fast", "stored", "cold_19", "cold_15"} <= chosen
    assert "cold_0" not in chosen and "failed" not in chosen


def grid_rows(datasets: tuple[str, ...] = ("qa", "spec_bench_rag"), size: float = 2.0) -> pd.DataFrame:
    """n 8 and 10, L_p 2 to 4; the highest of each dataset is (10, 2), the lowest (8, 4)."""
    cells = [(d, n, p, size + n / 10 - p / 100) for d, n, p in product(datasets, (10, 8), (4, 2, 3))]  # not in order
    return pd.DataFrame(cells, columns=["dataset", "n", "prefix_len", "accept_length"])


def line_rows() -> pd.DataFrame:
    made = [
        {"series": series, "dataset": dataset, "num_draft": nodes, "speedup": 1 + nodes / 100}
        for series, dataset in product(("this run", "paper"), ("qa", "spec_bench_rag"))
        for nodes in ((8, 32, 24) if series == "this run" else (8, 64))
    ]
    frame = pd.DataFrame(made)
    known = frame.series == "this run"
    low, high = (frame.speedup.mul(factor).where(known) for factor in (0.9, 1.2))
    return frame.assign(speedup_low=low, speedup_high=high)


def accept_rows(datasets: tuple[str, ...] = ("qa", "rag")) -> pd.DataFrame:
    made = [
        {"model": "toy", "method": "trie", "dataset": each, "accept_length": length, "share": share, "num_steps": 1200}
        for each in datasets
        for length, share in ((1, 0.5), (2, 0.3), (5, 0.2))
    ]
    return pd.DataFrame(made)


def time_rows() -> pd.DataFrame:
    made = [("qa", "search", 30.0), ("qa", "processing", 10.0), ("rag", "search", 1500.0), ("rag", "attention", 30.0)]
    return pd.DataFrame(made, columns=["dataset", "part", "microseconds"])


FIGURES = {
    "heatmap": lambda: heatmap_figure(grid_rows(tuple("abcde")), "accept_length", "accept length (tokens per step)"),
    "lines": lambda: line_figure(line_rows(), "num_draft", "speedup", "speedup over vanilla (ratio)"),
    "accept": lambda: accept_length_figure(accept_rows()),
    "time": lambda: time_split_figure(time_rows()),
}


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def title(axes: Axes) -> str:
    return axes.get_title().replace("\n", " ")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_cleanly_within_the_text_width_and_saves_the_same_bytes(tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (save_figure(FIGURES[name](), tmp_path / f"{i}.png") for i in range(2))
        figure = FIGURES[name]()
        FigureCanvasAgg(figure).draw()
    assert first.read_bytes() == second.read_bytes()
    assert figure.get_figwidth() <= TEXT_WIDTH
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            assert figure.bbox.padded(1).containsx(box.x0) and figure.bbox.padded(1).containsx(box.x1), text


def outlined(axes: Axes) -> list[list[tuple[float, float]]]:
    """The pieces of the outline around cells, as pairs of points (column, row)."""
    lines = [each for each in axes.collections if isinstance(each, LineCollection)]
    return [[tuple(point) for point in piece] for each in lines for piece in each.get_segments()]


def test_heatmap_has_a_panel_for_each_dataset_and_a_number_in_each_cell() -> None:
    figure = heatmap_figure(grid_rows(), "accept_length", "accept length (tokens per step)")
    assert [title(axes) for axes in figure.axes[:-1]] == ["qa", "spec bench rag"]
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["8", "10"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "3", "4"]
    assert axes.yaxis_inverted()
    assert words(axes) == ["2.78", "2.77", "2.76", "2.98", "2.97", "2.96"]
    positions = [text.get_position() for text in axes.texts]
    assert positions == [(column, row) for row in (0, 1) for column in (0, 1, 2)]


@pytest.mark.parametrize(("best", "cells"), [("highest", [(0, 1)]), ("lowest", [(2, 0)]), (None, [])])
def test_heatmap_marks_the_best_cell_of_each_panel(best, cells) -> None:
    for axes in heatmap_figure(grid_rows(), "accept_length", "accept length", best=best).axes[:-1]:
        assert [text.get_position() for text in axes.texts if text.get_weight() == "bold"] == cells
        assert not outlined(axes)  # no interval is known


def test_heatmap_outlines_what_the_interval_does_not_tell_from_the_best() -> None:
    frame = grid_rows()
    frame["accept_length_tied"] = (frame.n == 10) & (frame.prefix_len < 4)
    figure = heatmap_figure(frame, "accept_length", "accept length")
    around = outlined(figure.axes[0])
    # around columns 0 and 1 of row 1; nothing between the two
    assert len(around) == 6 and [(1.5, 0.5), (1.5, 1.5)] in around and [(0.5, 0.5), (0.5, 1.5)] not in around
    assert "paired 95% interval" in figure.get_suptitle().replace("\n", " ")


def test_heatmap_of_ties_of_gaps_and_of_large_numbers() -> None:
    frame = grid_rows(("qa",), size=100)
    frame.loc[frame.n == 8, "accept_length"] = [math.nan, 99.5, 250.0]
    frame.loc[(frame.n == 10) & (frame.prefix_len == 2), "accept_length"] = 250.0
    axes = heatmap_figure(frame, "accept_length", "tokens/s").axes[0]
    assert words(axes) == ["99.5", "250.0", "–", "250.0", "101.0", "101.0"]
    assert [text.get_text() for text in axes.texts if text.get_weight() == "bold"] == ["250.0", "250.0"]


def test_one_scale_for_all_panels_that_does_not_blow_up_small_differences() -> None:
    figure = heatmap_figure(grid_rows(size=20.0), "accept_length", "accept length")  # 1% between the cells
    scales = [(axes.collections[0].norm.vmin, axes.collections[0].norm.vmax) for axes in figure.axes[:-1]]
    assert scales == [(1 - LEAST_SPAN, 1)] * 2
    slow = heatmap_figure(grid_rows(), "accept_length", "ms", best="lowest")
    assert slow.axes[0].collections[0].norm.vmin == 1 and slow.axes[0].collections[0].norm.vmax > 1.05


def test_lines_have_a_panel_for_each_series_and_ticks_where_the_values_are() -> None:
    figure = line_figure(line_rows(), "num_draft", "speedup", "speedup (ratio)")
    run, paper = figure.axes
    assert [title(axes) for axes in figure.axes] == ["this run", "paper"]
    for axes, ticks in ((run, [8, 24, 32]), (paper, [8, 64])):
        assert list(axes.get_xticks()) == ticks and not len(axes.get_xticks(minor=True))
        assert axes.get_xscale() == "log" and axes.get_xlabel() == "draft nodes per step (num_draft)"
        assert list(axes.containers[0].lines[0].get_xdata()) == ticks
    assert run.get_ylim() == paper.get_ylim() and run.get_xlim() == paper.get_xlim()
    # intervals where they are known
    ends = np.array([segment[:, 1] for segment in run.containers[0].lines[2][0].get_segments()])
    assert ends == pytest.approx(np.outer([1.08, 1.24, 1.32], [0.9, 1.2]))
    assert all(np.ptp(segment[:, 1]) == 0 for segment in paper.containers[0].lines[2][0].get_segments())


def test_accept_lengths_are_bars_in_percent() -> None:
    figure = accept_length_figure(accept_rows(tuple("abcde")))
    places = [(axes.get_subplotspec().rowspan.start, axes.get_subplotspec().colspan.start) for axes in figure.axes]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert title(figure.axes[0]) == "a (1,200 steps)" and figure.get_suptitle() == "toy, trie"
    bars = figure.axes[0].patches
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx([1, 2, 5])
    assert [bar.get_height() for bar in bars] == pytest.approx([50, 30, 20])
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1


def test_time_split_stacks_to_the_whole_and_names_the_total() -> None:
    figure = time_split_figure(time_rows())
    (axes,) = figure.axes
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in axes.containers}
    assert widths["search"] == pytest.approx([75, 100 * 1500 / 1530])
    assert widths["processing"] == pytest.approx([25, 0])
    assert widths["attention"] == pytest.approx([0, 100 * 30 / 1530])
    assert [bar.get_x() for bar in axes.containers[1]] == pytest.approx(widths["search"])  # stacked
    # 2% is too narrow for its number
    assert words(axes) == ["75%", "98%", "25%", "40.0 µs per step", "1,530 µs per step"]


def test_no_drafting_time_at_all() -> None:
    axes = time_split_figure(time_rows().assign(microseconds=0.0)).axes[0]
    assert words(axes) == ["0.0 µs per step"] * 2
