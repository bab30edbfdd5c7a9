"""Hagrid: the quotes, then the question; which answer is the reference."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from support.datasets import configured, write_lines

from ngram_trie.methods import ConfigError


def answer(text: str, informative: int | None, attributable: int | None) -> dict:
    return {"answer": text, "informative": informative, "attributable": attributable, "sentences": []}


def row(number: int, answers: list) -> dict:
    quotes = [{"idx": k, "docid": f"{number}#{k}", "text": f"Quote {number}.{k}."} for k in (1, 2)]
    return {"query": f"What is {number}?", "query_id": number, "quotes": quotes, "answers": answers}


ROWS = [
    row(7, [answer("Vague.", 0, 1), answer("Unfounded.", 1, 0), answer("Good [1].", 1, 1), answer("Later.", 1, 1)]),
    row(9, [answer("Unjudged.", None, None), answer("Vague.", 0, 1)]),
    row(12, []),
    row(13, []),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, rows in (("dev", ROWS), ("train", ROWS[:3])):
        write_lines(tmp_path / f"{split}.jsonl", rows)
    return tmp_path


def test_context_and_question_are_concatenated(folder: Path) -> None:
    dataset = configured("hagrid", path=str(folder / "dev.jsonl"))
    first = dataset.questions[0]
    assert (first.before, first.context, first.after) == ("", "Quote 7.1.\nQuote 7.2.", "\nWhat is 7?")
    assert first.released_span == "prompt"  # the released code's trie is built from the whole of it
    assert [q.question_id for q in dataset.questions] == ["7", "9"]
    assert [q.question_id for q in dataset.warmup] == ["12", "13"]


def test_the_reference_is_the_first_answer_that_was_judged_good(folder: Path) -> None:
    questions = configured("hagrid", path=str(folder / "dev.jsonl"), warmup=0).questions
    assert [q.reference for q in questions] == ["Good [1].", "Unjudged.", "", ""]


def test_a_folder_has_a_file_for_each_split(folder: Path) -> None:
    assert len(configured("hagrid", path=str(folder), split="train", warmup=0).questions) == 3
    assert len(configured("hagrid", path=str(folder), warmup=0).questions) == 4
    with pytest.raises(ConfigError, match=r"dataset hagrid: dataset\.split=test: must be dev or train"):
        configured("hagrid", path=str(folder), split="test")


def test_from_the_hub_one_file_of_a_revision_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = mock.Mock(return_value=str(folder / "dev.jsonl"))
    monkeypatch.setattr("ngram_trie.data.sources.hf_hub_download", fetch)
    assert len(configured("hagrid", warmup=0, revision="v1").questions) == 4
    fetch.assert_called_once_with("miracl/hagrid", "hagrid-v1.0-en/dev.jsonl", repo_type="dataset", revision="v1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quotes": None}, r"dev\.jsonl:1: quotes: Input should be a valid list"),
        ({"quotes": [{"docid": "1"}]}, r"dev\.jsonl:1: quotes\.0\.text: Field required"),
        ({"answers": [{"informative": 1}]}, r"dev\.jsonl:1: answers\.0\.answer: Field required"),
        ({"query": 7}, r"dev\.jsonl:1: query: Input should be a valid string"),
    ],
)
def test_a_row_of_another_kind_is_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = write_lines(tmp_path / "dev.jsonl", [ROWS[0] | change] * 4)
    with pytest.raises(ConfigError, match=said):
        configured("hagrid", path=str(path))
