"""TriviaQA with retrieved passages, from a file as `scripts.retrieve` writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.datasets import configured, write_lines

from ngram_trie.methods import ConfigError

ROWS = [
    {
        "id": f"tc_{i}",
        "question": f"Who wrote number {i}?",
        "answers": [f"Author {i}", f"A. {i}"],
        "passages": [{"id": str(k), "title": "T", "text": f"Passage {i}.{k}.", "score": 1 / k} for k in range(1, 7)],
    }
    for i in range(1, 7)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(write_lines(tmp_path / "contexts.jsonl", ROWS))


def test_passages_each_followed_by_a_blank_line_then_one_sentence_with_the_question(path: Path) -> None:
    dataset = configured("triviaqa", path=str(path))
    first = dataset.questions[0]
    assert first.before == "" and first.context == "\n\n".join(f"Passage 1.{k}." for k in range(1, 6))
    # trivia/trivia.py of the released code, with its blank line at the end
    assert first.after.startswith(
        "\n\nBased on the documents above, please answer the question 'Who wrote number 1?'. "
    )
    assert first.after.endswith("prioritize more recent information and explain your reasoning.\n\n")
    ours = configured("triviaqa", path=str(path), instruction="ours").questions[0]
    assert ours.after.startswith("\n\nAnswer this question in a few") and ours.after.endswith("Who wrote number 1?")
    assert (first.question_id, first.answers, first.reference) == ("tc_1", ("Author 1", "A. 1"), "Author 1")
    # the released code's trie is built from the texts alone, one by one
    assert first.released_span == "context"
    assert first.released_texts == tuple(f"Passage 1.{k}." for k in range(1, 6))
    fewer = configured("triviaqa", path=str(path), num_passages=2).questions[0]
    assert fewer.context == "Passage 1.1.\n\nPassage 1.2." and fewer.after == first.after


def test_what_is_wrong_is_one_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        configured("triviaqa", path=str(tmp_path / "none.jsonl"))
    assert "none.jsonl: no such file; `python -m scripts.build_index`" in str(raised.value)
    with pytest.raises(ConfigError, match=r"dataset\.num_passages=7: .*contexts\.jsonl:1 has 6; retrieve more"):
        configured("triviaqa", path=str(path), num_passages=7)
    with pytest.raises(ConfigError, match=r"dataset\.instruction=short: must be released or ours"):
        configured("triviaqa", path=str(path), instruction="short")
    bare = tmp_path / "bare.jsonl"
    bare.write_text(json.dumps({"id": 1, "question": "?", "answers": []}) + "\n")
    with pytest.raises(ConfigError, match=r"bare\.jsonl:1: passages: Field required; it has id, question, answers"):
        configured("triviaqa", path=str(bare))
