"""Scores of answers, small enough to do by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
import pytest
from support.records import record

from ngram_trie.bench import quality
from ngram_trie.bench.records import ItemKey, PromptRecord


@dataclass(frozen=True)
class Asked:
    reference: str = ""
    key_facts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


WORDS = ["the", "Eiffel", "Tower", "is", "in", "Paris", "!"]


def decode(ids: list[int]) -> str:
    return " ".join(WORDS[index] for index in ids)


def answer(method: str, ids: list[int], question: str = "1", repeat: int = 0, failed: bool = False) -> PromptRecord:
    return record(
        method, question, (1,) * (len(ids) - 1), repeat=repeat, failed=failed, **{} if failed else {"output_ids": ids}
    )


def test_exact_match_and_f1_take_the_best_of_several_answers() -> None:
    scores = quality.measure("The Eiffel Tower!", Asked(answers=("Louvre", "eiffel tower")))
    assert (scores["exact_match"], scores["f1"], scores["contains"]) == (1, 1, 1)
    # of "Paris France" one word in two is right, of "paris" one in one: precision 1/2, recall 1
    scores = quality.measure("Paris, France", Asked(answers=("Lyon", "the Paris")))
    assert scores["exact_match"] == 0 and scores["f1"] == pytest.approx(2 / 3)
    assert math.isnan(scores["rouge_l"])


def test_key_facts_are_looked_for_word_for_word_and_go_before_answers() -> None:
    asked = Asked(key_facts=("63,000 books", "Clara Ross", "1911"), answers=("anything",))
    assert quality.measure("clara ross opened it in 1911 with 63,000 books", asked)["contains"] == pytest.approx(2 / 3)
    assert quality.measure("1911.", asked)["contains"] == pytest.approx(1 / 3)
    assert quality.measure("19110", asked)["contains"] == 0
    code = Asked(key_facts=("return list(x)",))
    assert quality.measure("```return list(x)```", code)["contains"] == 1


def test_rouge_l_is_the_f_measure_of_the_longest_common_subsequence() -> None:
    # "cat sat on mat" is in both: 4 of 5 words of the answer, 4 of 6 of the reference
    scores = quality.measure("A cat sat on mat.", Asked(reference="the cat sat on the mat"))
    assert scores["rouge_l"] == pytest.approx(2 * (4 / 5) * (4 / 6) / (4 / 5 + 4 / 6))
    assert all(math.isnan(scores[name]) for name in ("exact_match", "f1", "contains"))
    assert quality.measure("", Asked(reference="the cat"))["rouge_l"] == 0
    assert math.isnan(quality.measure("кот", Asked(reference="кот"))["rouge_l"])  # it counts Latin letters alone


def test_one_row_an_answer_of_the_first_repeat_and_none_for_a_failure() -> None:
    asked = {ItemKey("qa", "1", 0): Asked(answers=("Paris",)), ItemKey("qa", "2", 0): Asked()}
    records = [
        answer("vanilla", [5]), answer("vanilla", [1, 2], repeat=1), answer("fast", [0, 1], "2"),
        answer("fast", [], failed=True),
    ]  # fmt: skip
    scores = quality.score(records, asked, decode)
    assert list(scores.columns) == [*quality.KEYS, *quality.MEASURES]
    assert scores[["method", "question_id"]].to_numpy().tolist() == [["vanilla", "1"], ["fast", "2"]]
    assert scores.exact_match[0] == 1 and pd.isna(scores.exact_match[1])
    with pytest.raises(KeyError, match="3"):
        quality.score([answer("vanilla", [5], "3")], asked, decode)
