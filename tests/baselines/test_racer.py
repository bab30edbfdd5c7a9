"""RACER: its two trees by hand, what is retrieved against brute force, and what an automaton of few nodes keeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_target import FakeTarget, begun, circling
from support.text import by_path

from ngram_trie.baselines.racer import RACER
from ngram_trie.drafter import TopK
from ngram_trie.tree import DraftTree

Path = tuple[int, ...]


class Silent(FakeTarget):
    """A target that does not say what is likely, so that all that is drafted was retrieved."""

    def __init__(self) -> None:
        super().__init__(lambda text: 0, 10)

    def top_k(self, k: int, nodes: Any = None) -> TopK:
        return TopK(np.empty(0, np.int64), np.empty((0, k), np.int64), np.empty((0, k)))

    def top_k_in_prompt(self, places: Any, k: int, among: Any = None) -> TopK:
        return self.top_k(k)


def first_draft(target: FakeTarget, text: list[int], budget: int = 9999, **settings: Any) -> tuple[RACER, DraftTree]:
    """The draft behind `text`, of which the last token is the first of the answer."""
    drafter = RACER(**settings)
    begun(drafter, target, text)
    return drafter, drafter.propose(budget)


def leaves(tree: DraftTree) -> set[Path]:
    return {tuple(tree.tokens[tree.path_to(node)].tolist()) for node in set(range(len(tree))) - {*tree.parents}}


def test_the_logits_tree_of_the_papers_figure_9() -> None:
    """21 nodes of a table in which 4 t + 1 to 4 t + 4 follow t; the prompt shows every token that is needed."""
    _, tree = first_draft(circling(lambda text: (4 * text[-1] + 1) % 400, 400), [*range(60), 0], num_draft=20, k=4)
    assert leaves(tree) == {
        (0, 1, 5, 21), (0, 1, 5, 22), (0, 1, 6, 25), (0, 1, 7, 29), (0, 1, 8, 33), (0, 2, 9, 37), (0, 2, 10, 41),
        (0, 3, 13, 53), (0, 4, 17),
    }  # fmt: skip
    assert len(tree) == 21 and tree.depths.tolist() == sorted(tree.depths)


# Trigrams of the prompt that begin with "1 2": 1 2 3 twice, 1 2 4 once. The model has t + 1 and t + 2 follow t.
TEXT = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2]


def test_both_trees_in_one_by_hand() -> None:
    target = circling(lambda text: text[-1] + 1)
    _, tree = first_draft(target, TEXT, ngram=3, k=2)
    assert tree.probs is not None
    assert by_path(tree, tree.probs.tolist()) == pytest.approx(
        {
            (): 1, (3,): 1 / 2, (4,): 1 / 3,  # retrieved with 2 / 4 and 1 / 4, and of ranks 0 and 1
            (3, 4): 1 / 4, (3, 5): 1 / 6, (4, 5): 1 / 6,  # the first child's breadth is 2, the second's 1
            (3, 4, 5): 1 / 8, (3, 5, 6): 1 / 12, (4, 5, 6): 1 / 12, (3, 4, 5, 6): 1 / 16,  # 6 has not been seen
        }
    )  # fmt: skip
    _, few = first_draft(target, TEXT, ngram=3, k=2, num_draft=3)
    assert few.tokens.tolist() == [2, 3, 4, 4] and few.parents.tolist() == [-1, 0, 0, 1]
    _, fewer = first_draft(target, TEXT, budget=1, ngram=3, k=2)
    assert fewer.tokens.tolist() == [2, 3]
    _, asked = first_draft(
        target, TEXT, budget=11
    )  # made for 63 nodes, it takes the shape of as many as it is asked for
    _, made = first_draft(target, TEXT, **RACER.sized(11))
    assert asked.tokens.tolist() == made.tokens.tolist() and asked.depths.max() == made.depths.max() > 2
    _, unmatched = first_draft(target, TEXT, ngram=3, k=1, min_match=3)
    assert unmatched.tokens.tolist() == [2, 3, 4, 5, 6]


def retrieved(text: list[int], n: int, min_match: int) -> dict[tuple[int, Path], int]:
    """By brute force: how often each continuation of each border stands in an n-gram, by the border's length."""
    verified = text[:-1]
    grams = Counter(tuple(verified[at : at + n]) for at in range(len(verified) - n + 1))
    found: Counter[tuple[int, Path]] = Counter()
    for length in range(min_match, min(n - 1, len(text)) + 1):
        for gram, count in grams.items():
            if gram[:length] == tuple(text[len(text) - length :]):
                for end in range(length, n + 1):
                    found[length, gram[length:end]] += count
    return found


TOKENS = st.lists(st.integers(0, 2), min_size=2, max_size=60)


@given(TOKENS, st.integers(3, 6), st.integers(1, 3), st.integers(1, 12))
def test_the_most_frequent_continuations_of_all_borders_are_retrieved(
    text: list[int], n: int, min_match: int, num_draft: int
) -> None:
    settings: dict[str, Any] = {"ngram": n, "min_match": min_match}
    found = retrieved(text, n, min_match)
    borders = {length: count for (length, path), count in found.items() if not path}
    _, whole = first_draft(Silent(), text, num_draft=5000, **settings)
    shares: dict[Path, float] = {(): 1.0}
    for (length, path), count in found.items():
        if path:
            shares[path] = max(shares.get(path, 0), count / (borders[length] + 1))
    assert whole.probs is not None
    assert by_path(whole, whole.probs.tolist()) == pytest.approx(shares)
    _, part = first_draft(Silent(), text, num_draft=num_draft, **settings)
    assert part.probs is not None and (part.probs[1:] <= part.probs[part.parents[1:]]).all()
    paths = set(by_path(part, part.tokens.tolist()))
    counts = sorted(found.values(), reverse=True)[: num_draft + 1]
    # Which of equally frequent states are left out is not said; all that are more frequent than those are there.
    least = counts[-1] if len(counts) == num_draft + 1 else 0
    assert {path for (_, path), count in found.items() if count > least} <= paths
    assert paths - {()} <= {path for (_, path), count in found.items() if count >= least}


def grams_of(drafter: RACER) -> dict[Path, int]:
    """All that the automaton holds, walked from its root, with the counts."""
    trie, held, stack = drafter._trie, {}, [(0, ())]
    while stack:
        node, path = stack.pop()
        child = int(trie.child[node])
        while child:
            assert trie.parent[child] == node
            held[(*path, int(trie.token[child]))] = int(trie.freq[child])
            stack.append((child, (*path, int(trie.token[child]))))
            child = int(trie.sibling[child])
    return held


@given(TOKENS, st.integers(2, 5), st.integers(0, 30))
def test_an_automaton_of_few_nodes_keeps_the_latest(text: list[int], n: int, more: int) -> None:
    max_nodes = n + 1 + more
    # a match of n tokens cannot be: nothing is used but by new n-grams
    drafter, _ = first_draft(Silent(), text, ngram=n, min_match=n, max_nodes=max_nodes)
    held = grams_of(drafter)
    verified = text[:-1]
    grams = [tuple(verified[at : at + n]) for at in range(len(verified) - n + 1)]
    prefixes = [{gram[:end] for end in range(1, n + 1)} for gram in grams]
    kept: set[Path] = set()
    for each in reversed(prefixes):
        if len(kept | each) >= max_nodes:
            break
        kept |= each
    assert kept <= set(held) <= set().union(*prefixes) and len(held) < max_nodes
    counts = Counter(prefix for each in prefixes for prefix in each)
    everything = len(counts) < max_nodes
    assert all(count == counts[path] if everything else count <= counts[path] for path, count in held.items())


def test_a_border_that_was_drafted_from_stays_longer() -> None:
    """The prompt's trigrams and "5 6 1" take all nodes, and "6 1 2" those of three that were used least lately."""
    held = []
    for drawn in (True, False):
        drafter, _ = first_draft(Silent(), [1, 2, 3, 4, 5, 6, 1], ngram=3, max_nodes=16)
        drafter.observe([2])
        assert not drawn or drafter.propose(9).tokens.tolist() == [2, 3]
        drafter.observe([21])
        held.append({path for path in grams_of(drafter) if path[0] in (1, 2)})
        assert len(grams_of(drafter)) == 15 and (6, 1, 2) in grams_of(drafter)
    assert held == [{(1,), (1, 2), (2,)}, {(2,), (2, 3), (2, 3, 4)}]
