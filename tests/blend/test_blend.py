"""The blend of all orders by hand and against a reference in plain Python."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text import TEXTS, by_path, next_token

from ngram_trie.blend.context_index import BlendIndex
from ngram_trie.blend.occurrences import CONTEXT
from ngram_trie.tree import DraftTree


def drafted(text: list[int], num_draft: int = 200, **settings: Any) -> tuple[DraftTree, list[float]]:
    tree = BlendIndex(text, **settings).draft(num_draft)
    assert tree.probs is not None
    return tree, tree.probs.tolist()


def test_probabilities_by_hand() -> None:
    text = [1, 2, 3, 4, 2, 3, 5, 2, 4, 1, 2]
    # After "2": 3 twice, 4 once, so e_1 = 2 / 5; after "1 2": 3 once, so e_2 = 1 / 2; nothing after "4 1 2".
    # Order 0, five tokens in 11 places: 1 twice, 2 four times, 3 twice, 4 twice, 5 once.
    order1 = {
        3: Fraction(2, 5) + Fraction(2, 5) * Fraction(2, 16),
        4: Fraction(1, 5) + Fraction(2, 5) * Fraction(2, 16),
        2: Fraction(2, 5) * Fraction(4, 16),
        1: Fraction(2, 5) * Fraction(2, 16),
        5: Fraction(2, 5) * Fraction(1, 16),
    }
    order2 = {token: prob / 2 + (Fraction(1, 2) if token == 3 else 0) for token, prob in order1.items()}
    assert next_token(text, []) == order2 and sum(order2.values()) < 1
    tree, probs = drafted(text, escape=1.0)
    found = {path[0]: prob for path, prob in by_path(tree, probs).items() if len(path) == 1}
    assert found == pytest.approx({token: float(prob) for token, prob in order2.items()})
    # Alone, 3 and 4 are drafted of the rest, as they follow a 2.
    tree, probs = drafted(text, escape=1.0, num_frequent=0)
    found = {path[0]: prob for path, prob in by_path(tree, probs).items() if len(path) == 1}
    assert found == pytest.approx({token: float(order2[token]) for token in (3, 4)})


@pytest.mark.slow
@given(TEXTS, st.sampled_from([0.5, 1, 4]), st.integers(1, 9), st.sampled_from([1, 3, 256]), st.integers(1, 40))
def test_every_node_has_the_probability_that_brute_force_gives(
    text: list[int], escape: float, max_order: int, max_occurrences: int, num_draft: int
) -> None:
    settings = {"escape": escape, "max_order": max_order, "max_occurrences": max_occurrences}
    tree, probs = drafted(text, num_draft, **settings)
    nodes = by_path(tree, probs)
    assert tree.num_draft == num_draft and probs == sorted(probs, reverse=True)
    for path, prob in nodes.items():
        if path:
            expected = nodes[path[:-1]] * float(next_token(text, list(path[:-1]), **settings)[path[-1]])
            assert prob == pytest.approx(expected)
    # Nothing likelier than the last node was left out, and siblings share one probability.
    for path, prob in nodes.items():
        shares = next_token(text, list(path), **settings)
        assert sum(shares.values()) < 1
        for token, share in shares.items():
            assert (*path, token) in nodes or prob * float(share) <= probs[-1] * (1 + 1e-9)


@given(TEXTS, st.integers(0, 40), st.integers(0, 5), st.integers(0, 20))
def test_a_text_may_come_in_parts(text: list[int], cut: int, num_frequent: int, num_draft: int) -> None:
    whole = BlendIndex(text, num_frequent=num_frequent)
    parts = BlendIndex(text[:cut], num_frequent=num_frequent)
    for size, token in enumerate(text[cut:], cut):
        if size:
            parts.draft(7)  # leaves nothing behind
        parts.extend([token])
    one, other = (index.draft(num_draft) for index in (whole, parts))
    for name in ("tokens", "parents", "probs"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_all_ids_and_long_texts() -> None:
    text = [2**31 - 1, 0, 7, *range(1000, 4000), 2**31 - 1, 0]
    index = BlendIndex(text[:1])
    index.extend(text[1:])
    assert index.draft(2).tokens.tolist() == [0, 7, 1000]
    # As often as they can be told apart, contexts are numbered; then again from the start.
    index._index.sizes[CONTEXT] = 2**31 - 5
    assert index.draft(4).tokens.tolist()[:3] == [0, 7, 1000]
    assert index._index.sizes[CONTEXT] == 8  # two a context: in the text, and in earlier ones


def test_work_and_memory_are_bounded() -> None:
    """A token that is everywhere: what is looked at, and kept, does not grow with its occurrences."""
    index = BlendIndex([7] * 8000, max_occurrences=16)
    assert index.draft(32).tokens.tolist() == [7] * 33
    index.extend([8, 7] * 8 + [7])
    # Of the 7s only the last 16 count, of which 8 are followed by 8.
    tree = index.draft(20)
    assert tree.probs is not None
    assert by_path(tree, tree.probs.tolist())[8,] == pytest.approx(
        float(next_token([7] * 8000 + [8, 7] * 8 + [7], [], 3.5, max_occurrences=16)[8])
    )
    for size in (1000, 8000):
        index = BlendIndex(np.arange(size))
        assert sum(array.nbytes for array in index._index) < 180 * size
