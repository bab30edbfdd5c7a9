"""Rows of a batch against one tree: the same choices, the same cache, the same answers as plain greedy decoding."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import VOCABULARY, Scripted, any_tree, tiny_target

from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import RowsTarget, paths_of
from ngram_trie.tree import DraftTree

STOP = Stop(max_new_tokens=30)


@functools.cache
def rows_target(family: str, attention: str = "sdpa") -> RowsTarget:
    return RowsTarget(tiny_target(family, attention).model, max_draft=64)


def test_paths_by_hand() -> None:
    tree = DraftTree(np.array([9, 1, 2, 3, 4]), np.array([-1, 0, 1, 0, 1]))
    assert paths_of(tree) == ([[0, 1, 2], [0, 3], [0, 1, 4]], [0, 0, 0, 1, 2])
    assert paths_of(DraftTree.root_only(5)) == ([[0]], [0])


@given(family=st.sampled_from(["llama", "qwen2"]), steps=st.lists(any_tree(), min_size=1, max_size=4), data=st.data())
def test_rows_choose_and_cache_what_a_tree_does(family: str, steps: list[DraftTree], data: st.DataObject) -> None:
    """Any path may be committed, so that later steps see what every row of the cache holds."""
    rows, tree_target = rows_target(family), tiny_target(family)
    prompt = np.array(data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)), np.int64)
    assert rows.prefill(prompt) == tree_target.prefill(prompt)
    past = len(prompt)
    for tree in steps:
        ours, theirs = rows.verify(tree), tree_target.verify(tree)
        assert ours.tolist() == theirs.tolist()
        torch.testing.assert_close(rows.last.logits, tree_target.last.logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(rows.last.hidden, tree_target.last.hidden, atol=1e-4, rtol=1e-4)
        path = tree.path_to(data.draw(st.integers(0, len(tree) - 1)))
        for target in (rows, tree_target):
            target.commit(past, path)
        past += len(path)
        assert rows.cache.length == tree_target.cache.length == past
        for ours_layer, theirs_layer in zip(rows.cache.layers, tree_target.cache.layers, strict=True):
            torch.testing.assert_close(
                ours_layer.keys[:1, :, :past], theirs_layer.keys[:, :, :past], atol=1e-4, rtol=1e-4
            )


@pytest.mark.slow
@given(
    attention=st.sampled_from(["sdpa", "eager"]),
    ids=st.lists(st.integers(3, 9), min_size=1, max_size=30),
    drafts=st.lists(any_tree(), max_size=5),
)
def test_the_answer_is_plain_greedy(attention: str, ids: list[int], drafts: list[DraftTree]) -> None:
    prompt, target = Prompt(np.array(ids, np.int64)), rows_target("llama", attention)
    plain = SpeculativeDecoder(TargetModel(target.model), NoDraft()).generate(prompt, STOP)
    assert SpeculativeDecoder(target, NoDraft()).generate(prompt, STOP).output_ids == plain.output_ids

    def propose(draft: DraftTree):
        return lambda text: DraftTree(np.array([text[-1], *draft.tokens[1:].tolist()], np.int64), draft.parents)

    scripted = Scripted([propose(draft) for draft in drafts])
    assert SpeculativeDecoder(target, scripted).generate(prompt, STOP).output_ids == plain.output_ids
    both = [
        SpeculativeDecoder(one, NgramTrieDrafter(n=4, prefix_len=2, num_draft=8)).generate(prompt, STOP)
        for one in (target, TargetModel(target.model))
    ]
    assert both[0].output_ids == both[1].output_ids == plain.output_ids
    assert both[0].accept_lengths == both[1].accept_lengths


def test_a_cut_back_cache_is_not_taken_for_shared() -> None:
    """After a reset, rows must not keep what they shared of an earlier text."""
    target, wide = rows_target("llama"), DraftTree.from_paths(7, [[1], [2], [3], [4]])
    for prompt in ([5, 6, 7, 8], [9, 10, 11, 12, 13]):
        target.prefill(np.array(prompt))
        expected = tiny_target("llama")
        expected.prefill(np.array(prompt))
        assert target.verify(wide).tolist() == expected.verify(wide).tolist()
        target.commit(len(prompt), [0, 3])
        expected.commit(len(prompt), [0, 3])
        assert target.verify(wide).tolist() == expected.verify(wide).tolist()
    gap, is_tie = target.near_tie([5, 6, 7], [1, 2])
    assert gap == pytest.approx(expected.near_tie([5, 6, 7], [1, 2])[0], abs=1e-4) and not is_tie
