"""Hash tables of compiled code, by open addressing with linear probing.

A table is an array whose size is a power of 2. An entry is a number from 1 on, 0 is a free slot. Keys lie elsewhere,
that of entry e in row e - 1 of the arrays that are given, where they are compared.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.store.compiled import compiled, kernel

Table: TypeAlias = NDArray[Any]

_OFFSET, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)


@compiled
def empty_table(room: int) -> NDArray[np.int32]:
    """A table for `room` entries, which is then half full at most."""
    size = 2
    while size < 2 * room:
        size *= 2
    return np.zeros(size, np.int32)


@kernel
def _first(key: int, other: int, table: Table) -> int:
    mixed = (key * 0x9E3779B1 + other) * 0x5851F42D4C957F2D  # wraps around
    return (mixed ^ (mixed >> 31)) & (len(table) - 1)


@kernel
def slot_of(key: int, table: Table, keys: Table) -> int:
    """The slot whose entry has this key, or the free one where it belongs."""
    slot = _first(np.int64(key), 0, table)
    row = table[slot] - 1
    while row >= 0 and keys[row] != key:
        slot = (slot + 1) & (len(table) - 1)
        row = table[slot] - 1
    return slot


@kernel
def slot_of_pair(key: int, other: int, table: Table, keys: Table, others: Table) -> int:
    """The same for keys of two parts."""
    slot = _first(np.int64(key), other, table)
    row = table[slot] - 1
    while row >= 0 and (keys[row] != key or others[row] != other):
        slot = (slot + 1) & (len(table) - 1)
        row = table[slot] - 1
    return slot


@compiled
def rehash(keys: Table, size: int, table: Table) -> None:
    """Fill a table, which is all 0, with the first `size` keys."""
    for row in range(size):
        table[slot_of(keys[row], table, keys)] = row + 1


@compiled
def rehash_pairs(keys: Table, others: Table, table: Table) -> None:
    """The same with all keys of two parts."""
    for row in range(len(keys)):
        table[slot_of_pair(keys[row], others[row], table, keys, others)] = row + 1


@kernel
def slot_of_run(run: Table, table: Table, text: Table) -> int:
    """The same for runs of a text: that of entry e begins at place e - 1."""
    slot = _first(np.int64(hash_of(run)), 0, table)
    while table[slot] != 0 and not same_run(run, text, table[slot] - 1):
        slot = (slot + 1) & (len(table) - 1)
    return slot


@kernel
def same_run(run: Table, text: Table, place: int) -> bool:
    """Whether `text` has the tokens `run` at `place`; it must be long enough."""
    same = 0
    while same < len(run) and text[place + same] == run[same]:
        same += 1
    return same == len(run)


@compiled
def places_of_end(text: Table, size: int, first: int, last: int) -> NDArray[np.int64]:
    """Where in [first, last] the last `size` tokens of `text` begin, increasing."""
    places, found = np.empty(max(last - first + 1, 0), np.int64), 0
    run = text[len(text) - size :]
    for start in range(first, last + 1):
        if same_run(run, text, start):
            places[found] = start
            found += 1
    return places[:found]


@compiled
def hash_of(run: Table) -> np.uint64:
    """64-bit FNV-1a over whole tokens."""
    key = _OFFSET
    for token in run:
        key = (key ^ np.uint64(token)) * _PRIME
    return key
