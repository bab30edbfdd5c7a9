"""How much of an answer could be copied: two numbers of a question, from token ids alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

#: Tokens of the match that counts as a copy, and the longest n-grams of BLEU.
MATCH = 4


def _ngrams(ids: Sequence[int], n: int) -> Iterable[tuple[int, ...]]:
    return zip(*(ids[start:] for start in range(n)), strict=False)


def prompt_bleu(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> float:
    """BLEU-4 (Papineni et al. 2002) of the answer against the prompt: the geometric mean of the shares of its n-grams,
    n from 1 to 4, that the prompt holds, each at most as often as there. Without the brevity penalty, since no answer
    is meant to be as long as its prompt. 0 where a share is, or for an answer of fewer than 4 tokens.
    """
    logs = 0.0
    for n in range(1, MATCH + 1):
        known, said = Counter(_ngrams(prompt_ids, n)), Counter(_ngrams(output_ids, n))
        shared = (said & known).total()
        if not shared:
            return 0.0
        logs += math.log(shared / said.total()) / MATCH
    return math.exp(logs)


def copied_share(prompt_ids: Sequence[int], output_ids: Sequence[int]) -> float:
    """Share of the answer's tokens that lie in 4 tokens of it in a row which stood before, in the prompt or earlier in
    the answer; 0 for an empty answer.
    """
    seen, begin = set(), len(prompt_ids)
    copied = [False] * len(output_ids)
    for start, ngram in enumerate(_ngrams([*prompt_ids, *output_ids], MATCH)):
        if start >= begin and ngram in seen:
            copied[start - begin : start - begin + MATCH] = [True] * MATCH
        seen.add(ngram)
    return sum(copied) / len(copied) if copied else 0.0
