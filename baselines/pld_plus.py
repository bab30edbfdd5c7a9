"""PLD+ (Somasundaram et al. 2025, "PLD+: Accelerating LLM inference by leveraging Language Model Artifacts", arXiv
2412.01447): prompt lookup that copies from the place where the model was in the most similar state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import normalize

from ngram_trie.drafter import Drafter, Traits, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


class PLDPlus(Drafter):
    """PLD+ with hidden states: of all places in the input that hold the last generated token, the one is copied from
    whose preceding token has the hidden state of the largest cosine with that of the token before the last generated
    one; the last one's own state is not known yet (section 3).

    The paper reads the states of one layer, chosen for each model, or attention of induction heads. Here the states are
    the last ones, as the head reads them: the only ones that every backend hands over.

    Args:
        num_draft: K, most tokens copied; `propose` takes its budget where that is smaller. Prompt lookup's 10 by
            default; the paper's own number is not known here.
    """

    traits = Traits(scores_nodes=True, drafts_chains=True, reads="hidden states")
    not_sent: ClassVar[Sequence[str]] = ("target", "_states")
    target: Any = None
    _states: Any = None

    def __init__(self, *, num_draft: int = 10) -> None:
        check_int("num_draft", num_draft, 1)
        self.num_draft = num_draft

    def bind(self, target: Any) -> None:
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._ids = prompt.ids
        self._states = normalize(self.target.last.prompt.float(), dim=-1)  # a copy: the next forward overwrites them

    def propose(self, budget: int) -> DraftTree:
        places = 1 + np.flatnonzero(self._ids[1:-1] == self.root)  # something precedes and follows each
        if not len(places):
            return DraftTree.root_only(self.root)
        last = self.target.last
        state = last.hidden[last.path[-1]].float()
        alike = self._states[torch.from_numpy(places - 1).to(self._states.device)] @ state
        start = int(places[int(alike.argmax())]) + 1
        return DraftTree.copied(self.root, self._ids[start : start + min(self.num_draft, budget)], 1)
