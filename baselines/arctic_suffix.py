"""SuffixDecoding as its authors ship it, in the package `arctic-inference`, beside `baselines.suffix_decoding`.

The package is no dependency of the project: its build wants a C++ compiler, cmake, ninja and nanobind, and its
requirements a torch of their own. docs/methods.md says how to install it without them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.baselines.suffix_decoding import SuffixDecoding
from ngram_trie.drafter import HistoryDrafter, Traits, check_int, check_positive, check_share
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree

INSTALL = "docs/methods.md says how to install it (a C++ compiler is needed)"
_REQUEST = 0


class ArcticSuffix(HistoryDrafter):
    """The package's tree drafts from prompt and output of one request; nothing is kept of others.

    Args:
        num_draft: most nodes of a draft.
        alpha: nodes at most per token of the match; None for no such limit.
        max_depth: longest string that is kept.
        min_prob: a node less likely is not drafted.
    """

    traits = Traits(scores_nodes=True)
    not_sent = ("_cache",)  # compiled, and of one prompt
    _cache: Any = None

    def __init__(
        self, *, num_draft: int = 32, alpha: float | None = 4.0, max_depth: int = 64, min_prob: float = 0.0
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("max_depth", max_depth, 2)
        if alpha is not None:
            check_positive("alpha", alpha, ", or null for no limit")
        check_share("min_prob", min_prob)
        self.num_draft, self.alpha, self.max_depth, self.min_prob = num_draft, alpha, max_depth, min_prob

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """As `SuffixDecoding.sized`."""
        return SuffixDecoding.sized(num_nodes)

    def parts(self) -> Mapping[Path, str]:
        return {} if is_installed() else {Path("arctic_inference"): INSTALL}

    def start(self, prompt: Prompt) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        super().start(prompt)
        self._cache = SuffixDecodingCache(self.max_depth, 0)
        self._cache.start_request(_REQUEST, prompt.ids.astype(np.int32))

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._cache.add_active_response(_REQUEST, np.asarray(new_ids, np.int32))

    def propose(self, budget: int) -> DraftTree:
        num_draft = min(self.num_draft, budget)
        factor, offset = (0.0, float(num_draft)) if self.alpha is None else (self.alpha, 0.0)
        last = self.text[-self.max_depth :].astype(np.int32)
        draft = self._cache.speculate(_REQUEST, last, num_draft, factor, offset, self.min_prob, True)
        tokens = np.array([self.root, *draft.token_ids], np.int64)
        parents = np.array([-1, *(parent + 1 for parent in draft.parents)], np.int64)
        return DraftTree(tokens, parents, probs=np.array([1.0, *draft.probs]))


def is_installed() -> bool:
    return importlib.util.find_spec("arctic_inference") is not None
