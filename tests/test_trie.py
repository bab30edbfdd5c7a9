from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.text import paths

from ngram_trie import reference
from ngram_trie.trie import COUNT, PARENT, TOKEN, NgramTrie, ReleasedTrie

texts = st.lists(st.integers(0, 3), max_size=40)
windows = st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))
exact = settings(derandomize=True, deadline=None, max_examples=150)


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int64)


def counts_of(trie: NgramTrie) -> dict[tuple[int, ...], int]:
    """Every path from the root with its count."""
    paths: list[tuple[int, ...]] = [()]
    rows = trie._trie.nodes[1 : trie._trie.size[0]].tolist()
    for row in rows:
        paths.append((*paths[row[PARENT]], row[TOKEN]))
    return dict(zip(paths[1:], (row[COUNT] for row in rows), strict=True))


def test_one_window_of_figure_1() -> None:
    # n=6, L_p=3: the window 1..6 is inserted as 123456, 23456 and 3456; later windows are cut at the end.
    counts = counts_of(NgramTrie([1, 2, 3, 4, 5, 6], n=6, prefix_len=3))
    assert counts[1, 2, 3, 4, 5, 6] == 1  # only from its own window, uncut
    assert counts[2, 3, 4, 5, 6] == 2  # window 0 cut once, window 1 uncut
    assert counts[3, 4, 5, 6] == 3  # windows 0, 1, 2
    assert counts[4, 5, 6] == 3  # never from window 0: no cut reaches beyond L_p
    assert (1, 3) not in counts
    assert len(counts) == 21  # every substring


def test_a_shared_prefix_shares_its_node() -> None:
    trie = NgramTrie([7, 1, 2, 3, 9, 8, 1, 2, 4], n=6, prefix_len=3)
    counts = counts_of(trie)
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


def test_two_texts_share_no_window() -> None:
    trie = NgramTrie([1, 2], n=6, prefix_len=3)
    trie.begin_text()
    trie.extend([3, 4])
    assert set(counts_of(trie)) == {(1,), (2,), (1, 2), (3,), (4,), (3, 4)}


@exact
@given(texts, windows, st.lists(st.integers(0, 40), max_size=4))
def test_counts_equal_algorithm_1_however_the_text_arrives(text: list[int], window: tuple[int, int], cuts: list[int]):
    n, prefix_len = window
    root = reference.build_trie(text, n, prefix_len)
    trie = NgramTrie(n=n, prefix_len=prefix_len)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(borders):
        trie.extend(text[start:end])
    counts = counts_of(trie)
    assert counts == dict(reference.paths_below(root))
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
    assert len(counts_of(trie)) <= 13 * len(np.unique(text)) * 2
    for ties in ("deep", "shallow"):
        assert trie.draft(ids(5, 0), 32, ties).num_draft <= 32


def test_released_pads_the_first_tokens_of_a_text_with_eos() -> None:
    # n=6, L_p=3. EOS, 2, follows the text. Before its windows 567893 and 678932 come its first four tokens, as
    # 2 2 5 6 7 8 and 2 5 6 7 8 2 (behind 5 6 7 only one token is left, too few), and its first five, as 2 5 6 7 8 9 and
    # 5 6 7 8 9 2. So 5 ends the prefix of one window, 6 and 7 those of two.
    trie = ReleasedTrie([5, 6, 7, 8, 9, 3], n=6, prefix_len=3)
    assert set(paths(trie.draft(ids(5), 64))) == {(6,), (6, 7), (6, 7, 8)}
    assert set(paths(trie.draft(ids(6), 64))) == {(7,), (7, 8), (7, 8, 2), (7, 8, 9)}
    assert set(paths(trie.draft(ids(7), 64))) == {(8,), (8, 9), (8, 9, 2), (8, 9, 3)}
    assert set(paths(trie.draft(ids(2, 5, 6), 64))) == {(7,), (7, 8), (7, 8, 2), (7, 8, 9)}


def test_released_counts_equal_windows_once_among_the_matches_and_by_frequency_among_the_nodes() -> None:
    # 1 is followed by 2 3 4 twice and by 5 6 7 once: two matches of three tokens, for which num_draft=6 is room enough.
    trie = ReleasedTrie([1, 5, 6, 7, 1, 2, 3, 4, 1, 2, 3, 4], n=4, prefix_len=1)
    assert set(paths(trie.draft(ids(1), 6))) == {(2,), (2, 3), (2, 3, 4), (5,), (5, 6), (5, 6, 7)}
    # One node less, and the most frequent five are kept: 2, 23, 234 (twice each), 5, 56. Their different tokens add up
    # to 1 + 2 + 3 + 1 + 2 = 9; 234 goes, then 23, the more frequent one of two: 2, 5, 56 are left.
    assert paths(trie.draft(ids(1), 5)) == [(2,), (5,), (5, 6)]
    # The same without the second 2 3 4: 2, 23, 234, 5, 56 are kept as those met first, and 234 and 23 go as before.
    once = ReleasedTrie([1, 2, 3, 4, 1, 5, 6, 7], n=4, prefix_len=1)
    assert paths(once.draft(ids(1), 5)) == [(2,), (5,), (5, 6)]


def test_released_drops_the_paths_with_the_most_different_tokens() -> None:
    # After 1 come 2 2 2 and 3 4 5, two matches. At num_draft=5 2, 22, 222, 3 and 34 are kept, with 1, 1, 1, 1 and 2
    # different tokens: 34 goes, though 222 is longer.
    trie = ReleasedTrie([1, 2, 2, 2, 1, 3, 4, 5], n=4, prefix_len=1, eos_id=0)
    assert set(paths(trie.draft(ids(1), 5))) == {(2,), (2, 2), (2, 2, 2), (3,)}
    assert trie.draft(ids(1), 0).num_draft == 0


def test_released_goes_on_with_the_output() -> None:
    trie = ReleasedTrie([1, 2, 3], n=4, prefix_len=2)
    trie.extend([4])
    trie.extend([5, 6])
    assert (5, 6) in paths(trie.draft(ids(4), 64))
    trie.begin_text()
    trie.extend([7, 8, 9])
    assert trie.draft(ids(6), 64).tokens.tolist() == [6, 100]
    assert trie.draft(ids(8), 64).tokens.tolist() == [8, 100]
    trie.extend([10])
    assert paths(trie.draft(ids(8), 64)) == [(9,), (9, 10)]


def released_paths(
    texts: list[list[int]], n: int, prefix_len: int, suffix: list[int], num_draft: int
) -> set[tuple[int, ...]]:
    """The draft of the released algorithm, as facts about it are told in `ReleasedTrie`: slow and plain."""
    counted: Counter[tuple[int, ...]] = Counter()  # keeps the order of first sight
    for text in texts:
        ended = (*text, 2)
        heads = [ended[:length] for length in range(n - prefix_len + 1, n) if length <= len(ended)]
        counted.update([*heads, *(ended[at : at + n] for at in range(len(ended) - n + 1))])
    windows = []
    for window, count in counted.items():
        for inside in [prefix_len] if len(window) == n else range(1, min(prefix_len, len(window) - 2) + 1):
            front, behind = prefix_len - inside, n - (prefix_len - inside) - len(window)
            if behind >= 0:
                windows.append(((2,) * front + window + (2,) * behind, count))
    for length in range(min(prefix_len, len(suffix)), 0, -1):
        matches = [
            (padded[prefix_len:], count)
            for padded, count in windows
            if padded[prefix_len - length : prefix_len] == tuple(suffix[-length:])
        ]
        if matches:
            break
    else:
        return {(100,)}
    frequency: Counter[tuple[int, ...]] = Counter()
    for then, count in matches:
        for length in range(1, n - prefix_len + 1):
            frequency[then[:length]] += count
    if len(matches) * (n - prefix_len) <= num_draft:
        return set(frequency)
    kept = [path for path, _ in frequency.most_common(num_draft)]
    for path in sorted(kept, key=lambda path: -len(set(path))):
        if sum(len(set(path)) for path in kept) > num_draft:
            kept.remove(path)
    return {path[:length] for path in kept for length in range(1, len(path) + 1)}


@exact
@given(
    st.lists(texts, min_size=1, max_size=3),
    windows,
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_released_drafts_equal_the_plain_algorithm(texts, window, suffix, num_draft) -> None:
    n, prefix_len = window
    tree = ReleasedTrie(*texts, n=n, prefix_len=prefix_len).draft(ids(*suffix), num_draft)
    assert set(paths(tree)) == released_paths(texts, n, prefix_len, suffix, num_draft)
    assert 1 <= tree.num_draft <= num_draft
    assert len(set(paths(tree))) == tree.num_draft
    assert tree.depths.max() <= max(n - prefix_len, 1)
