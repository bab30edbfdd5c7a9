"""Table 1: its rows, its layout, and the wall between measured and published numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from ngram_trie import markup, tables
from ngram_trie.records import Failure, Lossless, PhaseSeconds, PromptRecord

METHODS = ["vanilla", "slow", "fast", "outside_loop"]
SECONDS = {"vanilla": 4.0, "slow": 8.0, "fast": 2.0, "outside_loop": 3.2}
ACCEPT = {"vanilla": [1, 1, 1, 1], "slow": [1, 1, 2], "fast": [4], "outside_loop": [2, 2]}


def records(model: str = "toy", repeats: int = 1, datasets: tuple[str, ...] = ("qa", "rag")) -> list[PromptRecord]:
    """Two questions a dataset, the second twice as slow as the first; fast fails on the first of rag."""
    made = []
    for dataset in datasets:
        for question in (1, 2):
            for repeat in range(repeats):
                for method in METHODS:
                    common = dict(
                        run="r", method=method, model=model, dataset=dataset, question_id=str(question), turn=0,
                        repeat=repeat, prompt_hash="h", num_prompt_tokens=5,
                        state="preloaded" if method == "slow" else "cold",
                        kind="decoder" if method == "outside_loop" else "drafter",
                    )  # fmt: skip
                    if (method, dataset, question) == ("fast", "rag", 1):
                        made.append(PromptRecord(**common, failure=Failure("prompt_too_long", "no room")))
                        continue
                    verdict = "identical"
                    made.append(
                        PromptRecord(
                            **common,
                            output_ids=[1] * 5,
                            accept_lengths=ACCEPT[method],
                            seconds=PhaseSeconds(total=SECONDS[method] * question, prefill=1.0),
                            lossless=None if method == "vanilla" else Lossless(verdict),
                        )
                    )
    return made


def both(**kwargs: object) -> pd.DataFrame:
    made = records(**kwargs)  # type: ignore[arg-type]
    return pd.concat([tables.table1(made, p, "toy", "toy_cpu, 2 cores", METHODS) for p in ("corrected", "released")])


def rendered(render: Callable[..., str], frame: pd.DataFrame, num_repeats: int = 1) -> str:
    return render(list(tables.measured_blocks(frame, num_repeats)), list(tables.paper_blocks()))


def test_columns_and_order_of_rows() -> None:
    frame = tables.table1(records(), "corrected", "toy", "cpu", METHODS[::-1], ["rag", "qa"])
    assert list(frame.columns) == [
        "model", "method", "dataset", "speedup", "speedup_low", "speedup_high", "accept_length", "accept_length_macro",
        "tokens_per_second", "num_prompts", "num_failures", "lossless", "state", "baseline", "protocol", "device",
    ]  # fmt: skip
    assert list(frame.method) == [m for m in METHODS[::-1] for _ in range(3)]
    assert list(frame.dataset) == ["rag", "qa", "all"] * 4


def test_values_by_hand() -> None:
    frame = tables.table1(records(), "corrected", "toy", "cpu").set_index(["method", "dataset"])
    fast = frame.loc["fast", "all"]
    assert (fast.speedup, fast.speedup_low, fast.speedup_high) == (2.0, 2.0, 2.0)
    assert fast.tokens_per_second == 15 / (2 + 4 + 4)
    assert (fast.num_prompts, fast.num_failures, fast.lossless) == (3, 1, "3/3")
    assert frame.loc[("outside_loop", "all"), "speedup"] == pytest.approx(1.25)
    assert frame.loc[("slow", "qa"), "state"] == "preloaded"
    released = tables.table1(records(), "released", "toy", "cpu").set_index(["method", "dataset"])
    assert released.loc[("fast", "qa"), "speedup"] == (8 - 1) / (4 - 1)
    assert released.loc[("fast", "qa"), "accept_length"] == (1 + 4) / 2
    assert released.loc[("fast", "qa"), "num_prompts"] == 1


def test_other_models_are_left_out_and_an_unknown_one_refused() -> None:
    mixed = [*records("toy"), *records("other")]
    pd.testing.assert_frame_equal(
        tables.table1(mixed, "corrected", "toy", "cpu"), tables.table1(records(), "corrected", "toy", "cpu")
    )
    with pytest.raises(ValueError, match=r"'tiny'.*'other', 'toy'"):
        tables.table1(mixed, "corrected", "tiny", "cpu")


def test_a_method_without_records_gets_an_empty_row() -> None:
    frame = tables.table1(records(), "corrected", "toy", "cpu", ["vanilla", "missing"])
    row = frame[frame.method == "missing"].iloc[-1]
    assert pd.isna(row.speedup) and row.num_prompts == 0
    assert "| missing | - |" in rendered(markup.markdown, frame)


def test_markdown_cells_marks_and_notes() -> None:
    text = rendered(markup.markdown, both(repeats=3), num_repeats=3)
    assert "| fast | **2.00x** [2.00, 2.00] (**4.00**) | **2.00x** (**4.00**) |" in text  # one prompt: no interval
    assert "| outside_loop† | *1.25x* [1.25, 1.25] (*2.00*) |" in text
    assert "| slow (preloaded) | 0.50x [0.50, 0.50] (1.33) |" in text
    assert "Device: toy_cpu, 2 cores. Prompts: qa 2, rag 2, all 4. Repeats of each: 3." in text
    assert "excluded from the averages: fast on rag: 1." in text
    assert "fast 3/3; outside_loop control: 4/4" in text


def test_measured_and_published_stay_apart(tmp_path: Path) -> None:
    frame = both()
    for text in (rendered(markup.markdown, frame), rendered(markup.latex, frame), rendered(markup.plain_text, frame)):
        before, after = text.split(markup.PAPER_HEADING, 1)
        assert before.index("corrected protocol") < before.index("released protocol")
        assert "vicuna" not in before and "llama" not in before
        assert "toy" not in after and "outside" not in after
        assert "not comparable line by line" in " ".join(after.split())
        assert after.index("vicuna-7b") < after.index("llama-2-7b") < after.index("llama-3-8b")
        assert "cells average 1.35x, the paper prints 1.50x" in " ".join(after.split())
    blocks = list(tables.measured_blocks(frame, 1))
    assert "corrected protocol" in markup.write(tmp_path / "new", frame, blocks)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["table.csv", "table.md", "table.tex"]
    read = pd.read_csv(tmp_path / "new" / "table.csv")
    assert list(read.columns) == tables.COLUMNS
    assert set(read.model) == {"toy"} and list(read.protocol.unique()) == ["corrected", "released"]


@pytest.mark.parametrize("methods", [METHODS, ["vanilla", "missing"]])
def test_tables_can_be_drawn_again_from_the_csv(tmp_path: Path, methods: list[str]) -> None:
    frame = tables.table1(records(), "corrected", "toy", "cpu", methods)
    markup.write(tmp_path, frame, list(tables.measured_blocks(frame, 1)), list(tables.paper_blocks()))
    again = rendered(markup.markdown, pd.read_csv(tmp_path / "table.csv"))
    assert again == (tmp_path / "table.md").read_text(encoding="utf-8")


def test_latex_is_booktabs_and_escaped() -> None:
    text = rendered(markup.latex, both())
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 5
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 5
    assert r"\textbf{2.00$\times$} {\scriptsize [2.00, 2.00]} (\textbf{4.00})" in text
    assert r"outside\_loop$^\dagger$ & \underline{1.25$\times$}" in text
    assert "95\\% interval" in text and "†" not in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {row.count("&") for row in rows} == {3, 5}


@pytest.mark.parametrize("datasets", [("qa",), tuple(f"spec_bench_summarization_{i}" for i in range(12))])
def test_text_fits_the_terminal_and_keeps_every_column(datasets: tuple[str, ...]) -> None:
    text = rendered(markup.plain_text, both(datasets=datasets))
    assert max(map(len, text.splitlines())) <= 120
    measured = text.split("released protocol")[0]
    assert measured.count("0.50x") == len(datasets) + 1


def test_equal_numbers_rank_equal_and_a_lone_number_is_not_best() -> None:
    assert markup.ranks(pd.Series([1.001, 2.0, 2.001, float("nan"), 0.5])) == [2, 1, 1, 0, 0]
    assert markup.ranks(pd.Series([1.0, 1.0])) == [0, 0]
