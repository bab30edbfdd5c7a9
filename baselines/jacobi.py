"""Jacobi decoding (Santilli et al. 2023, arXiv 2305.10427): the draft is what the model itself said about those
positions one step ago."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngram_trie.drafter import MAX_SEED, Drafter, Traits, check_int, check_token
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, IntArray


class Jacobi(Drafter):
    """Parallel Jacobi decoding (algorithm 1 of the paper) in a window of `num_draft` positions behind the text.

    Each forward replaces every guess by the model's greedy token given the guesses before it. The guesses that are
    their own replacement, counted from the front, are final: the loop accepts them. The rest moves up to the front of
    the window, and positions that come into view get a first guess.

    The paper iterates over the whole answer at once (PJ), or over one block after another and begins a block only when
    the one before is final (GS-Jacobi). Here the window slides, so that no position waits for a block to end;
    `num_draft` stands for the block's length. The paper's first guesses are padding tokens, which decoder-only models
    seldom have; the decoders of Lookahead and of consistency LLMs (both hao-ai-lab) draw them from the prompt, and so
    does `fill="prompt"`.

    Args:
        num_draft: guesses in a step; `propose` takes its budget where that is smaller.
        fill: first guess for a position: "prompt", a token drawn from the prompt; "repeat", the guess before it again;
            or a token id, such as that of a padding token.
        seed: of the generator that draws from the prompt, anew for every prompt.
    """

    traits = Traits(reads="choices at other tokens", drafts_chains=True)

    def __init__(self, *, num_draft: int = 5, fill: str | int = "prompt", seed: int = 0) -> None:
        check_int("num_draft", num_draft, 1)
        is_token = isinstance(fill, int) and not isinstance(fill, bool) and fill >= 0
        if fill not in ("prompt", "repeat") and not is_token:
            raise ValueError(f"fill={fill!r}: must be 'prompt', 'repeat' or a token id of at least 0")
        check_int("seed", seed, 0, MAX_SEED)
        self.num_draft, self.fill, self.seed = num_draft, fill, seed

    def bind(self, target: Any) -> None:
        """
        Raises:
            ValueError: `fill` is a token that the model has not.
        """
        if isinstance(self.fill, int):
            check_token("fill", self.fill, target.model)
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._prompt_ids = prompt.ids
        self._random = np.random.default_rng(self.seed)

    def propose(self, budget: int) -> DraftTree:
        last = self.target.last
        # The choice after the last accepted node is the root; those after the rejected ones are about what follows it.
        known: IntArray = last.choices[len(last.path) :]
        num_draft = min(self.num_draft, budget)
        known = known[:num_draft]
        return DraftTree.chain(self.root, np.concatenate([known, self._first_guesses(known, num_draft - len(known))]))

    def _first_guesses(self, known: IntArray, count: int) -> IntArray:
        """(count,) guesses for the positions behind the `known` ones."""
        if self.fill == "prompt":
            return self._random.choice(self._prompt_ids, count)
        if self.fill == "repeat":
            return np.full(count, known[-1] if len(known) else self.root, np.int64)
        return np.full(count, self.fill, np.int64)
