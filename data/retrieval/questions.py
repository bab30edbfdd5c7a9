"""Questions with their accepted answers: TriviaQA from the hub, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ngram_trie.data.sources import PAGES, Row, check_shape, read_hub_files, read_local


class _Own(TypedDict):
    id: str | int
    question: str
    answers: Annotated[list[str], Field(min_length=1)]


class _Answer(TypedDict):
    value: str
    aliases: list[str]
    normalized_aliases: list[str]


class _Hub(TypedDict):
    question_id: str
    question: str
    answer: _Answer


#: What is read of a row, which may hold more: of a file of one's own, and of TriviaQA's.
SHAPE, HUB_SHAPE = TypeAdapter(_Own), TypeAdapter(_Hub)


@dataclass(frozen=True)
class Asked:
    """A question and every string that counts as its answer."""

    id: str
    question: str
    answers: list[str]


def read_questions(
    hub: str,
    subset: str | None = None,
    split: str = "validation",
    revision: str | None = None,
    path: str | None = None,
    limit: int | None = None,
) -> list[Asked]:
    """The questions of a hub data set of TriviaQA's fields, or of a file; of several with one id, the first.

    TriviaQA's validation split has a question once for its pages of Wikipedia and once for those of the web.

    Args:
        subset: folder of the repository in which the files SPLIT-* lie; None for "data".
        path: a file with id, question and answers, or with TriviaQA's own fields (`sources.read_local`); None for the
            hub.
        limit: only the first N; None for all.

    Raises:
        FileNotFoundError: neither gives any; the message says what to do.
        ValueError: a row is not what it should be.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"questions.limit={limit}: at least 1, or null for all")
    copy = f"or give a copy from {PAGES}/{hub}: questions.path=FILE"
    rows = (
        read_local(Path(path), split) if path else read_hub_files(hub, f"{subset or 'data'}/{split}-*", revision, copy)
    )
    asked: dict[str, Asked] = {}
    for number, row in enumerate(rows, 1):
        if limit and len(asked) == limit:
            break
        question = parse(number, row)
        asked.setdefault(question.id, question)
    if not asked:
        raise ValueError(f"{path or hub}: no questions")
    return list(asked.values())


def parse(number: int, row: Row) -> Asked:
    """One row, in either layout.

    Raises:
        ValueError: what is wrong.
    """
    if "answer" not in row:
        check_shape(number, row, SHAPE)
        return Asked(str(row["id"]), row["question"], row["answers"])
    check_shape(number, row, HUB_SHAPE)
    answer = row["answer"]
    answers = list(dict.fromkeys([answer["value"], *answer["aliases"], *answer["normalized_aliases"]]))
    return Asked(str(row["question_id"]), row["question"], answers)
