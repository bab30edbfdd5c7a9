"""The model-derived N-grams of N-Grammys (section 4.1) as tables: made once for a model, read by its drafters.

A folder: `header.json` and little-endian files, of uint16 where that holds every token of the vocabulary, else int32
(`types`). `unigram.bin` (2, V): all tokens, the likeliest first,
by each of `RANKINGS`.
`bigram.bin` (V, k): the model's k likeliest successors of each token, best first. `extended.bin` (V, k, w - 1): what
the model continues each of those with. `shares.bin` (V, k), of float32: how likely the model holds each successor. All
are memory-mapped; opening them reads them once, to check their digests.

Shapes: V = vocabulary, k = rows, w = tokens of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.store import arrays as built
from ngram_trie.store.files import same_model

Table: TypeAlias = NDArray[np.integer]

FORMAT = "ngram-trie model n-grams 4"
BUILD_COMMAND = "python -m scripts.build_ngram_tables "
#: How the paper ranks the unigram: as section 4.1 defines it, and as the pseudo code of appendix B.1 does.
RANKINGS = ("text", "code")


def types(size: int) -> dict[str, str]:
    """What the files of a vocabulary of `size` tokens hold."""
    token = "<u2" if size <= 1 << 16 else "<i4"
    return {"unigram": token, "bigram": token, "extended": token, "shares": "<f4"}


def _layout(header: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    size, k, w = (int(header[name]) for name in ("vocabulary", "k", "w"))
    shapes = {"unigram": (len(RANKINGS), size), "extended": (size, k, w - 1)}
    return {name: (kind, shapes.get(name, (size, k))) for name, kind in types(size).items()}


@dataclass(frozen=True)
class NgramTables:
    """The tables of one model.

    Attributes:
        model: `ngram_trie.store.files.fingerprint` of the model they were made with; empty if it has no files.
        bos: whether the model read its BOS before each token (see `ngram_trie.targets.model_ngrams`).
        unigram: (2, V) all tokens, the likeliest first, by each of `RANKINGS`.
        bigram: (V, k) successors of each token, best first.
        extended: (V, k, w - 1) the greedy continuation of each of them.
        shares: (V, k) the model's probability of each successor.
    """

    model: str
    bos: bool
    unigram: Table
    bigram: Table
    extended: Table
    shares: NDArray[np.float32]

    @property
    def k(self) -> int:
        """Successors that are kept of each token."""
        return int(self.bigram.shape[1])

    @property
    def w(self) -> int:
        """Longest row that is stored."""
        return int(self.extended.shape[2]) + 1

    def chain(self, token: int, w: int) -> NDArray[np.int64]:
        """(k, w) the rows after `token`, from the bigram alone: each successor, then the likeliest successor of the
        last token again and again ("repeatedly applying the model bigram").
        """
        rows = np.empty((self.k, w), np.int64)
        rows[:, 0] = self.bigram[token]
        for place in range(1, w):
            rows[:, place] = self.bigram[rows[:, place - 1], 0]
        return rows

    def greedy(self, token: int, w: int) -> NDArray[np.int64]:
        """(k, w) the rows after `token`: each successor and the model's greedy continuation of both."""
        rows = np.empty((self.k, w), np.int64)
        rows[:, 0] = self.bigram[token]
        rows[:, 1:] = self.extended[token, :, : w - 1]
        return rows

    def write(self, folder: Path) -> None:
        """Write to `folder`; tables that were there are replaced, and without the header, which is written last, none
        are complete.
        """
        tables = {
            name: np.ascontiguousarray(getattr(self, name), kind) for name, kind in types(len(self.bigram)).items()
        }
        about = {"format": FORMAT, "model": self.model, "bos": self.bos}
        built.write(folder, tables, about | {"vocabulary": len(self.bigram), "k": self.k, "w": self.w})

    @classmethod
    def open(cls, folder: Path) -> NgramTables:
        """The tables in `folder`, mapped into memory.

        Raises:
            FileNotFoundError: there are none; the message says what builds them.
            ValueError: damaged, or of another format.
        """
        about, tables = built.read(folder, "tables", "n-gram tables", _layout, FORMAT, f"{BUILD_COMMAND}{folder.name}")
        return cls(str(about["model"]), bool(about["bos"]), **tables)

    def check(self, model: Any, folder: Path) -> None:
        """Check that the tables were made with `model`, of transformers: `same_model`, and as large a vocabulary.

        Raises:
            ValueError: they are of another model.
        """
        size = model.config.get_text_config().vocab_size
        if len(self.bigram) != size or not same_model(model.name_or_path, self.model):
            raise ValueError(
                f"tables={folder}: made with another model than {model.name_or_path or 'the target'}; "
                f"give its own or build them: {BUILD_COMMAND}NAME"
            )
