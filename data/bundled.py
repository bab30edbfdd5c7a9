"""The prompts that ship with the project: four tasks of the text world and three skills, on what training never sees.

`python -m scripts.studies.tiny.make_prompts` writes them. Each file holds 40 test questions of the text world
(`rag-001` ...) or 20 of a skill (`math-001` ...; those of `chat` have two turns) and two for warming up
(`rag-warmup-1` ...), never measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ngram_trie.data.prompts import Question
from ngram_trie.methods import near
from ngram_trie.prompt import question_number
from ngram_trie.store.lines import Row, read_objects

FOLDER = Path(__file__).parent / "tiny" / "prompts"
MODEL = FOLDER.with_name("model")


class BundledDataset:
    """One bundled task.

    Args:
        name: "summarization", "rag", "open_qa" or "attributed_qa"; "chat", "code" or "math".
        limit: use only the first N questions; None for all.
        parity: "odd" or "even": only the questions with such a number, to tune on the one half and report the other;
            None for all.
    """

    def __init__(self, name: str, limit: int | None = None, parity: str | None = None) -> None:
        path = FOLDER / f"{name}.jsonl"
        if not path.exists():
            known = sorted(file.stem for file in FOLDER.glob("*.jsonl"))
            raise FileNotFoundError(f"{path}: no such bundled task: {near(name, known)}")
        check_choice(limit, parity)
        self.name = name
        questions = [_question(name, row) for _, row in read_objects(path)]
        self.warmup = [question for question in questions if "warmup" in question.question_id]
        asked = [question for question in questions if question not in self.warmup]
        self.questions = select_questions(asked, limit, parity)


def check_choice(limit: object, parity: object) -> None:
    """Raises:
    ValueError: no limit or parity that a dataset can have.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"dataset.limit={limit}: at least 1, or null for all")
    if parity not in (None, "odd", "even"):
        raise ValueError(f"dataset.parity={parity}: must be odd or even, or null for all")


def select_questions(questions: Sequence[Question], limit: int | None, parity: str | None) -> list[Question]:
    """The turns of the first `limit` questions of those whose number, the last one in the id, is odd or even, as
    `parity` says.

    Raises:
        ValueError: a parity is asked for, and an id has no number, or none has such a one.
    """
    kept = [q for q in questions if parity is None or question_number(q.question_id) % 2 == (parity == "odd")]
    if questions and not kept:
        raise ValueError(f"none of its {len(questions)} questions has an {parity} number")
    first = list(dict.fromkeys(question.question_id for question in kept))[:limit]
    return [question for question in kept if question.question_id in first]


def _question(dataset: str, row: Row) -> Question:
    pairs = tuple((asked, answered) for asked, answered in row.pop("history", ()))
    return Question(dataset, **row | {"key_facts": tuple(row["key_facts"])}, history=pairs)
