from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text import chain

from ngram_trie.baselines.ngram_predictor import NgramPredictor, count, empty_tables, expected_accepted, predict
from ngram_trie.store.hashing import hash_of

texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def drafted(text: list[int], output: list[int] | None = None, budget: int = 99, **settings: Any) -> list[int]:
    return chain(NgramPredictor(**settings), text, output, budget)


def test_the_chapters_trace() -> None:
    # Not from one text: where "sat on the mat" was counted 23 times, "on the mat" was followed 22 times at least. So
    # the counts are put in as the chapter gives them, from texts of their own.
    names = ["the", "cat", "sat", "on", "mat", "down", "and", "."]
    counts = {
        "the cat sat on": 47,
        "the cat sat down": 3,
        "the cat sat and": 1,
        "cat sat on the": 31,
        "sat on the mat": 23,
        "the mat .": 5,
    }
    tables = empty_tables(max_order=4, room=1000)
    for text, times in counts.items():
        for _ in range(times):
            count(tables, np.array([names.index(word) for word in text.split()]), 0, True)
    context = np.array([names.index(word) for word in ("the", "cat", "sat")])
    drafts, probs = predict(tables, context, 4)
    assert [names[token] for token in drafts] == ["on", "the", "mat", "."]
    # "the cat sat" was followed by 51 tokens, 47 times "on", and counts 52; what follows the others is always the same.
    assert probs.tolist() == pytest.approx([1, *[47 / 52] * 4])


def test_keys_are_fnv_1a_over_tokens() -> None:
    for context in ([5], [31999, 2], [128255, 0, 7]):
        key = 14695981039346656037
        for token in context:
            key = (key ^ token) * 1099511628211 % 2**64
        assert int(hash_of(np.array(context))) == key


def test_the_history_bounds_the_context_and_not_the_counts() -> None:
    text = [1, 2, 3, *range(50, 90), 1, 2]
    assert drafted(text, history=1) == drafted(text) == [3, 50, 51, 52]
    clash = [2, 5, 2, 5, 2, 5, 1, 2, 6, 0, 1, 2]
    assert drafted(clash, num_draft=1, history=1) == drafted(clash, num_draft=1, max_order=2) == [5]
    assert drafted(clash, num_draft=1, history=2) == drafted(clash, num_draft=1, max_order=3) == [6]


def test_tables_grow_with_the_output() -> None:
    assert drafted([7], [token for _ in range(400) for token in (1, 2, 3)] + [8, 2]) == [3, 1, 2, 3]


def by_definition(text: list[int], max_order: int, num_draft: int, ties: str) -> list[int]:
    """Counted anew for every draft, over dictionaries of dictionaries."""
    tentative = list(text)
    for _ in range(num_draft):
        for length in range(min(max_order - 1, len(tentative)), 0, -1):
            counts: Counter[int] = Counter()
            reached: dict[int, int] = {}  # when each continuation reached the count it has
            for at in range(length, len(text)):
                if text[at - length : at] == tentative[-length:]:
                    counts[text[at]] += 1
                    reached[text[at]] = at
            if counts:
                sign = 1 if ties == "recent" else -1
                tentative.append(max(counts, key=lambda t: (counts[t], sign * reached[t])))
                break
        else:
            break
    return tentative[len(text) :]


@given(
    prompt=texts,
    output=texts,
    max_order=st.integers(2, 6),
    num_draft=st.integers(1, 8),
    ties=st.sampled_from(["recent", "earlier"]),
)
def test_equals_counting_by_definition(prompt, output, max_order, num_draft, ties) -> None:
    expected = by_definition(prompt + output, max_order, num_draft, ties)
    assert drafted(prompt, output, max_order=max_order, num_draft=num_draft, ties=ties) == expected


def test_expected_accepted() -> None:
    assert [round(expected_accepted(alpha, 4), 2) for alpha in (0.5, 0.7, 0.9)] == [0.94, 1.77, 3.10]
    assert (expected_accepted(1, 4), expected_accepted(0, 4), expected_accepted(0.5, 0)) == (4, 0, 0)


@given(alpha=st.floats(0, 1), num_draft=st.integers(0, 12))
def test_expected_accepted_is_the_mean_over_how_many_are_accepted(alpha, num_draft) -> None:
    mean = sum(k * alpha**k * (1 - alpha) for k in range(num_draft)) + num_draft * alpha**num_draft
    assert expected_accepted(alpha, num_draft) == pytest.approx(mean)
