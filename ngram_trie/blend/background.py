"""What the blend falls back to below its text: earlier answers, a table of successors, or first the one and then that.

Both answer one question of the blend (`expect`): what follows these tokens elsewhere, and which share is left to what
is below. Both also know how frequent tokens are elsewhere, which is the last thing that the blend falls back to.

`AnswerStore`: answers as one text, its orders blended as those of the prompt are (`ngram_trie.blend.ppm`). A place
points to the one before it of the same token, and to the one before it of the same two tokens: of a frequent token the
latest occurrences alone would miss the long ones.

`ngram_trie.blend.bigram`: of each token its k likeliest successors, worked out beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ngram_trie.blend.ppm import Numbers, Successors, blend_orders, count_occurrence
from ngram_trie.drafter import check_int
from ngram_trie.memory import Key, Memory, read_answers
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.store.files import replacing
from ngram_trie.store.hashing import empty_table, slot_of, slot_of_pair
from ngram_trie.tree import IntArray

#: Of a token that is frequent elsewhere, how many are drafted where they follow nothing.
NUM_COMMON = 64
#: What stands before each answer of a store.
BOUNDARY = -1


class Background(NamedTuple):
    """A store, a table, or a store over a table, as compiled code reads them. R rows of the table, each of one token.

    Attributes:
        text: (s,) a store's token ids, `BOUNDARY` between answers.
        before, before_pair: (s,) of each place the latest one before it of the same token, of the same two; 0, where
            the first boundary stands: none.
        heads, pair_heads: hash tables of the latest places.
        hidden: (2,) occurrences from this place to that do not count.
        rows: (V,) the row of each token; -1: none. A token of V or above has none.
        successors: (R, k) what follows the token, the likeliest first; -1 where there are fewer.
        shares: (R, k) their probabilities.
        counts: (W,) how often each token occurs elsewhere, `total` in all.
        common: (c,) the most frequent of them, the most frequent first.
        max_occurrences: how many are looked at of a context's last two tokens, and of its last one; the latest.
    """

    text: Numbers
    before: Numbers
    before_pair: Numbers
    heads: Numbers
    pair_heads: Numbers
    hidden: IntArray
    rows: Numbers
    successors: Numbers
    shares: NDArray[np.float32]
    counts: IntArray
    total: int
    common: Numbers
    max_occurrences: int


_EMPTY = np.empty(0, np.int32)
#: No background.
NOTHING = Background(
    text=_EMPTY,
    before=_EMPTY,
    before_pair=_EMPTY,
    heads=np.zeros(1, np.int32),
    pair_heads=np.zeros(1, np.int32),
    hidden=np.zeros(2, np.int64),
    rows=_EMPTY,
    successors=np.empty((0, 0), np.int32),
    shares=np.empty((0, 0), np.float32),
    counts=np.empty(0, np.int64),
    total=0,
    common=_EMPTY,
    max_occurrences=0,
)


@kernel
def _slots(last: int, other: int, store: Background) -> tuple[int, int]:
    """The slots that hold the latest place of `last`, and of `last` behind `other`, or would."""
    at_last = store.text[1:]
    return slot_of(last, store.heads, at_last), slot_of_pair(last, other, store.pair_heads, at_last, store.text)


@compiled
def _index(store: Background, start: int, end: int) -> None:
    """Chain the places text[start:end]; a boundary stands before the first of all."""
    text, before, before_pair = store.text, store.before, store.before_pair
    heads, pair_heads = store.heads, store.pair_heads
    for place in range(start, end):
        before[place] = before_pair[place] = 0
        if text[place] == BOUNDARY:
            continue
        slot, pair_slot = _slots(text[place], text[place - 1], store)
        before[place], heads[slot] = heads[slot], place
        if text[place - 1] != BOUNDARY:
            before_pair[place], pair_heads[pair_slot] = pair_heads[pair_slot], place


@kernel
def _row_of(token: int, found: int, successors: Successors) -> int:
    """The row of `token` among the `found` successors; `found`, where it is entered, if it is new."""
    slot = slot_of(token, successors.slots, successors.tokens)
    if successors.slots[slot] == 0:
        successors.slots[slot] = found + 1
        successors.tokens[found] = token
    return successors.slots[slot] - 1


@kernel
def _tally(store: Background, context: IntArray, pairs: bool, found: int, successors: Successors) -> int:
    """Count what follows the context in the answers: with `pairs` the occurrences of two tokens and more, else those of
    its last token alone. Returns how many successors there are now.
    """
    text, hidden = store.text, store.hidden
    slot, pair_slot = _slots(context[0], context[1] if pairs else BOUNDARY, store)
    place, links = (store.pair_heads[pair_slot], store.before_pair) if pairs else (store.heads[slot], store.before)
    looked = 0
    while place > 0 and looked < store.max_occurrences:
        looked += 1
        agreed = 2 if pairs else 1
        while agreed < len(context) and text[place - agreed] == context[agreed]:  # a boundary agrees with nothing
            agreed += 1
        is_hidden = hidden[0] <= place < hidden[1]
        if (pairs or agreed == 1) and place + 1 < len(text) and text[place + 1] != BOUNDARY and not is_hidden:
            row = _row_of(text[place + 1], found, successors)
            count_occurrence(successors, row, agreed, row == found)
            found = max(found, row + 1)
        place = links[place]
    return found


@kernel
def _add_row(table: Background, row: int, left: float, found: int, successors: Successors) -> tuple[int, float]:
    """Add a row of the table, at the share `left`: successors now, and the share that is left."""
    told = 0.0
    for column in range(table.successors.shape[1]):
        token = table.successors[row, column]
        if token < 0:
            break
        at = _row_of(token, found, successors)
        if at == found:
            found += 1
            successors.shares[at] = 0.0
        successors.shares[at] += left * table.shares[row, column]
        told += table.shares[row, column]
    return found, left * (1 - told)


@kernel
def expect(background: Background, context: IntArray, escape: float, successors: Successors) -> tuple[int, float]:
    """What follows a context elsewhere.

    Args:
        context: (k,) its last tokens, at least 1, the last one first.
        escape: b.
        successors: what follows is written to.

    Returns:
        How many successors there are, and the share that is left to what is below.
    """
    successors.slots[:] = 0
    found, left = 0, 1.0
    if len(background.text):
        if len(context) > 1:
            found = _tally(background, context, True, found, successors)
        found = _tally(background, context, False, found, successors)
        left = blend_orders(successors, found, escape)
    row = background.rows[context[0]] if context[0] < len(background.rows) else -1
    if row >= 0:
        found, left = _add_row(background, row, left, found, successors)
    return found, left


@compiled
def most_successors(background: Background) -> int:
    """How many successors a context may have elsewhere."""
    return 2 * background.max_occurrences + background.successors.shape[1]


def most_common(counts: IntArray) -> Numbers:
    """The most frequent tokens, of equals the lowest first."""
    return np.argsort(-counts, kind="stable")[: min(NUM_COMMON, np.count_nonzero(counts))].astype(np.int32)


def over(store: Background, table: Background) -> Background:
    """A store that falls back to a table. A token is as frequent elsewhere as both together say."""
    counts = np.zeros(max(len(store.counts), len(table.counts)), np.int64)
    counts[: len(store.counts)] += store.counts
    counts[: len(table.counts)] += table.counts
    return store._replace(
        rows=table.rows,
        successors=table.successors,
        shares=table.shares,
        counts=counts,
        total=int(counts.sum()),
        common=most_common(counts),
    )


class AnswerStore:
    """Earlier answers, up to a number of tokens; the oldest are forgotten: the background of `method=blend_warm`.

    Args:
        max_tokens: of all answers together, one more counted for each; of a longer answer the end is kept.
        max_occurrences: as in `Background`.

    Raises:
        ValueError: fewer than 4 tokens.
    """

    def __init__(self, max_tokens: int = 65_536, max_occurrences: int = 32) -> None:
        check_int("max_tokens", max_tokens, 4)
        self.max_tokens, self.max_occurrences = max_tokens, max_occurrences
        self._memory: Memory[IntArray] = Memory()
        #: Of all answers that were ever remembered.
        self.datasets: set[str] = set()
        self._rebuild()

    def _rebuild(self) -> None:
        text, before, before_pair = (np.empty(self.max_tokens, np.int32) for _ in range(3))
        heads, pair_heads = empty_table(self.max_tokens), empty_table(self.max_tokens)
        self._store = NOTHING._replace(
            text=text, before=before, before_pair=before_pair, heads=heads, pair_heads=pair_heads,
            max_occurrences=self.max_occurrences,
        )  # fmt: skip
        self._counts = np.zeros(0, np.int64)
        self._places: dict[Key, tuple[int, int]] = {}
        self._size = 0
        for (key, _), answer in self._memory.answers.items():
            self._append(key, answer)

    def _append(self, key: Key, answer: IntArray) -> None:
        start, end = self._size, self._size + 1 + len(answer)
        self._store.text[start] = BOUNDARY
        self._store.text[start + 1 : end] = answer
        _index(self._store, start, end)
        counts = np.bincount(answer, minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts, self._size = counts, end
        self._places[key] = (self._places.get(key, (start, end))[0], end)

    def add(self, answer: Sequence[int] | IntArray, dataset: str = "", question_id: str = "", turn: int = 0) -> None:
        """Remember an answer. One to a question and turn that is remembered already is not added again; answers
        without a question id are all different.
        """
        key = dataset, question_id
        self.datasets.add(dataset)
        ids = np.asarray(answer, np.int64)[-(self.max_tokens * 3 // 4 - 1) :]
        if not len(ids) or not self._memory.add(key, turn, ids):
            return
        if self._size + 1 + len(ids) <= self.max_tokens:
            self._append(key, ids)
            return
        # Make room for a while at once: all is built anew.
        size = sum(1 + len(kept) for kept in self._memory.answers.values())
        while size > self.max_tokens * 3 // 4:
            size -= 1 + len(self._memory.answers.popitem(last=False)[1])
        self._rebuild()

    def background(self, dataset: str = "", question_id: str = "") -> Background:
        """What is remembered of all questions but this one; of all, if it has no id. Valid until the next `add`."""
        counts, hidden = self._counts, (0, 0)
        if question_id and (dataset, question_id) in self._places:
            hidden = self._places[dataset, question_id]
            own = self._store.text[hidden[0] : hidden[1]]
            counts = counts - np.bincount(own[own != BOUNDARY], minlength=len(counts))
        return self._store._replace(
            text=self._store.text[: self._size],
            hidden=np.array(hidden, np.int64),
            counts=counts,
            total=int(counts.sum()),
            common=most_common(counts),
        )

    def save(self, path: Path | str) -> None:
        """Write the answers, a JSON line each, the oldest first, to `path`."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
            for ((dataset, question_id), turn), answer in self._memory.answers.items():
                row = {"dataset": dataset, "question_id": question_id, "turn": max(turn, 0)}
                file.write(json.dumps(row | {"output_token_ids": answer.tolist()}, separators=(",", ":")) + "\n")

    @classmethod
    def load(cls, path: Path | str, max_tokens: int = 65_536, max_occurrences: int = 32) -> AnswerStore:
        """The answers of a file that `save` wrote, or of recorded ones: see `read_answers`."""
        store = cls(max_tokens, max_occurrences)
        for row in read_answers(Path(path)):
            store.add(row["output_token_ids"], row["dataset"], row["question_id"], row["turn"])
        return store
