"""What a report makes of a folder: quality, comparisons, Table 4, and tables without loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.records import record, write_records

from ngram_trie.bench import quality
from ngram_trie.bench.records import ItemKey, PromptRecord, RunManifest
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.report import collect, derive
from ngram_trie.report.blocks import read
from ngram_trie.report.run_folder import RunFolder

#: Tokens that a step of ngram_trie emits; an answer has 13 tokens, prefill and every step take a second.
STEPS = {"clean": 4, "paragraph": 3, "passages": 2}
METHODS = ("vanilla", "ngram_trie")
NOISY = [(task, kind) for task in ("rag", "hagrid") for kind in ("", "paragraph", "passages")]


def answer(method: str, question: str, size: int, *, dataset: str, length: int = 12, **fields: Any) -> PromptRecord:
    """Steps of `size` tokens."""
    accept, clock = (size,) * (length // size), PhaseSeconds(length // size + 1.0, 1.0)
    laps = {"tree_sizes": [size - 1] * len(accept), "draft_us": [5.0] * len(accept)}
    return record(method, question, accept, clock, dataset=dataset, **laps | fields)


def make_folder(
    folder: Path,
    engine: str,
    datasets: list[tuple[str, str]],
    paper_tables: list[int],
    records: list[PromptRecord] | None = None,
) -> Path:
    """Two questions a data set and kind of noise, answered by vanilla and ngram_trie."""
    config = {
        "engine": {"name": engine, "traces": "toy.jsonl"}, "grid": {}, "paper_tables": paper_tables,
        "methods": {name: {"name": name} for name in METHODS},
    }  # fmt: skip
    if engine == "replay":
        config["cost"] = {"_target_": "ngram_trie.bench.cost.assumed_curve", "q0": 4}
    made = [
        answer(method, question, size, dataset=dataset, noise_kind=noise)
        for dataset, noise in datasets
        for question in ("1", "2")
        for method, size in zip(METHODS, (1, STEPS[noise or "clean"]), strict=True)
    ]
    return write_records(folder, records or made, config)


@dataclass(frozen=True)
class Asked:
    reference: str = ""
    key_facts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


def test_quality_is_shown_where_it_was_scored(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "run", "live", [("rag", "")], [])
    assert "quality" not in derive.main_tables(derive.write(folder))
    asked = {ItemKey("rag", "1", 0): Asked(answers=("Paris",)), ItemKey("rag", "2", 0): Asked(answers=("Rome",))}
    run = RunFolder(folder)
    run.keep_scores(quality.score(run.records, asked, lambda ids: "Paris it is."))
    assert pd.read_csv(folder / "quality.csv").contains.tolist() == [1, 1, 0, 0]
    text = derive.main_tables(derive.write(run))
    assert "toy, quality kept" in text and "rag: F1" in text.replace("\n", " ")
    page = (folder / "table.md").read_text(encoding="utf-8")
    # F1 of "paris it is" with "paris": precision 1/3, recall 1, so 1/2; with "rome" 0
    assert "| ngram_trie | cold | 0.00% | 25.00% | 50.00% |" in page
    table = pd.read_csv(folder / "table.csv")
    assert table[(table.protocol == "corrected") & (table.dataset == "rag")].f1.tolist() == [0.25, 0.25]


def make_compared(folder: Path, model: str, warm: str = "knows") -> Path:
    """Twelve questions: `quick` and `quicker` are cold, `warm` is not."""
    rng = np.random.default_rng(0)
    methods = {"vanilla": (1, 12.0, "cold"), "quick": (2, 6.0, "cold"), "quicker": (2, 5.0, "cold")}
    made = [
        record(
            method, str(question), (size,) * (12 // size), PhaseSeconds(seconds + rng.uniform(0, 0.2), 0.1),
            dataset="rag", state=state, model=model,
        )
        for question in range(12)
        for method, (size, seconds, state) in (methods | {warm: (3, 2.0, "warm")}).items()
    ]  # fmt: skip
    return write_records(folder, made, {"engine": {"name": "live"}, "grid": {}, "paper_tables": [], "methods": {}})


def test_pairs_of_every_method_of_this_project_are_kept(tmp_path: Path) -> None:
    folder = make_compared(tmp_path, "toy", warm="blend_warm")
    derive.write(folder)
    kept = pd.read_csv(folder / "pairwise.csv")
    pairs = {frozenset(pair) for pair in zip(kept.a, kept.b, strict=True) if "vanilla" not in pair}
    assert pairs == {frozenset(("blend_warm", "quick")), frozenset(("blend_warm", "quicker"))}


def test_every_two_methods_are_compared_and_the_best_of_a_group_is_marked(tmp_path: Path) -> None:
    folder = make_compared(tmp_path / "run", "toy")
    derive.write(folder)
    kept = pd.read_csv(folder / "pairwise.csv")
    assert len(kept) == 2 * 3 * 3 and set(kept.a) == {"vanilla"}  # what is planned; `compare` shows the others
    rows = RunFolder(folder).pairs.set_index(["dataset", "measure", "a", "b"])
    assert len(rows) == 2 * 3 * 6
    row = rows.loc[("rag", "speedup", "quick", "quicker")]
    assert row.same_group and row.significant and row.p < row.p_holm < 0.05
    assert row.ratio == pytest.approx(5.1 / 6.1, rel=0.02) and row.low < row.ratio < row.high < 1
    assert not rows.loc[("rag", "accept_length", "quick", "quicker")].significant
    page = (folder / "table.md").read_text(encoding="utf-8")
    lines = {line.split("|")[1].strip(): line for line in page.split("released")[0].splitlines() if line[:2] == "| "}
    assert [name for name in lines if name != "method"] == ["vanilla", "quick", "quicker", "knows"]
    assert "**" in lines["quicker"] and "(2.00)" in lines["quicker"]  # its accept length is no other's better
    assert "**" not in lines["quick"] + lines["vanilla"] and "*" not in lines["knows"]  # alone in its group


def test_a_synthetic_run_says_so_and_names_no_best(tmp_path: Path) -> None:
    for model in ("tiny", "tiny_general (random weights), tokens forced from toy.jsonl"):
        folder = make_compared(tmp_path / model[:12], model)
        derive.write(folder)
        page = (folder / "table.md").read_text(encoding="utf-8")
        assert "| rag (synthetic) | all (synthetic) |" in page and "Synthetic: " in page
        assert "*" not in page and "| rag |" not in page
        assert (folder / "pairwise.csv").exists()  # the numbers are there for those who ask
        assert set(pd.read_csv(folder / "table.csv").dataset) == {"rag", "all"}


def test_table_4_live(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "run", "live", NOISY, [4])
    text = derive.main_tables(derive.write(folder))
    assert {path.name for path in (folder / "table4").iterdir()} == {"table.csv", "table.json", "table.md"}
    assert "toy, Table 4, speedup" in text
    frame = pd.read_csv(folder / "table4" / "table.csv").set_index(["method", "context", "dataset"])
    assert list(frame.index.unique("dataset")) == ["rag", "hagrid", "all"]
    for context, size in STEPS.items():
        for dataset, prompts in (("rag", 2), ("hagrid", 2), ("all", 4)):  # "all" pools one context
            row = frame.loc[("ngram_trie", context, dataset)]
            assert (row.accept_length, row.num_prompts) == (size, prompts)
            assert row.speedup == pytest.approx(13 / (12 // size + 1), rel=1e-5)
    page = (folder / "table4" / "table.md").read_text(encoding="utf-8")
    measured, published = page.split("## The paper's own numbers")
    assert "| ngram_trie, clean | 3.25x [3.25, 3.25] (4.00) | 3.25x [3.25, 3.25] (4.00) | 3.25x" in measured
    assert "ngram_trie 4.00, paragraph 3.00 (-25.0%), passages 2.00 (-50.0%)" in measured
    assert "| ngram_trie, noisy | 1.22x | 1.21x | 2.27x | 2.10x |" in published


def make_looping(folder: Path, engine: str, loops: dict[str, tuple[str, ...]]) -> Path:
    """Four questions a data set, 80 tokens each; those that `loops` names repeat one token, and are drafted twice as
    well.
    """
    made = []
    for dataset, looping in loops.items():
        for question in ("1", "2", "3", "4"):
            for method in METHODS[engine == "replay" :]:
                size = 1 if method == "vanilla" else 10 if question in looping else 5
                ids = [7] * 81 if question in looping else list(range(81))
                made.append(answer(method, question, size, dataset=dataset, length=80, output_ids=ids))
    return make_folder(folder, engine, [], [], made)


LOOPS_NOTE = "at most 32 different 4-grams): rag 2 of 4 (50.0%), qa 1 of 4 (25.0%)."


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["live", "replay", "teacher_forced"])
def test_a_table_stands_beside_without_the_answers_that_loop(engine: str, tmp_path: Path) -> None:
    folder = make_looping(tmp_path / "run", engine, {"rag": ("2", "4"), "qa": ("3",), "chat": ()})
    derive.write(folder, without_loops=True)
    shares = pd.read_csv(folder / "loops.csv").set_index("dataset")
    assert shares.num_looping.to_dict() == {"rag": 2, "qa": 1, "chat": 0} and shares.share.rag == 0.5
    everything, rest = (
        pd.read_csv(folder / f"{name}.csv").set_index(["method", "dataset"])
        for name in ("table", "table_without_loops")
    )
    if "protocol" in everything:
        assert set(rest.protocol) == {"corrected"}  # what the released code prints, it prints of all answers
        everything = everything[everything.protocol == "corrected"]
    ours = ("ngram_trie", "rag")
    assert everything.accept_length[ours] == pytest.approx(160 * 2 / (16 * 2 + 8 * 2), rel=1e-4)
    assert rest.accept_length[ours] == 5
    for method, part in rest.groupby("method"):  # the same prompts of every method
        assert part.droplevel("method").num_prompts.to_dict() == {"rag": 2, "qa": 3, "chat": 4, "all": 9}, method
    page, left = ((folder / f"{name}.md").read_text() for name in ("table", "table_without_loops"))
    assert f"{LOOPS_NOTE} `derive --without-loops` makes the same table without them" in page
    assert f"{LOOPS_NOTE} They are left out here" in left and "without loops" in left
    assert len(read(folder / "table_without_loops.json").measured) == 1
    assert (folder / "pairwise_without_loops.csv").exists() == (folder / "pairwise.csv").exists()


def test_no_such_table_where_no_answer_loops_or_all_do(tmp_path: Path) -> None:
    none = make_looping(tmp_path / "none", "live", {"rag": ()})
    every = make_looping(tmp_path / "every", "live", {"rag": ("1", "2", "3", "4")})
    for folder, said in ((none, False), (every, True)):
        derive.write(folder, without_loops=True)
        assert not (folder / "table_without_loops.md").exists()
        page = (folder / "table.md").read_text()
        assert ("rag 4 of 4 (100.0%)" in page) == said and "--without-loops" not in page
    assert pd.read_csv(none / "loops.csv").num_looping.tolist() == [0]


def test_a_run_that_is_not_complete_is_named_and_wins_nothing(tmp_path: Path) -> None:
    for name, num_draft in (("a", 4), ("b", 6), ("c", 8)):
        folder = make_looping(tmp_path / name, "replay", {"rag": ("1",)})
        manifest, records = RunManifest.read(folder / "manifest.json"), folder / "records.jsonl"
        method = {"name": "ngram_trie", "num_draft": num_draft}
        config = {key: value for key, value in manifest.config.items() if key != "methods"}
        lines = [line for line in records.read_text().splitlines(keepends=True) if '"method":"ngram_trie"' in line]
        records.write_text("".join(lines[:1] if name == "c" else lines))
        replace(manifest, config={**config, "method": method}).write(folder / "manifest.json")
    collect.collect(tmp_path)
    assert set(pd.read_csv(tmp_path / "table.csv").num_draft) == {4, 6}
    assert "Left out, since they are not complete" in (tmp_path / "table.md").read_text()
    manifest = RunManifest.read(tmp_path / "b" / "manifest.json")
    replace(manifest, prompts="others").write(tmp_path / "b" / "manifest.json")
    with pytest.raises(ValueError, match="its runs have other prompts, and are not compared"):
        collect.collect(tmp_path)


def test_replayed_noisy_answers_have_a_pool_of_their_own(tmp_path: Path) -> None:
    pairs = [("", 2), ("words", 6)]
    made = [answer("ngram_trie", "1", size, dataset="rag", noise_kind=kind) for kind, size in pairs]
    derive.write(make_folder(tmp_path / "run", "replay", [], [], made))
    table = pd.read_csv(tmp_path / "run" / "table.csv").set_index("dataset")
    assert list(table.index) == ["rag", "all", "rag+words", "all+words"]
    assert table.accept_length["all+words"] == table.accept_length["rag+words"] > table.accept_length["all"]


def test_runs_over_several_data_sets_have_a_column_each(tmp_path: Path) -> None:
    for name in ("rag", "qa"):
        folder = make_looping(tmp_path / name, "replay", {name: ("1",)})
        manifest, records = RunManifest.read(folder / "manifest.json"), folder / "records.jsonl"
        config = {key: value for key, value in manifest.config.items() if key != "methods"}
        own = {"method": {"name": "ngram_trie"}, "dataset": {"name": name}}
        lines = [line for line in records.read_text().splitlines(keepends=True) if '"method":"ngram_trie"' in line]
        records.write_text("".join(lines))
        replace(manifest, config={**config, **own}, prompts=name).write(folder / "manifest.json")
    (tables,) = collect.collect(tmp_path)
    assert [sorted(block.columns) for block in tables.measured] == [["qa", "rag"]]


def test_live_and_replayed_runs_are_gathered_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has answered nothing yet is left out, and so is a grid, which has a table of its own."""
    for name, engine in (("a", "live"), ("b", "replay"), ("c", "replay"), ("begun", "live"), ("grid", "live")):
        write_records(tmp_path / name, [], {"engine": {"name": engine}, "grid": {"n": [2]} if name == "grid" else None})
        (tmp_path / name / "records.jsonl").write_text("" if name == "begun" else "one\n")
    met = []
    monkeypatch.setattr(collect, "_collected", lambda folder, runs: met.append((folder.name, len(runs))) or [folder])
    assert collect.collect(tmp_path) == [tmp_path / "live", tmp_path / "replay"]
    assert met == [("live", 1), ("replay", 2)]


def test_runs_of_several_methods_stand_side_by_side_by_budget(tmp_path: Path) -> None:
    """Methods down, budgets across, in the order published, fewest nodes first, auto."""
    budgets = [("auto", {"rule": "auto"}), ("b16", {"rule": "equal", "num_nodes": 16}),
               ("b8", {"rule": "equal", "num_nodes": 8}), ("own", {"rule": "published"})]  # fmt: skip
    for name, budget in budgets:
        folder = make_looping(tmp_path / name, "replay", {"rag": ("1",)})
        manifest = RunManifest.read(folder / "manifest.json")
        sized = {"ngram_trie": {"num_draft": budget.get("num_nodes", 64)}}  # follows from the budget
        replace(manifest, config={**manifest.config, "budget": budget, "methods": sized}).write(
            folder / "manifest.json"
        )
    (tables,) = collect.collect(tmp_path)
    [rag, _] = tables.measured
    assert rag.columns == ["published", "8 nodes", "16 nodes", "auto"] and rag.corner == "method \\ budget"
    assert list(rag.rows) == list(RunFolder(tmp_path / "own").methods())
    shared = {"a": 1, "method.name": "x"}
    assert collect.told_apart_by([shared | {"n": 1, "m": 2}, shared | {"n": 2, "m": 3}]) == ["n"]  # m follows from n
    assert collect.told_apart_by([shared, shared]) == []
