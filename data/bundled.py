"""The prompts that ship with the project: four tasks of the text world about subjects that training never sees.

`python -m scripts.make_prompts` writes them. Each file holds 40 test questions (`rag-001` ...) and two for warming up
(`rag-warmup-1` ...), which are never measured.
"""

from __future__ import annotations

import json
from pathlib import Path

from data.prompts import Question

FOLDER = Path(__file__).parent / "embedded" / "prompts"


class BundledDataset:
    """One bundled task.

    Args:
        name: "summarization", "rag", "open_qa" or "attributed_qa".
        limit: use only the first so many questions; None for all.
    """

    def __init__(self, name: str, limit: int | None = None) -> None:
        path = FOLDER / f"{name}.jsonl"
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such bundled task; `python -m scripts.make_prompts` writes them")
        if limit is not None and limit < 1:
            raise ValueError(f"dataset.limit={limit}: at least 1, or null for all")
        self.name = name
        questions = [read_question(name, line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.warmup = [question for question in questions if "warmup" in question.question_id]
        self.questions = [question for question in questions if question not in self.warmup][:limit]


def read_question(dataset: str, line: str) -> Question:
    row = json.loads(line)
    return Question(dataset, **row | {"key_facts": tuple(row["key_facts"])})
