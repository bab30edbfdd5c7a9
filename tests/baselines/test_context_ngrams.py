from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text import drafted

from ngram_trie.baselines.context_ngrams import ContextNgrams, context_ngrams
from ngram_trie.tree import DraftTree

texts = st.lists(st.integers(0, 2), min_size=1, max_size=60)


def ranked(text: list[int], q: int, w: int, k: int) -> list[tuple[list[int], int]]:
    rows, counts, _ = context_ngrams(np.array(text, np.int64), q, w, k)
    return list(zip(rows.tolist(), counts.tolist(), strict=True))


def tree_of(text: list[int], budget: int = 99, **settings: Any) -> DraftTree:
    return drafted(ContextNgrams(**settings), text, budget=budget)


def paths(tree: DraftTree) -> list[list[int]]:
    leaves = sorted(set(range(1, len(tree))) - set(tree.parents.tolist()))
    return [[int(tree.tokens[node]) for node in tree.path_to(leaf)[1:]] for leaf in leaves]


# "1" is followed by 2 3 twice, by 2 4, by 5 6, and at last by 7 8.
TEXT = [1, 2, 3, 0, 1, 2, 4, 0, 1, 5, 6, 0, 1, 2, 3, 0, 1, 7, 8, 1]


@pytest.mark.slow
def test_most_frequent_first_then_most_recent() -> None:
    assert ranked(TEXT, q=1, w=2, k=9) == [([2, 3], 2), ([7, 8], 1), ([5, 6], 1), ([2, 4], 1)]
    assert ranked(TEXT, q=1, w=2, k=2) == [([2, 3], 2), ([7, 8], 1)]
    assert ranked(TEXT, q=1, w=1, k=9) == [([2], 3), ([7], 1), ([5], 1)]
    assert ranked([*TEXT, 2], q=2, w=1, k=9) == [([3], 2), ([4], 1)]
    assert ranked([*TEXT, 9], q=1, w=1, k=9) == []


def test_rows_become_one_tree() -> None:
    tree = tree_of(TEXT, w=2)
    assert tree.tokens.tolist() == [1, 2, 7, 5, 3, 8, 6, 4]
    assert tree.parents.tolist() == [-1, 0, 0, 0, 1, 2, 3, 1]
    assert paths(tree_of(TEXT, w=2, k=2)) == [[2, 3], [7, 8]]
    assert paths(tree_of(TEXT, w=2, k=1)) == [[2, 3]]


def test_a_cut_leaves_all_rows_alike_and_the_best_ones_longer() -> None:
    """Rows 2 3, 7 8, 5 6 and 2 4, the best first: their first tokens, and then the second of the best."""
    assert tree_of(TEXT, budget=3, w=2).tokens.tolist() == [1, 2, 7, 5]
    assert tree_of(TEXT, w=2, num_draft=4).tokens.tolist() == [1, 2, 7, 5, 3]
    # a single row has it all
    assert tree_of([1, 2, 3, 4, 5, 1], w=4, num_draft=3).tokens.tolist() == [1, 2, 3, 4]


@given(text=texts, q=st.integers(1, 3), w=st.integers(1, 5), k=st.integers(1, 12))
def test_counts_equal_a_brute_force_count(text, q, w, k) -> None:
    counts: Counter[tuple[int, ...]] = Counter()
    latest: dict[tuple[int, ...], int] = {}
    for start in range(len(text) - q - w + 1):
        if text[start : start + q] == text[len(text) - q :]:
            row = tuple(text[start + q : start + q + w])
            counts[row] += 1
            latest[row] = start
    best = sorted(counts, key=lambda row: (-counts[row], -latest[row]))[:k]
    assert ranked(text, q, w, k) == [(list(row), counts[row]) for row in best]
