"""The chapter's table of expected accepted tokens, and what is measured beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ngram_trie.baselines.ngram_predictor import NgramPredictor
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.app import invoke
from ngram_trie.prompt import Prompt
from scripts.studies import predictor as room


def trace(prompt: list[int], output: list[int], dataset: str = "d", question: str = "1") -> Trace:
    return Trace("m", Prompt(np.array(prompt), {}, dataset, question), output)


def test_steps_by_hand() -> None:
    # After 1 the predictor drafts 2 3 4 5. The answer says 2 3 9: the third draft was offered and not accepted, the
    # fourth not offered. 9 is new, so nothing is drafted behind it. 8 is new, too.
    answer = trace([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 8, 7])
    assert list(room.steps(answer, NgramPredictor())) == [("d", 4, 3, 2), ("d", 0, 0, 0), ("d", 0, 0, 0)]


def test_tables_by_hand() -> None:
    frame = pd.DataFrame(
        [("a", 4, 3, 2), ("a", 0, 0, 0), ("a", 4, 4, 4), ("b", 4, 1, 0)], columns=room.StepCounts._fields
    )
    table = room.acceptance_table(frame, 4).set_index("dataset")
    assert table.loc["a"].to_dict() == pytest.approx(
        {
            "num_steps": 3,
            "no_draft": 1 / 3,
            "drafted": 4,
            "alpha": 6 / 7,
            "formula": sum((6 / 7) ** k for k in range(1, 5)),
            "accepted": 3,
            "accept_length": 3,
        }
    )
    assert table.loc["b", ["alpha", "formula", "accepted", "accept_length"]].tolist() == [0, 0, 0, 1]
    assert table.loc["all", "alpha"] == 6 / 8


def test_the_chapters_own_numbers() -> None:
    table = room.chapter_table().round(2)
    assert table["chapter prints"].tolist() == [0.94, 2.05, 3.28]
    assert table["exact"].tolist() == [0.94, 1.77, 3.10]
    assert table["formula as it stands"].tolist() == [1.06, 2.06, 3.36]


def test_the_script_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "traces.jsonl"
    lines = [trace([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 8, 7], "a"), trace([5], [6, 7], "b")]
    source.write_text("".join(line.to_json() + "\n" for line in lines))
    output = tmp_path / "out"
    invoke(room.main, [str(source), str(output)])
    assert "3.28" in capsys.readouterr().out
    table = pd.read_csv(output / "table.csv")
    assert list(table.dataset) == ["a", "b", "all"] and table.num_steps.tolist() == [3, 1, 4]
    page = (output / "table.md").read_text()
    assert "| b | 1 | 1.000 | - | - | - | - | 1.000 |" in page and "| 0.9 | 3.28 | 3.36 | 3.10 |" in page
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["config"]["method"]["num_draft"] == 4 and manifest["config"]["traces"] == "traces.jsonl"
