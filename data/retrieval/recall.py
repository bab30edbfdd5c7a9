"""Is the answer in what was retrieved? The answer-string recall of open-domain QA (Karpukhin et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from ngram_trie.data.answers import has_answer


def first_hit(texts: Sequence[str], answers: Sequence[str], whole: bool = False) -> int | None:
    """Place of the first text with an answer, from 1; None if none has one. Recall at k is the share of places <= k.

    Args:
        whole: a text has to be an answer, letter by letter, instead of holding one; for titles.
    """
    found = (text in answers if whole else has_answer(text, answers) for text in texts)
    return next((place for place, is_answer in enumerate(found, 1) if is_answer), None)


def recall_table(places: list[dict[str, Any]], cuts: tuple[int, ...]) -> pd.DataFrame:
    """Share of questions with an answer among the first k passages, with its 95% interval (Wilson)."""
    lines = []
    for column in [name for name in places[0] if name != "id"]:
        search, _, reranked = column.partition(" ")
        for k in cuts:
            hits = sum(row[column] is not None and row[column] <= k for row in places)
            interval = binomtest(hits, len(places)).proportion_ci(method="wilson")
            recall = {"recall": hits / len(places), "low": interval.low, "high": interval.high}
            lines.append(
                {"search": search, "reranked": bool(reranked), "k": k, "questions": len(places), "found": hits}
                | {name: round(value, 4) for name, value in recall.items()}
            )
    return pd.DataFrame(lines)
