"""Prompts of one's own, from a JSONL file."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable
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
    assert [question.message for question in found.warmup] == ["three two one", "you? are Who"]


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
        ({"prompt": "x", "id": ["a"]}, "asked.jsonl:1: id: must be a text or an integer"),
        ("", "asked.jsonl: it holds no prompts"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        dataset(tmp_path, row)
    assert message in str(error.value) and "\n" not in str(error.value)


TEXT = "One\u2028two\u2029three\u0085four\x0bfive, é and 中."


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("plain.jsonl", lambda rows: "\n".join(rows).encode()),
        ("crlf.jsonl", lambda rows: "\r\n".join(rows).encode()),
        ("mark.jsonl", lambda rows: codecs.BOM_UTF8 + "\n".join(rows).encode()),
        ("wide.jsonl", lambda rows: "\n".join(rows).encode("utf-16")),
        ("small.jsonl.gz", lambda rows: gzip.compress("\n".join(rows).encode())),
        ("list.json", lambda rows: f"[{','.join(rows)}]".encode()),
    ],
)
def test_rows_are_read_however_they_were_written(tmp_path: Path, name: str, made: Callable[[list[str]], bytes]) -> None:
    rows = [{"prompt": TEXT, "context": None, "reference": None, "id": number} for number in (7, 8)]
    (tmp_path / name).write_bytes(made([json.dumps(row, ensure_ascii=False) for row in rows]))
    found = FileDataset("x", str(tmp_path / name)).questions
    assert [(question.question_id, question.message) for question in found] == [("7", TEXT), ("8", TEXT)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "a"}\n{"prompt": "\xe9"}', ":2: not UTF-8: save it as UTF-8"),
        (b'{"prompt": "a"}\n{"prompt": "\\ud83d"}', ":2: half a character"),
        (b'{"prompt": null}', ":1: give either"),
        (b'{"prompt": "a", "reference": 0}', ":1: reference: must be a text"),
    ],
)
def test_a_text_that_is_none_is_named_by_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "asked.jsonl").write_bytes(content)
    with pytest.raises(ValueError) as error:
        FileDataset("x", str(tmp_path / "asked.jsonl"))
    assert f"asked.jsonl{message}" in str(error.value) and "\n" not in str(error.value)


def test_an_id_twice_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"asked.jsonl:2: id 'a' is that of line 1"):
        dataset(tmp_path, {"prompt": "x", "id": "a"}, {"prompt": "y", "id": "a"})
    with pytest.raises(ValueError, match="no such file"):
        FileDataset("x", str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="give a JSONL file"):
        FileDataset("x", None)
