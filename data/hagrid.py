"""HAGRID (Kamalloo et al. 2023): questions with the Wikipedia quotes that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import (
    Any,
    NotRequired,  # pydantic takes no other before Python 3.12
)

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_shape, hub_page, read_hub_files, read_local, remedy


class _Quote(TypedDict):
    text: str


class _Answer(TypedDict):
    answer: str | None
    informative: NotRequired[int | None]
    attributable: NotRequired[int | None]


class _Asked(TypedDict):
    query: str
    query_id: str | int
    quotes: list[_Quote]
    answers: list[_Answer]


#: What is read of a row, which may hold more.
SHAPE = TypeAdapter(_Asked)


class Hagrid(Published):
    """The questions of one split, each after its quotes: "we simply concatenate the given context and the question"
    (paper, section 4.1.2).

    Its repository on the hub has a loading script, which `datasets` no longer runs: the one file is read instead.

    Args:
        name: the dataset's name in records.
        hub: its id on the hub.
        split: "dev" or "train".
        revision: a commit of the hub's repository; None for its newest.
        path: instead of the hub a file of the same layout, or a folder with one for each split.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.
    """

    def __init__(
        self,
        name: str,
        hub: str,
        split: str = "dev",
        revision: str | None = None,
        path: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        if split not in ("dev", "train"):
            raise ValueError(f"dataset.split={split}: must be dev or train")
        file, copy = f"hagrid-v1.0-en/{split}.jsonl", remedy(name, hub_page(hub, revision))
        rows = read_local(Path(path), split) if path else read_hub_files(hub, file, revision, copy)
        self.divide([self._question(number, row) for number, row in enumerate(rows, 1)])

    def _question(self, number: int, row: Row) -> Question:
        check_shape(number, row, SHAPE)
        # Chat templates strip a message's outer white space.
        context = "\n".join(quote["text"] for quote in row["quotes"]).lstrip()
        after, reference = "\n" + row["query"].strip(), best_answer(row["answers"])
        return Question(self.name, str(row["query_id"]), "", context, after, reference, released_span="prompt")


def best_answer(answers: list[Row]) -> str:
    """The first answer that was judged informative and attributable to the quotes; the first where none was."""
    good = [answer for answer in answers if answer.get("informative") == 1 and answer.get("attributable") == 1]
    return str((good or answers)[0]["answer"] or "") if answers else ""
