"""The cost curve that is measured: its shape and its bounds; no times are asserted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.tiny import tiny_target

from ngram_trie.bench.cost import CostCurve
from ngram_trie.targets.check import binary_tree
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree, IntArray
from scripts.calibrate import measure_curve


@pytest.fixture
def target() -> TargetModel:
    """Room for 6 drafted nodes and a context of 160."""
    return TargetModel(tiny_target("llama").model, max_draft=6)


def test_the_curve_is_full_and_keeps_to_the_target(target: TargetModel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    verify = TargetModel.verify

    def watched(self: TargetModel, tree: DraftTree) -> IntArray:
        seen.append((tree.num_draft, self.cache.length))
        return verify(self, tree)

    monkeypatch.setattr(TargetModel, "verify", watched)
    curve = measure_curve(target, "tiny", rounds=2, steps=4)
    assert isinstance(curve, CostCurve) and curve.name == "tiny"
    assert list(curve.nodes) == [0, 1, 2, 4, 6]  # of NODES those that the target takes
    assert list(curve.contexts) == list(curve.prefill_lengths) == [64, 156]  # up to the limit, less room for a path
    assert np.shape(curve.step_seconds) == (5, 2)
    for seconds in (curve.step_seconds, curve.prefill_seconds):
        assert np.isfinite(seconds).all() and (np.array(seconds) > 0).all()
    assert curve.step([3], [100]) > 0
    # Four steps at every point in every round, and one round to warm up.
    assert Counter(seen) == {(size, context): 3 * 4 for size in curve.nodes for context in curve.contexts}


@pytest.mark.parametrize("num_draft", [0, 1, 2, 6, 256])
def test_binary_trees_are_full_and_of_the_size_asked_for(num_draft: int) -> None:
    tree = binary_tree(num_draft, np.random.default_rng(0), vocab_size=61)
    assert tree.num_draft == num_draft and tree.tokens.max() < 61
    counts = np.bincount(tree.depths)
    assert all(count == 2**depth for depth, count in enumerate(counts[:-1])) and counts[-1] <= 2 ** (len(counts) - 1)
