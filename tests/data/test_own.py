"""Prompts of one's own, from a JSONL file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ngram_trie.data.own import FileDataset
from ngram_trie.data.prompts import build_prompt
from ngram_trie.store.files import place
from ngram_trie.targets.load import load_tokenizer


def dataset(folder: Path, *rows: object, **options: object) -> FileDataset:
    path = folder / "asked.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return FileDataset("asked", str(path), **options)  # type: ignore[arg-type]


def test_prompts_conversations_and_contexts(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello to you"},
        {"role": "user", "content": "Who are you? "},
    ]
    found = dataset(
        tmp_path, {"prompt": " one two three "}, {"messages": chat, "id": "b7"}, "",
        {"context": "The text.", "prompt": "What is it?", "answers": ["a text"]},
    )  # fmt: skip
    plain, talk, read = found.questions
    assert (plain.question_id, plain.message, plain.context) == ("1", "one two three", "one two three")
    assert (talk.question_id, talk.message, talk.system) == ("b7", "Who are you?", "Be brief.")
    assert talk.history == (("Hello", "Hello to you"),)
    assert (read.question_id, read.message, read.context) == ("4", "The text.\n\nWhat is it?", "The text.")
    assert read.answers == ("a text",)
    assert [question.message for question in found.warmup] == ["three two one"]


def test_a_system_message_stands_in_the_prompt(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(place("data/tiny/model")))
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    chat = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Why?"}]
    prompt = build_prompt(dataset(tmp_path, {"messages": chat}).questions[0], tokenizer)
    assert tokenizer.decode(prompt.ids) == "system: Short.\nuser: Why?\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "asked.jsonl:1: not JSON"),
        ({"promt": "x"}, "asked.jsonl:1: promt: did you mean prompt"),
        ({"id": 1}, "asked.jsonl:1: give either `prompt` or `messages`"),
        ({"prompt": " "}, "asked.jsonl:1: prompt: must be a text that is not empty"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "asked.jsonl:1: messages: user and assistant"),
        ({"prompt": "x", "answers": "x"}, "asked.jsonl:1: answers: must be a list"),
        ("", "asked.jsonl: it holds no prompts"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        dataset(tmp_path, row)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_an_id_twice_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"asked.jsonl:2: id 'a' is that of line 1"):
        dataset(tmp_path, {"prompt": "x", "id": "a"}, {"prompt": "y", "id": "a"})
    with pytest.raises(ValueError, match="no such file"):
        FileDataset("x", str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="give a JSONL file"):
        FileDataset("x", None)
