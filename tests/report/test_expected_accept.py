"""The chapter's table of expected accepted tokens, and what is measured beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ngram_trie.baselines.ngram_predictor import NgramPredictor
from ngram_trie.cli.app import invoke
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.engines.traces import Trace
from ngram_trie.prompt import Prompt
from ngram_trie.records import PromptRecord
from ngram_trie.report import expected_accept as room
from scripts import expected_accept as script


def trace(prompt: list[int], output: list[int], dataset: str = "d", question: str = "1") -> Trace:
    return Trace("m", Prompt(np.array(prompt), {}, dataset, question), output)


def test_steps_by_hand() -> None:
    # After 1 the predictor drafts 2 3 4 5. The answer says 2 3 9: the third draft was offered and not accepted, the
    # fourth not offered. 9 is new, so nothing is drafted behind it. 8 is new, too.
    answer = trace([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 8, 7])
    assert list(room.steps(answer, NgramPredictor())) == [
        ("d", 4, 3, 2),
        ("d", 0, 0, 0),
        ("d", 0, 0, 0),
    ]


def test_what_lies_behind_the_answers_end_is_not_offered() -> None:
    drafter = NgramPredictor()
    assert list(room.steps(trace([1, 2, 3, 4, 5, 6], [1, 2, 3]), drafter)) == [("d", 4, 2, 2)]
    assert list(room.steps(trace([1, 2, 3, 4, 5, 6], [1, 2, 9]), drafter)) == [("d", 4, 2, 1)]


def test_tables_by_hand() -> None:
    frame = pd.DataFrame([("a", 4, 3, 2), ("a", 0, 0, 0), ("a", 4, 4, 4), ("b", 4, 1, 0)], columns=room.Step._fields)
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
    positions = room.position_table(frame, 4)
    everything = positions[positions.dataset == "all"]
    assert everything.acceptance.tolist() == [2 / 3, 1, 1 / 2, 1] and everything.offered.tolist() == [3, 2, 2, 1]


def test_the_chapters_own_numbers() -> None:
    table = room.chapter_table().round(2)
    assert table["chapter prints"].tolist() == [0.94, 2.05, 3.28]
    assert table["exact"].tolist() == [0.94, 1.77, 3.10]
    assert table["formula as it stands"].tolist() == [1.06, 2.06, 3.36]


def record(method: str, question: str, steps: list[tuple[int, int]], step_ms: float, **more: Any) -> PromptRecord:
    """An answer whose steps are (nodes, emitted); `step_ms` is the sum over them, drafting 100 us of each."""
    emitted = sum(count for _, count in steps)
    about = {"run": "r", "model": "m", "dataset": "d", "turn": 0, "repeat": 0, "state": "cold", "kind": "drafter"}
    fields = about | {
        "prompt_hash": "h", "num_prompt_tokens": 3, "output_ids": [1] * (emitted + 1),
        "accept_lengths": [count for _, count in steps], "tree_sizes": [nodes for nodes, _ in steps],
        "draft_us": [100.0] * len(steps),
        "seconds": PhaseSeconds(total=1e-3 * step_ms + 1e-3, prefill=1e-3, verify=1e-3 * step_ms),
    }  # fmt: skip
    return PromptRecord(method=method, question_id=question, **(fields | more))


def test_costs_by_hand() -> None:
    plain = [(0, 1)] * 6
    records = [
        record("vanilla", "1", plain, 12),  # 2 ms a step
        record("predictor", "1", [(4, 3), (0, 1), (4, 2)], 9),  # one plain step, hence 3.5 ms for each of two: 1.75
        record("vanilla", "2", plain, 6),
        record("predictor", "2", [(4, 1)] * 5 + [(0, 1)], 11),  # 2 ms for each of five, beside 1 ms; all rejected
        record("hf_generate", "1", plain, 1, kind="decoder", draft_us=[]),
    ]
    one, everything = room.cost_table(records).to_dict("records")
    assert {"dataset": "d"}.items() <= one.items() and everything["dataset"] == "all"
    assert everything["overhead"] == pytest.approx((7 + 10) / (2 * 2 + 5 * 1) - 1)
    assert everything["drafting"] == pytest.approx(7 * 0.1 / 9)
    assert (everything["num_prompts"], everything["more_steps"], everything["slower"]) == (2, 0, 1)
    assert everything["slowest"] == pytest.approx(7 / 12) and everything["nodes"] == 4
    assert everything["overhead_low"] == pytest.approx(0.75) and everything["overhead_high"] == pytest.approx(1)


def test_repeats_of_a_prompt_are_summed() -> None:
    steps = [(4, 2), (4, 2)]
    both = [record("vanilla", "1", [(0, 1)] * 4, 8), record("predictor", "1", steps, 6)]
    again = [record("vanilla", "1", [(0, 1)] * 4, 4, repeat=1), record("predictor", "1", steps, 2, repeat=1)]
    assert room.cost_table([*both, *again]).overhead.iloc[0] == pytest.approx((8 / 4) / (12 / 8) - 1)


def test_no_costs_without_a_live_run_of_it() -> None:
    assert room.cost_table([]).empty and room.cost_table([record("vanilla", "1", [(0, 1)], 1)]).empty


def test_the_tables_are_as_large_as_their_slots() -> None:
    drafter = NgramPredictor()
    assert drafter.num_bytes == 0
    drafter.start(Prompt(np.arange(512), {}, "d", "1"))
    # Room for 512 + 512 tokens, twice as many slots, three lengths of context, six columns of 8 bytes.
    assert drafter.num_bytes == 2048 * 3 * 7 * 8


def test_the_script_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "traces.jsonl"
    lines = [trace([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 8, 7], "a"), trace([5], [6, 7], "b")]
    source.write_text("".join(line.to_json() + "\n" for line in lines))
    output = tmp_path / "out"
    invoke(script.main, [str(source), str(output)])
    assert "3.28" in capsys.readouterr().out
    table = pd.read_csv(output / "table.csv")
    assert list(table.dataset) == ["a", "b", "all"] and table.num_steps.tolist() == [3, 1, 4]
    page = (output / "table.md").read_text()
    assert "| b | 1 | 1.000 | - | - | - | - | 1.000 |" in page and "| 0.9 | 3.28 | 3.36 | 3.10 |" in page
    assert (output / "acceptance.png").stat().st_size > 5000 and len(pd.read_csv(output / "positions.csv")) == 12
    answers = pd.read_csv(output / "answers.csv")
    assert answers.alpha.round(3).tolist()[:1] == [0.667] and np.isnan(answers.alpha[1])
    assert answers.num_tokens.tolist() == [12, 3] and (answers.num_bytes == 2048 * 3 * 7 * 8).all()
    assert not (output / "costs.csv").exists(), "recorded answers say nothing of time"
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["config"]["method"]["num_draft"] == 4 and manifest["config"]["traces"] == "traces.jsonl"


@pytest.mark.parametrize(("content", "message"), [(None, "no such trace file"), ("\n", "no answers to replay")])
def test_errors_are_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "traces.jsonl").write_text(content)
    with pytest.raises(SystemExit, match=message) as error:
        invoke(script.main, [str(tmp_path / "traces.jsonl"), str(tmp_path)])
    assert "\n" not in str(error.value)


def test_a_live_runs_costs_stand_beside(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(trace([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 8, 7]).to_json() + "\n")
    records = [record("vanilla", "1", [(0, 1)] * 4, 8), record("predictor", "1", [(4, 2), (4, 2)], 6)]
    (tmp_path / "records.jsonl").write_text("".join(each.to_json() + "\n" for each in records))
    invoke(script.main, [str(tmp_path / "traces.jsonl"), str(tmp_path / "out")])
    assert pd.read_csv(tmp_path / "out" / "costs.csv").overhead.tolist() == pytest.approx([0.5, 0.5])
