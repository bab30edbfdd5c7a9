"""Verdicts on what the papers claim: what decides, what does not, and the arithmetic of each check."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folders import copy_paper, write_folder

from ngram_trie.files import PROJECT
from ngram_trie.report.blocks import Block, Cell, Tables, save
from ngram_trie.site import audit, chapters, claims, printed, sections
from ngram_trie.site.evidence import FAILS, HOLDS, IN_PART, UNTESTED, Claim, Versus, verdict_over
from ngram_trie.site.gathered import Results

RESULTS = PROJECT / "results"
VICUNA = "vicuna-7b-v1.3"
Check = Callable[[Results], Iterator[Claim]]


@given(st.lists(st.sampled_from([True, False, None])), st.booleans())
def test_a_verdict_over_places(tested: list[bool | None], partly: bool) -> None:
    verdict = verdict_over(tested, partly)
    assert (verdict == HOLDS) == (bool(tested) and set(tested) == {True})
    assert (verdict == FAILS) == (False in tested and not (partly and True in tested))
    assert partly or verdict != IN_PART
    if not {True, False} & set(tested):
        assert verdict == UNTESTED


def pair(dataset: str, a: str, b: str, ratio: float, significant: bool = True, measure: str = "speedup") -> dict:
    """A row of versus.csv."""
    about = {"dataset": dataset, "measure": measure, "a": a, "b": b, "ratio": ratio, "significant": significant}
    return about | {"low": ratio - 0.1, "high": ratio + 0.1, "p": 0.01, "p_holm": 0.02}


def test_who_is_faster_follows_from_the_pairs_alone(tmp_path: Path) -> None:
    rows = [
        pair("rag", "rest", "ngram_trie", 0.8),
        pair("rag", "ngram_trie", "pld", 1.05, significant=False),
        pair("rag", "ngram_trie", "space", 0.7),
        pair("rag", "ngram_trie", "space", 3.0, measure="accept_length"),
    ]
    write_folder(tmp_path / "table1", VICUNA, "live", {"versus.csv": rows})
    (folder,) = Results(tmp_path).folders
    versus = Versus(folder)
    assert versus.faster("rag", "ngram_trie", "rest") is True and versus.faster("rag", "rest", "ngram_trie") is False
    assert versus.faster("rag", "ngram_trie", "pld") is None and versus.faster("qa", "ngram_trie", "rest") is None
    assert versus.faster("rag", "ngram_trie", "space") is False
    assert versus.fastest("rag", "ngram_trie", ["ngram_trie", "rest"]) is True
    assert versus.fastest("rag", "ngram_trie", ["rest", "pld"]) is None
    assert versus.fastest("rag", "ngram_trie", ["rest", "pld", "space"]) is False
    assert versus.spoken("rag", "ngram_trie", "rest") == "1.25 times [1.11, 1.43], corrected p 0.02"


def test_verdicts_rest_on_no_synthetic_number(tmp_path: Path) -> None:
    """Without every folder of the embedded models the verdicts are the same; only claims that had none are missing."""
    for folder in ("paper", VICUNA):
        shutil.copytree(RESULTS / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.png", "*.html"))
    verdicts = [
        {claim.claim: claim.verdict for check in (*printed.CHECKS, *claims.CHECKS, *chapters.CHECKS)
         for claim in check(Results(root))}
        for root in (RESULTS, tmp_path)
    ]  # fmt: skip
    assert len(verdicts[1]) > 20 and verdicts[1].items() <= verdicts[0].items()
    assert {verdicts[0][claim] for claim in verdicts[0].keys() - verdicts[1].keys()} <= {UNTESTED}


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    return copy_paper(tmp_path) / "paper"


def edit(paper: Path, name: str, change: Callable[[pd.DataFrame], object]) -> Results:
    frame = pd.read_csv(paper / name)
    change(frame)
    frame.to_csv(paper / name, index=False)
    return Results(paper.parent)


def test_printed_means_and_cells(paper: Path) -> None:
    (claim,) = printed.means(Results(paper.parent))
    assert claim.verdict == IN_PART and "16 of 17 means" in claim.why
    assert "lookahead on llama-3-8b-instruct: the cells average 1.35x, printed 1.50x" in claim.why

    def mend(frame: pd.DataFrame) -> None:
        frame.loc[(frame.model == "llama-3-8b-instruct") & (frame.method == "lookahead"), "mean_speedup"] = 1.35

    (claim,) = printed.means(edit(paper, "table1_mean_speedup.csv", mend))
    assert claim.verdict == HOLDS and "All 17 means" in claim.why


def test_printed_sweeps(paper: Path) -> None:
    (claim,) = printed.sweeps(Results(paper.parent))
    assert "32 cells, llama-2-7b-chat on spec_bench_rag" in claim.claim and claim.verdict == FAILS
    assert "1.4 to 2.8 times apart" in claim.why and "n=13, L_p=3 in one, n=15, L_p=2 in the other" in claim.why
    shutil.copy(paper / "table2.csv", paper / "table5.csv")
    (claim,) = printed.sweeps(Results(paper.parent))
    assert claim.verdict == HOLDS
    (claim,) = printed.settings(Results(paper.parent))
    assert claim.verdict == FAILS and "n=13, L_p=3, and its smallest n is 8" in claim.why


def test_printed_noise(paper: Path) -> None:
    (claim,) = printed.noisy(Results(paper.parent))
    assert claim.verdict == IN_PART and "2 of 4 tasks are faster with noise: hagrid 2.10x against 1.84x" in claim.why

    def slower(frame: pd.DataFrame) -> None:
        frame.loc[frame.context == "noisy", "speedup"] = 1.0

    (claim,) = printed.noisy(edit(paper, "table4.csv", slower))
    assert claim.verdict == HOLDS


def test_printed_speedups_of_ngrammys(paper: Path) -> None:
    (claim,) = printed.twice(Results(paper.parent))
    assert claim.verdict == HOLDS and "9 printed speedups 1 is not above 2" in claim.why

    def another(frame: pd.DataFrame) -> None:
        frame.loc[(frame.strategy == "mixed_best") & (frame.dataset == "gsm8k"), "speedup"] = 1.9

    (claim,) = printed.twice(edit(paper, "ngrammys_table1.csv", another))
    assert claim.verdict == FAILS


def test_only_the_papers_models_decide(tmp_path: Path) -> None:
    """A small model's run is a remark; a replay of a paper's model decides what is exact, a live run also speed."""
    task = {"dataset": "rag", "speedup_low": 1.4, "speedup_high": 2.2, "trie_ms": 1.0, "inference_ms": 9.0}
    best, other = "ngram_trie[n=13,prefix_len=3]", "ngram_trie[n=8,prefix_len=3]"
    grid = [task | {"method": m, "n": n, "prefix_len": 3, "index_ms_median": 1.0} for m, n in ((best, 13), (other, 8))]
    noise = [task | {"method": "ngram_trie", "dataset": "all", "context": c, "accept_length": 2.0}
             for c in ("clean", "passages")]  # fmt: skip
    kinds: list[tuple[Check, str, list[dict[str, Any]]]] = [
        (claims.optimum, "grid", grid),
        (claims.trie_time, "grid", grid),
        (claims.noise, "table4", noise),
    ]
    for check, kind, rows in kinds:
        root = copy_paper(tmp_path / f"{kind}_{len(list(tmp_path.iterdir()))}")
        speeds = [row | {"speedup": 2.0 - 0.1 * at} for at, row in enumerate(rows)]
        predicted = [row | {"predicted_speedup": 2.0 - 0.1 * at} for at, row in enumerate(rows)]
        write_folder(root / "small" / kind, "embedded", "live", {"table.csv": speeds})
        (claim,) = check(Results(root))
        assert claim.verdict == UNTESTED and f"small/{kind} (synthetic)" in claim.why, check
        write_folder(root / "replayed" / kind, VICUNA, "replay", {"table.csv": predicted})
        (claim,) = check(Results(root))
        assert claim.verdict == UNTESTED, check
        assert ("predicted" in claim.why) == (check != claims.trie_time), check
        files = {"table.csv": speeds, "versus.csv": [pair("rag", best, other, 1.05)]}
        write_folder(root / "live" / kind, "llama-2-7b-chat", "live", files)
        (claim,) = check(Results(root))
        assert claim.verdict == HOLDS and "None of" not in claim.why, check


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([("rag", 1.2, True), ("triviaqa", 1.3, True)], IN_PART),  # on one of three models
        ([("rag", 1.2, True), ("triviaqa", 1.1, False)], IN_PART),
        ([("rag", 1.2, False), ("triviaqa", 1.1, False)], UNTESTED),
        ([("rag", 0.8, True), ("triviaqa", 1.1, False)], FAILS),
        ([("rag", 0.8, True), ("triviaqa", 1.1, True)], IN_PART),
        ([], UNTESTED),
    ],
)
@pytest.mark.parametrize("check", [claims.over_rest, claims.fastest])
def test_faster_than_rests_on_pairs(tmp_path: Path, check: Check, rows: list[Any], verdict: str) -> None:
    """Whatever the speedups say: without significant pairs nothing is decided."""
    speeds = [
        {"method": method, "dataset": dataset, "speedup": value, "speedup_low": value, "speedup_high": value}
        | {"protocol": "corrected", "num_prompts": 9}
        for method, value in (("ngram_trie", 2.0), ("rest", 1.1), ("blend", 9.0))
        for dataset in ("rag", "triviaqa", "all")
    ]
    files = {"table.csv": speeds}
    if rows:
        files["versus.csv"] = [pair(dataset, "ngram_trie", "rest", ratio, sure) for dataset, ratio, sure in rows]
    root = copy_paper(tmp_path)
    write_folder(root / "table1", VICUNA, "live", files)
    (claim,) = check(Results(root))
    assert claim.verdict == verdict and ("table1/versus.csv" in claim.files) == bool(rows)


def test_the_shape_of_figure_4(tmp_path: Path) -> None:
    """Chance may lift a share above the one before it; more than chance may not."""
    steps = {1: 600, 2: 150, 3: 80, 4: 50, 5: 30, 6: 20, 7: 10, 8: 12, 9: 5, 10: 4, 11: 39}
    for change, verdict in (({}, IN_PART), ({6: 150}, IN_PART), ({1: 100, 6: 900, 11: 3}, FAILS)):
        counts = steps | change
        total = sum(counts.values())
        rows = [
            {"method": "ngram_trie_released", "dataset": "rag", "accept_length": at, "share": count / total,
             "num_steps": total}
            for at, count in counts.items()
        ]  # fmt: skip
        root = copy_paper(tmp_path / str(len(list(tmp_path.iterdir()))))
        write_folder(root / "figures", VICUNA, "replay", {"accept_lengths.csv": rows})
        (claim,) = claims.accept_lengths(Results(root))
        assert claim.verdict == verdict and f"and {counts[11]} at 11" in claim.why
    assert claims._more(39, 4) and not claims._more(12, 10, 9) and not claims._more(4, 39) and not claims._more(0, 0)


def test_drafting_time_of_this_code_decides_nothing(tmp_path: Path) -> None:
    rows = [{"part": part, "microseconds": us} for part, us in (("trie search", 1), ("tree attention", 9))]
    write_folder(tmp_path / "figure5", VICUNA, "replay", {"time_split.csv": rows})
    (claim,) = claims.time_split(Results(tmp_path))
    assert claim.verdict == UNTESTED and "trie search 1.0 us" in claim.why


def test_predicted_speeds_over_num_draft_are_called_so(tmp_path: Path) -> None:
    rows = [{"method": "m", "dataset": "rag", "num_draft": 16, "predicted_speedup": 1.8}]
    write_folder(copy_paper(tmp_path) / "num_draft", VICUNA, "replay", {"table.csv": rows})
    (claim,) = claims.num_draft(Results(tmp_path))
    assert "num_draft (predicted from exact accept lengths and a cost curve): rag 16 (1.80x)" in claim.why
    write_folder(tmp_path / "small" / "num_draft", "embedded", "live", {"table.csv": rows})
    (claim,) = claims.num_draft(Results(tmp_path))
    assert "small/num_draft (synthetic) (predicted" in claim.why and "rag 1.80x to 1.80x over 16 to 16" in claim.why


def predictor(root: Path, model: str = VICUNA, **files: list[dict[str, Any]]) -> Results:
    write_folder(root / "predictor", model, "replay", {f"{name}.csv": rows for name, rows in files.items()})
    return Results(root)


@pytest.mark.parametrize(("num_bytes", "verdict"), [(1.2e6, HOLDS), (3e6, FAILS)])
def test_memory(tmp_path: Path, num_bytes: float, verdict: str) -> None:
    rows = [{"dataset": "qa", "alpha": 0.5, "num_tokens": 1500, "num_bytes": size} for size in (3e5, num_bytes)]
    (claim,) = chapters.memory(predictor(tmp_path, answers=rows))
    assert claim.verdict == verdict and f"0.30 to {num_bytes / 1e6:.2f} MB" in claim.why and "1,500" in claim.why


def test_failed_drafts_hurt_by_the_chapters_own_overhead(tmp_path: Path) -> None:
    positions = [{"dataset": "all", "position": 1, "acceptance": 0.4, "offered": 9}]
    table = [{"dataset": "translation", "accepted": 0.3}, {"dataset": "qa", "accepted": 0.5},
             {"dataset": "all", "accepted": 0.1}]  # fmt: skip
    (claim,) = chapters.never_hurts(predictor(tmp_path / "a", positions=positions, table=table))
    assert claim.verdict == FAILS and "60% of the drafts fail" in claim.why and "slower: translation 1.30" in claim.why
    positions[0]["acceptance"] = 1
    (claim,) = chapters.never_hurts(predictor(tmp_path / "b", positions=positions, table=table))
    assert claim.verdict == HOLDS


def test_overhead_is_of_a_device_that_was_not_there(tmp_path: Path) -> None:
    row = {"dataset": "all", "overhead": 0.3, "overhead_low": 0.25, "overhead_high": 0.35, "drafting": 0.04, "nodes": 4}
    curve = [{"nodes": n, "context": c, "relative": r} for n, c, r in ((0, 9, 1), (4, 9, 1.2), (4, 99, 1.4), (8, 9, 3))]
    write_folder(tmp_path / "calibration", VICUNA, "live", {"curve.csv": curve})
    (claim,) = chapters.overhead(predictor(tmp_path, "embedded", costs=[row]))
    assert claim.verdict == UNTESTED
    assert "predictor (synthetic): 4 drafted tokens cost 30% more than a plain step [25%, 35%]" in claim.why
    assert "calibration: 4 drafted tokens 20 to 40% more" in claim.why


@pytest.mark.parametrize(
    ("alpha", "answers", "verdict"),
    [
        (0.2, [0.1, 0.2, 0.9], HOLDS),
        (0.2, [0.2, 0.9, 0.9], IN_PART),  # few answers carry the category
        (0.5, [0.2, 0.2, 0.9], IN_PART),
        (0.5, [0.2, 0.9, 0.9], FAILS),
    ],
)
def test_kinds_of_content(tmp_path: Path, alpha: float, answers: list[float], verdict: str) -> None:
    rows = [{"dataset": name, "alpha": value} for name in ("writing", "roleplay") for value in answers]
    table = [{"dataset": "writing", "alpha": alpha}, {"dataset": "roleplay", "alpha": alpha}]
    results = predictor(tmp_path, table=table, answers=rows)
    (claim,) = chapters.kinds_of_content(results)
    assert "below 0.3" in claim.claim and claim.verdict == verdict
    assert f"writing {alpha:.2f} ({sum(a < 0.3 for a in answers)} of 3 answers inside)" in claim.why
    # What lies below the run's own folder is told beside it and decides nothing.
    write_folder(tmp_path / "predictor" / "odd", VICUNA, "replay", {"table.csv": table, "answers.csv": rows * 9})
    (claim,) = chapters.kinds_of_content(Results(tmp_path))
    assert claim.verdict == verdict and "predictor/odd: writing" in claim.why


@pytest.mark.parametrize(
    ("accept_length", "speedup", "verdict"), [(2.13, 1.91, HOLDS), (2.13, 1.2, IN_PART), (5.0, 1.2, FAILS)]
)
def test_the_ngrammys_numbers_are_compared(tmp_path: Path, accept_length: float, speedup: float, verdict: str) -> None:
    row = {"model": "mistral-7b-instruct-v0.2", "method": "mixed (10, 10), rows", "accept_length": accept_length}
    row |= {"speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1}
    rows = [row | {"dataset": dataset} for dataset in ("mt_bench", "all")]
    write_folder(copy_paper(tmp_path) / "ngrammys" / "table1", str(row["model"]), "live", {"table.csv": rows})
    (claim,) = chapters.ngrammys(Results(tmp_path))
    assert claim.verdict == verdict and f"mt_bench {accept_length:.2f}, printed 2.13" in claim.why


@pytest.mark.parametrize(("model", "decides"), [("embedded_general", False), ("phi-3-mini-4k-instruct", True)])
def test_the_ngrammys_figures_decide_for_their_models(tmp_path: Path, model: str, decides: bool) -> None:
    root = copy_paper(tmp_path) / "ngrammys"
    lengths = {"bigram": 1.2, "extended bigram, w = 2": 1.5, "extended bigram, w = 3": 1.6}
    figure2 = [{"series": "chat", "dataset": d, "k": 25, "accept_length": v} for d, v in lengths.items()]
    query = [
        {"method": f"mixed_q{q}", "dataset": "chat", "accept_length": v} for q, v in ((1, 2.0), (2, 1.9), (3, 2.1))
    ]
    about = {"measure": "tokens accepted of the row", "dataset": "chat", "number": 10}
    figure4 = [about | {"source": "context", "share": 0.1}, about | {"source": "model", "share": 0.2}]
    write_folder(root / "figure2", model, "replay", {"data.csv": figure2})
    write_folder(root / "query", model, "replay", {"table.csv": query})
    write_folder(root / "figure4", model, "replay", {"data.csv": figure4})
    expected = {chapters.top_k: HOLDS, chapters.query_length: FAILS, chapters.whole_rows: HOLDS}
    for check, verdict in expected.items():
        (claim,) = check(Results(tmp_path))
        assert claim.verdict == (verdict if decides else UNTESTED), check
    assert "chat 10% and 20%" in claim.why


def test_every_claim_of_the_words_is_checked() -> None:
    from ngram_trie.site.gathered import WORDS

    results = Results(RESULTS)
    shown = claims.verdicts(results, audit.losslessness(results))
    checked = {claim.where for claim in shown}
    assert {about["where"] for about in WORDS["claims"].values()} <= checked


@pytest.mark.parametrize(("is_run", "opened"), [(True, 1), (False, 0)])
def test_a_run_below_another_leaves_its_tables_unfolded(tmp_path: Path, is_run: bool, opened: int) -> None:
    """A table is folded where it is laid out again below, not where another run lies below it."""
    write_folder(tmp_path / "predictor", VICUNA, "replay", {"costs.csv": [{"nodes": 4}]})
    save(Tables([Block("even", ["alpha"], {"qa": [Cell(0.5)]}, [])]), tmp_path / "predictor")
    write_folder(tmp_path / "predictor" / "odd", VICUNA, "replay", {"costs.csv": [{"nodes": 4}]})
    save(Tables([Block("odd", ["alpha"], {"qa": [Cell(0.4)]}, [])]), tmp_path / "predictor" / "odd")
    if not is_run:
        (tmp_path / "predictor" / "odd" / "manifest.json").unlink()
    (section,) = (section for section in sections.SECTIONS if section.id == "predictor")
    (shown,) = sections.parts(section, Results(tmp_path))
    assert len(shown["folders"][0]["open"]) == opened and len(shown["folders"][1]["open"]) == 1
