"""Questions with their accepted answers: TriviaQA from the hub, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    """The questions of a hub data set of TriviaQA's fields, or of a file.

    Args:
        path: JSON lines with id, question and answers, or with TriviaQA's own fields; None for the hub.
        limit: only the first so many; None for all.

    Raises:
        FileNotFoundError: neither gives any; the message says what to do.
        ValueError: a row is not what it should be.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"questions.limit={limit}: at least 1, or null for all")
    rows = read_file(Path(path)) if path else read_hub(hub, subset, split, revision)
    asked = []
    for number, row in enumerate(rows, 1):
        if limit and number > limit:
            break
        try:
            asked.append(parse(row))
        except ValueError as error:
            raise ValueError(f"{path or hub}: question {number}: {error}") from None
    if not asked:
        raise ValueError(f"{path or hub}: no questions")
    return asked


def parse(row: Mapping[str, Any]) -> Asked:
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


def read_file(path: Path) -> Iterable[Mapping[str, Any]]:
    """The rows of a file of JSON lines."""
    if not path.is_file():
        raise FileNotFoundError(f"questions.path={path}: no such file")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: not a JSON object")
            yield row


def read_hub(hub: str, subset: str | None, split: str, revision: str | None) -> Iterable[Mapping[str, Any]]:
    """The rows of a data set on the hub, or of its cached copy."""
    import datasets

    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(hub, subset, split=split, revision=revision)
    except Exception as error:  # no network, a gate, no such set, split or revision: they have no common ancestor
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FileNotFoundError(
            f"the hub does not give {hub} ({reason}); give questions.path=FILE, JSON lines with id, question, answers"
        ) from None
    return rows
