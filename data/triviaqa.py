"""TriviaQA (Joshi et al. 2017) with passages that were retrieved from Wikipedia: open-domain question answering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_fields, read_local

INSTRUCTION = "Answer this question in a few sentences, relying on the passages above: {question}"


class TriviaQA(Published):
    """The questions, each after the passages that `python -m scripts.retrieve` found for it.

    The layout is the paper's: the passages' texts, each followed by a blank line, then one sentence with the question.

    Args:
        name: the dataset's name in records.
        path: what `scripts.retrieve` wrote: a line a question, {"id", "question", "answers": [...], "passages":
            [{"id", "title", "text", "score"}, ...]}, the best passage first.
        num_passages: so many of each question's passages are given, from the best on.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.

    Raises:
        FileNotFoundError: no such file; the message says what makes it.
        ValueError: a field that is not there, or a value that is not allowed.
    """

    def __init__(self, name: str, path: str, num_passages: int = 5, **options: Any) -> None:
        super().__init__(name, **options)
        if not isinstance(num_passages, int) or num_passages < 1:
            raise ValueError(f"dataset.num_passages={num_passages}: must be an integer of at least 1")
        if not Path(path).exists():
            raise FileNotFoundError(
                f"{path}: no such file; `make build-index`, then `python -m scripts.retrieve`, make it; or give one "
                f"by dataset.path=FILE, in an experiment datasets.{name}.path=FILE"
            )
        self._num_passages = num_passages
        self.divide([self._question(number, row) for number, row in enumerate(read_local(Path(path)), 1)])

    def _question(self, number: int, row: Row) -> Question:
        check_fields(number, row, ("id", "question", "answers", "passages"))
        passages = row["passages"]
        if len(passages) < self._num_passages:
            raise ValueError(
                f"dataset.num_passages={self._num_passages}: question {number} has {len(passages)}; retrieve more"
            )
        # Chat templates strip a message's outer white space.
        context = "\n\n".join(passage["text"] for passage in passages[: self._num_passages]).lstrip()
        after = "\n\n" + INSTRUCTION.format(question=row["question"].strip())
        answers = tuple(row["answers"])
        reference = answers[0] if answers else ""
        return Question(
            self.name, str(row["id"]), "", context, after, reference, answers=answers, released_span="context"
        )
