"""Sweeps: their cells, their rows by hand, their layout, and what a report makes of a folder of records."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.records import record, write_records

from ngram_trie.bench import cost
from ngram_trie.bench.config import grid_cells
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.measures import ACCEPT_LENGTH, SPEEDUP, Value
from ngram_trie.bench.metrics import to_frame
from ngram_trie.bench.records import PromptRecord
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.report import derive, sweeps
from ngram_trie.report.blocks import Block, Tables
from ngram_trie.report.markup import markdown
from ngram_trie.report.run_folder import RunFolder
from ngram_trie.store.files import PAPER

# ---- cells -----------------------------------------------------------------------------------------------------------


def test_cells_are_named_by_their_fields_and_the_last_turns_fastest() -> None:
    assert grid_cells("ngram_trie", {"n": [8, 9], "prefix_len": [2, 3]}) == {
        "ngram_trie[n=8,prefix_len=2]": {"n": 8, "prefix_len": 2},
        "ngram_trie[n=8,prefix_len=3]": {"n": 8, "prefix_len": 3},
        "ngram_trie[n=9,prefix_len=2]": {"n": 9, "prefix_len": 2},
        "ngram_trie[n=9,prefix_len=3]": {"n": 9, "prefix_len": 3},
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [([[1], [2]], "must be plain values"), ([8, 9, 8], r"grid.n=\[8, 9, 8\]: a value is there twice")],
)
def test_fields_without_values_or_with_one_twice_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid_cells("ngram_trie", {"prefix_len": [2], "n": values})


# ---- rows ------------------------------------------------------------------------------------------------------------


CURVE = CostCurve("toy", [0, 10], [100, 200], [[1.0, 2.0], [3.0, 6.0]], [100, 200], [0.5, 1.5])
VANILLA, CELL = "vanilla", "t[num_draft=10]"


def answer(
    method: str, accept: list[int], trees: list[int], clock: PhaseSeconds, laps: list[float], dataset: str = "qa",
    question: str = "1",
) -> PromptRecord:  # fmt: skip
    sizes = {"tree_sizes": trees, "draft_us": laps, "num_prompt_tokens": 100}
    return record(method, question, tuple(accept), clock, dataset=dataset, **sizes)


def plain(length: int, seconds: float, dataset: str = "qa") -> PromptRecord:
    return answer(VANILLA, [1] * length, [0] * length, PhaseSeconds(seconds), [0.0] * length, dataset)


RECORDS = [
    plain(4, 8.0),
    answer(CELL, [3, 1], [10, 0], PhaseSeconds(4.0, 0.5, 0.002, 0.2, 2.0, 0.4, 0.1), [10.0, 30.0]),
    plain(2, 4.0, "rag"),
    answer(CELL, [2], [4], PhaseSeconds(1.0, 0.1, 0.004, 0.1, 0.5, 0.1, 0.2), [20.0], "rag"),
    record(CELL, "2", dataset="rag", failed=True),
]


def test_replay_rows_by_hand() -> None:
    frame = cost.with_predicted(to_frame(RECORDS), RECORDS, CURVE)
    frame = sweeps.cell_table(frame, False, methods=[CELL], cells={CELL: {"num_draft": 10}})
    assert list(frame.columns) == [
        *sweeps.ABOUT, "predicted_speedup", "accept_length", "accept_length_macro", "draft_nodes", "first_accepted",
        "propose_us_median", "propose_us_p99", "index_ms_median", *sweeps.COUNTS, "num_draft",
    ]  # fmt: skip
    assert frame.method.tolist() == [CELL] * 3 and frame.dataset.tolist() == ["qa", "rag", "all"]
    assert frame.accept_length.tolist() == pytest.approx([2.0, 2.0, 2.0])
    assert frame.num_prompts.tolist() == [1, 1, 2] and frame.num_steps.tolist() == [2, 1, 3]
    assert frame.draft_nodes.tolist() == pytest.approx([5, 4, 14 / 3])
    assert frame.first_accepted.tolist() == [1, 1, 1]  # of the steps that drafted anything
    assert frame.propose_us_median.tolist() == pytest.approx([20, 20, 20])
    assert frame.propose_us_p99.tolist() == pytest.approx([29.8, 20, 29.8])
    assert frame.index_ms_median.tolist() == pytest.approx([2, 4, 3])
    # A step of q nodes at c cached tokens takes (1 + q / 5) c / 100 seconds, a prefill of 100 tokens 0.5. The drafter's
    # own time is measured, and in no prediction that has to repeat.
    qa, rag = (0.5 + 4.06, 0.5 + 4.03), (0.5 + 2.01, 0.5 + 1.8)
    assert frame.predicted_speedup.tolist() == pytest.approx(
        [qa[0] / qa[1], rag[0] / rag[1], (qa[0] + rag[0]) / (qa[1] + rag[1])]
    )
    assert frame.num_draft.tolist() == [10] * 3


def test_live_rows_by_hand() -> None:
    frame = sweeps.cell_table(to_frame(RECORDS), True, methods=[CELL])
    live = {
        "speedup",
        "speedup_low",
        "speedup_high",
        "speedup_session_sd",
        "tokens_per_second",
        "trie_ms",
        "inference_ms",
    }
    assert live <= set(frame.columns) and "predicted_speedup" not in frame
    assert frame.speedup.tolist() == pytest.approx([2.0, 4.0, 12 / 5])
    assert frame.speedup_low.isna().tolist() == [True, True, False]  # one prompt has no interval
    assert frame.tokens_per_second.tolist() == pytest.approx([5 / 4, 3 / 1, 8 / 5])
    assert frame.trie_ms.tolist() == pytest.approx([150, 300, 200])  # (draft + build) / steps
    assert frame.inference_ms.tolist() == pytest.approx([1150, 400, 900])  # (verify - build + commit) / steps


def test_all_has_no_noisy_copies() -> None:
    noisy = [replace(each, noise_kind="words") for each in RECORDS[:2]]
    frame = sweeps.cell_table(to_frame([*RECORDS, *noisy]), True, methods=[CELL])
    assert frame.dataset.tolist() == ["qa", "rag", "qa+words", "all"]
    assert frame.speedup.tolist() == pytest.approx([2, 4, 2, 12 / 5])


# ---- layout ----------------------------------------------------------------------------------------------------------

GRID = pd.DataFrame(
    [
        (dataset, n, prefix_len, value, value - 0.1, value + 0.1, 2 * value)
        for dataset, n, prefix_len, value in [
            ("qa", 9, 2, 1.5), ("qa", 9, 3, 1.7), ("qa", 8, 2, 1.6), ("qa", 8, 3, 1.7),
            ("rag", 9, 2, 3.0), ("rag", 9, 3, 2.0), ("rag", 8, 3, math.nan),
        ]
    ],
    columns=["dataset", "n", "prefix_len", "speedup", "speedup_low", "speedup_high", "accept_length"],
)  # fmt: skip


def shown(block: Block) -> dict[str, list[float | None]]:
    values = {row: [c.get(block.measures[0], Value()).value for c in cells] for row, cells in block.rows.items()}
    return {row: [None if math.isnan(value) else value for value in cells] for row, cells in values.items()}


def marks(block: Block, measure: str = SPEEDUP) -> dict[str, list[int]]:
    return {row: [cell.get(measure, Value()).rank for cell in cells] for row, cells in block.rows.items()}


def test_two_fields_make_a_block_a_dataset_with_the_best_of_the_whole_marked() -> None:
    named = GRID.assign(method=[f"t{at}" for at in range(len(GRID))])
    best = {("qa", "speedup", "t1"): 1, ("qa", "accept_length", "t0"): 2, ("rag", "accept_length", "t1"): 1}
    arguments = {"title": "toy", "notes": ["Note."], "marks": best}
    qa, rag = sweeps.grid_blocks(named, ["n", "prefix_len"], "speedup", **arguments)
    assert qa.title == "toy, qa, speedup" and rag.title == "toy, rag, speedup"
    assert (qa.corner, qa.columns, qa.notes) == ("n \\ L_p", ["2", "3"], ["Note."])
    assert shown(qa) == {"9": [1.5, 1.7], "8": [1.6, 1.7]}
    assert shown(rag) == {"9": [3.0, 2.0], "8": [None, None]}  # a cell that is missing, and one without a value
    assert marks(qa) == {"9": [0, 1], "8": [0, 0]} and marks(rag) == {"9": [0, 0], "8": [0, 0]}
    assert marks(qa, ACCEPT_LENGTH)["9"] == [2, 0] and marks(rag, ACCEPT_LENGTH) == {"9": [0, 0], "8": [0, 0]}
    cell = qa.rows["8"][0]
    assert cell[SPEEDUP] == pytest.approx((1.6, 1.5, 1.7, 0)) and cell[ACCEPT_LENGTH].value == pytest.approx(3.2)
    text = markdown(Tables([qa, rag]))
    assert "| n \\ L_p | 2 | 3 |" in text
    assert "| 9 | 1.50x [1.40, 1.60] (*3.00*) | **1.70x** [1.60, 1.80] (3.40) |" in text
    assert "| 8 | - | - |" in text
    assert text.count("**bold**: significantly above every other cell") == 1  # where something is marked


@pytest.mark.parametrize("number", [2, 3, 5, 6])
def test_the_papers_tables_print_every_number_once(number: int) -> None:
    printed = pd.read_csv(PAPER / f"table{number}.csv")
    fields = list(sweeps.PAPER_TABLES[number].fields)
    blocks = sweeps.paper_blocks(number)
    values = [c for c in printed.columns if c not in ("model", "dataset", *fields)]
    cells = [cell for block in blocks for row in block.rows.values() for cell in row]
    assert sorted(value.value for cell in cells for value in cell.values()) == sorted(
        printed[values].to_numpy().ravel()
    )
    assert "not measured here" in markdown(Tables([], published=blocks))
    assert all(f"Table {number}" in block.title for block in blocks)


# ---- a folder --------------------------------------------------------------------------------------------------------


def make_folder(folder: Path, engine: str, grid: dict[str, list[Any]], paper_tables: list[int]) -> Path:
    """Records of a run over `grid`: the larger a cell's fields, the faster."""
    names = list(grid_cells("ngram_trie", grid))
    config: dict[str, Any] = {
        "engine": {"name": engine, "traces": "toy.jsonl"}, "grid": grid, "paper_tables": paper_tables,
        "method": {"name": "ngram_trie"},
    }  # fmt: skip
    if engine == "replay":
        config["cost"] = {"_target_": "ngram_trie.bench.cost.assumed_curve", "q0": 4}
    made = []
    for dataset, question in product(("summarization", "rag"), ("1", "2")):
        for index, name in enumerate([*(["vanilla"] if engine == "live" else []), *names]):
            accept = [1] * 12 if name == "vanilla" else [1 + index % 3] * (12 // (1 + index % 3))
            clock = PhaseSeconds(8.0 / (index + 1), 0.1, 0.01, 0.05, 1.0 / (index + 1), 0.1, 0.02)
            trees = [2 * (length - 1) for length in accept]
            made.append(answer(name, accept, trees, clock, [5.0] * len(accept), dataset, question))
    return write_records(folder, made, config)


NUMBERS = {"n": [8, 9], "prefix_len": [2, 3, 4]}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def tables_of(*numbers: int) -> set[str]:
    folders = ["", *(f"table{number}/" for number in numbers)]
    return {f"{folder}table.{suffix}" for folder in folders for suffix in ("csv", "md")}


def test_a_live_grid_writes_the_papers_tables_and_heatmaps(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "live", "live", NUMBERS, [2, 5, 6, 3, 1])
    text = derive.main_tables(derive.write(folder))
    assert files(folder) >= tables_of(2, 5, 6) | {"accept_length.png", "speedup.png", "trie_ms.png"}
    assert not any(name.startswith(("table3", "table1/")) for name in files(folder))
    table = pd.read_csv(folder / "table.csv")
    assert list(table.columns)[-4:] == [*sweeps.COUNTS, "n", "prefix_len"]
    assert len(table) == 6 * 3 and not table.method.eq("vanilla").any()
    # The clock of the k-th cell runs (k + 1) times as fast as vanilla's.
    assert table[table.dataset == "rag"].speedup.tolist() == pytest.approx([2, 3, 4, 5, 6, 7])
    assert table.num_prompts.tolist() == [2, 2, 4] * 6
    page = (folder / "table2" / "table.md").read_text()
    measured, published = page.split("## The paper's own numbers")
    assert "toy, ngram_trie, Table 2" in measured and "llama-2-7b" not in measured and "Table 2" in text
    assert "Table 2, llama-2-7b-chat" in published and "toy" not in published
    assert (folder / "table2" / "table.csv").read_text() == (folder / "table.csv").read_text()
    assert "7.00x [7.00, 7.00] (1.00)" in page and "**" not in page  # two questions separate nothing
    assert "Largest speedup: summarization n=9, prefix_len=4 (7.00); rag n=9, prefix_len=4 (7.00)." in page


def test_a_replayed_grid_writes_predictions(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "replay", "replay", {"num_draft": [4, 8, 16]}, [3])
    derive.write(folder)
    assert files(folder) >= tables_of(3) | {"accept_length.png", "predicted_speedup.png", "accept_lengths.csv"}
    assert not {"speedup.png", "trie_ms.png"} & files(folder)
    table = pd.read_csv(folder / "table.csv")
    assert table.num_draft.tolist() == [4] * 3 + [8] * 3 + [16] * 3
    assert table[table.dataset == "all"].accept_length.tolist() == [1, 2, 3]
    assert table[table.dataset == "all"].predicted_speedup.is_monotonic_increasing
    page = (folder / "table3" / "table.md").read_text()
    assert "Replay of toy.jsonl" in page and "an assumed device" in page and "Table 3, qwen2-7b-instruct" in page
    # what a live sweep adds as the curve's recommendation is the sweep itself here
    assert page.count("Largest predicted speedup: summarization num_draft=16") == 1 and "recommends" not in page
    # The same again, byte for byte.
    pairs = RunFolder(folder).pairs
    measures = {"accept_length", "predicted_speedup", "first_accepted"}
    assert set(pairs.measure) == measures and len(pairs) == 3 * 3 * 3
    assert not (folder / "pairwise.csv").exists()  # cells are compared to explore
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    derive.write(folder)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
