from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_target import FakeTarget, answer, fibonacci, jumbled
from support.tiny import tiny_target

from ngram_trie.baselines.jacobi import Jacobi


def test_guesses_are_the_choices_of_one_step_ago() -> None:
    target = FakeTarget(fibonacci)
    answer(target, Jacobi(num_draft=2, fill=0), [1, 2], 5)  # 3 5 8 13 21
    drafts = [tree.tokens.tolist() for tree in target.trees]
    # Behind 3 0 0 come 5, 3 and 0; behind 5 3 0 come 8, 8 and 3. The last tree is cut: no room for two more tokens.
    assert drafts == [[3, 0, 0], [5, 3, 0], [8, 8], [13]]
    assert all(tree.parents.tolist() == list(range(-1, tree.num_draft)) for tree in target.trees)


def test_a_guess_that_the_model_has_not_is_refused_before_it_answers() -> None:
    with pytest.raises(ValueError, match=r"^fill=100000: not in the model's vocabulary"):
        Jacobi(fill=100_000).bind(tiny_target("llama"))


@pytest.mark.parametrize(("fill", "first"), [(9, [9, 9, 9]), ("repeat", [3, 3, 3])])
def test_first_guesses(fill: Any, first: list[int]) -> None:
    target = FakeTarget(fibonacci)
    answer(target, Jacobi(num_draft=3, fill=fill), [1, 2], 8)
    assert target.trees[0].tokens.tolist() == [3, *first]


def test_first_guesses_come_from_the_prompt_and_are_the_same_every_time() -> None:
    target, drafter = FakeTarget(fibonacci), Jacobi(num_draft=20)
    for _ in range(2):
        answer(target, drafter, [11, 22], 40)
    half = len(target.trees) // 2
    assert set(target.trees[0].tokens[1:].tolist()) == {11, 22}
    assert [tree.tokens.tolist() for tree in target.trees[:half]] == [t.tokens.tolist() for t in target.trees[half:]]


@given(
    prompt=st.lists(st.integers(0, 2), min_size=3, max_size=6),
    num_draft=st.integers(1, 6),
    budget=st.integers(1, 6),
    vocabulary=st.integers(2, 4),
)
def test_equals_jacobi_by_positions(prompt: list[int], num_draft: int, budget: int, vocabulary: int) -> None:
    """A small vocabulary, so that guesses are often right by chance and windows move by every number of positions."""
    fill, length = 1, 30
    target = FakeTarget(jumbled(vocabulary), max_draft=budget)
    answer(target, Jacobi(num_draft=num_draft, fill=fill), prompt, length)
    guess: dict[int, int] = {}
    root = len(prompt)
    for forward in target.forwards[1:]:
        assert forward.tree is not None
        room = len(prompt) + length - 2 - root  # what the loop leaves at the end of the answer
        width = min(num_draft, budget, room)
        assert forward.tree.tokens[1:].tolist() == [guess.get(root + 1 + i, fill) for i in range(width)]
        guess.update({root + 1 + i: int(choice) for i, choice in enumerate(forward.choices)})
        root += len(forward.path)
