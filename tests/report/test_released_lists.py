"""The released code's lists over recorded answers, on answers small enough to count by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ngram_trie.cli.app import invoke
from ngram_trie.engines.traces import Trace, write_traces
from ngram_trie.files import PAPER
from ngram_trie.prompt import Prompt
from ngram_trie.report.released_lists import released_lists
from scripts import released_lists as script

TURN = np.arange(10, 40)


def trace(category: str, question: int, output: list[int], model: str = "m") -> Trace:
    prompt = Prompt(np.array([1, *TURN, 5]), {"user": (1, 31), "released": (1, 31)}, category, str(question))
    return Trace(model, prompt, output)


NEW = [50, 51, 52, 2]  # three steps, none of which accepts a draft
COPIED = [12, 13, 14, 15, 16, 2]  # the first step accepts 13 to 16 and adds EOS
ANSWERS = [
    trace("rag", 10, NEW),
    trace("rag", 9, COPIED),
    trace("summarization", 287, COPIED),
    trace("summarization", 288, NEW),
    trace("qa", 1, NEW),
]


def test_means_by_hand() -> None:
    rows = released_lists(ANSWERS).set_index("dataset")
    rag = rows.loc["spec_bench_rag"]
    assert (rag.question_id, rag.num_questions, rag.model) == ("10", 2, "m")
    # [1, 0, 1, 1, 1] and [1, 4, 1]
    assert rag.accept_length_last_question == 4 / 5
    assert rag.accept_length_all_questions == (4 + 6) / (5 + 3)
    assert rag.accept_length_all_questions_macro == pytest.approx((4 / 5 + 6 / 3) / 2)
    # question 288 is never the last one, as the code passes over it, but one of all
    assert rows.loc["spec_bench_summarization", "question_id"] == "287"
    assert rows.loc["spec_bench_summarization", "num_questions"] == 2


def test_one_model_and_both_categories() -> None:
    with pytest.raises(ValueError, match="summarization: needs the answers of one model, found none"):
        released_lists(ANSWERS[:2])
    with pytest.raises(ValueError, match="found m, other"):
        released_lists([*ANSWERS, trace("summarization", 1, NEW, "other")])


def test_the_script_writes_the_columns_that_are_committed(tmp_path: Path) -> None:
    halves = [tmp_path / "odd.jsonl", tmp_path / "even.jsonl"]
    write_traces(halves[0], ANSWERS[:2])
    write_traces(halves[1], ANSWERS[2:])
    output = tmp_path / "released_code.csv"
    invoke(script.main, [*map(str, halves), "--output", str(output)])
    assert list(pd.read_csv(output).columns) == list(pd.read_csv(PAPER / "released_code.csv").columns)
