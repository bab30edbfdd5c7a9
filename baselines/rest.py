"""REST (He et al. 2023, arXiv 2311.08252): drafts retrieved from a datastore of other texts by the last tokens.

A datastore is a folder: `header.json`, `tokens.bin` and `suffixes.bin`, both int32 and little-endian. `tokens` are the
documents, each followed by `BORDER`; `suffixes` are all positions, sorted by the tokens that stand there. Both are
memory-mapped, so opening one takes no time and memory is taken only by the pages that are searched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ngram_trie.drafter import Drafter, Prompt, State, TokenHistory
from ngram_trie.drafters import check_int
from ngram_trie.tree import DraftTree, IntArray
from ngram_trie.trie import NUM_FIELDS, add_child, prune

Tokens: TypeAlias = NDArray[np.int32]

#: Ends a document; no token is negative, so nothing that is looked up holds it.
BORDER = -1
FORMAT = "ngram-trie datastore 1"
BUILD_COMMAND = "python -m scripts.build_datastore SOURCE"
#: Sorted by so many tokens, suffixes can be looked up by so many.
SORTED_TOKENS = 16
#: Positions are 32-bit integers.
MOST_TOKENS = 2**31 - 1


def suffix_array(tokens: Tokens, num_sorted: int = SORTED_TOKENS) -> Tokens:
    """(k,) all positions of `tokens`, (k,), ordered by the `num_sorted` tokens that begin there, then by position.

    Manber and Myers' prefix doubling: ranks by h tokens give the ranks by 2h, so four sorts are enough for 16.
    """
    rank = np.unique(tokens, return_inverse=True)[1].astype(np.int64)
    order = np.argsort(rank, kind="stable")
    length = 1
    while length < num_sorted:
        after = np.zeros_like(rank)  # 0 is the end of the text, before any token
        after[:-length] = rank[length:] + 1
        key = rank * (len(tokens) + 1) + after
        order = np.argsort(key, kind="stable")
        sorted_key = key[order]
        rank[order] = np.concatenate([[0], np.cumsum(sorted_key[1:] != sorted_key[:-1])])
        length *= 2
    return order.astype(np.int32)


def build_datastore(documents: Iterable[Sequence[int]], folder: Path) -> int:
    """Write the datastore of `documents`, token ids in [0, 2**31), to `folder`; the number of tokens, borders included.

    Raises:
        ValueError: no tokens, too many, or one out of range.
    """
    parts = []
    for number, document in enumerate(documents):
        ids = np.asarray(document, np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= 2**31):
            raise ValueError(f"document {number}: token ids must be from 0 to 2**31 - 1")
        if len(ids):
            parts += [ids.astype(np.int32), np.array([BORDER], np.int32)]
    size = sum(map(len, parts))
    if not size:
        raise ValueError("the documents hold no tokens")
    if size > MOST_TOKENS:
        raise ValueError(f"{size} tokens are more than a datastore holds, {MOST_TOKENS}")
    tokens = np.concatenate(parts)
    folder.mkdir(parents=True, exist_ok=True)
    # The header is written last: without it a datastore is not complete. Removed files stay readable where mapped.
    for name in ("header.json", "tokens.bin", "suffixes.bin"):
        (folder / name).unlink(missing_ok=True)
    tokens.astype("<i4").tofile(folder / "tokens.bin")
    suffix_array(tokens).astype("<i4").tofile(folder / "suffixes.bin")
    about = {"format": FORMAT, "tokens": size, "documents": len(parts) // 2, "sorted_tokens": SORTED_TOKENS}
    (folder / "header.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return size


class Datastore:
    """A datastore opened for reading.

    Raises:
        FileNotFoundError: there is none in `folder`; the message says what builds one.
        ValueError: the files do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        header = folder / "header.json"
        if not header.is_file():
            raise FileNotFoundError(f"datastore={folder}: no datastore there; build it: {BUILD_COMMAND} {folder}")
        try:
            about: dict[str, Any] = json.loads(header.read_text(encoding="utf-8"))
            size = about["tokens"] if about["format"] == FORMAT else -1
        except (ValueError, KeyError, TypeError):
            size = -1
        files = [folder / "tokens.bin", folder / "suffixes.bin"]
        if any(not file.is_file() or file.stat().st_size != 4 * size for file in files):
            raise ValueError(
                f"datastore={folder}: damaged or of another format; build it anew: {BUILD_COMMAND} {folder}"
            )
        # np.asarray: a plain array over the same mapped pages, which numba takes.
        self.tokens, self.suffixes = (np.asarray(np.memmap(file, "<i4", mode="r")) for file in files)


@njit(cache=True)
def _compare(tokens: Tokens, start: int, text: IntArray, length: int) -> int:
    """-1, 0, 1: the tokens from `start` on come before, begin with, come after the last `length` tokens of `text`."""
    offset = len(text) - length
    for index in range(length):
        if start + index == len(tokens) or tokens[start + index] < text[offset + index]:
            return -1
        if tokens[start + index] > text[offset + index]:
            return 1
    return 0


@njit(cache=True)
def _hits(tokens: Tokens, suffixes: Tokens, text: IntArray, length: int) -> tuple[int, int]:
    """The range [low, high) of `suffixes` that begin with the last `length` tokens of `text`."""
    bounds = [0, 0]
    for side in range(2):
        low, high = bounds[0], len(suffixes)
        while low < high:
            middle = (low + high) // 2
            if _compare(tokens, suffixes[middle], text, length) < side:
                low = middle + 1
            else:
                high = middle
        bounds[side] = low
    return bounds[0], bounds[1]


@njit(cache=True)
def _retrieve(
    tokens: Tokens,
    suffixes: Tokens,
    text: IntArray,
    max_span: int,
    min_span: int,
    num_tokens: int,
    max_hits: int,
    num_draft: int,
) -> tuple[IntArray, IntArray]:
    """Tokens and parents of the draft; the root alone if there is no hit."""
    low, high, length = 0, 0, min(max_span, len(text))
    while length >= min_span:
        low, high = _hits(tokens, suffixes, text, length)
        if low < high:
            break
        length -= 1
    if low == high:
        return text[-1:].copy(), np.full(1, -1, np.int64)
    high = min(high, low + max_hits)
    capacity = (high - low) * num_tokens + 1
    table_size = 2
    while table_size < 2 * capacity:
        table_size *= 2
    nodes = np.zeros((capacity, NUM_FIELDS), np.int32)
    table = np.zeros(table_size, np.int32)
    size = 1
    for hit in range(low, high):
        start = suffixes[hit] + length
        node = 0
        for position in range(start, min(start + num_tokens, len(tokens))):
            if tokens[position] == BORDER:
                break
            node, size = add_child(nodes, table, size, node, tokens[position], 1)
    return prune(nodes, 0, num_draft, False, text[-1])


class REST(Drafter):
    """REST (section 3 of the paper): the longest suffix of the text, of `max_span` down to `min_span` tokens, that the
    datastore holds is looked up; what follows each hit becomes a path of a trie that counts prefixes, and the most
    frequent prefixes are drafted.

    As in the release (FasterDecoding/REST), spans go from 16 to 2, the first that hits is taken, at most 5,000 hits are
    read, 10 tokens after each. The release keeps 64 prefixes by a heap, in the order of a hash where counts are equal,
    and then drops whole paths until at most 64 nodes are left; here exactly the most frequent 64 are kept, those nearer
    to the root first where counts are equal. Its tokens have 16 bits and its documents run into each other; here
    tokens have 32 bits and no continuation crosses the end of a document.

    Args:
        datastore: folder that `scripts.build_datastore` wrote; opened when the first prompt starts.
        max_span, min_span: longest and shortest suffix that is looked up; at most 16.
        num_tokens: tokens read after each hit.
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        max_hits: most hits that are read, the first in the order of the suffix array.

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    state: ClassVar[State] = "preloaded"

    def __init__(
        self,
        *,
        datastore: str,
        max_span: int = 16,
        min_span: int = 2,
        num_tokens: int = 10,
        num_draft: int = 64,
        max_hits: int = 5000,
    ) -> None:
        if not isinstance(datastore, str | Path) or not str(datastore):
            raise ValueError(f"datastore={datastore!r}: must be the path of a folder")
        check_int("max_span", max_span, 1, SORTED_TOKENS)
        check_int("min_span", min_span, 1, max_span)
        check_int("num_tokens", num_tokens, 1)
        check_int("num_draft", num_draft, 1)
        check_int("max_hits", max_hits, 1)
        self.datastore = Path(datastore)
        self.max_span, self.min_span = max_span, min_span
        self.num_tokens, self.num_draft, self.max_hits = num_tokens, num_draft, max_hits
        self._opened: Datastore | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the files itself instead of being sent their content.
        return self.__dict__ | {"_opened": None}

    def start(self, prompt: Prompt) -> None:
        """Raises:
        FileNotFoundError, ValueError: no usable datastore (`Datastore`).
        """
        self._opened = self._opened or Datastore(self.datastore)
        self._history = TokenHistory(prompt.ids)

    def observe(self, new_ids: Sequence[int]) -> None:
        self._history.append(new_ids)

    def propose(self, budget: int) -> DraftTree:
        text, store = self._history.ids, self._opened
        num_draft = min(self.num_draft, budget)
        if num_draft < 1:
            return DraftTree.root_only(int(text[-1]))
        assert store
        limits = self.max_span, self.min_span, self.num_tokens, self.max_hits, num_draft
        return DraftTree(*_retrieve(store.tokens, store.suffixes, text, *limits))
