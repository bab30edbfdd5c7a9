"""Whether an answer stands in a text, as open-domain QA counts it."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces (SQuAD's evaluation); accents as DPR's NFD has them."""
    plain = unicodedata.normalize("NFD", text).lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def has_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether any of the answers stands in the text as whole words, both normalised (the answer-string match of
    open-domain QA, Karpukhin et al. 2020). An answer of which nothing is left does not count.
    """
    words = f" {normalize(text)} "
    return any(f" {answer} " in words for answer in map(normalize, answers) if answer)
