from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie.tree import DraftTree, Sources

paths = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=6)


def test_from_paths_merges_shared_prefixes() -> None:
    tree = DraftTree.from_paths(9, [[1, 2, 3], [1, 2, 4], [5]])
    assert tree.tokens.tolist() == [9, 1, 2, 3, 4, 5]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 2, 0]
    assert tree.depths.tolist() == [0, 1, 2, 3, 3, 1]
    assert tree.path_to(4) == [0, 1, 2, 4]
    assert tree.num_draft == 5


def test_ancestor_mask_by_hand() -> None:
    tree = DraftTree.from_paths(9, [[1, 2], [3]])
    assert tree.ancestor_mask.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]]


@given(paths)
def test_mask_holds_exactly_the_path_to_each_node(drawn: list[list[int]]) -> None:
    tree = DraftTree.from_paths(7, drawn)
    for node in range(len(tree)):
        assert np.flatnonzero(tree.ancestor_mask[node]).tolist() == tree.path_to(node)
        assert tree.depths[node] == len(tree.path_to(node)) - 1


@given(paths, st.integers(0, 12), st.integers(0, 5))
def test_pruned_keeps_a_tree_within_bounds(drawn: list[list[int]], max_draft: int, max_depth: int) -> None:
    tree = DraftTree.from_paths(7, drawn)
    small = tree.pruned(max_draft, max_depth)
    assert small.num_draft <= max_draft
    assert small.depths.max() <= max_depth
    spelt = {tuple(tree.tokens[tree.path_to(node)]) for node in range(len(tree))}
    assert {tuple(small.tokens[small.path_to(node)]) for node in range(len(small))} <= spelt
    assert small.num_draft == min(max_draft, int((tree.depths <= max_depth).sum()) - 1)


def test_a_node_of_several_paths_has_the_largest_probability() -> None:
    tree = DraftTree.from_paths(9, [[1, 2], [1, 3], [4]], [[0.5, 0.25], [0.75, 0.5], [0.25]])
    assert tree.tokens.tolist() == [9, 1, 2, 3, 4] and tree.probs is not None
    assert tree.probs.tolist() == [1, 0.75, 0.25, 0.5, 0.25]
    assert DraftTree.from_paths(9, [[1]]).probs is None
    kept = tree.pruned(3, 1).probs
    assert kept is not None and kept.tolist() == [1, 0.75, 0.25], "a cut draft keeps those of its nodes"


def test_a_node_of_several_paths_comes_from_where_its_probability_does() -> None:
    origins = Sources(("a", "b"), np.array([0, 1, 1]))
    tree = DraftTree.from_paths(9, [[1, 2], [1, 3], [4]], [[0.5, 0.25], [0.75, 0.5], [0.25]], origins)
    assert tree.sources is not None and tree.sources.names == ("a", "b")
    assert tree.sources.ranks[1:].tolist() == [1, 0, 1, 1]
    equal = DraftTree.from_paths(9, [[1], [1]], [[0.5], [0.5]], Sources(("a", "b"), np.array([0, 1])))
    assert equal.sources is not None and equal.sources.ranks[1:].tolist() == [0], "the first of equals"
    for part, ranks in [
        (tree.part(np.array([0, 1, 3])), [1, 1]),
        (tree.pruned(4, 1), [1, 1]),
        (tree.pruned(2, 9), [1, 0]),
    ]:
        assert part.sources is not None and part.sources.names == ("a", "b")
        assert part.sources.ranks[1:].tolist() == ranks
    assert (
        DraftTree.from_paths(9, [[1]]).sources is None and DraftTree.from_paths(9, [[1]]).pruned(0, 0).sources is None
    )
    copied = DraftTree.copied(4, [5, 6], 2).owed_to("copy")
    assert copied.probs is not None and copied.sources is not None and copied.sources.names == ("copy",)
    with pytest.raises(ValueError, match="2 sources for 3 nodes"):
        DraftTree(copied.tokens, copied.parents, sources=Sources(("a",), np.zeros(2, np.int64)))


def test_a_copy_by_the_rule_of_succession() -> None:
    tree = DraftTree.copied(4, [5, 6, 7], 2)
    assert tree.tokens.tolist() == [4, 5, 6, 7] and tree.parents.tolist() == [-1, 0, 1, 2]
    # 2 of 3 behind two tokens that agree, then 3 of 4, then 4 of 5.
    assert tree.probs is not None and tree.probs.tolist() == pytest.approx([1, 2 / 3, 2 / 4, 2 / 5])
    unmatched = DraftTree.copied(4, [5], 0).probs
    assert unmatched is not None and unmatched.tolist() == [1, 0]
    alone = DraftTree.copied(4, [], 0).probs
    assert alone is not None and alone.tolist() == [1]


@pytest.mark.parametrize(
    ("tokens", "parents"), [([], []), ([1], [-1, 0]), ([1], [0]), ([1, 2], [-1, 1]), ([1, 2], [-1, -1])]
)
def test_a_list_that_is_no_tree_is_refused(tokens: list[int], parents: list[int]) -> None:
    with pytest.raises(ValueError, match="root"):
        DraftTree(np.array(tokens, np.int64), np.array(parents, np.int64))


def test_probes_are_cut_first_and_stay_probes() -> None:
    tree = DraftTree(np.array([1, 2, 3, 4, 5]), np.array([-1, 0, 1, 0, 3]), probes=2)
    assert tree.num_draft == 4
    assert tree.pruned(3, 9).probes == 1
    assert tree.pruned(2, 9).probes == 0
    shallow = tree.pruned(9, 1)
    assert shallow.tokens.tolist() == [1, 2, 4] and shallow.probes == 1
    with pytest.raises(ValueError, match="5 probes among 5 nodes"):
        DraftTree(tree.tokens, tree.parents, probes=5)
