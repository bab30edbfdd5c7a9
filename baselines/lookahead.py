"""Lookahead decoding (Fu et al. 2024, arXiv 2402.02057): n-grams that a Jacobi iteration throws up beside the answer
are pooled and tried as drafts.

Shapes: W = window, N = level (tokens of an n-gram), G = guesses; r rows and w columns of the window at the moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngram_trie.drafter import MAX_SEED, Drafter, Traits, check_bool, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, IntArray


class NgramPool:
    """For each token the last `capacity` n-grams that began with it. First in, first out; one that comes again counts
    as new (upstream's "lru policy")."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._ngrams: dict[int, dict[tuple[int, ...], None]] = {}  # a dict keeps the order of insertion

    def add(self, ngram: Sequence[int]) -> None:
        kept = self._ngrams.setdefault(ngram[0], {})
        continuation = tuple(ngram[1:])
        kept.pop(continuation, None)
        kept[continuation] = None
        if len(kept) > self.capacity:
            del kept[next(iter(kept))]

    def after(self, token: int) -> list[tuple[int, ...]]:
        """What followed `token` in the pooled n-grams, the newest first."""
        return list(reversed(self._ngrams.get(token, {})))


def window_parents(rows: int, columns: int, first: int) -> IntArray:
    """Parents of the window's nodes, the first of them node `first` of the tree; (r w - 1,).

    The window is a comb below the root, which is its cell (0, 0): row 0 runs on from the root, and below each of its
    tokens hangs the rest of that column. So cell (i, j) sees row 0 up to column j and column j down to row i, at
    position i + j behind the root, which is upstream's mask (`j_make_causal_mask_multilevel`).
    """
    cells = np.arange(1, rows * columns)
    above = np.where(cells < columns, cells - 1, cells - columns)
    return np.where(above == 0, 0, above + first - 1).astype(np.int64)


class Lookahead(Drafter):
    """Lookahead decoding, greedy (section 3 of the paper, algorithm 2; hao-ai-lab/LookaheadDecoding).

    One forward of the target does two things. The *lookahead branch* is a window of N - 1 rows by W columns of guessed
    tokens, each row one Jacobi iteration older than the next. What the target says after the last row becomes a new
    row, the oldest row drops out, and the W columns, each of N tokens with its new end, go to the pool. The
    *verification branch* tries the up to G pooled n-grams that begin with the text's last token. Here the n-grams are
    the tree's candidates, shared prefixes merged, and the window its probes: at most G (N - 1) + (N - 1) W - 1 nodes.

    As upstream does, the window moves on by one position a step however many tokens were accepted, and is first filled
    row by row: a row of W + N - 3 tokens drawn from the prompt, one column shorter with every row that is added, until
    after N - 2 steps it has N - 1 rows; only then do its n-grams go to the pool. (With N > W + 2 there are
    more cells on the way than in the end.)

    Departures from upstream:
    - A guess of N - 1 tokens that is accepted whole emits N tokens (5 with N = 5), its last one being the target's own
      choice after it. Both public copies, upstream's (its issue 56; pull request 68 mends it) and Spec-Bench's, stop
      comparing one token early and emit N - 1: the same text in more steps.
    - `seed_with_prompt` pools the output's n-grams as they are emitted; upstream's greedy loop notes the step's last
      token in place of each one.
    - Upstream puts the first row into the prefill and tries no guesses while the window fills. Here the first row goes
      with the first step, and the pool, if it holds anything, is used from the start.
    - N = 2 and W = 1 are allowed.

    When the budget is smaller than the tree, the oldest guesses are left out first; if it does not even hold the
    window, the window is left out and rests as it is. So it does where the loop cuts it at the end of an answer.

    Args:
        window: W, columns of the window.
        level: N, tokens of an n-gram, the one it is looked up by included.
        guesses: G, most n-grams kept, and tried, for a token.
        seed_with_prompt: also pool the n-grams of the prompt and of the output (upstream's `POOL_FROM_PROMPT`, off
            unless it is set).
        seed: of the generator that draws the first row, anew for every prompt.
    """

    traits = Traits(reads="choices at other tokens")

    def __init__(
        self, *, window: int = 7, level: int = 5, guesses: int = 7, seed_with_prompt: bool = False, seed: int = 0
    ) -> None:
        check_int("window", window, 1)
        check_int("level", level, 2)
        check_int("guesses", guesses, 1)
        check_bool("seed_with_prompt", seed_with_prompt)
        check_int("seed", seed, 0, MAX_SEED)
        self.window, self.level, self.guesses = window, level, guesses
        self.seed_with_prompt, self.seed = seed_with_prompt, seed

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The largest W = G with (W + G) (N - 1) <= num_nodes, as the published 7, 5, 7 is balanced: N is the published
        5 where that leaves a window of 4 or more (which N <= W + 2 needs, too), else 3, and 2 where 3 does not fit.
        """
        level = 5 if num_nodes >= 32 else 3 if num_nodes >= 4 else 2
        size = max(num_nodes // (2 * (level - 1)), 1)
        return {"window": size, "level": level, "guesses": size}

    def bind(self, target: Any) -> None:
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        drawn = np.random.default_rng(self.seed).choice(prompt.ids, self.window + self.level - 3)
        # (r, w) the window; its first cell is the root, whatever that is by then.
        self._rows: IntArray = np.concatenate([prompt.ids[-1:], drawn])[None]
        self._probed = False
        self.pool = NgramPool(self.guesses)
        self._tail: list[int] = []
        self._read_text(prompt.ids.tolist())

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        # A window that did not come back whole says nothing about its last row.
        if self._probed and self.target.last.tree.probes == self._rows.size - 1:
            self._advance(self.target.last.choices)
        self._probed = False
        self._read_text(new_ids)

    def propose(self, budget: int) -> DraftTree:
        self._rows[0, 0] = self.root
        probes = self._rows.size - 1
        self._probed = probes <= budget
        if not self._probed:
            probes = 0
        candidates = DraftTree.from_paths(self.root, self.pool.after(self.root)).pruned(budget - probes, self.level - 1)
        if probes == 0:
            return candidates
        rows, columns = self._rows.shape
        parents = window_parents(rows, columns, first=len(candidates))
        return DraftTree(
            np.concatenate([candidates.tokens, self._rows.ravel()[1:]]),
            np.concatenate([candidates.parents, parents]),
            probes,
        )

    def _advance(self, choices: IntArray) -> None:
        """Take the (m,) greedy tokens behind a tree that ended in the whole window."""
        rows, columns = self._rows.shape
        cells = np.concatenate([choices[:1], choices[len(choices) - (rows * columns - 1) :]])
        grown = np.vstack([self._rows, cells[-columns:]])
        if rows == self.level - 1:
            for ngram in grown.T.tolist():
                self.pool.add(ngram)
            # One position on, the second row begins where the first did.
            self._rows = grown[1:]
        else:
            self._rows = grown[:, 1:]

    def _read_text(self, new_ids: Sequence[int]) -> None:
        text = [*self._tail, *new_ids]
        if self.seed_with_prompt:
            # An n-gram that ends in an old token is pooled already.
            for end in range(max(self.level, len(self._tail) + 1), len(text) + 1):
                self.pool.add(text[end - self.level : end])
        self._tail = text[-self.level :]
