"""Prompts of one's own: a JSONL file, also .gz, a line a prompt (docs/data.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngram_trie.data.bundled import check_choice, select_questions
from ngram_trie.data.prompts import Question
from ngram_trie.methods import near
from ngram_trie.store.lines import read_rows

FIELDS = ("prompt", "messages", "context", "id", "reference", "answers")


class FileDataset:
    """The prompts of a file. Each line is a JSON object:

    prompt: what the user says; or messages: a conversation, a list of {"role": ..., "content": ...} that ends with the
    user's; the model answers the last of them.
    context: a text to be read, put before the prompt; without it the prompt itself counts as what was handed over.
    id: the question's id; its line number unless given. reference, answers: what the answer is compared with.

    Args:
        name: what tables call it.
        path: the file.
        limit: use only the first N; None for all.
        parity: "odd" or "even": only those whose id's last number is; None for all.

    Raises:
        ValueError: no such file, or a line of another kind; the message names file, line and field.
    """

    def __init__(self, name: str, path: str | None, limit: int | None = None, parity: str | None = None) -> None:
        if path is None:
            raise ValueError("path: give a JSONL file whose lines hold `prompt` or `messages`")
        check_choice(limit, parity)
        self.name = name
        questions = list(_read(name, Path(path)))
        if not questions:
            raise ValueError(f"{path}: it holds no prompts")
        self.questions = select_questions(questions, limit, parity)
        # the first, and for a model to which it is too long the shortest
        chosen = self.questions[0], min(self.questions, key=lambda question: len(question.message))
        self.warmup = [_warmup(question) for question in {each.question_id: each for each in chosen}.values()]


def _warmup(question: Question) -> Question:
    """A prompt as long as a measured one, from which a drafter that remembers learns none of its answers: the words in
    reverse order.
    """
    shuffled = " ".join(reversed(question.message.split())) or question.message
    return Question(question.dataset, "warmup", "", shuffled, "")


def _read(dataset: str, path: Path) -> Iterator[Question]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    seen: dict[str, int] = {}
    for number, row in read_rows(path):
        try:
            question = _question(dataset, number, row)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        if (other := seen.setdefault(question.question_id, number)) != number:
            raise ValueError(f"{path}:{number}: id {question.question_id!r} is that of line {other}")
        yield question


def _question(dataset: str, number: int, row: Any) -> Question:
    """Raises:
    ValueError: a field is missing, unknown or of another kind.
    """
    if not isinstance(row, Mapping):
        raise ValueError('must be an object, such as {"prompt": "..."}')
    row = {field: value for field, value in row.items() if value is not None}  # as pandas writes what is missing
    for field in row:
        if field not in FIELDS:
            raise ValueError(f"{field}: {near(str(field), FIELDS)}")
    if ("prompt" in row) == ("messages" in row):
        raise ValueError("give either `prompt` or `messages`")
    answers = row.get("answers", [])
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError("answers: must be a list of texts")
    if not isinstance(id := row.get("id", number), str | int):
        raise ValueError("id: must be a text or an integer")
    question = Question(dataset, str(id), "", "", "", _text(row, "reference", ""), answers=tuple(answers))
    if "messages" in row:
        question = _conversation(question, row["messages"])
    else:
        question = replace(question, context=_text(row, "prompt"))
    if "context" in row:
        read, asked = _text(row, "context"), question.context
        question = replace(question, context=read, after=f"\n\n{asked}")
    return question


def _text(row: Mapping[str, Any], field: str, default: str | None = None) -> str:
    """A text without outer white space, which chat templates strip, too."""
    value = row.get(field, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ValueError(f"{field}: must be a text that is not empty")
    return value.strip()


def _conversation(question: Question, messages: Any) -> Question:
    """The question with the last message as what is asked, and the earlier ones as its history."""
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        raise ValueError('messages: must be a list of {"role": ..., "content": ...}')
    turns = [(message.get("role"), _text(message, "content")) for message in messages]
    system, asked, history = in_turns("messages", turns)
    return replace(question, context=asked, system=system, history=history)


def in_turns(field: str, turns: list[tuple[Any, str]]) -> tuple[str, str, tuple[tuple[str, str | None], ...]]:
    """The system message, what is asked, and what was said before, of a conversation's roles and texts.

    Raises:
        ValueError: other roles than these, or in another order; it names the field.
    """
    system = turns.pop(0)[1] if turns and turns[0][0] == "system" else ""
    roles, texts = [role for role, _ in turns], [text for _, text in turns]
    if roles != [("user", "assistant")[i % 2] for i in range(len(roles))] or len(roles) % 2 == 0:
        raise ValueError(f"{field}: user and assistant must take turns, behind at most one system message, user last")
    return system, texts[-1], tuple(zip(texts[:-1:2], texts[1::2], strict=True))
