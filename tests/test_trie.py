from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_trie import reference
from ngram_trie.tree import DraftTree
from ngram_trie.trie import NgramTrie, ReleasedTrie

texts = st.lists(st.integers(0, 3), max_size=40)
windows = st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))
exact = settings(derandomize=True, deadline=None, max_examples=150)


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int64)


def paths(tree: DraftTree) -> list[tuple[int, ...]]:
    return [tuple(int(tree.tokens[at]) for at in tree.path_to(node)[1:]) for node in range(1, len(tree))]


def test_one_window_of_figure_1() -> None:
    # n=6, L_p=3: the window 1..6 is inserted as 123456, 23456 and 3456; later windows are cut at the end.
    counts = dict(NgramTrie([1, 2, 3, 4, 5, 6], n=6, prefix_len=3).items())
    assert counts[1, 2, 3, 4, 5, 6] == 1  # only from its own window, uncut
    assert counts[2, 3, 4, 5, 6] == 2  # window 0 cut once, window 1 uncut
    assert counts[3, 4, 5, 6] == 3  # windows 0, 1, 2
    assert counts[4, 5, 6] == 3  # never from window 0: no cut reaches beyond L_p
    assert (1, 3) not in counts
    assert len(counts) == 21  # every substring


def test_a_shared_prefix_shares_its_node() -> None:
    trie = NgramTrie([7, 1, 2, 3, 9, 8, 1, 2, 4], n=6, prefix_len=3)
    counts = dict(trie.items())
    assert counts[1, 2] == 2 + 3
    assert counts[1, 2, 3] == 2
    assert counts[1, 2, 4] == 3
    # 3 was first, but at position 1 it was met by two windows only.
    assert paths(trie.draft(ids(5, 1, 2), 1)) == [(4,)]
    assert paths(trie.draft(ids(5, 1, 2), 2)) == [(3,), (4,)]


def test_ties_deep_and_shallow() -> None:
    trie = NgramTrie([0, 0, 0, 1, 2, 3, 0, 0, 1, 4, 5], n=6, prefix_len=2)
    text = ids(9, 1)
    assert paths(trie.draft(text, 3, "deep")) == [(2,), (2, 3), (2, 3, 0)]
    assert paths(trie.draft(text, 3, "shallow")) == [(2,), (4,), (2, 3)]


def test_longest_match_first_and_fallback() -> None:
    trie = NgramTrie([0, 0, 1, 2, 3, 10, 9, 2, 3, 11, 9, 3, 12], n=6, prefix_len=3)
    assert paths(trie.draft(ids(1, 2, 3), 1)) == [(10,)]
    assert paths(trie.draft(ids(8, 9, 2, 3), 1)) == [(11,)]
    assert paths(trie.draft(ids(8, 2, 3), 2, "shallow")) == [(10,), (11,)]  # two tokens match
    assert (12,) in paths(trie.draft(ids(8, 8, 3), 40))  # one token matches
    assert trie.draft(ids(1, 2, 99), 8).num_draft == 0  # none does
    assert trie.draft(ids(12), 8).num_draft == 0  # a path, but nothing follows


def test_a_match_without_continuation_gives_way_to_a_shorter_one() -> None:
    trie = NgramTrie([3, 10, 9, 2, 3], n=6, prefix_len=3)
    assert paths(trie.draft(ids(9, 2, 3), 1)) == [(10,)]


def test_budget_and_root() -> None:
    trie = NgramTrie(np.arange(50) % 7, n=6, prefix_len=3)
    for num_draft in (0, 1, 3, 10**9):
        tree = trie.draft(ids(1, 2), num_draft)
        assert tree.num_draft == min(num_draft, 4)  # n - 2 tokens follow a match of two
        assert tree.tokens[0] == 2


def test_two_texts_share_no_window() -> None:
    trie = NgramTrie([1, 2], n=6, prefix_len=3)
    trie.begin_text()
    trie.extend([3, 4])
    assert set(dict(trie.items())) == {(1,), (2,), (1, 2), (3,), (4,), (3, 4)}


@exact
@given(texts, windows, st.lists(st.integers(0, 40), max_size=4))
def test_counts_equal_algorithm_1_however_the_text_arrives(text: list[int], window: tuple[int, int], cuts: list[int]):
    n, prefix_len = window
    root = reference.build_trie(text, n, prefix_len)
    trie = NgramTrie(n=n, prefix_len=prefix_len)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(borders):
        trie.extend(text[start:end])
    counts = dict(trie.items())
    assert counts == dict(reference.paths_below(root))
    assert len(trie) == len(counts)
    for path, count in counts.items():
        assert len(path) == 1 or count <= counts[path[:-1]]


@exact
@given(texts, windows, st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 40))
@pytest.mark.parametrize("ties", ["deep", "shallow"])
def test_drafts_equal_section_3_2(ties, text, window, suffix, num_draft) -> None:
    n, prefix_len = window
    tree = NgramTrie(text, n=n, prefix_len=prefix_len).draft(ids(*suffix), num_draft, ties)
    expected = reference.draft(reference.build_trie(text, n, prefix_len), suffix, prefix_len, num_draft, ties)
    assert tree.tokens.tolist() == expected.tokens.tolist()
    assert tree.parents.tolist() == expected.parents.tolist()
    assert tree.num_draft <= num_draft  # prefix-closed: the kept paths bring no further nodes with them


@pytest.mark.parametrize("text", [np.zeros(8000, np.int64), np.arange(8000), np.arange(8000) % 2 * np.arange(8000)])
def test_worst_cases_stay_within_n_nodes_a_token(text: np.ndarray) -> None:
    trie = NgramTrie(text, n=13, prefix_len=3)
    assert len(trie) <= 13 * len(np.unique(text)) * 2
    for ties in ("deep", "shallow"):
        assert trie.draft(ids(5, 0), 32, ties).num_draft <= 32


def test_released_matches_any_length_and_drafts_the_rest_of_the_window() -> None:
    trie = ReleasedTrie([1, 2, 3, 4, 5, 6, 7, 8, 9], n=6, prefix_len=3)
    for text in (ids(1, 2, 3), ids(9, 2, 3), ids(9, 9, 3)):
        assert trie.draft(text, 64).tokens.tolist() == [3, 4, 5, 6]
    assert trie.draft(ids(1), 64).tokens.tolist() == [1, 2, 3, 4]
    assert trie.draft(ids(9), 64).tokens.tolist() == [9, 2, 2, 2]  # the text is followed by EOS
    assert trie.draft(ids(77), 64).tokens.tolist() == [77, 100]
    assert ReleasedTrie([], n=6, prefix_len=3).draft(ids(1), 64).tokens.tolist() == [1, 100]


def test_released_drops_the_longest_paths() -> None:
    # Two matches of three tokens: six nodes fit into num_draft=6. One less, and the paths (nested, longest first) go
    # until their lengths add up to 5: of 1 1 2 2 3 that leaves 1 1 2.
    trie = ReleasedTrie([1, 2, 3, 4, 9, 1, 5, 6, 7], n=4, prefix_len=1)
    assert paths(trie.draft(ids(1), 6)) == [(2,), (2, 3), (2, 3, 4), (5,), (5, 6), (5, 6, 7)]
    assert paths(trie.draft(ids(1), 5)) == [(2,), (5,), (2, 3)]
    assert trie.draft(ids(1), 0).num_draft == 0


def test_released_goes_on_with_the_output() -> None:
    trie = ReleasedTrie([1, 2, 3], n=4, prefix_len=2)
    trie.extend([4])
    trie.extend([5, 6])
    assert (5, 6) in paths(trie.draft(ids(4), 64))
    trie.begin_text()
    trie.extend([7, 8, 9])
    assert trie.draft(ids(6), 64).tokens.tolist() == [6, 100]
    assert paths(trie.draft(ids(7), 64)) == [(8,), (8, 9)]


@exact
@given(texts, windows, st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 40))
def test_released_path_lengths_stay_within_num_draft(text, window, suffix, num_draft) -> None:
    n, prefix_len = window
    tree = ReleasedTrie(text, n=n, prefix_len=prefix_len).draft(ids(*suffix), num_draft)
    assert 1 <= tree.num_draft <= num_draft
    assert len(set(paths(tree))) == tree.num_draft
    assert tree.depths.max() <= max(n - prefix_len, 1)
