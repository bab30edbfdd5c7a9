"""Copies or the trained drafter: whichever is expected to emit more."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_trie.budget.beside import TrainedRate, choose, expected_accepted
from ngram_trie.tree import DraftTree


def draft(*probs: float) -> DraftTree:
    """Two siblings with a child each."""
    return DraftTree(np.array([7, 1, 2, 3, 4]), np.array([-1, 0, 0, 1, 2]), probs=np.array([1.0, *probs]))


def test_what_is_expected_to_be_accepted_is_the_sum_of_all_nodes() -> None:
    assert expected_accepted(draft(0.5, 0.25, 0.5, 0.25)) == 1.5
    assert expected_accepted(DraftTree.chain(7, [], np.array([1.0]))) == 0
    with pytest.raises(ValueError, match="does not say how likely its nodes are"):
        expected_accepted(DraftTree.chain(7, [1]))


def test_the_larger_expectation_is_chosen() -> None:
    copies = draft(0.5, 0.25, 0.5, 0.25)
    assert choose(copies, 1.5) and not choose(copies, 1.51)
    # 2.5 tokens a step against 3.25 in a step and three tenths of one
    assert choose(copies, 2.25, trained_cost=0.3) and not choose(copies, 2.26, trained_cost=0.3)
    assert choose(DraftTree.chain(7, [], np.array([1.0])), 0.0)  # nothing against nothing: no need to ask


def test_the_rate_follows_what_was_accepted() -> None:
    rate = TrainedRate(mean=2.0, weight=0.5)
    rate.update(4)
    rate.update(0)
    assert rate.mean == 1.5
