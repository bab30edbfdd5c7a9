"""A datastore of other texts, which REST and the static automaton of SAM-Decoding draft from.

It is a folder of `header.json` and of `tokens.bin` and `suffixes.bin`, both int32 and little-endian. `tokens` are the
documents, each followed by `BORDER`; `suffixes` are all positions, sorted by the tokens that stand there. Both are
memory-mapped, so memory is taken only by the pages that are searched. Opening one reads it once, to check its digests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.store import arrays as built
from ngram_trie.store.compiled import compiled

Tokens: TypeAlias = NDArray[np.int32]

#: Ends a document; no token is negative, so nothing that is looked up holds it.
BORDER = -1
FORMAT = "ngram-trie datastore 3"
BUILD_COMMAND = "python -m scripts.build_datastore SOURCE --output"
#: Sorted by this many tokens, suffixes can be looked up by this many.
SORTED_TOKENS = 16
#: Positions are 32-bit integers.
MOST_TOKENS = 2**31 - 1


@compiled
def suffix_array(tokens: Tokens, num_sorted: int = SORTED_TOKENS) -> Tokens:
    """(k,) all positions of `tokens`, (k,), each -1 or more, ordered by the `num_sorted` tokens that begin there, then
    by position; the end of the text comes before any token.

    A radix sort from the last token to the first, by 16 bits at a time. Beside its input and output it needs room for
    one more array of their size.
    """
    size = len(tokens)
    order, sorted_order = np.empty(size, np.int32), np.empty(size, np.int32)
    for position in range(size):  # arange would make 64-bit integers first
        order[position] = position
    highest = np.int64(tokens.max()) + 2
    for offset in range(num_sorted - 1, -1, -1):
        for shift in (0, 16):
            if highest >> shift == 0:
                continue
            starts = np.zeros(2**16 + 1, np.int64)
            for position in range(size):
                digit = _digit(tokens, position + offset, shift)
                starts[digit + 1] += 1
            starts = np.cumsum(starts)
            for rank in range(size):
                digit = _digit(tokens, order[rank] + offset, shift)
                sorted_order[starts[digit]] = order[rank]
                starts[digit] += 1
            order, sorted_order = sorted_order, order
    return order


@compiled(inline="always")
def _digit(tokens: Tokens, position: int, shift: int) -> int:
    """16 bits of a token's rank: 0 behind the end, 1 for a border."""
    return int(((np.int64(tokens[position]) + 2) >> shift) & 0xFFFF) if position < len(tokens) else 0


def build_datastore(documents: Iterable[Sequence[int]], folder: Path) -> int:
    """Write the datastore of `documents`, token ids in [0, 2**31), to `folder`; the number of tokens, borders included.

    Documents go to the disk as they come. Sorting them takes 8 bytes a token. A datastore that was
    there stays until the new one is complete; cut short, the old one or none is left.

    Raises:
        ValueError: no tokens, too many, or one out of range.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: folder / f"{name}.part" for name in ("tokens.bin", "suffixes.bin")}
    try:
        num_tokens, num_documents, largest = _write_documents(documents, parts["tokens.bin"])
        suffix_array(_map(parts["tokens.bin"])).astype("<i4", copy=False).tofile(parts["suffixes.bin"])
        digests = {name.partition(".")[0]: built.digest(part) for name, part in parts.items()}
    except BaseException:
        for part in parts.values():
            part.unlink(missing_ok=True)
        raise
    # The header comes last: without it a datastore is not complete. Replaced files stay readable where mapped.
    (folder / "header.json").unlink(missing_ok=True)
    for name, part in parts.items():
        part.replace(folder / name)
    about = {
        "format": FORMAT,
        "tokens": num_tokens,
        "documents": num_documents,
        "largest_token": largest,
        "sorted_tokens": SORTED_TOKENS,
        "digests": digests,  # whoever hashes the header has hashed the content
    }
    (folder / "header.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return num_tokens


def _write_documents(documents: Iterable[Sequence[int]], path: Path) -> tuple[int, int, int]:
    """Numbers of tokens (with borders) and of documents that hold any, and the largest token."""
    num_tokens, num_documents, largest = 0, 0, 0
    with path.open("wb") as file:
        for number, document in enumerate(documents):
            ids = np.asarray(document, np.int64)
            if not len(ids):
                continue
            if ids.min() < 0 or ids.max() >= 2**31:
                raise ValueError(f"document {number}: token ids must be from 0 to 2**31 - 1")
            num_tokens += len(ids) + 1
            num_documents += 1
            largest = max(largest, int(ids.max()))
            if num_tokens > MOST_TOKENS:
                raise ValueError(f"more tokens than a datastore holds, {MOST_TOKENS}")
            file.write(np.append(ids, BORDER).astype("<i4").tobytes())
    if not num_tokens:
        raise ValueError("the documents hold no tokens")
    return num_tokens, num_documents, largest


def _map(path: Path) -> Tokens:
    # np.asarray: a plain array over the same mapped pages, which numba takes.
    return np.asarray(np.memmap(path, "<i4", mode="r"))


def how_to_get(folder: Path) -> str:
    """What builds a datastore in `folder`."""
    return f"`python -m scripts.build_datastore` builds the tiny model's; any other: {BUILD_COMMAND} {folder}"


def _layout(header: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: ("<i4", (int(header["tokens"]),)) for name in ("tokens", "suffixes")}


class Datastore:
    """A datastore opened for reading.

    Attributes:
        tokens, suffixes: (k,) as in the files, mapped.
        digest, largest_token: of its tokens, as the header has them.

    Raises:
        FileNotFoundError: there is none in `folder`; the message says what builds one.
        ValueError: the files do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        about, files = built.read(folder, "datastore", "datastore", _layout, FORMAT, f"{BUILD_COMMAND} {folder}")
        self.digest, self.largest_token = str(about["digests"]["tokens"]), int(about["largest_token"])
        self.tokens, self.suffixes = files["tokens"], files["suffixes"]
        self.folder = folder

    def check(self, model: Any) -> None:
        """Raises:
        ValueError: it holds tokens that the target `model` does not have; None is unknown and has all.
        """
        if model and self.largest_token >= (size := model.config.get_text_config().vocab_size):
            raise ValueError(
                f"datastore={self.folder}: holds token {self.largest_token} and the model has {size}; it was built "
                f"with another tokenizer, build one with the model's: {BUILD_COMMAND} FOLDER --tokenizer MODEL"
            )
