"""What steps cost and what accept lengths are worth, on curves small enough to do by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import manifest, record

from ngram_trie.bench import cost
from ngram_trie.bench.cost import CostCurve, assumed_curve
from ngram_trie.bench.records import Failure, PromptRecord
from ngram_trie.decoding import PhaseSeconds

#: (1 + nodes / 5) x cached tokens / 100 seconds a step.
CURVE = CostCurve("toy", [0, 10], [100, 200], [[1.0, 2.0], [3.0, 6.0]], [100, 200], [0.5, 1.5])


def answer(
    accept: list[int], trees: list[int] | None = None, seconds: PhaseSeconds | float = 1.0, *, method: str = "fast",
    question: str = "1", num_prompt: int = 100, **fields: Any,
) -> PromptRecord:  # fmt: skip
    sizes = {"tree_sizes": trees if trees is not None else [0] * len(accept), "num_prompt_tokens": num_prompt}
    return record(method, question, tuple(accept), seconds, **sizes, **fields)


@pytest.mark.parametrize(
    ("nodes", "context", "seconds"),
    [
        (0, 100, 1), (10, 200, 6), (5, 100, 2), (0, 150, 1.5), (5, 150, 3),
        (20, 100, 5), (0, 300, 3), (20, 300, 15), (10, 50, 1.5),
    ],
)  # fmt: skip
def test_steps_between_and_beyond_what_was_measured(nodes: int, context: int, seconds: float) -> None:
    assert CURVE.step([nodes], [context]) == pytest.approx([seconds])


def test_steps_come_in_any_number() -> None:
    assert CURVE.step([0, 10, 0], [100, 100, 200]) == pytest.approx([1, 3, 2])
    assert CURVE.step([], []).shape == (0,)


@pytest.mark.parametrize(("length", "seconds"), [(100, 0.5), (150, 1.0), (200, 1.5), (400, 3.0), (10, 0.5)])
def test_prefill(length: int, seconds: float) -> None:
    assert CURVE.prefill(length) == pytest.approx(seconds)


def test_a_curve_of_one_context_holds_at_all() -> None:
    curve = CostCurve("toy", [0, 4, 8], [100], [[1.0], [2.0], [4.0]], [100], [1.0])
    assert curve.step([0, 2, 6, 10], [5, 100, 200, 7]) == pytest.approx([1, 1.5, 3, 5])


def test_an_assumed_device_by_hand() -> None:
    curve = assumed_curve(q0=4, price=0.5, plain_step_ms=10, prefill_ms_per_token=0.1)
    assert curve.step([0, 3, 4, 5, 6, 2000], [1, 9, 99, 999, 9, 9]) == pytest.approx(
        [0.01, 0.01, 0.01, 0.015, 0.02, 0.01 * (1 + 0.5 * 1996)]
    )
    assert curve.prefill(10) == pytest.approx(0.001) and curve.prefill(2048) == pytest.approx(0.2048)
    assert "assumed" in curve.name and "nodes - 4" in curve.name and "10 ms" in curve.name
    none_free = assumed_curve(q0=0, price=0.01, plain_step_ms=20)
    assert none_free.step([0, 1, 100], [1, 1, 1]) == pytest.approx([0.02, 0.0202, 0.04])


def test_an_answer_by_hand() -> None:
    one = answer([3, 1], [10, 0], PhaseSeconds(99.0, prefill=50.0, index=0.25, draft=0.15, verify=40.0))
    row = cost.predict([one], CURVE).iloc[0]
    # Steps at 100 cached tokens (the prompt) and at 103; vanilla's at 100, 101, 102, 103.
    assert row.verify == pytest.approx(3.0 + 1.03)
    assert row.vanilla == pytest.approx(1.0 + 1.01 + 1.02 + 1.03)
    assert row.drafting == pytest.approx(0.25 + 0.15)
    assert row.prefill == 0.5
    assert (row.num_steps, row.num_emitted) == (2, 4)
    assert tuple(row[["method", "dataset", "question_id", "turn", "repeat"]]) == ("fast", "qa", "1", 0, 0)
    assert cost.explain(cost.predict([one], CURVE)) == pytest.approx(
        {
            "accept_length": 2.0,
            "after_verify": 4.06 / 4.03,
            "after_drafting": 4.06 / (4.03 + 0.4),
            "predicted_speedup": (0.5 + 4.06) / (0.5 + 4.03 + 0.4),
        }
    )


def test_answers_are_summed_before_they_are_divided() -> None:
    rows = cost.predict([answer([3, 1], [10, 0]), answer([1], [10], num_prompt=200, question="2")], CURVE)
    found = cost.explain(rows)
    assert found["accept_length"] == pytest.approx(5 / 3)
    assert found["after_verify"] == pytest.approx((4.06 + 2) / (4.03 + 6))
    assert found["predicted_speedup"] == pytest.approx((0.5 + 1.5 + 4.06 + 2) / (0.5 + 1.5 + 4.03 + 6))


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=20)


@given(st.integers(0, 20), st.integers(1, 900))
def test_a_method_that_drafts_nothing_gains_nothing(steps: int, num_prompt: int) -> None:
    row = cost.explain(cost.predict([answer([1] * steps, num_prompt=num_prompt)], CURVE))
    assert row["predicted_speedup"] == pytest.approx(1.0)
    assert math.isnan(row["after_verify"]) if steps == 0 else row["after_verify"] == pytest.approx(1.0)


@given(lengths, st.data())
def test_where_drafts_are_free_the_accept_length_is_the_speedup(accept: list[int], data: st.DataObject) -> None:
    curve = assumed_curve(q0=64, prefill_ms_per_token=0.0)
    trees = data.draw(st.lists(st.integers(0, 64), min_size=len(accept), max_size=len(accept)))
    found = cost.explain(cost.predict([answer(accept, trees)], curve))
    assert list(found.values()) == pytest.approx([sum(accept) / len(accept)] * 4)


@given(lengths, st.floats(0, 5), st.floats(0, 5))
def test_every_cost_lowers_the_prediction(accept: list[int], index: float, draft: float) -> None:
    trees = [length - 1 for length in accept]
    one = answer(accept, trees, PhaseSeconds(1.0, index=index, draft=draft))
    row = cost.explain(cost.predict([one], assumed_curve(q0=0, price=0.1)))
    assert row["accept_length"] >= row["after_verify"] - 1e-9 >= row["after_drafting"] - 2e-9
    # Prefill pulls towards 1 from either side.
    low, high = sorted([1.0, row["after_drafting"]])
    assert low - 1e-9 <= row["predicted_speedup"] <= high + 1e-9


def test_failures_and_outside_loops_are_left_out() -> None:
    failed = replace(answer([]), output_ids=[], failure=Failure("empty_answer", ""))
    assert cost.predict([failed, answer([1], kind="decoder")], CURVE).empty
    empty = cost.explain(cost.predict([], CURVE))
    assert all(math.isnan(value) for value in empty.values())


def test_written_and_read_back(tmp_path: Path) -> None:
    CURVE.write(tmp_path / "new")
    read = CostCurve.read(tmp_path / "new")
    assert read == CURVE
    rows = pd.read_csv(tmp_path / "new" / "curve.csv")
    assert list(rows.columns) == ["nodes", "context", "step_ms", "relative"]
    assert sorted(rows.itertuples(index=False, name=None)) == [
        (0, 100, 1000, 1), (0, 200, 2000, 1), (10, 100, 3000, 3), (10, 200, 6000, 3),
    ]  # fmt: skip
    with pytest.raises(FileNotFoundError, match="make bench-steps"):
        CostCurve.read(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": [0, 10, 20]},
        {"contexts": [100]},
        {"step_seconds": [[1.0, 2.0]]},
        {"step_seconds": [1.0, 2.0]},
        {"nodes": [1, 10]},
        {"prefill_lengths": [100]},
        {"prefill_lengths": [], "prefill_seconds": []},
        {"nodes": [0], "step_seconds": [[1.0, 2.0]]},
        {"nodes": [0, 0]},
        {"contexts": [200, 100]},
        {"contexts": [], "step_seconds": [[], []]},
        {"prefill_lengths": [200, 100]},
    ],
)
def test_a_curve_that_does_not_fit_together_is_refused(changes: dict[str, list]) -> None:
    with pytest.raises(ValueError, match="a cost curve needs"):
        replace(CURVE, **changes)


def test_a_curve_holds_for_its_model_on_its_device(tmp_path: Path) -> None:
    made = manifest({})
    assert not cost.holds_for(tmp_path, made)
    made.write(tmp_path / "manifest.json")
    assert not cost.holds_for(tmp_path, made)  # of something else that was measured there
    (tmp_path / "curve.json").touch()
    assert cost.holds_for(tmp_path, replace(made, run="another", prompts="others"))
    assert not cost.holds_for(tmp_path, replace(made, model="retrained"))
    assert not cost.holds_for(tmp_path, replace(made, device="cpu, 1 threads"))


def test_predicted_beside_measured() -> None:
    live = [
        answer([1, 1, 1, 1], seconds=PhaseSeconds(8.0), method="vanilla"),
        answer([3, 1], [10, 0], seconds=PhaseSeconds(5.0)),
        answer([1, 1, 1, 1], seconds=PhaseSeconds(8.0), method="vanilla", dataset="rag", question="2"),
        answer([4], [10], seconds=PhaseSeconds(3.0), dataset="rag", question="2"),
    ]
    frame = cost.predicted_and_measured(live, CURVE)
    assert list(frame.columns) == [
        "method", "dataset", "accept_length", "after_verify", "after_drafting", "predicted_speedup",
        "measured_speedup", "measured_low", "measured_high", "error",
    ]  # fmt: skip
    assert [(row.method, row.dataset) for row in frame.itertuples()] == [
        (method, dataset) for method in ("vanilla", "fast") for dataset in ("qa", "rag", "all")
    ]
    rows = frame.set_index(["method", "dataset"])
    assert rows.measured_speedup.tolist() == pytest.approx([1, 1, 1, 8 / 5, 8 / 3, 16 / 8])
    predicted = [4.56 / (0.5 + 4.03), 4.56 / (0.5 + 3), 2 * 4.56 / (1 + 7.03)]
    assert rows.loc["fast"].predicted_speedup.tolist() == pytest.approx(predicted)
    assert rows.loc["fast"].error.tolist() == pytest.approx(np.array(predicted) / [1.6, 8 / 3, 2] - 1)
    assert rows.loc["vanilla"].predicted_speedup.tolist() == pytest.approx([1, 1, 1])
    low, high = rows.loc[("fast", "all"), ["measured_low", "measured_high"]]
    assert low == pytest.approx(1.6) and high == pytest.approx(8 / 3)


@pytest.mark.parametrize(
    "fields", [{"price": -5}, {"price": math.nan}, {"plain_step_ms": 0}, {"plain_step_ms": math.inf}, {"q0": -1}]
)
def test_prices_that_nothing_has_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(fields))}="):
        assumed_curve(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1.0, 0.0, math.nan, math.inf])
def test_a_curve_with_times_that_nothing_takes_is_refused(seconds: float, tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text(
        json.dumps(dataclasses.asdict(assumed_curve()) | {"step_seconds": [[0.1], [seconds], [0.2]]})
    )
    with pytest.raises(ValueError, match=r"curve.json: .*step_seconds"):
        cost.CostCurve.read(tmp_path)
