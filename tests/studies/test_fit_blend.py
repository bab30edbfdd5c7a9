"""Fitting the blend: tables over a few recorded answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ngram_trie.bench.records import RunManifest
from ngram_trie.bench.traces import Trace
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.cli.app import invoke
from ngram_trie.prompt import Prompt
from ngram_trie.report.explorer import walk
from scripts.studies import fit_blend

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def trace(output: list[int], question: str, dataset: str = "rag") -> Trace:
    return Trace("toy", Prompt(np.array(PROMPT), {}, dataset, question), output)


TRACES = [trace([1, 2, 3, 4, 5, 60, 61, 7, 8, 9], str(number), "rag" if number % 2 else "qa") for number in range(6)]


def test_held_out_questions_do_not_choose_their_escape() -> None:
    def frame(*accepted: int) -> pd.DataFrame:
        rows = {"dataset": "rag", "question_id": [str(n) for n in range(5)], "accepted": [[a] for a in accepted]}
        return pd.DataFrame(rows)

    # 2.0 is the best on all, but of the first four alone and of every four without the first, 1.0 is.
    table = fit_blend.fit_table({1.0: frame(2, 2, 2, 2, 2), 2.0: frame(9, 1, 1, 1, 1)}).set_index("escape")
    assert table["all"].to_dict() == {"1": 2, "2": 2.6, "held out": (2 + 1 + 1 + 1 + 1) / 5}


def test_every_node_is_recorded_once() -> None:
    nodes = fit_blend.recorded_nodes(TRACES[0])
    frame = fit_blend.replayed(BlendDrafter(), TRACES[:1])
    assert len(nodes) == sum(step.tree.num_draft for step in walk(BlendDrafter(), TRACES[0]))
    # A step emits what was accepted and one token more, at the answer's end perhaps not.
    assert sum(frame.accepted[0]) - len(frame.accepted[0]) <= sum(accepted for _, accepted in nodes)


@pytest.mark.slow
def test_all_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fit_blend, "ESCAPES", [1.0, 3.5])
    (tmp_path / "traces.jsonl").write_text("".join(one.to_json() + "\n" for one in TRACES))
    invoke(fit_blend.main, [str(tmp_path / "traces.jsonl"), str(tmp_path / "out")])
    tables = {file.stem: pd.read_csv(file) for file in (tmp_path / "out").glob("*.csv")}
    assert set(tables) == {"fit", "calibration"}
    assert (tmp_path / "out" / "calibration.png").exists()
    assert RunManifest.read(tmp_path / "out" / "manifest.json").config["escapes"] == [1.0, 3.5]
    with pytest.raises(SystemExit, match="no such trace file"):
        invoke(fit_blend.main, [str(tmp_path / "absent"), str(tmp_path / "out")])
