"""The figures draw what the rows hold, without warnings, and save to the same bytes."""

from __future__ import annotations

import math
import warnings
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from ngram_trie.bench.metrics import PROTOCOLS, Agreement
from ngram_trie.report.plots import (
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
        for protocol, (method, (speed, accept)), dataset in product(PROTOCOLS, VALUES.items(), datasets)
    ]  # fmt: skip
    return pd.DataFrame(made)


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
