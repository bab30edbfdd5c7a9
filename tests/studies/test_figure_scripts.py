"""Figures 3 and 5 from the command line, over recorded answers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import read_traces, write_traces
from ngram_trie.cli.app import invoke
from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.store.files import PROJECT
from scripts import case_study
from scripts.studies import time_split
from scripts.studies.time_split import PARTS


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorded = read_traces(PROJECT / "results" / "table1" / "tiny" / "traces.jsonl")
    path = tmp_path_factory.mktemp("traces") / "references.jsonl"
    write_traces(path, [trace for task in ("rag", "summarization") for trace in recorded if trace.key[0] == task][::8])
    return path


def test_case_study_shows_the_whole_answer(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(traces), str(tmp_path), "--dataset", "rag", "--question", "rag-001", "--set", "num_draft=8"]
    invoke(case_study.main, [*arguments, "--tokenizer", "tiny"])  # by its name in configs/model, as make gives it
    assert "question rag-001" in (tmp_path / "case_study.svg").read_text(encoding="utf-8")
    assert "accept length" in capsys.readouterr().out


def test_time_split_covers_every_step_and_part(traces: Path, tmp_path: Path) -> None:
    invoke(time_split.main, [str(traces), str(tmp_path), "--num-draft", "16"])
    table = pd.read_csv(tmp_path / "time_split.csv")
    assert list(table.part) == list(PARTS) * 2 and (table.microseconds > 0).all()
    drafter = NgramTrieDrafter(num_draft=16)
    steps = sum(len(replay(drafter, t).accept_lengths) for t in read_traces(traces) if t.prompt.dataset == "rag")
    assert (table[table.dataset == "rag"].num_steps == steps).all()
    assert (tmp_path / "time_split.png").exists()
    with pytest.raises(SystemExit, match="no such trace file"):
        invoke(time_split.main, [str(tmp_path / "none.jsonl"), str(tmp_path)])
