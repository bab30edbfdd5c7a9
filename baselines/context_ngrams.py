"""The context-derived N-grams of N-Grammys (section 4.2, appendix B.2): whatever followed the last tokens before, the
most frequent first."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import get_args

import numpy as np

from ngram_trie.drafter import HistoryDrafter, Traits, Verify, check_choice, check_int
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import empty_table, places_of_end, slot_of_run
from ngram_trie.tree import DraftTree, FloatArray, IntArray, Sources


@compiled
def context_ngrams(text: IntArray, q: int, w: int, k: int) -> tuple[IntArray, IntArray, FloatArray]:
    """What followed the last `q` tokens of `text` before: the `k` most frequent continuations of `w` tokens, those of
    equal count by their latest occurrence (section 4.2). An occurrence that fewer than w tokens follow does not count
    (`unfold` in appendix B.2).

    Returns:
        (r, w) the continuations and (r,) their counts, r at most k, best first; and (r, w) how many occurrences go on
        like a continuation up to each of its tokens, over the number of all of them and one more.
    """
    positions = places_of_end(text, q, 0, len(text) - q - w)[::-1] + q
    table, counts = empty_table(len(positions)), np.empty(len(text), np.int64)  # by where a continuation occurred last
    starts = np.empty(len(positions), np.int64)  # of each distinct continuation, in the order of latest occurrence
    size = 0
    for start in positions:
        slot = slot_of_run(text[start : start + w], table, text)
        if table[slot] == 0:
            table[slot], counts[start] = start + 1, 0
            starts[size] = start
            size += 1
        counts[table[slot] - 1] += 1
    rows = np.empty((min(k, size), w), np.int64)
    row_counts = np.empty(len(rows), np.int64)
    for rank in range(len(rows)):
        best = 0
        for number in range(1, size):
            if counts[starts[number]] > counts[starts[best]]:  # the first of equals occurred last
                best = number
        rows[rank] = text[starts[best] : starts[best] + w]
        row_counts[rank] = counts[starts[best]]
        counts[starts[best]] = 0
    shares = np.zeros((len(rows), w))
    for rank in range(len(rows)):
        for start in positions:
            same = 0
            while same < w and text[start + same] == rows[rank, same]:
                shares[rank, same] += 1
                same += 1
    return rows, row_counts, shares / (len(positions) + 1)


class RowsDrafter(HistoryDrafter):
    """k rows of w tokens behind the text, drafted as one tree, shared prefixes merged.

    Args:
        k, w: most rows, and tokens of a row.
        num_draft: most nodes of the merged tree, None for no limit but k w. A smaller tree has all rows at equal
            length, the best ones a token longer. `propose` takes its budget where that is smaller.
        verify: "rows" to have them verified as the batch that the paper makes of them, "tree" as one tree; None as the
            run does (`engine.verify`). Both accept the same tokens.
    """

    traits = Traits(scores_nodes=True)

    def __init__(self, k: int, w: int, num_draft: int | None, verify: Verify | None = None) -> None:
        check_int("k", k, 1)
        check_int("w", w, 1)
        if num_draft is not None:
            check_int("num_draft", num_draft, 1)
        if verify is not None:
            check_choice("verify", verify, get_args(Verify))
        self.k, self.w, self.num_draft = k, w, num_draft
        self.traits = replace(self.traits, verify=verify)

    @abstractmethod
    def rows(self, text: IntArray) -> tuple[IntArray, FloatArray]:
        """(r, w) the rows that continue `text`, r at most k, best first; and (r, w) the path probabilities of their
        tokens. A node of several rows has the largest."""

    def sources(self, num_rows: int) -> Sources | None:
        """Where the rows that `rows` has just given come from, if from more than one source."""
        return None

    def propose(self, budget: int) -> DraftTree:
        whole = self.k * self.w if self.num_draft is None else self.num_draft
        most = min(budget, whole)
        rows, probs = self.rows(self.text)
        if most < whole:  # as one that is made for so many
            rows = rows[: self.sized(most).get("k", self.k)]
            probs = probs[: len(rows)]
        # Level by level, so that a cut leaves every row its beginning.
        begun = [row[:length] for length in range(1, self.w + 1) for row in rows.tolist()]
        sources = self.sources(len(rows))
        if sources is not None:
            sources = Sources(sources.names, np.tile(sources.ranks, self.w))
        return DraftTree.from_paths(self.root, begun, probs.tolist() * self.w, sources).pruned(most, self.w)


class ContextNgrams(RowsDrafter):
    """N-Grammys' context n-grams: k rows of the w tokens that followed the last q tokens before, in prompt or output.

    The paper verifies the rows as a batch; here they are one tree, shared prefixes merged. Greedy verification accepts
    the same tokens from both. The defaults are the paper's (section 5: q = 1, and (k, w) = (10, 10) as the
    representative choice). The paper's code leaves ties to `torch.topk`; its text, followed here, to recency. A node's
    probability is the share of all matches, and one more, that go on along its path.

    Args:
        k, w, num_draft, verify: as in `RowsDrafter`.
        q: query length, the tokens that have to match.
    """

    def __init__(
        self, *, k: int = 10, w: int = 10, q: int = 1, num_draft: int | None = None, verify: Verify | None = None
    ) -> None:
        super().__init__(k, w, num_draft, verify)
        check_int("q", q, 1)
        self.q = q

    def rows(self, text: IntArray) -> tuple[IntArray, FloatArray]:
        rows, _, shares = context_ngrams(text, self.q, self.w, self.k)
        return rows, shares
