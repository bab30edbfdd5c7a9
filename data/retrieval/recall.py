"""Is the answer in what was retrieved? The answer-string recall of open-domain QA (Karpukhin et al. 2020)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces (SQuAD's evaluation); accents as DPR's NFD has them."""
    text = unicodedata.normalize("NFD", text).lower().translate(PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether any of the answers occurs in the text as whole words, both normalised. An answer of which nothing is left
    does not count.
    """
    words = f" {normalize(text)} "
    return any(f" {answer} " in words for answer in map(normalize, answers) if answer)


def first_hit(texts: Sequence[str], answers: Sequence[str]) -> int | None:
    """Place of the first text with an answer, from 1; None if none has one. Recall at k is the share of places <= k."""
    return next((place for place, text in enumerate(texts, 1) if has_answer(text, answers)), None)
