"""The docstrings of six packages, and passages of 100 words cut from them.

They ship with the project (docstrings.json.gz), with the versions that they are of: another Python, another build or
another version of a package has another text here and there. Commit 49d91d1 read them (`build_docs --anew` there):
what users may call and has at least 40 words, without sessions and sections of examples, each text once.
"""

from __future__ import annotations

import gzip
import inspect
import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from ngram_trie.data.retrieval.corpus import Passage
from ngram_trie.store.files import PROJECT, content_hash, write_atomically

COMMITTED = Path(__file__).with_name("docstrings.json.gz")
FOLDER = PROJECT / "results" / "local" / "docs"
#: As long as those of Wikipedia in psgs_w100.
PASSAGE_WORDS = 100


@dataclass(frozen=True)
class Documentation:
    """The docstrings of some packages.

    Attributes:
        versions: of the packages.
        docstrings: by symbol, a dotted name; sorted by symbol.
    """

    versions: dict[str, str]
    docstrings: dict[str, str]

    @cached_property
    def passages(self) -> dict[str, Passage]:
        """By id: the symbol and the passage's number in its docstring, from 1, as "numpy.where#1"."""
        found = [passage for symbol, text in self.docstrings.items() for passage in split(symbol, text)]
        return {passage.id: passage for passage in found}

    @cached_property
    def hash(self) -> str:
        """Identity of the texts."""
        return content_hash(self.docstrings)


def split(symbol: str, text: str) -> list[Passage]:
    """A docstring in passages of PASSAGE_WORDS words, the last one shorter; line breaks inside stay."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    cuts = [0, *ends[PASSAGE_WORDS - 1 : -1 : PASSAGE_WORDS], ends[-1]]
    return [
        Passage(f"{symbol}#{number}", symbol, inspect.cleandoc(text[start:end]).strip())
        for number, (start, end) in enumerate(pairwise(cuts), 1)
    ]


@cache
def documentation() -> Documentation:
    """The docstrings that ship with the project."""
    return Documentation(**json.loads(gzip.decompress(COMMITTED.read_bytes())))


def write_passages(docs: Documentation, file: Path = FOLDER / "passages.jsonl") -> None:
    """Write the passages, a line each, for indexes and datastores."""
    rows = [json.dumps(vars(passage), ensure_ascii=False) for passage in docs.passages.values()]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, "\n".join(rows) + "\n")


def counts(docs: Documentation) -> dict[str, dict[str, int]]:
    """Docstrings, words and passages of each package, and of all."""
    table: dict[str, dict[str, int]] = {}
    for symbol, text in docs.docstrings.items():
        for name in (symbol.partition(".")[0], "all"):
            row = table.setdefault(name, {"docstrings": 0, "words": 0, "passages": 0})
            row["docstrings"] += 1
            row["words"] += len(text.split())
            row["passages"] += len(split(symbol, text))
    return table
