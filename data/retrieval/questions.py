"""Questions with their accepted answers: TriviaQA from the hub, or a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ngram_trie.data.sources import PAGES, Row, read_hub_files, read_local


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
        try:
            question = parse(row)
        except ValueError as error:
            raise ValueError(f"{path or hub}: question {number}: {error}") from None
        asked.setdefault(question.id, question)
    if not asked:
        raise ValueError(f"{path or hub}: no questions")
    return list(asked.values())


def parse(row: Row) -> Asked:
    """One row, in either layout.

    Raises:
        ValueError: what is wrong.
    """
    given = {**row, "id": row.get("id", row.get("question_id"))}
    if isinstance(answer := row.get("answer"), Mapping):
        given["answers"] = list(dict.fromkeys([answer["value"], *answer["aliases"], *answer["normalized_aliases"]]))
    for field, kind in (("question", str), ("answers", list), ("id", str | int)):
        if not isinstance(given.get(field), kind):
            raise ValueError(f"no field {field!r}, or not of its kind; it has {', '.join(row)}")
    if not given["answers"] or not all(isinstance(answer, str) for answer in given["answers"]):
        raise ValueError("'answers' must be a list of texts, at least one")
    return Asked(str(given["id"]), given["question"], given["answers"])
