"""Published data sets of single questions: from an installed package, from the hub through the `datasets` library, or
from a copy of their files.

Which field holds what is said in the YAML (configs/dataset), so that another set of questions needs no code. Only first
turns are asked: a later one would have to follow the model's own answer to the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import PAGES, Published, Row, check_fields, read_hub, read_local, remedy, where
from ngram_trie.store.files import NotInstalled, package_file


class HubDataset(Published):
    """The questions of one published set.

    Args:
        name: the dataset's name in records.
        hub: its id on the hub.
        subset: its configuration there; None where it has only one.
        split: which split to ask.
        revision: a commit or tag of the hub's repository; None for its newest.
        prompt: field that holds the question: a text, or the list of a conversation's turns, of which the first is
            taken.
        id: field that names a question; None to number them from 1.
        reference: field with an answer to compare with; None if there is none.
        before, after: what is said around every question.
        path: instead of the hub a file of the same layout (.jsonl, .json, also .gz, or .parquet), or a folder of such;
            of a folder with several files those are read whose path names the split. "package:PACKAGE/FILE" is a file
            of an installed package; the hub is asked where the package is not there.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.
    """

    def __init__(
        self,
        name: str,
        hub: str,
        prompt: str,
        split: str = "test",
        subset: str | None = None,
        revision: str | None = None,
        id: str | None = None,
        reference: str | None = None,
        before: str = "",
        after: str = "",
        path: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        rows = read_either(path, split, hub, subset, revision, remedy(name, f"{PAGES}/{hub}"))
        self._before, self._after = before, after
        self._fields = {"prompt": prompt, "id": id, "reference": reference}
        self.divide([self._question(number, row) for number, row in enumerate(rows, 1)])

    def _question(self, number: int, row: Row) -> Question:
        check_fields(number, row, filter(None, self._fields.values()))
        text, answer = (self._text(number, row, field) for field in (self._fields["prompt"], self._fields["reference"]))
        if not text:
            raise ValueError(f"{where(number, row)}: the field {self._fields['prompt']!r} is empty")
        own = self._fields["id"]
        # Chat templates strip a message's outer white space.
        before, after = self._before.lstrip(), self._after.rstrip()
        text = text if before else text.lstrip()
        text = text if after else text.rstrip()
        return Question(self.name, str(row[own]) if own else f"{self.name}-{number}", before, text, after, answer)

    def _text(self, number: int, row: Row, field: str | None) -> str:
        try:
            return first_of(row[field]) if field else ""
        except ValueError as error:
            raise ValueError(f"{where(number, row)}: the field {field!r}: {error}") from None


def read_either(
    path: str | None, split: str, hub: str, subset: str | None, revision: str | None, otherwise: str
) -> Iterable[Row]:
    """The rows of `path`; without one, or where that names a package that is not installed, the hub's."""
    if path:
        try:
            return read_local(package_file(path), split, subset)
        except NotInstalled as missing:
            otherwise = f"{missing}; {otherwise}"
    return read_hub(hub, subset, split, revision, otherwise)


def first_of(value: Any) -> str:
    """A text or a number, the first of a list of turns, or what its user says; nothing is an empty text.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, list | tuple):
        turns = [turn for turn in value if not (isinstance(turn, Mapping) and turn.get("role") == "system")]
        value = turns[0] if turns else ""
    if isinstance(value, Mapping) and value.get("role", "user") == "user":
        value = value.get("content")
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"it holds a {type(value).__name__}, where a text or turns of a conversation are needed")
    return "" if value is None or value != value else str(value)  # pandas' NaN is nothing
