"""What of an answer could be copied: shares worked out by hand, and in records."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie.bench.overlap import copied_share, prompt_bleu
from ngram_trie.bench.records import Failure, PromptRecord
from ngram_trie.decoding import GenerationResult, PhaseSeconds
from ngram_trie.prompt import Prompt

IDS = st.lists(st.integers(0, 3), max_size=30)


@pytest.mark.parametrize(
    ("prompt", "output", "share"),
    [
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], 4 / 5),
        ([1, 2, 3, 4, 5], [1, 2, 3, 9, 2, 3, 4], 0),  # 3 in a row are too few
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 1),  # two matches that overlap
        ([], [1, 2, 3, 4, 9, 1, 2, 3, 4], 4 / 9),  # of the answer itself
        ([], [7] * 6, 5 / 6),
        ([9, 1, 2], [3, 4, 1, 2, 3, 4], 4 / 6),  # of the border between prompt and answer
        ([1, 2], [], 0),
    ],
)
def test_the_copied_share_by_hand(prompt: list[int], output: list[int], share: float) -> None:
    assert copied_share(prompt, output) == pytest.approx(share)


def test_bleu_by_hand() -> None:
    assert prompt_bleu([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5]) == pytest.approx(1)
    # 4 of 5 tokens, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples
    assert prompt_bleu([1, 2, 3, 4], [1, 2, 3, 4, 9]) == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert prompt_bleu([1, 2, 3, 4], [1, 2, 3]) == prompt_bleu([], [1, 2, 3, 4]) == prompt_bleu([1], []) == 0
    assert prompt_bleu([7] * 4, [7] * 8) == pytest.approx((4 / 8 * 3 / 7 * 2 / 6 * 1 / 5) ** 0.25)  # clipped


@given(IDS, IDS)
def test_both_are_shares_and_a_whole_copy_is_all(prompt: list[int], output: list[int]) -> None:
    assert 0 <= prompt_bleu(prompt, output) <= 1 + 1e-9
    text = prompt + output
    plain = {
        place + i
        for place in range(len(output) - 3)
        for i in range(4)
        if any(text[at : at + 4] == output[place : place + 4] for at in range(len(prompt) + place))
    }
    assert copied_share(prompt, output) == pytest.approx(len(plain) / max(1, len(output)))
    if len(output) > 3:
        assert copied_share([*prompt, *output], output) == 1 and math.isclose(prompt_bleu(output, output), 1)


def test_a_record_has_both_and_an_older_line_has_neither() -> None:
    result = GenerationResult([1, 2, 3, 4, 9], [4], [3], PhaseSeconds(1.0), "eos", [1.0])
    about = {name: "x" for name in ("run", "method", "model", "state", "kind")}
    made = PromptRecord.of(Prompt(np.arange(1, 5)), result, repeat=0, **about)
    assert (made.prompt_bleu, made.copied) == (0.6687, 0.8)
    assert PromptRecord.from_json(made.to_json()) == made
    older = made.to_json().replace('"prompt_bleu":0.6687,"copied":0.8,', "")
    assert PromptRecord.from_json(older) == replace(made, prompt_bleu=None, copied=None)
    failed = PromptRecord.of(Prompt(np.arange(1, 5)), Failure("kind", "message"), repeat=0, **about)
    assert failed.copied is None
