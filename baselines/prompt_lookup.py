"""Prompt lookup decoding (Saxena 2023; LLMA is the same idea): copy what followed the last tokens, where they first
occurred."""

from __future__ import annotations

from typing import Any

from ngram_trie.drafter import HistoryDrafter, Traits, check_bool, check_int, check_token
from ngram_trie.store.compiled import compiled
from ngram_trie.store.hashing import same_run
from ngram_trie.tree import DraftTree, IntArray


@compiled
def _find_copy(text: IntArray, min_ngram: int, max_ngram: int, least_copied: int) -> tuple[int, int]:
    """Where the tokens to copy begin, after the earliest match of the longest n-gram that at least `least_copied`
    tokens follow, and that n; -1 and 0 if there is none."""
    end = len(text)
    for length in range(min(max_ngram, end - 1), min_ngram - 1, -1):
        run = text[end - length :]
        for start in range(end - length - least_copied + 1):
            if same_run(run, text, start):
                return start + length, length
    return -1, 0


class PromptLookup(HistoryDrafter):
    """Prompt lookup: the earliest match of the last n tokens, n from `max_ngram` down to `min_ngram`, copies what
    followed it.

    The defaults are the method as transformers runs it: what is copied may end with the text. Spec-Bench's copy of it
    is `PromptLookup(max_ngram=3, num_draft=10, require_full=True, dummy_when_none=100)`. vLLM's `ngram`
    (vllm/v1/spec_decode/ngram_proposer.py, 0.10 and later) finds the same match by a single pass over the reversed
    text (`method=vllm_ngram`); its earlier versions took the latest.

    Args:
        min_ngram, max_ngram: shortest and longest n-gram that is looked up.
        num_draft: most tokens copied; `propose` takes its budget where that is smaller.
        require_full: a match counts only if all `num_draft` tokens follow it in the text so far; else a shorter n-gram
            is looked up.
        dummy_when_none: the token drafted where nothing matches; None drafts nothing.
    """

    traits = Traits(scores_nodes=True, drafts_chains=True)

    def __init__(
        self,
        *,
        min_ngram: int = 1,
        max_ngram: int = 3,
        num_draft: int = 10,
        require_full: bool = False,
        dummy_when_none: int | None = None,
    ) -> None:
        check_int("min_ngram", min_ngram, 1)
        check_int("max_ngram", max_ngram, min_ngram)
        check_int("num_draft", num_draft, 1)
        check_bool("require_full", require_full)
        if dummy_when_none is not None:
            check_int("dummy_when_none", dummy_when_none, 0)
        self.min_ngram, self.max_ngram, self.num_draft = min_ngram, max_ngram, num_draft
        self.require_full, self.dummy_when_none = require_full, dummy_when_none

    def bind(self, target: Any) -> None:
        check_token("dummy_when_none", self.dummy_when_none, target.model)

    def propose(self, budget: int) -> DraftTree:
        text = self.text
        start, matched = _find_copy(text, self.min_ngram, self.max_ngram, self.num_draft if self.require_full else 1)
        if start >= 0:
            return DraftTree.copied(self.root, text[start : start + min(self.num_draft, budget)], matched)
        return DraftTree.copied(self.root, [] if self.dummy_when_none is None else [self.dummy_when_none], 0)
