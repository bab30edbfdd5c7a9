"""Figures 3 and 5 from the command line, over reference answers as traces."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.cli.app import invoke
from ngram_trie.cli.recordings import choose
from ngram_trie.data.bundled import BundledDataset
from ngram_trie.data.prompts import build_prompt
from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_tokenizer
from scripts import case_study
from scripts.studies import time_split
from scripts.studies.time_split import PARTS


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = load_tokenizer(str(PROJECT / "data" / "tiny" / "model"))
    path = tmp_path_factory.mktemp("traces") / "references.jsonl"
    lines = []
    for task in ("rag", "summarization"):
        for question in BundledDataset(task, limit=3).questions:
            answer = tokenizer.encode(question.reference, add_special_tokens=False)
            lines.append(Trace("reference", build_prompt(question, tokenizer), answer).to_json())
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_median_question_is_chosen(traces: Path) -> None:
    drafter = NgramTrieDrafter()
    chosen = choose(read_traces(traces), drafter, None, None)
    assert chosen.prompt.dataset == "summarization"
    means = {}
    for trace in read_traces(traces):
        if trace.prompt.dataset == "summarization":
            lengths = replay(drafter, trace).accept_lengths
            means[trace.prompt.question_id] = sum(lengths) / len(lengths)
    assert means[chosen.prompt.question_id] == sorted(means.values())[1]
    with pytest.raises(ValueError, match=r"question x9 of any.*rag"):
        choose(read_traces(traces), drafter, None, "x9")


def test_case_study_shows_the_whole_answer(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(traces), str(tmp_path), "--dataset", "rag", "--question", "rag-002", "--set", "num_draft=8"]
    invoke(case_study.main, [*arguments, "--tokenizer", "tiny"])  # by its name in configs/model, as make gives it
    assert "question rag-002" in (tmp_path / "case_study.svg").read_text(encoding="utf-8")
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
