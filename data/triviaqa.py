"""TriviaQA (Joshi et al. 2017) with passages that were retrieved from Wikipedia: open-domain question answering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_shape, read_local, where
from ngram_trie.drafter import check_int

#: What is asked after the passages. `released`: verbatim what the paper's released code asks (github
#: mrlife219/Ngram-Trie, 613b258, trivia/trivia.py), the blank line at its end included.
INSTRUCTIONS = {
    "released": (
        "Based on the documents above, please answer the question '{question}'. Ensure your answer is accurate and "
        "comprehensive by carefully considering all provided documents. If discrepancies or updates exist among "
        "documents, prioritize more recent information and explain your reasoning.\n\n"
    ),
    "ours": "Answer this question in a few sentences, relying on the passages above: {question}",
}


class _Passage(TypedDict):
    text: str


class _Asked(TypedDict):
    id: str | int
    question: str
    answers: list[str]
    passages: list[_Passage]


#: What is read of a row, which may hold more.
SHAPE = TypeAdapter(_Asked)


class TriviaQA(Published):
    """The questions, each after the passages that `python -m scripts.retrieve` found for it.

    The layout is the released code's: the passages' texts, each followed by a blank line, then an instruction with the
    question. It tokenises each text on its own for its trie.

    Args:
        name: the dataset's name in records.
        path: what `scripts.retrieve` wrote: a line a question, {"id", "question", "answers": [...], "passages":
            [{"id", "title", "text", "score"}, ...]}, the best passage first.
        num_passages: this many of each question's passages are given, from the best on.
        instruction: one of INSTRUCTIONS; the released one asks for longer answers.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.
    """

    def __init__(
        self, name: str, path: str, num_passages: int = 5, instruction: str = "released", **options: Any
    ) -> None:
        super().__init__(name, **options)
        if instruction not in INSTRUCTIONS:
            raise ValueError(f"dataset.instruction={instruction}: must be {' or '.join(INSTRUCTIONS)}")
        check_int("dataset.num_passages", num_passages, 1)
        if not Path(path).exists():
            raise FileNotFoundError(
                f"{path}: no such file; `python -m scripts.build_index`, then "
                f"`python -m scripts.retrieve`, make it; or give one "
                f"by dataset.path=FILE, in an experiment datasets.{name}.path=FILE"
            )
        self._num_passages, self._instruction = num_passages, INSTRUCTIONS[instruction]
        self.divide([self._question(number, row) for number, row in enumerate(read_local(Path(path)), 1)])

    def _question(self, number: int, row: Row) -> Question:
        check_shape(number, row, SHAPE)
        passages = row["passages"]
        if len(passages) < self._num_passages:
            raise ValueError(
                f"dataset.num_passages={self._num_passages}: {where(number, row)} has {len(passages)}; retrieve more"
            )
        texts = tuple(passage["text"] for passage in passages[: self._num_passages])
        context = "\n\n".join(texts).lstrip()  # chat templates strip a message's outer white space
        after = "\n\n" + self._instruction.format(question=row["question"].strip())
        answers = tuple(row["answers"])
        reference = answers[0] if answers else ""
        return Question(
            self.name, str(row["id"]), "", context, after, reference,
            answers=answers, released_span="context", released_texts=texts,
        )  # fmt: skip
