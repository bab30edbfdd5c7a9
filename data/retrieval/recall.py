"""Is the answer in what was retrieved? The answer-string recall of open-domain QA (Karpukhin et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from ngram_trie.quality import has_answer


def first_hit(texts: Sequence[str], answers: Sequence[str]) -> int | None:
    """Place of the first text with an answer, from 1; None if none has one. Recall at k is the share of places <= k."""
    return next((place for place, text in enumerate(texts, 1) if has_answer(text, answers)), None)
