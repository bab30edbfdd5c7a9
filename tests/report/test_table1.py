"""Tables 1 and 4: rows, layout, quality, readings, and the wall between measured and published numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.records import record

from ngram_trie.bench import quality
from ngram_trie.bench.measures import ACCEPT_LENGTH, SPEEDUP, Value, known
from ngram_trie.bench.metrics import Agreement, to_frame
from ngram_trie.bench.records import Lossless, PromptRecord
from ngram_trie.report import markup, table1
from ngram_trie.report.blocks import COMPARED, PUBLISHED, Block, Tables, as_synthetic

METHODS = ["vanilla", "slow", "fast", "outside_loop"]
SECONDS = {"vanilla": 4.0, "slow": 8.0, "fast": 2.0, "outside_loop": 3.2}
ACCEPT = {"vanilla": [1, 1, 1, 1], "slow": [1, 1, 2], "fast": [4], "outside_loop": [2, 2]}
MEASURES, RANKS = ("speedup", "accept_length"), {"fast": 1, "outside_loop": 2}


def records(model: str = "toy", repeats: int = 1, datasets: tuple[str, ...] = ("qa", "rag")) -> list[PromptRecord]:
    """Two questions a dataset, the second twice as slow as the first; fast fails on the first of rag."""
    return [
        record(
            method, str(question), tuple(ACCEPT[method]), SECONDS[method] * question, 1.0, dataset=dataset,
            repeat=repeat, state="preloaded" if method == "slow" else "cold",
            kind="decoder" if method == "outside_loop" else "drafter", tree_sizes=[6] * len(ACCEPT[method]),
            lossless=None if method == "vanilla" else Lossless("identical"), model=model,
        )
        if (method, dataset, question) != ("fast", "rag", 1)
        else record(method, "1", dataset=dataset, repeat=repeat, failed=True, model=model)
        for dataset in datasets
        for question in (1, 2)
        for repeat in range(repeats)
        for method in METHODS
    ]  # fmt: skip


def both(**kwargs: object) -> pd.DataFrame:
    made = records(**kwargs)  # type: ignore[arg-type]
    return pd.concat(
        [table1.table1(to_frame(made), p, "toy", "toy_cpu, 2 cores", METHODS) for p in ("corrected", "released")]
    )


def rendered(render: Callable[..., str], frame: pd.DataFrame, num_repeats: int = 1) -> str:
    marks = {(d, m, method): rank for d in ("qa", "all") for m in MEASURES for method, rank in RANKS.items()}
    measured = list(table1.measured_blocks(frame, num_repeats, marks=marks))
    published = list(table1.paper_blocks())
    return render(Tables(measured, published=published))


def test_columns_and_order_of_rows() -> None:
    frame = table1.table1(to_frame(records()), "corrected", "toy", "cpu", METHODS[::-1], ["rag", "qa"])
    measures = [measure.name for measure in known(to_frame(records()), True)]
    assert list(frame.columns) == [
        *table1.ABOUT, "speedup", "speedup_low", "speedup_high", *measures[1:], *table1.COUNTS, *quality.MEASURES,
    ]  # fmt: skip
    assert frame.rouge_l.isna().all()
    assert list(frame.method) == [m for m in METHODS[::-1] for _ in range(3)]
    assert list(frame.dataset) == ["rag", "qa", "all"] * 4


def test_disturbed_answers_are_counted_where_that_is_known() -> None:
    assert "disturbed" not in rendered(markup.markdown, both())
    made = [replace(each, disturbance=0.21 if each.method == "slow" else 0.2) for each in records()]
    frame = table1.table1(to_frame(made), "corrected", "toy", "toy_cpu, 2 cores", METHODS)
    assert frame[frame.dataset == "all"].set_index("method").num_disturbed["slow"] == 4
    assert "disturbed, measured up to three times: 4." in rendered(markup.markdown, frame)


def test_values_by_hand() -> None:
    frame = table1.table1(to_frame(records()), "corrected", "toy", "cpu").set_index(["method", "dataset"])
    fast = frame.loc["fast", "all"]
    assert (fast.speedup, fast.speedup_low, fast.speedup_high) == (2.0, 2.0, 2.0)
    assert fast.tokens_per_second == 15 / (2 + 4 + 4)
    assert (fast.num_prompts, fast.num_failures, fast.lossless) == (3, 1, Agreement(3, failed=1))
    assert frame.loc[("outside_loop", "all"), "speedup"] == pytest.approx(1.25)
    assert frame.loc[("slow", "qa"), "state"] == "preloaded"
    released = table1.table1(to_frame(records()), "released", "toy", "cpu").set_index(["method", "dataset"])
    assert released.loc[("fast", "qa"), "speedup"] == 8 / 4
    assert released.loc[("fast", "qa"), "accept_length"] == 5 / (1 + 2)
    assert released.loc[("fast", "qa"), "num_prompts"] == 1
    assert (
        released.loc[("fast", "all"), ["speedup", "accept_length", "first_accepted"]].isna().all()
    )  # the authors have no such number


def test_other_models_are_left_out_and_an_unknown_one_refused() -> None:
    mixed = [*records("toy"), *records("other")]
    pd.testing.assert_frame_equal(
        table1.table1(to_frame(mixed), "corrected", "toy", "cpu"),
        table1.table1(to_frame(records()), "corrected", "toy", "cpu"),
    )
    with pytest.raises(ValueError, match=r"'tiny'.*'other', 'toy'"):
        table1.table1(to_frame(mixed), "corrected", "tiny", "cpu")


def test_a_method_without_records_gets_an_empty_row() -> None:
    frame = table1.table1(to_frame(records()), "corrected", "toy", "cpu", ["vanilla", "missing"])
    row = frame[frame.method == "missing"].iloc[-1]
    assert pd.isna(row.speedup) and row.num_prompts == 0
    assert "| missing | - | - | - |" in rendered(markup.markdown, frame)


def test_markdown_cells_marks_and_notes() -> None:
    text = rendered(markup.markdown, both(repeats=3), num_repeats=3)
    assert "| method | group | nodes | first accepted | decoding alone | qa | rag | all |" in text
    # what is marked was told; rag was not; one prompt has no interval
    assert "| fast | cold | 6.0 | 1.00 | 2.43x | **2.00x** [2.00, 2.00] (**4.00**) | 2.00x (4.00) |" in text
    assert "| outside_loop† | cold | 6.0 | 1.00 | 1.32x | *1.25x* [1.25, 1.25] (*2.00*) |" in text
    assert "| slow | preloaded | 6.0 | 0.33 | 0.45x | 0.50x [0.50, 0.50] (1.33) |" in text
    corrected, released = text.split("released protocol")[:2]
    order = [line.split("|")[1].strip() for line in corrected.splitlines() if line.startswith("| ")][1:]
    assert order == ["vanilla", "fast", "outside_loop†", "slow"]  # group by group
    assert "**2" not in released.split("##")[0] and "| nodes |" not in released
    assert "**bold**: significantly above every other method of its group" in corrected
    assert "Device: toy_cpu, 2 cores. Prompts: qa 2, rag 2, all 4. Repeats of each: 3." in text
    assert "excluded from the averages: fast on rag: 1." in text
    assert "fast 3/3; outside_loop control: 4/4" in text


def test_measured_and_published_stay_apart(tmp_path: Path) -> None:
    frame = both()
    for text in (rendered(markup.markdown, frame), rendered(markup.plain_text, frame)):
        before, after = text.split(PUBLISHED, 1)
        assert before.index("corrected protocol") < before.index("released protocol")
        assert "vicuna" not in before and "llama" not in before
        assert "toy" not in after and "outside" not in after
        assert "not comparable line by line" in " ".join(after.split())
        assert after.index("vicuna-7b") < after.index("llama-2-7b") < after.index("llama-3-8b")
        assert "cells average 1.35x, the paper prints 1.50x" in " ".join(after.split())
    tables = Tables(list(table1.measured_blocks(frame, 1)))
    assert "corrected protocol" in markup.plain_text(markup.write(tmp_path / "new", frame, tables))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "table.csv", "table.json", "table.md",
    ]  # fmt: skip
    read = pd.read_csv(tmp_path / "new" / "table.csv")
    assert list(read.columns) == list(frame.columns)
    assert set(read.model) == {"toy"} and list(read.protocol.unique()) == ["corrected", "released"]


@pytest.mark.slow
def test_text_fits_the_terminal_and_keeps_every_column() -> None:
    text = rendered(markup.plain_text, both(datasets=tuple(f"spec_bench_summarization_{i}" for i in range(12))))
    assert max(map(len, text.splitlines())) <= 120
    assert text.split("released protocol")[0].count("0.50x") == 13


def test_sessions_are_told_with_the_spread_between_them() -> None:
    made = [replace(r, session=s, seconds=r.seconds and replace(r.seconds, total=r.seconds.total * slow))
            for s in range(2) for r in records() for slow in [1 + s * (r.method == "slow")]]  # fmt: skip
    frame = table1.table1(to_frame(made), "corrected", "toy", "cpu", METHODS)
    row = frame[(frame.method == "slow") & (frame.dataset == "all")].iloc[0]
    assert row.num_sessions == 2 and row.speedup_session_sd == pytest.approx(np.std([0.5, 0.25], ddof=1))
    assert (row.speedup, row.num_prompts) == (pytest.approx(1 / 3), 4)
    [block] = table1.measured_blocks(frame, 1)
    assert any(
        note.startswith("Sessions: 2.") and note.endswith("0.000 in the median of methods, 0.177 at most (slow).")
        for note in block.notes
    )
    once = table1.table1(to_frame(records()), "corrected", "toy", "cpu", METHODS)
    assert once.speedup_session_sd.isna().all()
    assert not any("Sessions" in note for block in table1.measured_blocks(once, 1) for note in block.notes)


def test_synthetic_columns_are_called_so_and_nothing_is_named_best() -> None:
    rows = {"rag": [{SPEEDUP: Value(2.0, rank=1), ACCEPT_LENGTH: Value(1.5, rank=2)}], "m": [{SPEEDUP: Value(1.0)}]}
    own = Block("toy, rag, speedup", ["rag: F1"], rows)
    published = Block("theirs, rag", ["rag"], rows)
    tables = as_synthetic(Tables([own], [own], [published]), ["rag", "all"])
    for block in (*tables.measured, *tables.compared):
        assert (block.title, block.columns) == ("toy, rag (synthetic), speedup", ["rag (synthetic): F1"])
        assert list(block.rows) == ["rag (synthetic)", "m"]
        assert not any(value.rank for row in block.rows.values() for cell in row for value in cell.values())
        assert block.notes[-1].startswith("Synthetic: ")
    assert tables.published == [published]


# ---- quality ---------------------------------------------------------------------------------------------------------


def scores(**changed: float) -> pd.DataFrame:
    """Every method: 1 and 0 contained on qa, ROUGE-L of 0.5 and 0.75 on rag; `changed` is a method's first on qa."""
    rows = [
        {"method": method, "dataset": dataset, "question_id": question, "turn": 0, name: value}
        for method in METHODS
        for dataset, name, values in (("qa", "contains", (1.0, 0.0)), ("rag", "rouge_l", (0.5, 0.75)))
        for question, value in zip("12", values, strict=True)
        if (method, dataset, question) != ("fast", "rag", "1")
    ]
    frame = pd.DataFrame(rows, columns=[*quality.KEYS, *quality.MEASURES])
    for method, value in changed.items():
        frame.loc[frame.index[(frame.method == method) & (frame.dataset == "qa")][0], "contains"] = value
    return frame


def test_quality_is_a_mean_over_prompts_in_rows_of_the_corrected_protocol() -> None:
    frame = table1.with_quality(both(), scores())
    assert frame[frame.protocol == "released"][list(quality.MEASURES)].isna().all(axis=None)
    rows = frame[frame.protocol == "corrected"].set_index(["method", "dataset"])
    assert rows.contains["vanilla", "qa"] == 0.5 and pd.isna(rows.contains["vanilla", "rag"])
    assert rows.rouge_l["vanilla", "rag"] == 0.625 and rows.rouge_l["vanilla", "all"] == 0.625
    assert rows.rouge_l["fast", "rag"] == 0.75  # of the one prompt that it answered
    assert rows.exact_match.isna().all()


def test_the_quality_block_has_the_measures_there_are_and_vanilla_first() -> None:
    made = [record for method in METHODS[::-1] for record in records() if record.method == method]
    frame = pd.concat([table1.table1(to_frame(made), p, "toy", "cpu") for p in ("corrected", "released")])
    [block] = table1.quality_blocks(table1.with_quality(frame, scores()), scores())
    assert block.columns == ["qa: contains", "rag: ROUGE-L"]
    assert list(block.rows) == ["vanilla", "outside_loop†", "fast", "slow"]
    text = markup.markdown(Tables([block]))
    assert "| vanilla | baseline | 50.00% | 62.50% |" in text
    # fast failed on the first prompt of rag: its mean is another, on the prompt that both answered it is not
    assert "| fast | cold | 50.00% | 75.00% |" in text
    assert "is measured here: outside_loop, fast, slow." in text and "differ" not in text
    assert "Exact match" not in text and "ROUGE-L: F-measure" in text


def test_a_method_whose_answers_are_worse_is_named_with_how_much() -> None:
    changed = scores(fast=0.5, slow=1.0)
    [block] = table1.quality_blocks(table1.with_quality(both(), changed), changed)
    assert block.notes[1].endswith("measured here: slow, outside_loop.")
    # (0.5 + 0) / 2 against (1 + 0) / 2
    assert block.notes[2] == "Means that differ from vanilla's, in percentage points: fast qa contains -25.00."


def test_a_method_is_compared_with_the_vanilla_that_it_brings() -> None:
    made = [replace(r, baseline="slow") if r.method == "fast" else r for r in records()]
    changed = scores(fast=0.5, slow=0.5)
    frame = table1.with_quality(table1.table1(to_frame(made), "corrected", "toy", "cpu", METHODS), changed)
    [block] = table1.quality_blocks(frame, changed)
    assert block.notes[2].endswith("in percentage points: slow qa contains -25.00.")


# ---- readings --------------------------------------------------------------------------------------------------------

VICUNA = "vicuna-7b-v1.3"


def as_in_the_paper() -> pd.DataFrame:
    """Vicuna on one data set of the paper and one of ours; `fast` is ngram_trie, `slow` a method that it lacks."""
    made = [
        replace(r, method="ngram_trie" if r.method == "fast" else r.method)
        for r in records(VICUNA, datasets=("spec_bench_rag", "qa"))
    ]
    methods = ["vanilla", "slow", "ngram_trie", "outside_loop"]
    return pd.concat([table1.table1(to_frame(made), p, VICUNA, "cpu", methods) for p in ("corrected", "released")])


def test_three_readings_of_a_cell() -> None:
    rows = table1.readings(as_in_the_paper())
    assert list(rows.columns) == table1.READING_COLUMNS
    cell = rows[(rows.method == "ngram_trie") & (rows.dataset == "spec_bench_rag")].set_index("reading")
    assert list(cell.index) == ["paper", "released", "corrected"]
    assert list(cell.source) == ["published", "measured", "measured"]
    assert (cell.speedup["paper"], cell.accept_length["paper"]) == (3.48, 5.19)  # Table 1
    assert cell.speedup["released"] == 8 / 4 and cell.accept_length["released"] == 5 / (1 + 2)
    assert (cell.speedup["corrected"], cell.accept_length["corrected"]) == (2, 4)
    published = rows[rows.source == "published"]
    assert set(published.method) == {"vanilla", "ngram_trie"} and set(published.dataset) == {"spec_bench_rag"}
    assert not (rows.dataset == "all").any()


def test_readings_stand_side_by_side_under_a_heading_of_their_own() -> None:
    frame = as_in_the_paper()
    block = table1.readings_block(frame)
    assert block.columns == [
        "spec_bench_rag: paper", "spec_bench_rag: released", "spec_bench_rag: corrected", "qa: released",
        "qa: corrected",
    ]  # fmt: skip
    measured, published = list(table1.measured_blocks(frame, 1)), list(table1.paper_blocks())
    text = markup.markdown(Tables(measured, [block], published))
    before, after = text.split(f"## {COMPARED}")
    assert "3.48x" not in before
    inside, below = after.split(f"## {PUBLISHED}")
    assert "| slow | preloaded | - | 0.50x" in inside  # the paper has no such method
    assert "| ngram_trie | cold | 3.48x (5.19) | 2.00x (1.67) | 2.00x [2.00, 2.00] (4.00) |" in inside
    assert "qa: released" not in before + below


# ---- contexts --------------------------------------------------------------------------------------------------------


def test_every_context_has_an_all_of_its_own() -> None:
    noisy, clean = records(datasets=("rag", "qa")), records(datasets=("qa", "rag"))
    made = [*(replace(each, noise_kind="passages") for each in noisy), *clean]
    frame = table1.table1(to_frame(made), "corrected", "toy", "cpu", METHODS)
    assert list(frame.dataset) == ["qa", "rag", "all", "rag+passages", "qa+passages", "all+passages"] * 4
    prompts = frame[frame.method == "vanilla"].set_index("dataset").num_prompts
    assert (prompts["all"], prompts["all+passages"]) == (4, 4)
    assert [(b.title, b.columns[-1]) for b in table1.measured_blocks(frame, 1)] == [
        ("toy, corrected protocol", "all"),
        ("toy, corrected protocol, passages", "all+passages"),
    ]
    noisy = scores().replace({"qa": "qa+passages"})
    means = table1.with_quality(frame, noisy).set_index(["method", "dataset"])
    assert means.contains["slow", "all+passages"] == 0.5 and pd.isna(means.contains["slow", "all"])
    assert means.rouge_l["slow", "all"] == 0.625


def test_what_noise_does_to_the_accept_length() -> None:
    rows = [("vanilla", "clean", 1.0), ("trie", "clean", 2.0), ("vanilla", "passages", 1.0), ("trie", "passages", 1.5)]
    frame = pd.DataFrame(rows, columns=["method", "context", "accept_length"]).assign(dataset="all")
    assert table1.context_change(frame) == (
        "Accept length over all tasks, clean and its change with noise: vanilla 1.00, passages 1.00 (+0.0%); "
        "trie 2.00, passages 1.50 (-25.0%)."
    )
    assert table1.context_change(frame[frame.context == "clean"]) == ""


def test_the_papers_table_4_contradicts_its_text() -> None:
    paper = table1.paper_contexts()
    note = table1.paper_contexts_note(paper)
    assert note.endswith("faster: triviaqa 2.27x against 1.71x; hagrid 2.10x against 1.84x.")
