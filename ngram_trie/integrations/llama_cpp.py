"""llama.cpp, by llama-cpp-python: `Llama(..., draft_model=DraftModel("blend"), logits_all=True)`.

The engine hands over all tokens so far and takes a chain of drafts, nothing else: no logits, and no word of when a
text ends. So only drafters that read tokens work here, and a text is known by its content: what continues the last one
is observed, anything else is a new prompt.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ngram_trie.budget.rule import ChainDrafter
from ngram_trie.drafter import check_int
from ngram_trie.methods import DrafterLike, check_reads_tokens, make_drafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import num_shared

try:
    from llama_cpp.llama_speculative import LlamaDraftModel
except ModuleNotFoundError:  # the engine asks nothing of the class, and without it there is nobody to ask
    LlamaDraftModel = object

#: Nodes that a drafter is asked for; its chain is the best of their paths.
_MAX_NODES = 256


class DraftModel(LlamaDraftModel):
    """A drafter as llama-cpp-python (tested: 0.3.36) takes one. It serves one `Llama`, one text at a time.

    Memory is that of one text, at most n_ctx tokens, and what a warm drafter keeps of earlier ones.

    Args:
        drafter: a name of `method=`, the name with fields, or a `Drafter`.
        num_draft: most tokens of a draft, at least 1.
        min_prob: a draft ends before a token that the drafter thinks less likely, from 0 to 1.

    Attributes:
        num_drafts, num_drafted, num_accepted: drafts of at least one token whose outcome is known, their tokens, and
            how many of these the model accepted. The last draft of an answer is not among them.

    Raises:
        ValueError: a drafter that does not fit, or a wrong value; one line.
    """

    def __init__(self, drafter: DrafterLike = "blend", num_draft: int = 10, min_prob: float = 0.0) -> None:
        check_int("num_draft", num_draft, 1)
        made = make_drafter(drafter, shape="chain")
        check_reads_tokens(made, drafter, "llama.cpp")
        if isinstance(made, ChainDrafter):
            made = ChainDrafter(made.drafter, num_nodes=num_draft, min_prob=min_prob)
        elif min_prob:
            raise ValueError(f"min_prob={min_prob}: drafter={drafter} does not say how likely its tokens are; give 0")
        made.bind(SimpleNamespace(model=None))  # as in a replay: stores are opened, and no network is looked at
        self.drafter, self.num_draft = made, num_draft
        self.num_drafts = self.num_drafted = self.num_accepted = 0
        self._text: NDArray[np.int64] = np.empty(0, np.int64)
        self._draft: NDArray[np.int64] = np.empty(0, np.int64)

    def __call__(self, input_ids: ArrayLike, /, **_: Any) -> NDArray[np.intc]:
        """(k,) drafted tokens, k from 0 to num_draft, behind `input_ids` (l,), all tokens so far."""
        text = np.array(input_ids, np.int64)  # a copy: the engine writes over its own
        known = len(self._text)
        new = text[known:]
        if known and len(new) and np.array_equal(text[:known], self._text):
            self._count(new)
            self.drafter.observe(new.tolist())
        else:
            self.drafter.start(Prompt(text))
        self._text = text
        self._draft = self.drafter.propose(_MAX_NODES).tokens[1 : 1 + self.num_draft] if len(text) else text
        return self._draft.astype(np.intc)

    def _count(self, new: NDArray[np.int64]) -> None:
        """Take note of what came of the last draft: the tokens that the model went on with begin with what it accepted,
        and end with one of its own.
        """
        accepted = num_shared(self._draft, new[:-1])
        self.num_drafts += len(self._draft) > 0
        self.num_drafted += len(self._draft)
        self.num_accepted += accepted
