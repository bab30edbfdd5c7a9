"""Two runs side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from support.records import manifest, record

from ngram_trie.bench.records import PromptRecord
from ngram_trie.report import compare, markup
from ngram_trie.report.run_folder import RunFolder


def run(folder: Path, records: list[PromptRecord], nodes: int = 8, commit: str = "abc") -> RunFolder:
    folder.mkdir()
    config = {"engine": {"name": "live"}, "methods": {}, "budget": {"rule": "equal", "num_nodes": nodes}}
    manifest(config, commit=commit).write(folder / "manifest.json")
    return RunFolder(folder, records)


def answers(count: int, **seconds: float) -> list[PromptRecord]:
    return [record(m, str(q), seconds=s + 0.01 * q) for q in range(count) for m, s in seconds.items()]


def test_ratios_are_paired_by_question_and_settings_are_named(tmp_path: Path) -> None:
    before = run(tmp_path / "before", answers(12, vanilla=4.0, pld=2.0, trie=3.0))
    after = run(tmp_path / "after", answers(12, vanilla=4.0, pld=1.0, blend=1.0), nodes=16, commit="def")
    assert compare.settings(before, after) == [("commit", "abc", "def"), ("budget.num_nodes", "8", "16")]
    table = compare.numbers(before, after).set_index(["method", "measure"])
    assert set(table.index.get_level_values(0)) == {"vanilla", "pld"}
    row = table.loc["pld", "speedup"]
    assert row.ratio == pytest.approx(sum(2 + 0.01 * q for q in range(12)) / sum(1 + 0.01 * q for q in range(12)))
    assert row.low > 1.8 and bool(row.significant)
    assert not table.loc["vanilla", "speedup"].significant and table.loc["pld", "accept_length"].ratio == 1
    text = markup.plain_text(compare.tables(before, after, table.reset_index()))
    assert "differs, not separated, not separated" in text and "12 of 12" in text and "after over before" in text


def test_answers_that_differ_are_counted(tmp_path: Path) -> None:
    records = answers(3, vanilla=1.0)
    changed = [dataclasses.replace(records[0], output_ids=[1, 2, 3, 4]), *records[1:]]
    one, other = run(tmp_path / "a", records), run(tmp_path / "b", changed)
    assert compare.answers(one, other) == {"vanilla": (2, 3)}
    assert compare.settings_text(one, one).endswith("no setting, version or machine differs")


def test_two_methods_of_one_run(tmp_path: Path) -> None:
    one = run(tmp_path / "a", answers(12, vanilla=4.0, pld=2.0, blend=1.0))
    lines = compare.methods(one, "blend", "pld").splitlines()
    assert lines[0].split()[:4] == ["measure", "dataset", "ratio", "low"] and len(lines) == 1 + 3 * 2
    (speed,) = [line.split() for line in lines if line.split()[:2] == ["speedup", "all"]]
    assert 1.8 < float(speed[2]) < 2
    with pytest.raises(ValueError, match="the methods are"):
        compare.methods(one, "blend", "trie")
