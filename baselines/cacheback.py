"""Cacheback (Ma, Gim and Zhong 2025, arXiv 2511.21699): what followed the last token before, the most recent first, out
of least-recently-used tables of n-grams.

An n-gram is a leader, which is looked up, and a follower, which is drafted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ngram_trie.drafter import Drafter, Traits, check_bool, check_int
from ngram_trie.memory import RecordedAnswers, answers_file
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import empty_table, same_run, slot_of_run
from ngram_trie.tree import DraftTree, Fields, FloatArray, IntArray

#: What the release runs Spec-Bench with: the model reads at most 96 tokens a step, the pending one among them, and 16
#: are kept for chaining.
PUBLISHED_NODES, PUBLISHED_RESERVE = 95, 16


class Sizes(NamedTuple):
    """Tokens of a leader and of a follower, and most followers of a leader."""

    leader_len: int
    follower_len: int
    followers: int


class Table(NamedTuple):
    """Leaders and their followers, as compiled code reads and writes them. A place is where an n-gram begins.

    Attributes:
        text: (c,) the tokens that places point into.
        older: (c,) of an n-gram the same leader's next less recent one; -1: none.
        latest: hash table of leaders, by the place of their most recent n-gram + 1.
    """

    text: IntArray
    older: IntArray
    latest: NDArray[np.int32]

    @classmethod
    def empty(cls, room: int) -> Table:
        return cls(np.zeros(room, np.int64), np.zeros(room, np.int64), empty_table(room))


@compiled
def _use(fields: Fields, begin: int, end: int, step: int, sizes_fields: Fields) -> None:
    """Make the n-grams at each `step`-th of the places begin..end the most recent ones of their leaders. Of equal ones
    the earlier place is forgotten, of too many the least recent."""
    table, sizes = Table(*fields), Sizes(*sizes_fields)
    text, older, length = table.text, table.older, sizes.leader_len
    for new in range(begin, end, step):
        follower = text[new + length : new + length + sizes.follower_len]
        slot = slot_of_run(text[new : new + length], table.latest, text)
        before, place, kept = new, table.latest[slot] - 1, 1
        table.latest[slot], older[new] = new + 1, place
        while place >= 0:
            if kept == sizes.followers or same_run(follower, text, place + length):
                older[before] = older[place]
                break
            before, place = place, older[place]
            kept += 1


@compiled
def _copy(fields: Fields, larger_fields: Fields, size: int, leader_len: int) -> None:
    """Take all `size` tokens over into a larger table, which is empty."""
    table, larger = Table(*fields), Table(*larger_fields)
    larger.text[:size], larger.older[:size] = table.text[:size], table.older[:size]
    for entry in table.latest:
        if entry:
            leader = larger.text[entry - 1 : entry - 1 + leader_len]
            larger.latest[slot_of_run(leader, larger.latest, larger.text)] = entry


@compiled
def _read_leader(text: IntArray, tokens: IntArray, parents: IntArray, node: int, leader: IntArray) -> bool:
    """Whether text and path to `node` are long enough for a leader, and then its tokens."""
    at, back = len(leader), 1
    while at > 0 and back <= len(text):
        at -= 1
        if node > 0:
            leader[at], node = tokens[node], parents[node]
        else:
            leader[at] = text[-back]
            back += 1
    return at == 0


@compiled
def _child(tokens: IntArray, parents: IntArray, size: int, node: int, token: int) -> int:
    """The child of `node` by `token`; -1 if there is none."""
    for child in range(node + 1, size):
        if parents[child] == node and tokens[child] == token:
            return child
    return -1


@compiled
def _draft(
    text: IntArray,
    dynamic_fields: Fields,
    frozen_fields: Fields,
    sizes_fields: Fields,
    num_draft: int,
    reserve: int,
    merge: bool,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Tokens, parents and path probabilities of the draft behind `text`."""
    sizes = Sizes(*sizes_fields)
    tables = Table(*dynamic_fields), Table(*frozen_fields)
    tokens, parents = np.empty(num_draft + 1, np.int64), np.empty(num_draft + 1, np.int64)
    probs = np.ones(num_draft + 1)
    tokens[0], parents[0] = text[-1], -1
    ends = np.zeros(num_draft + 1, np.int64)  # the last nodes of the followers, breadth first; of none, the root
    begin, end, size, full = 0, 1, 1, False
    leader = np.empty(sizes.leader_len, np.int64)
    room = num_draft - reserve
    while begin < end and not full:
        more = end
        for leaf in ends[begin:end]:
            known = _read_leader(text, tokens, parents, leaf, leader)
            rank = 0.0
            for table in tables:
                place = table.latest[slot_of_run(leader, table.latest, table.text)] - 1 if known else -1
                while place >= 0:
                    node, shared, begin_at = leaf, 0, place + sizes.leader_len
                    child = node
                    while merge and shared < sizes.follower_len and child >= 0:
                        child = _child(tokens, parents, size, node, table.text[begin_at + shared])
                        if child >= 0:
                            node = child
                            shared += 1
                    full = sizes.follower_len - shared > room
                    if full:
                        break
                    for index in range(shared, sizes.follower_len):
                        tokens[size], parents[size] = table.text[begin_at + index], node
                        step = (sizes.leader_len + index) / (sizes.leader_len + index + 1) if index else 1 / (rank + 2)
                        probs[size] = probs[node] * step
                        node = size
                        size += 1
                        room -= 1
                    if shared < sizes.follower_len:
                        ends[more] = node
                        more += 1
                    rank += 1
                    place = table.older[place]
                if full:
                    break
            if full:
                break
        if begin == 0 and reserve > 0:
            room += reserve
            full = False
        begin, end = end, more
    return tokens[:size], parents[:size], probs[:size]


class NgramCache:
    """A table of n-grams that keeps of each leader the followers that were seen last.

    Args:
        sizes: lengths and most followers.
        room: tokens that it has room for at first.
    """

    def __init__(self, sizes: Sizes, room: int = 1024) -> None:
        self.sizes, self.table = sizes, Table.empty(room)
        self._size = self._used = 0

    @classmethod
    def of_texts(cls, texts: Iterable[Sequence[int]], sizes: Sizes) -> NgramCache:
        """The n-grams of whole texts: each leader's most frequent followers, the most frequent in the place of the most
        recent; of equals the one that was seen first.
        """
        length = sizes.leader_len + sizes.follower_len
        arrays = (np.asarray(text, np.int64) for text in texts)
        windows = [np.lib.stride_tricks.sliding_window_view(text, length) for text in arrays if len(text) >= length]
        ngrams = np.concatenate([np.empty((0, length), np.int64), *windows])
        kinds, first, times = np.unique(ngrams, axis=0, return_index=True, return_counts=True)
        flat = kinds[np.lexsort([-first, times])].ravel()
        cache = cls(sizes, len(flat) + 1)
        cache.table.text[: len(flat)] = flat
        _use(tuple(cache.table), 0, len(flat), length, tuple(sizes))
        return cache

    @property
    def text(self) -> IntArray:
        """(l,) all tokens."""
        return self.table.text[: self._size]

    def extend(self, ids: Sequence[int] | IntArray) -> None:
        """Append tokens to the text; the n-grams that they complete become the most recent ones."""
        end = self._size + len(ids)
        if end > len(self.table.text):
            larger = Table.empty(2 * end)
            _copy(tuple(self.table), tuple(larger), self._size, self.sizes.leader_len)
            self.table = larger
        self.table.text[self._size : end] = ids
        self._size = end
        used = max(self._used, end - self.sizes.leader_len - self.sizes.follower_len + 1)
        _use(tuple(self.table), self._used, used, 1, tuple(self.sizes))
        self._used = used


class Cacheback(Drafter):
    """Cacheback: a dynamic table of the n-grams of prompt and output and, if there are texts for it, a frozen one of
    theirs. The last `leader_len` tokens are looked up in both, and their followers drafted side by side, the dynamic
    table's first, the most recent (of the frozen one's: the most frequent) first. Chaining then looks up the end of
    each follower in turn, and so on, until one does not fit.

    Sizes and rules are those of the release (zyma98/Spec-Bench, as copied in Liu-Steve/GSAM-Decoding): of the 95 nodes
    16 are left to chaining, and a follower that does not fit whole ends its round. It empties the dynamic table before
    each prompt. What differs:

    - Its frozen table is of the Alpaca data set; here of recorded answers, or there is none. A question of theirs is
      drafted with what nine of ten parts hold, its own not among them.
    - The model reads at most 96 tokens of its each step. There these are all tokens of the step before and the draft;
      here the pending one and the draft. Its first draft has what a prompt leaves of the 96, so mostly nothing.
    - It keeps at most 2^20 leaders. No vocabulary has as many single tokens; of longer leaders all are kept here.
    - Followers that begin alike are drafted twice there; `merge` drafts what they share once. Greedy verification
      accepts the same tokens of the same followers.

    By its place alone, the follower of rank r is begun right in one of r + 2 cases, and goes on as a copy that has been
    right so far (`DraftTree.copied`): the probabilities.

    Args:
        num_draft: most nodes; `propose` takes its budget where that is smaller, and a smaller reserve accordingly.
        reserve: of these, nodes that only chaining may take.
        leader_len, follower_len: tokens that are looked up, and that are drafted behind them.
        followers: most followers kept of a leader.
        merge: draft shared beginnings once, which leaves room for more.
        answers: a file of recorded answers (`read_answers`), which the frozen table is made of. The state is then
            "preloaded".
    """

    traits = Traits(scores_nodes=True)
    not_sent = ("_frozen",)  # another process makes them itself

    def __init__(
        self,
        *,
        num_draft: int = PUBLISHED_NODES,
        reserve: int = PUBLISHED_RESERVE,
        leader_len: int = 1,
        follower_len: int = 3,
        followers: int = 128,
        merge: bool = False,
        answers: str | None = None,
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("reserve", reserve, 0, num_draft)
        check_int("leader_len", leader_len, 1)
        check_int("follower_len", follower_len, 1)
        check_int("followers", followers, 1)
        check_bool("merge", merge)
        self.num_draft, self.reserve, self.merge = num_draft, reserve, merge
        self.sizes = Sizes(leader_len, follower_len, followers)
        self.answers = answers_file(answers)
        if answers:
            self.traits = replace(self.traits, state="preloaded")

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The reserve in proportion, and shared beginnings once: twice the same node is no use of a node."""
        return {"num_draft": num_nodes, "reserve": num_nodes * PUBLISHED_RESERVE // PUBLISHED_NODES, "merge": True}

    def parts(self) -> Mapping[Path, str]:
        return {self.answers: "record answers: a live run writes traces.jsonl"} if self.answers else {}

    @functools.cached_property
    def _frozen(self) -> RecordedAnswers[NgramCache]:
        return RecordedAnswers(self.answers, lambda others: NgramCache.of_texts(others, self.sizes))

    def bind(self, target: Any) -> None:
        self._frozen  # noqa: B018 (made before a prompt is timed)

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._looked_up, self._dynamic = self._frozen.beside(prompt).table, NgramCache(self.sizes)
        self._dynamic.extend(prompt.ids)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._dynamic.extend(new_ids)

    def propose(self, budget: int) -> DraftTree:
        size = min(self.num_draft, budget)
        tables = tuple(self._dynamic.table), tuple(self._looked_up), tuple(self.sizes)
        reserve = self.reserve * size // self.num_draft
        tokens, parents, probs = _draft(self._dynamic.text, *tables, size, reserve, self.merge)
        return DraftTree(tokens, parents, probs=probs)
