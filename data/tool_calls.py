"""Tool calls: one file of the Berkeley Function Calling Leaderboard (BFCL). The model's chat template describes the
functions, the answer is a call or several.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ngram_trie.data.own import in_turns
from ngram_trie.data.prompts import Question
from ngram_trie.data.sources import Published, Row, check_shape, read_local, where
from ngram_trie.store.files import PACKAGED, package_file

#: The files' names of types, which are those of several languages, in JSON schemas; others are the same there.
TYPES = {
    **dict.fromkeys(("dict", "HashMap", "Hashtable"), "object"),
    **dict.fromkeys(("list", "tuple", "Array", "ArrayList", "Queue", "Stack"), "array"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("any", "Any", "char", "String"), "string"),
    "bool": "boolean",
}


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
        tools = tuple({"type": "function", "function": _schema(function)} for function in row["function"])
        turns = [
            (role, "\n\n".join(message["content"].strip() for message in messages))
            for role, messages in itertools.groupby(row["question"][0], key=lambda message: message["role"])
        ]
        system, asked, history = in_turns(f"{where(number, row)}: question", turns)
        return Question(self.name, str(row["id"]), "", asked, "", system=system, tools=tools, history=history)


def _schema(part: Any) -> Any:
    """A function's description with the types of JSON schemas."""
    if isinstance(part, list):
        return [_schema(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: TYPES.get(value, value) if key == "type" and isinstance(value, str) else _schema(value)
        for key, value in part.items()
    }
