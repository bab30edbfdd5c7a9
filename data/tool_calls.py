"""Tool calls: one file of the Berkeley Function Calling Leaderboard (BFCL). The system message describes the functions,
the answer is a call or several.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_shape, read_local, where
from ngram_trie.store.files import PACKAGED, package_file

#: The files hold the functions alone.
SYSTEM = """\
You can call the functions below. Answer with the calls that the request needs and with nothing else, a line each: \
{"name": "FUNCTION", "parameters": {"NAME": VALUE}}

"""


class _Message(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


class _Asked(TypedDict):
    id: str | int
    question: Annotated[list[Annotated[list[_Message], Field(min_length=1)]], Field(min_length=1)]
    function: NotRequired[list[Any]]


#: What is read of a row, which may hold more.
SHAPE = TypeAdapter(_Asked)


class ToolCalls(Published):
    """The questions of one file.

    Args:
        name: the dataset's name in records.
        path: the folder that holds the file, or the file; "package:PACKAGE/FOLDER" is a folder of an installed package;
            None names what to get.
        file: its name in the folder. Conversations of several turns need the results of calls, which nothing
            here computes, so they are refused.
        source: where a copy is to be had, for the message.
        options: `warmup`, `limit` and `parity`, as in `data.sources.Published`.
    """

    def __init__(self, name: str, path: str | None, file: str, source: str, **options: Any) -> None:
        super().__init__(name, **options)
        is_folder = path and (path.startswith(PACKAGED) or Path(path).is_dir())
        place = package_file(f"{path}/{file}") if is_folder else Path(path or file)
        if not path or not place.is_file():
            raise FileNotFoundError(f"dataset.path={path}: no such file or folder with {file}; a copy of {source}")
        self.divide([self._question(number, row) for number, row in enumerate(read_local(place), 1)])

    def _question(self, number: int, row: Row) -> Question:
        check_shape(number, row, SHAPE)
        if "function" not in row or len(row["question"]) > 1:
            raise ValueError(
                f"{where(number, row)} needs the results of calls, which are not computed: another dataset.file"
            )
        functions = "\n".join(json.dumps(function) for function in row["function"])
        turns = [
            (role, "\n\n".join(message["content"].strip() for message in messages))
            for role, messages in itertools.groupby(row["question"][0], key=lambda message: message["role"])
        ]
        system = SYSTEM + functions
        if turns[0][0] == "system":
            system += f"\n\n{turns.pop(0)[1]}"
        texts = [text for _, text in turns]
        history: tuple[tuple[str, str | None], ...] = tuple(zip(texts[:-1:2], texts[1::2], strict=True))
        return Question(self.name, str(row["id"]), "", texts[-1], "", system=system, history=history)
