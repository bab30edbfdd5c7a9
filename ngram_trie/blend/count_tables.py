"""Tables of what follows the contexts of other texts: the blend of their orders, worked out beforehand.

With n_k(t) the number of times that token t follows a context of k tokens in the texts, N_k their sum and u_k the
number of different t, the probabilities are those of `ngram_trie.blend.ppm`,

    P_k(t) = (n_k(t) + b u_k P_{k-1}(t)) / (N_k + b u_k),        P_0 = 0,

so what order 1 leaves is the caller's to give away. A row holds a context's k likeliest successors with their P_k,
those of shorter contexts blended in: a look-up reads one row, that of the longest context that has one.

Pruned are contexts that occur less than `min_count` times, all successors but the k likeliest, and contexts that tell
little that the shorter one does not: those where the probabilities above the shorter one's are above it by less than
`min_change` in all. P_{k-1} is what the tables say after the shorter context, pruned.

A folder: `header.json` and little-endian files. `keys.bin` (R,), int64: the context of each row (`longer_key`).
`slots.bin` (S,), int32: a hash table with open addressing of the rows + 1, 0 for an empty slot, at most 0.6 of them
taken. `successors.bin` (R, k), int32: -1 where there are fewer. `shares.bin` (R, k), float32. `counts.bin` (W,), int64:
how often each token occurs. All are memory-mapped; opening them reads them once, to check their digests.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngram_trie.blend.background import (
    BOUNDARY,
    NOTHING,
    Background,
    Key,
    find_row,
    longer_key,
    most_common,
    slot_of,
)
from ngram_trie.blend.ppm import FloatArray, Numbers
from ngram_trie.drafter import check_int, check_positive
from ngram_trie.store import arrays as built
from ngram_trie.store.compiled import compiled
from ngram_trie.store.files import same_model
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.tree import Fields, IntArray

FORMAT = "ngram-trie count tables 1"
BUILD_COMMAND = "python -m scripts.build_prior SOURCE --model MODEL --output "
TYPES = {"keys": "<i8", "slots": "<i4", "successors": "<i4", "shares": "<f4", "counts": "<i8"}
#: Places whose contexts are sorted at a time; about 40 bytes of memory each.
PART = 1 << 22
#: Share of a hash table's slots that is taken at most.
LOAD = 0.6


@compiled
def _enter_all(keys: IntArray, slots: Numbers) -> None:
    for row in range(len(keys)):
        slots[slot_of(keys[row], keys, slots)] = row + 1


def _hashed(keys: IntArray) -> Numbers:
    """The hash table of the rows: of the least power of 2 of slots that leaves enough of them empty."""
    slots = np.zeros(1 << int(len(keys) / LOAD).bit_length(), np.int32)
    _enter_all(keys, slots)
    return slots


@compiled
def _keys_of(text: Numbers, length: int, part: int, num_parts: int) -> tuple[IntArray, IntArray]:
    """The places where contexts of `length` tokens end that a token follows, and their keys: those of one part of all
    keys, so that all places of a context are in one part.
    """
    size = 0
    places, keys = np.empty(1024, np.int64), np.empty(1024, np.int64)
    for place in range(length - 1, len(text) - 1):
        key, known = 0, text[place + 1] != BOUNDARY
        for back in range(length):
            known &= text[place - back] != BOUNDARY
            key = longer_key(key, text[place - back])
        if not known or key % num_parts != part:
            continue
        if size == len(places):
            places, keys = np.append(places, np.empty_like(places)), np.append(keys, np.empty_like(keys))
        places[size], keys[size] = place, key
        size += 1
    return places[:size], keys[:size]


@compiled
def _blend(
    text: Numbers, places: IntArray, ends: IntArray, length: int, k: int, escape: float, fields: Fields
) -> tuple[Numbers, NDArray[np.float32], FloatArray]:
    """The rows of contexts of `length` tokens over the tables of shorter ones, and what probability is elsewhere than
    the shorter one says. A context's places end at its entry of `ends`, those of the next begin there.
    """
    tables = Background(*fields)
    successors, shares = np.full((len(ends), k), -1, np.int32), np.zeros((len(ends), k), np.float32)
    changes = np.empty(len(ends))
    start = 0
    for row, end in enumerate(ends):
        place, followers = places[start], text[places[start:end] + 1]
        start = end
        lower, lower_shares = np.empty(0, np.int32), np.empty(0, np.float32)
        shorter = text[place - length + 2 : place + 1][::-1].copy()
        below = find_row(shorter, length - 1, tables.keys, tables.slots)
        if below >= 0:
            known = tables.successors[below] >= 0
            lower, lower_shares = tables.successors[below][known], tables.shares[below][known]
        tokens = np.unique(np.append(followers, lower))
        counts, told = np.zeros(len(tokens)), np.zeros(len(tokens))
        for token in followers:
            counts[np.searchsorted(tokens, token)] += 1
        told[np.searchsorted(tokens, lower)] = lower_shares
        escaped = escape * np.count_nonzero(counts)
        probs = (counts + escaped * told) / (len(followers) + escaped)
        changes[row] = np.maximum(probs - told, 0.0).sum()
        best = np.argsort(-probs, kind="mergesort")[:k]  # of equals the lowest token first
        successors[row, : len(best)], shares[row, : len(best)] = tokens[best], probs[best]
    return successors, shares, changes


def _grown(
    tables: Background, text: Numbers, length: int, k: int, escape: float, min_count: int, min_change: float
) -> Background:
    """The tables of shorter contexts with those of `length` tokens."""
    found = [(tables.keys, tables.successors, tables.shares)]
    num_parts = len(text) // PART + 1
    for part in range(num_parts):
        places, keys = _keys_of(text, length, part, num_parts)
        order = np.lexsort((text[places + 1], keys))
        places, keys = places[order], keys[order]
        _, first, sizes = np.unique(keys, return_index=True, return_counts=True)
        often = sizes >= min_count
        places, keys, ends = places[np.repeat(often, sizes)], keys[first[often]], sizes[often].cumsum()
        successors, shares, changes = _blend(text, places, ends, length, k, escape, tuple(tables))
        tells = changes >= min_change
        found.append((keys[tells], successors[tells], shares[tells]))
    keys, successors, shares = map(np.concatenate, zip(*found, strict=True))
    return tables._replace(keys=keys, slots=_hashed(keys), successors=successors, shares=shares)


def _joined(texts: Iterable[Sequence[int] | IntArray]) -> Numbers:
    """All texts, a boundary before each."""
    joined = array("i")
    for number, text in enumerate(texts):
        ids = np.asarray(text, np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < 2**31:
            raise ValueError(f"text {number}: token ids must be from 0 to 2**31 - 1")
        joined.append(BOUNDARY)
        joined.frombytes(ids.astype(np.int32).tobytes())
    return np.frombuffer(joined, np.int32)


def _layout(header: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    rows, slots, k, size = (int(header[name]) for name in ("rows", "slots", "k", "vocabulary"))
    shapes = {"keys": (rows,), "slots": (slots,), "successors": (rows, k), "shares": (rows, k), "counts": (size,)}
    return {name: (kind, shapes[name]) for name, kind in TYPES.items()}


@dataclass(frozen=True)
class CountTables:
    """What follows contexts of up to `max_context` tokens. R rows, S slots, k successors, W tokens.

    Attributes:
        keys, slots, successors, shares, max_context, counts: as in `Background`.
        about: what else the header says: `model`, the `store.files.fingerprint` of the model whose tokens these
            are, empty if none was named; `questions`, data set and id of those whose answers the tables hold; and how
            they were made.
    """

    keys: IntArray
    slots: Numbers
    successors: Numbers
    shares: NDArray[np.float32]
    max_context: int
    counts: IntArray
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_texts(
        cls,
        texts: Iterable[Sequence[int] | IntArray],
        *,
        k: int,
        escape: float,
        max_context: int = 3,
        min_count: int = 1,
        min_change: float = 0.0,
        **about: Any,
    ) -> CountTables:
        """Of the token ids of texts, each in [0, 2**31); no context reaches from one text into the next.

        They are held in memory at 4 bytes a token; contexts are sorted `PART` places at a time.

        Args:
            k: successors of each context.
            escape: b.
            max_context: most tokens of a context.
            min_count: how often a context occurs at least.
            min_change: which probability must be elsewhere than the shorter context says, from 0 to 1.
            about: as in the class.

        Raises:
            ValueError: a value that is not allowed, or a token out of range.
        """
        check_int("k", k, 1)
        check_positive("escape", escape)
        check_int("max_context", max_context, 1)
        check_int("min_count", min_count, 1)
        if not 0 <= min_change <= 1:
            raise ValueError(f"min_change={min_change}: must be a number from 0 to 1")
        text = _joined(texts)
        tables = NOTHING._replace(successors=np.empty((0, k), np.int32), shares=np.empty((0, k), np.float32))
        contexts: list[int] = []
        for length in range(1, max_context + 1):
            tables = _grown(tables, text, length, k, float(escape), min_count, min_change)
            contexts.append(len(tables.keys) - sum(contexts))
        counts = np.bincount(text[text != BOUNDARY]).astype(np.int64)
        made = {"escape": escape, "min_count": min_count, "min_change": min_change, "tokens": int(counts.sum())}
        about = {"model": "", "questions": [], **about, **made, "contexts": contexts}
        return cls(tables.keys, tables.slots, tables.successors, tables.shares, max_context, counts, about)

    @classmethod
    def of_model(cls, tables: NgramTables, k: int, escape: float) -> CountTables:
        """Of a model's bigram, which counts as one observation: a probability p is a share of p / (1 + escape). It does
        not say how frequent tokens are.

        Raises:
            ValueError: the tables hold fewer than `k` successors of each token.
        """
        if k > tables.k:
            raise ValueError(f"k={k}: the tables hold {tables.k} successors of each token")
        successors = np.ascontiguousarray(tables.bigram[:, :k], np.int32)
        shares = np.asarray(tables.shares[:, :k] / (1 + escape), np.float32)
        keys = _keys_of(_joined([[token, 0] for token in range(len(successors))]), 1, 0, 1)[1]
        return cls(keys, _hashed(keys), successors, shares, 1, np.empty(0, np.int64))

    def background(self) -> Background:
        """The tables as the blend reads them."""
        return NOTHING._replace(
            keys=self.keys,
            slots=self.slots,
            successors=self.successors,
            shares=self.shares,
            max_context=self.max_context,
            counts=self.counts,
            total=int(self.counts.sum()),
            common=most_common(self.counts),
        )

    def write(self, folder: Path) -> int:
        """Write to `folder`; tables that were there are replaced, and without the header, which is written last, none
        are complete. Returns the bytes written.
        """
        tables = {name: np.ascontiguousarray(getattr(self, name), kind) for name, kind in TYPES.items()}
        sizes = {"rows": len(self.keys), "slots": len(self.slots), "k": self.successors.shape[1]}
        sizes |= {"max_context": self.max_context, "vocabulary": len(self.counts)}
        return built.write(folder, tables, {"format": FORMAT, **sizes, "about": dict(self.about)})

    @classmethod
    def open(cls, folder: Path) -> CountTables:
        """The tables in `folder`, mapped into memory.

        Raises:
            FileNotFoundError: there are none; the message says what builds them.
            ValueError: damaged, or of another format.
        """
        header, tables = built.read(folder, "prior", "count tables", _layout, FORMAT, f"{BUILD_COMMAND}{folder.name}")
        return cls(max_context=int(header["max_context"]), about=dict(header["about"]), **tables)

    @cached_property
    def questions(self) -> frozenset[Key]:
        """Data set and id of the questions whose answers the tables hold."""
        return frozenset((dataset, question_id) for dataset, question_id in self.about.get("questions", []))

    def check(self, model: Any, folder: Path) -> None:
        """Check that the tables hold tokens of `model`, of transformers, as far as can be said: see `same_model`.

        Raises:
            ValueError: they are of another model.
        """
        fits = len(self.counts) <= model.config.vocab_size
        if not fits or not same_model(model.name_or_path, str(self.about.get("model", ""))):
            raise ValueError(
                f"prior={folder}: made with another model's tokens than {model.name_or_path or 'the target'}'s; "
                f"give its own or build them: {BUILD_COMMAND}{folder.name}"
            )
