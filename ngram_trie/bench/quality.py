"""Quality of answers by torchmetrics: exact match and F1 of short answers, key facts, ROUGE-L of whole answers.

Lossless decoding keeps vanilla's answers, so it keeps their quality. This measures it. Scores are shares, from 0 to 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from ngram_trie.bench.records import ItemKey, PromptRecord
from ngram_trie.data.answers import has_answer
from ngram_trie.data.prompts import Question

FILE = "quality.csv"
MEASURES = ("exact_match", "f1", "contains", "rouge_l")
KEYS = ("method", "dataset", "question_id", "turn")
#: What an answer is compared with: its `reference`, `key_facts` and `answers`, each of which may be empty.
Reference: TypeAlias = Question


def score(
    records: Iterable[PromptRecord], references: Mapping[ItemKey, Reference], decode: Callable[[list[int]], str]
) -> pd.DataFrame:
    """One row for each answer of a first repeat of the first session, columns KEYS and MEASURES; failures have none.
    The same text for the same question is scored once, whichever methods gave it.

    Args:
        records: of one run.
        references: what the answers are compared with.
        decode: from token ids to text without special tokens.

    Raises:
        KeyError: an answer to a question that is not among the references.
    """
    known: dict[tuple[ItemKey, str], dict[str, float]] = {}
    rows = []
    for record in records:
        if not is_scored(record):
            continue
        item, text = record.key.item, decode(record.output_ids)
        if (item, text) not in known:
            known[item, text] = measure(text, references[item])
        about = (record.method, record.column, record.question_id, record.turn)
        rows.append(dict(zip(KEYS, about, strict=True)) | known[item, text])
    return pd.DataFrame(rows, columns=[*KEYS, *MEASURES])


def is_scored(record: PromptRecord) -> bool:
    """Whether `score` has a row for it."""
    return not (record.failure or record.repeat or record.session)


def write(scores: pd.DataFrame, path: Path) -> None:
    """Write them with all their digits: tables derived from the file are those derived now."""
    scores.to_csv(path, index=False, lineterminator="\n")


def read(path: Path) -> pd.DataFrame:
    """What `write` wrote.

    Raises:
        ValueError: a column is missing.
    """
    scores = pd.read_csv(path, dtype={"question_id": str})
    if missing := [name for name in (*KEYS, *MEASURES) if name not in scores]:
        raise ValueError(f"{path}: no column {missing[0]}")
    return scores


def measure(text: str, reference: Reference) -> dict[str, float]:
    """MEASURES of one answer, from 0 to 1; nan where there is nothing to compare it with.

    exact_match, f1: SQuAD's (Rajpurkar et al., 2016; words without case, punctuation and articles), the best over
        `answers`. A chat model answers in sentences, so its exact match is near 0 and its F1 low however right it is:
    contains: says whether the right words are there. The share of `key_facts` that stand in the answer word for word;
        without any, whether one of `answers` does, both normalised as for F1.
    rouge_l: F-measure of the longest common subsequence of words with `reference` (Lin, 2004), words not stemmed.
    """
    exact_match, f1 = _squad(text, reference.answers) if reference.answers else (np.nan, np.nan)
    if reference.key_facts:
        contains = float(np.mean([_stands_in(fact, text) for fact in reference.key_facts]))
    elif reference.answers:
        contains = float(has_answer(text, reference.answers))
    else:
        contains = np.nan
    rouge_l = _rouge_l(text, reference.reference) if reference.reference else np.nan
    return dict(zip(MEASURES, (exact_match, f1, contains, rouge_l), strict=True))


def _squad(text: str, answers: Iterable[str]) -> tuple[float, float]:
    from torchmetrics.functional.text import squad  # takes seconds to import

    right = {"id": "", "answers": {"text": list(answers), "answer_start": []}}
    scores = squad({"id": "", "prediction_text": text}, right)
    return float(scores["exact_match"]) / 100, float(scores["f1"]) / 100


def _rouge_l(text: str, reference: str) -> float:
    if not re.search("[a-z0-9]", reference.lower()):  # the only letters that it counts
        return float("nan")
    from torchmetrics.functional.text import rouge_score  # takes seconds to import

    return float(rouge_score(text, reference, rouge_keys="rougeL")["rougeL_fmeasure"])


def _stands_in(words: str, text: str) -> bool:
    """Whether `words` is in `text`, cut out of no longer word or number; nothing is in no text."""
    return bool(words) and re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None
