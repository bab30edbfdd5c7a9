"""The figure draws what the table holds, without warnings, and saves to the same bytes."""

from __future__ import annotations

import math
import warnings
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from ngram_trie import tables
from ngram_trie.figures import save_figure, speedup_figure

VALUES = {"vanilla": (1.0, 1.0), "fast": (2.0, 2.5), "hf_prompt_lookup": (1.5, 1.8), "failed": (math.nan, math.nan)}


def rows(model: str = "toy", datasets: tuple[str, ...] = ("qa", "spec_bench_summarization", "all")) -> pd.DataFrame:
    made = [
        {
            "model": model, "method": method, "dataset": dataset, "speedup": speed, "speedup_low": speed * 0.9,
            "speedup_high": speed * 1.1, "accept_length": accept, "num_prompts": 8, "protocol": protocol,
            "lossless": "control: 8/8" if method.startswith("hf") else "8/8",
        }
        for protocol, (method, (speed, accept)), dataset in product(tables.metrics.PROTOCOLS, VALUES.items(), datasets)
    ]  # fmt: skip
    return pd.DataFrame(made, columns=tables.COLUMNS)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_draws_without_warnings_and_saves_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (save_figure(speedup_figure(rows()), tmp_path / f"{i}" / f"f.{suffix}") for i in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size > 5000


def test_a_panel_for_each_dataset_and_units_on_the_axes() -> None:
    figure = speedup_figure(rows())
    assert len(figure.axes) == 6
    assert [axes.get_title().replace("\n", " ") for axes in figure.axes[:3]] == [
        "qa (8 prompts)",
        "spec bench summarization (8 prompts)",
        "all (8 prompts)",
    ]
    labels = [half.get_supxlabel() for half in figure.subfigs]
    assert "tokens/s" in labels[0] and "tokens emitted per verification step" in labels[1]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == list(VALUES)


def test_dots_stand_at_the_values_and_outside_loops_have_another_marker() -> None:
    top = speedup_figure(rows()).axes[0]
    dots = [container.lines[0] for container in top.containers]
    assert [dot.get_xdata()[0] for dot in dots[:3]] == [1.0, 2.0, 1.5]
    assert [dot.get_marker() for dot in dots] == ["o", "o", "s", "o"]
    low, high = top.containers[1].lines[2][0].get_segments()[0][:, 0]
    assert (low, high) == pytest.approx((1.8, 2.2))


def test_one_dataset_and_no_intervals() -> None:
    frame = rows(datasets=("all",)).assign(speedup_low=math.nan, speedup_high=math.nan)
    assert len(speedup_figure(frame, "released").axes) == 2


def test_one_model_a_figure() -> None:
    with pytest.raises(ValueError, match="2 models"):
        speedup_figure(pd.concat([rows("a"), rows("b")]))
    with pytest.raises(ValueError, match="0 models"):
        speedup_figure(rows(), "official")
