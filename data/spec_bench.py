"""Spec-Bench (Xia et al. 2024): 480 questions of 13 categories, eight of them MT-Bench's, which have two turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from ngram_trie.data.bundled import choose
from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_fields, fetch_url, local_copy, read_local, remedy
from ngram_trie.methods import near

# Where every category is asked, no question of the set is left to warm up on.
WARMUP = "Count from one to twenty in words, one number a line, and then say which of them have five letters."


class SpecBench(Published):
    """The questions of Spec-Bench, with the ids, messages and order of the published file.

    A category's question is asked whole, both turns of it: the second follows what vanilla answers to the first. All of
    the set are test questions, so those for warming up are of other categories: the ones nearest in length to what is
    asked. Where every category is asked, a text of the project's own takes their place.

    Args:
        name: the dataset's name in records.
        url, checksum: the published file, and what it must be. With a checksum of None a `path` may hold any file.
        category: one, a list of several, or None for all of them.
        path: instead of the download a copy of it.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.

    Raises:
        FileNotFoundError: neither the download nor a path gives the set; the message says what to do.
        ValueError: another file than the published one, a field that is not there, or a value that is not allowed.
    """

    def __init__(
        self,
        name: str,
        url: str,
        checksum: str | None,
        category: str | Sequence[str] | None = None,
        path: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        turns: dict[str, list[Question]] = {}
        if not path and not checksum:
            raise ValueError(
                f"dataset.checksum=null: {url} is taken by its checksum alone; any file by dataset.path=FILE"
            )
        file = local_copy(path, url, checksum, name) if path else fetch_url(url, str(checksum), remedy(name))
        for number, row in enumerate(read_local(file), 1):
            check_fields(number, row, ("question_id", "category", "turns"))
            turns.setdefault(row["category"], []).extend(read_turns(name, row))
        wanted = [category] if isinstance(category, str) else list(category or turns)
        for unknown in set(wanted) - set(turns):
            raise ValueError(f"dataset.category={unknown}: {near(unknown, list(turns))}")
        asked = [question for kind, questions in turns.items() if kind in wanted for question in questions]
        others = [question for kind, questions in turns.items() if kind not in wanted for question in questions]
        self.questions = choose(asked, self._limit, self._parity)
        length = median(len(question.message) for question in asked)
        near_in_length = sorted((q for q in others if not q.turn), key=lambda q: abs(len(q.message) - length))
        self.warmup = near_in_length[: self._num_warmup]
        if not others:
            self.warmup = [Question(name, f"warmup-{place + 1}", "", WARMUP, "") for place in range(self._num_warmup)]


def read_turns(name: str, row: Row) -> Iterator[Question]:
    """The turns of one line of the file. Rag's reference is a list of short answers, others' a text a turn."""
    references: list[Any] = row.get("reference") or []
    history: tuple[tuple[str, str | None], ...] = ()
    for turn, message in enumerate(row["turns"]):
        reference = references[turn] if turn < len(references) else ""
        answers = tuple(reference) if isinstance(reference, list) else ()
        text = "; ".join(answers) or reference
        before, context, after = parts(row["category"], message)
        number = str(row["question_id"])
        yield Question(name, number, before, context, after, text, answers=answers, turn=turn, history=history)
        history += ((message, None),)


def parts(category: str, message: str) -> tuple[str, str, str]:
    """A message as what is said before the text that was handed over, that text, and what is said after it."""
    if category in ("summarization", "translation"):  # "Summarize: ", "Translate German to English: "
        instruction, colon, text = message.partition(": ")
        return instruction + colon, text, ""
    if category == "rag":  # five passages, a line each; the question is the last line
        passages, line, question = message.rpartition("\n")
        return "", passages, line + question
    return "", message, ""
