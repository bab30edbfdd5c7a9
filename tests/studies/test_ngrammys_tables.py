"""The script behind N-Grammys' table and figures: its parts by hand, and all of it at the smallest size."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import SMALL

from ngram_trie.bench.traces import Trace
from ngram_trie.prompt import Prompt
from ngram_trie.report.plots import share_figure
from scripts import build_ngram_tables
from scripts.studies import ngrammys as room


def trace(output: list[int]) -> Trace:
    return Trace("tiny", Prompt(np.array([1, 2, 2, 1]), dataset="chat", question_id="1"), output, 50, "eos")


def test_which_row_was_accepted(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    drafter = room.Observed(tables=str(tmp_path), k=2, w=2)
    # After [1 2 2 1]: the first token, 0, comes from prefill. 0 was not there before, so both rows are the model's: 1 2
    # and 2 3, of which the second is right once. Then 2 2 1 0 2 3: see below.
    frame = room.allocation([trace([0, 2, 2, 1, 0, 2, 0])], drafter)
    assert drafter.steps[0] == (0, 2, 1)
    assert set(frame.measure) == set(room.MEASURES) and set(frame.source) <= {"context", "model"}
    filled = frame[frame.measure == room.MEASURES[2]]
    assert filled.share.sum() == pytest.approx(1)
    assert frame[frame.measure == room.MEASURES[0]].share.sum() == pytest.approx(
        frame[frame.measure == room.MEASURES[1]].share.sum()
    )
    assert share_figure(frame).axes


@pytest.mark.slow
def test_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"CALL_K": [1, 2], "CALL_W": [1, 2], "CALL_CONTEXTS": [20], "DEFAULT": (3, 3)}
    sizes |= {"TOP_K": [1, 3], "GRID_K": [1, 3], "GRID_W": [2, 3]}
    for name, value in sizes.items():
        monkeypatch.setattr(room, name, value)
    monkeypatch.setattr(build_ngram_tables, "FOLDER", tmp_path / "tables")
    monkeypatch.setattr(build_ngram_tables, "main", partial(build_ngram_tables.main, k=4, w=3))
    text = room.reproduce("tiny_general", ["math"], tmp_path, 1, 1, 1)
    assert "mixed (k*, w*), rows" in text and "mistral-7b-instruct-v0.2" in text and "N-Grammys" in text
    for name in ("figure1", "figure2", "figure3", "figure4", "figure5", "query", "rows", "tree"):
        manifest = json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))
        assert manifest["run"]
    for drawn in ("figure1/figure.png", "figure2/figure.png", "figure3/speedup.png", "figure4/figure.png"):
        assert (tmp_path / drawn).stat().st_size > 5000
    table = pd.read_csv(tmp_path / "table1" / "table.csv")
    assert set(table.lossless) <= {"1/1", "baseline"}
    by_method = table[table.dataset == "math"].set_index("method").accept_length
    assert by_method["mixed (k*, w*), rows"] == by_method["mixed (k*, w*), tree"] >= 1
    cells, queries = (pd.read_csv(tmp_path / name / "table.csv").set_index("method") for name in ("figure5", "query"))
    cells, queries = (frame[frame.dataset == "math"].accept_length for frame in (cells, queries))
    assert len(cells) == 4 and cells["ngrammys_mixed[k=3,w=3]"] == queries["mixed_q1"]
    assert queries["mixed_q1"] == by_method["mixed (10, 10), rows"], "a replay gives what the live run gave"
    monkeypatch.setattr(room, "GRID_W", [2, 4])
    recorded = tmp_path / "rows" / "traces.jsonl"
    room.main("tiny_general", output=tmp_path / "recorded", traces=recorded, categories=["math"])
    for name in ("figure2", "query"):  # tables of the live run's own answers, and of the same answers by themselves
        again = pd.read_csv(tmp_path / "recorded" / name / "table.csv")
        assert again.accept_length.tolist() == pd.read_csv(tmp_path / name / "table.csv").accept_length.tolist()
    cells = pd.read_csv(tmp_path / "recorded" / "figure5" / "table.csv")
    assert set(cells.k) == {1, 3} and set(cells.w) == {2, 4}, "the tables hold rows of 3; longer ones are repeated"
