from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_target import FakeTarget, answer, begun, fibonacci, jumbled

from ngram_trie.baselines.lookahead import Lookahead, window_parents
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


def test_the_window_is_a_comb() -> None:
    # root 2 3      cells (0, 1) and (0, 2) run on from the root, the columns hang below
    #  4   5 6
    #  7   8 9
    tree = DraftTree(np.arange(1, 10), np.concatenate([[-1], window_parents(3, 3, first=1)]), probes=8)
    paths = {int(tree.tokens[node]): tree.tokens[tree.path_to(node)].tolist() for node in range(9)}
    assert paths[3] == [1, 2, 3]
    assert paths[7] == [1, 4, 7]
    assert paths[8] == [1, 2, 5, 8]
    assert paths[9] == [1, 2, 3, 6, 9]
    assert tree.depths.tolist() == [0, 1, 2, 1, 2, 3, 2, 3, 4]
    behind_candidates = window_parents(2, 2, first=4)
    assert behind_candidates.tolist() == [0, 0, 4]


def test_the_first_steps_by_hand() -> None:
    target, drafter = FakeTarget(fibonacci), Lookahead(window=2, level=3, guesses=2)
    answer(target, drafter, [5, 5], 9)  # 10 15 25 40 65 5 70 75 45
    first, second, third = target.trees[:3]
    # W + N - 3 = 2 tokens of the prompt. Behind 10, 10 5 and 10 5 5 come 15, 15 and 10.
    assert (first.tokens.tolist(), first.parents.tolist(), first.probes) == ([10, 5, 5], [-1, 0, 1], 2)
    # The window has moved on by one and has its second row. Behind 15 15 comes 30, behind 15 5 10 comes 15: the columns
    # with their ends are 15 15 30 and 5 10 15.
    assert (second.tokens.tolist(), second.parents.tolist(), second.probes) == ([15, 5, 15, 10], [-1, 0, 0, 1], 3)
    # The first row is gone, the second one's first place is the root's. New: 25 30 55 and 10 15 25.
    assert (third.tokens.tolist(), third.parents.tolist(), third.probes) == ([25, 10, 30, 15], [-1, 0, 0, 1], 3)
    assert drafter.pool.after(15)[-1:] == [(15, 30)]
    assert drafter.pool.after(5)[-1:] == [(10, 15)]
    assert drafter.pool.after(25)[-1:] == [(30, 55)]
    assert drafter.pool.after(10)[-1:] == [(15, 25)]


def test_output_is_pooled_with_the_prompt_or_not_at_all() -> None:
    for seeded, expected in ((True, [(9, 4, 7)]), (False, [])):
        drafter = Lookahead(level=4, seed_with_prompt=seeded)
        drafter.start(Prompt(np.array([1, 2, 3])))
        drafter.observe([9])
        drafter.observe([4, 7, 8])
        assert drafter.pool.after(3) == expected
        assert drafter.pool.after(9) == ([(4, 7, 8)] if seeded else [])
        assert drafter.pool.after(1) == ([(2, 3, 9)] if seeded else [])
        assert drafter.pool.after(4) == []


def upstream(target: FakeTarget, prompt: list[int], first_row: list[int], W: int, N: int, G: int) -> list[list[int]]:
    """The tokens of every step's window and guesses as the paper has them: lists, no trees, no shared code."""
    text, pool = [*prompt, target.rule(prompt)], {}
    rows, steps = [first_row], []
    while len(text) < len(prompt) + 30:
        root = text[-1]
        guesses = pool.get(root, [])
        steps.append([root, *sorted({guess[:i] for guess in guesses for i in range(1, N)}), *itertools.chain(*rows)])
        results = []
        for column in range(len(rows[-1])):
            # The first row has no token at the root's place.
            below = [row[column] for row in rows[1:]]
            seen = rows[0][:column] + below if below else rows[0][: column + 1]
            results.append(target.rule(text + seen))
        accepted = [target.rule(text)]
        for guess in guesses:
            matched = 0
            while matched < N - 1 and target.rule(text + list(guess[:matched])) == guess[matched]:
                matched += 1
            if matched >= len(accepted):
                accepted = [*guess[:matched], target.rule(text + list(guess[:matched]))]
        if len(rows) == N - 1:
            for column in range(W):
                key = root if column == 0 else rows[0][column - 1]
                ngram = (*(row[column] for row in rows[1:]), results[column])
                kept = [other for other in pool.get(key, []) if other != ngram]
                pool[key] = [*kept, ngram][-G:]
            rows = [rows[1][1:], *rows[2:], results]
        elif len(rows) == 1:
            rows = [rows[0][1:], results]
        else:
            rows = [row[1:] for row in [*rows, results]]
        text += accepted
    return steps


@given(
    prompt=st.lists(st.integers(0, 2), min_size=3, max_size=6),
    W=st.integers(1, 5),
    N=st.integers(3, 5),
    G=st.integers(1, 4),
    vocabulary=st.integers(2, 4),
)
def test_equals_the_algorithm_on_lists(prompt: list[int], W: int, N: int, G: int, vocabulary: int) -> None:
    target = FakeTarget(jumbled(vocabulary))
    answer(target, Lookahead(window=W, level=N, guesses=G), prompt, 60)
    first_row = target.trees[0].tokens[1:].tolist()
    assert len(first_row) == W + N - 3 and set(first_row) <= set(prompt)
    expected = upstream(target, prompt, first_row, W, N, G)
    assert len(expected) > 5
    for tree, step in zip(target.trees, expected, strict=False):
        candidates = range(1, len(tree) - tree.probes)
        paths = sorted(tuple(tree.tokens[tree.path_to(node)[1:]].tolist()) for node in candidates)
        window = tree.tokens[len(tree) - tree.probes :].tolist()
        assert [int(tree.tokens[0]), *paths, *window] == step


def test_a_small_budget_takes_guesses_first_then_the_window() -> None:
    drafter = Lookahead(window=3, level=3, guesses=4, seed_with_prompt=True)
    target = FakeTarget(lambda text: len(text) % 7)
    drafter.bind(target)
    prompt = Prompt(np.array([1, 2, 3, 1, 4, 5, 1, 6, 7, 1]))
    target.prefill(prompt.ids)
    drafter.start(prompt)
    for budget, guessed, probes in [
        (99, [6, 7, 4, 5, 2, 3], 3),
        (8, [6, 7, 4, 5, 2], 3),
        (5, [6, 7], 3),
        (3, [], 3),
        (2, [6, 7], 0),
        (0, [], 0),
    ]:
        tree = drafter.propose(budget)
        assert tree.num_draft <= budget
        assert (tree.tokens[1 : len(tree) - tree.probes].tolist(), tree.probes) == (guessed, probes)


@pytest.mark.parametrize(("max_draft", "max_depth", "nodes"), [(99, 99, 5), (3, 3, 5), (2, 99, 3), (99, 2, 3)])
def test_a_window_that_was_cut_is_kept_as_it_was(max_draft: int, max_depth: int, nodes: int) -> None:
    drafter, target = Lookahead(window=3, level=3), FakeTarget(fibonacci)
    begun(drafter, target, [1, 1, 2])
    first = drafter.propose(99)
    target.verify(first.pruned(max_draft, max_depth))
    target.commit(2, [0])
    drafter.observe([3])
    second = drafter.propose(99)
    assert second.num_draft == nodes  # a second row, or the same row again
    assert nodes == 5 or second.tokens[1:].tolist() == first.tokens[1:].tolist()


@pytest.mark.parametrize(("window", "level", "guesses"), [(1, 2, 1), (5, 2, 4), (1, 6, 3)])
def test_windows_of_one_row_or_column_are_lossless(window: int, level: int, guesses: int) -> None:
    answer(FakeTarget(jumbled(4)), Lookahead(window=window, level=level, guesses=guesses), [0, 1, 2], 60)
