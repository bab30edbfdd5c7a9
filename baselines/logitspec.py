"""LogitSpec (Liu et al. 2025, arXiv 2507.01449): the runners-up of the last token are guesses of the token after it,
and what followed them before is copied.

Shapes: l = tokens of the verified text, k = guesses, m = nodes of the draft with the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngram_trie.drafter import HistoryDrafter, Traits, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import DraftTree, FloatArray, IntArray, grow


@compiled(_nrt=False)
def _link(text: IntArray, first: int, last: int, latest: IntArray, before: IntArray) -> None:
    """Take note of the text's places from `first` to `last`, exclusive: of each token the `latest`, of each place the
    one `before` it with the same token; -1 for none."""
    for place in range(first, last):
        before[place] = latest[text[place]]
        latest[text[place]] = place


@kernel
def _find(
    text: IntArray, length: int, token: int, size: int, latest: IntArray, before: IntArray, max_ngram: int,
    num_copy: int,
) -> tuple[int, int]:  # fmt: skip
    """Where a copy begins behind `token`, which is to follow the text's first `length` tokens, and how many tokens
    match; 0 and 0 for none. Of the verified text, `size` tokens, it is the longest match of at most `max_ngram`, and of
    equal ones the latest that `num_copy` tokens follow, or else the one that most follow.
    """
    start = matched = 0
    place = latest[token] if token < len(latest) else -1
    while place >= 0:
        n = 1
        while n < max_ngram and n <= min(place, length) and text[place - n] == text[length - n]:
            n += 1
        if place + 1 < size and (n > matched or (n == matched and size - start < num_copy)):
            start, matched = place + 1, n
        place = before[place]
    return start, matched


@compiled(_nrt=False)
def _draft(
    text: IntArray, guesses: IntArray, latest: IntArray, before: IntArray, max_ngram: int, num_copy: int,
    tokens: IntArray, parents: IntArray, probs: FloatArray,
) -> int:  # fmt: skip
    """Fill a draft's arrays, of m nodes at most, of which the first is the text's last token; returns its size."""
    verified = len(text) - 1
    start, matched = _find(text, verified, text[verified], verified, latest, before, max_ngram, num_copy)
    node, size = 0, 1
    for step in range(min(num_copy, verified - start) if matched else 0):
        if size == len(tokens):
            break
        node, size = grow(tokens, parents, size, node, text[start + step])
        probs[node] = matched / (matched + step + 1)
    for rank in range(len(guesses)):
        if size == len(tokens):
            break
        if guesses[rank] == text[verified]:
            continue
        prob = 1 / (rank + 2)
        node, size = grow(tokens, parents, size, 0, guesses[rank])
        probs[node] = max(probs[node], prob)
        most = (4 if rank <= 8 else 3 if rank <= 32 else 1) - 1
        start, matched = _find(text, len(text), guesses[rank], verified, latest, before, max_ngram, num_copy)
        for step in range(min(most, verified - start) if matched else 0):
            node, size = grow(tokens, parents, size, node, text[start + step])
            if node < 0:
                break
            probs[node] = max(probs[node], prob * matched / (matched + step + 1))
    return size


class LogitSpec(HistoryDrafter):
    """LogitSpec: a copy behind the last token, and behind each of the tokens that the model held likely in its place
    (smart-lty/LogitSpec, `generate_draft_tokens`).

    The last token's own logits say what may come after it: the runners-up, in their order, are guesses of the next next
    token, each continued by what followed it before. Guesses of rank 0 to 8 (the last token itself has rank 0) have
    paths of at most 4 tokens, those to rank 32 of 3, the others of 1. Matches are the longest of at most `max_ngram`
    tokens, in the verified text of prompt and answer. Authors' settings: 64 nodes, which count the pending token, and
    as many guesses, n-grams of 3 tokens, copies of 20.

    Against the authors' code:

    - Paths that begin alike are merged, and what that saves goes to more guesses.
    - Places are looked up in the whole text. Theirs are noted as the text grows, which comes to the same, except where
      a step emits so many tokens that a place's copy stays short, and in texts of less than 40 tokens.
    - Probabilities (`DraftTree.probs`) are ours: a guess has one in its rank + 2, a copy what `DraftTree.copied` says.

    Args:
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        max_ngram: longest match.
        num_copy: most tokens copied behind the last token.
        top_k: k, of which one is the last token.
    """

    traits = Traits(scores_nodes=True, reads="top-k tokens")

    def __init__(self, *, num_draft: int = 63, max_ngram: int = 3, num_copy: int = 20, top_k: int = 64) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("max_ngram", max_ngram, 1)
        check_int("num_copy", num_copy, 1)
        check_int("top_k", top_k, 1)
        self.num_draft, self.max_ngram, self.num_copy, self.top_k = num_draft, max_ngram, num_copy, top_k

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The copy keeps its published share of the nodes, 20 to 64: else it would leave none to guesses."""
        return {"num_draft": num_nodes, "num_copy": -(-20 * num_nodes // 64)}

    def bind(self, target: Any) -> None:
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._latest = self._before = np.empty(0, np.int64)
        self._num_linked = 0
        self._link(len(prompt.ids))

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._link(len(self.text) - 1)  # all but the root, which is not verified yet

    def _link(self, end: int) -> None:
        """Take note of the text's places up to `end`."""
        new = self.text[self._num_linked : end]
        self._latest = _enlarged(self._latest, int(new.max(initial=-1)) + 1)
        self._before = _enlarged(self._before, end)
        _link(self.text, self._num_linked, end, self._latest, self._before)
        self._num_linked = end

    def propose(self, budget: int) -> DraftTree:
        size = min(self.num_draft, budget) + 1
        tokens, parents, probs = np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(size)
        tokens[0], parents[0], probs[0] = self.root, -1, 1.0
        few = budget < self.num_draft  # as one that is made for so many
        num_copy = min(self.num_copy, self.sized(budget)["num_copy"]) if few else self.num_copy
        size = _draft(
            self.text, self._guesses(), self._latest, self._before, self.max_ngram, num_copy, tokens, parents, probs
        )
        return DraftTree(tokens[:size], parents[:size], probs=probs[:size])

    def _guesses(self) -> IntArray:
        """(k,) the likeliest tokens in the place of the root, in order."""
        root = np.array(self.target.last.path[-1:])
        return np.asarray(self.target.top_k(self.top_k, root).tokens[0], np.int64)


def _enlarged(places: IntArray, size: int) -> IntArray:
    """`places` of at least `size` entries, the new ones -1."""
    if size <= len(places):
        return places
    return np.concatenate([places, np.full(max(size, 2 * len(places)) - len(places), -1, np.int64)])
