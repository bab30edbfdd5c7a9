"""Spec-Bench (Xia et al. 2024), 480 questions of 13 categories, eight of them MT-Bench's, which have two turns; and
NVIDIA's SPEED-Bench, whose rows have the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ngram_trie.data.bundled import select_questions
from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_shape, fetch_url, local_copy, read_local, remedy
from ngram_trie.methods import near

#: From a category and a message to what is said before the text that was handed over, that text, and what is after it.
Parts = Callable[[str, str], tuple[str, str, str]]
SPLITS = ("qualitative", *(f"throughput_{length}k" for length in (1, 2, 8, 16, 32)))
#: How a turn begins that the harness has not filled in yet.
UNPREPARED = "FULL BENCHMARK DATA SHOULD BE FETCHED"

# Where every category is asked, no question of the set is left to warm up on.
WARMUP = "Count from one to twenty in words, one number a line, and then say which of them have five letters."


class _Asked(TypedDict):
    question_id: str | int
    category: str
    turns: Annotated[list[str], Field(min_length=1)]
    reference: NotRequired[list[str | list[str]] | None]


#: What is read of a row, which may hold more.
SHAPE = TypeAdapter(_Asked)


class _ByCategory(Published):
    """Questions with turns, asked by category. Those to warm up on are of other categories, or of none."""

    def _ask(self, rows: Iterable[Row], category: str | Sequence[str] | None, parts: Parts) -> None:
        turns: dict[str, list[Question]] = {}
        for number, row in enumerate(rows, 1):
            check_shape(number, row, SHAPE)
            turns.setdefault(row["category"], []).extend(read_turns(self.name, row, parts))
        wanted = [category] if isinstance(category, str) else list(category or turns)
        for unknown in set(wanted) - set(turns):
            raise ValueError(f"dataset.category={unknown}: {near(unknown, list(turns))}")
        asked = [question for kind, questions in turns.items() if kind in wanted for question in questions]
        others = [question for kind, questions in turns.items() if kind not in wanted for question in questions]
        self.questions = select_questions(asked, self._limit, self._parity)
        length = median(len(question.message) for question in asked)
        near_in_length = sorted((q for q in others if not q.turn), key=lambda q: abs(len(q.message) - length))
        self.warmup = near_in_length[: self._num_warmup]
        if not others:
            places = range(1, self._num_warmup + 1)
            self.warmup = [Question(self.name, f"warmup-{place}", "", WARMUP, "") for place in places]


class SpecBench(_ByCategory):
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
        if not path and not checksum:
            raise ValueError(
                f"dataset.checksum=null: {url} is taken by its checksum alone; any file by dataset.path=FILE"
            )
        file = local_copy(path, url, checksum, name) if path else fetch_url(url, str(checksum), remedy(name))
        self._ask(read_local(file), category, parts)


class SpeedBench(_ByCategory):
    """SPEED-Bench (NVIDIA, arXiv 2604.09557) as the `prepare_data.py` of its harness writes it: a folder for each split
    with a file test.parquet, of rows with question_id, category and turns.

    The qualitative split has 11 categories of 80 questions, some with several turns, where each follows what vanilla
    answered before. The throughput splits have prompts of one length in three categories.

    Args:
        name: the dataset's name in records.
        path: the folder with the splits, or one of the files.
        split: "qualitative", "throughput_1k", 2k, 8k, 16k or 32k.
        category: one, a list of several, or None for all of them.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.
    """

    def __init__(
        self,
        name: str,
        path: str | None,
        split: str = "qualitative",
        category: str | Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        if split not in SPLITS:
            raise ValueError(f"dataset.split={split}: {near(split, list(SPLITS))}")
        if path is None:
            raise FileNotFoundError(
                "dataset.path=FOLDER: give what `prepare_data.py --dataset speed` of NVIDIA's specdec_bench wrote"
            )
        rows = list(read_local(Path(path) / split if (Path(path) / split).is_dir() else Path(path), split))
        if any(str(turn).startswith(UNPREPARED) for row in rows for turn in row.get("turns") or ()):
            raise ValueError(f"path={path}: its prompts were not filled in; `prepare_data.py --dataset speed` does it")
        self._ask(rows, category, speed_parts)


def read_turns(name: str, row: Row, parts: Parts) -> Iterator[Question]:
    """The turns of one line of the file. Rag's reference is a list of short answers, others' a text a turn."""
    references: list[Any] = row.get("reference") or []
    history: tuple[tuple[str, str | None], ...] = ()
    for turn, message in enumerate(row["turns"]):
        reference = references[turn] if turn < len(references) else ""
        answers = tuple(reference) if isinstance(reference, list) else ()
        text = "; ".join(answers) or reference or ""
        before, context, after = parts(row["category"], message)
        number = str(row["question_id"])
        yield Question(name, number, before, context, after, text, answers=answers, turn=turn, history=history)
        history += ((message, None),)


def speed_parts(category: str, message: str) -> tuple[str, str, str]:
    """The same of SPEED-Bench, whose passages stand between "Context:" and "Question:"."""
    before, context, rest = message.partition("Context:\n")
    passages, question, asked = rest.rpartition("\n\nQuestion:\n")
    if category == "rag" and context and question:
        return before + context, passages, question + asked
    return "", message, ""


def parts(category: str, message: str) -> tuple[str, str, str]:
    """A message as what is said before the text that was handed over, that text, and what is said after it."""
    if category in ("summarization", "translation"):  # "Summarize: ", "Translate German to English: "
        instruction, colon, text = message.partition(": ")
        return instruction + colon, text, ""
    if category == "rag":  # five passages, a line each; the question is the last line
        passages, line, question = message.rpartition("\n")
        return "", passages, line + question
    return "", message, ""
