from __future__ import annotations

import pytest
from support.fake_target import answer, circling
from support.text import ranks
from support.tiny import tiny_model

from ngram_trie import Speculator
from ngram_trie.baselines.token_recycling import TokenRecycling, template, template_probs
from ngram_trie.targets.model import TargetModel


def shape(num_draft: int, k: int = 8) -> list[tuple[int, ...]]:
    """Each node's ranks from the root on."""
    return ranks(*template(num_draft, k))


def test_the_template_is_the_published_one() -> None:
    paths = shape(80)
    assert [sum(len(path) == depth for path in paths) for depth in range(1, 8)] == [8, 21, 25, 15, 8, 3, 0]
    assert paths == sorted(paths, key=lambda path: (len(path), path))
    # Its two lowest levels, and the ends of those above, as the release spells them.
    assert paths[-3:] == [(0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 1), (0, 0, 0, 1, 0, 0)]
    assert {(7, 0), (5, 0, 0), (1, 1, 0), (3, 0, 0, 0), (0, 0, 4, 0)} <= set(paths)
    assert not {(7, 1), (6, 0, 0), (1, 2, 0), (4, 0, 0, 0), (0, 0, 5, 0)} & set(paths)


def test_a_smaller_template_is_part_of_the_larger() -> None:
    for num_draft in range(1, 80):
        paths = shape(num_draft)
        assert len(paths) == num_draft
        assert set(paths) < set(shape(num_draft + 1))
        assert all(path[:-1] in paths for path in paths if len(path) > 1)


def test_few_nodes_go_deep_and_few_successors_narrow() -> None:
    assert shape(8) == [(0,), (1,), (2,), (3,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 0, 0)]
    assert shape(80, k=1) == [(0,) * depth for depth in range(1, 7)]
    assert max(max(path) for path in shape(80, k=3)) == 2


def test_the_first_steps_by_hand() -> None:
    def rule(text: list[int]) -> int:
        return 10 * text[-1] % 90

    target = circling(rule, 90)
    answer(target, TokenRecycling(num_draft=8), [3, 5], 12)
    first, second = target.trees[:2]
    # 5 has been seen, followed by 50 to 57; the root, 50, has not: eight times token 0, and 0 below it.
    assert first.tokens.tolist() == [50, 0, 0, 0, 0, 0, 0, 0, 0]
    # 500 = 50 in 90: 50 is followed by 50, 51, 52, 53. 51, 52, 53 have not been seen.
    assert second.tokens.tolist() == [50, 50, 51, 52, 53, 50, 51, 50, 50]
    assert second.parents.tolist() == [-1, 0, 0, 0, 0, 1, 1, 5, 7]
    # Ranks 0 to 3, 0 below the first, 1 there, and twice 0 below 0.
    expected = [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 4, 1 / 6, 1 / 8, 1 / 16]
    assert second.probs.tolist() == pytest.approx(expected)
    assert len(template_probs(30, 2)) == len(template(30, 2)[0])


@pytest.mark.parametrize(("vocabulary", "budget", "k"), [(50, 99, 8), (9, 99, 8), (20, 30, 8), (12, 8, 4), (9, 3, 1)])
def test_drafts_are_the_template_filled_from_the_matrix(vocabulary: int, budget: int, k: int) -> None:
    """A reference that keeps a dict of rows and walks every path of the template by itself."""
    target = circling(vocabulary=vocabulary, max_draft=budget)
    prompt, length = [1, 2, 3, 4], 60
    result = answer(target, TokenRecycling(k=k), prompt, length)
    rows: dict[int, list[int]] = {}
    done = 1
    for before, forward, emitted in zip(target.forwards, target.forwards[1:], result.accept_lengths, strict=False):
        tokens = prompt[-1:] if before.tree is None else before.tree.tokens.tolist()
        for token, logits in zip(tokens, before.logits.tolist(), strict=True):
            rows[token] = sorted(range(vocabulary), key=lambda successor: -logits[successor])[:k]
        assert forward.tree is not None
        room = length - done - 1
        paths = [path for path in shape(min(budget, 80), k) if len(path) <= room]
        drafted = []
        for path in paths:
            token = int(forward.tree.tokens[0])
            for rank in path:
                token = rows.get(token, [0] * k)[rank]
            drafted.append(token)
        assert forward.tree.tokens[1:].tolist() == drafted
        done += emitted
    assert done == length
    assert max(result.accept_lengths) > 1


def test_a_growing_cache_forgets_nothing(target: TargetModel) -> None:
    drafter = TokenRecycling(keep_between_prompts=True)
    speculator = Speculator(target.model, drafter)
    speculator([3, 4, 5], max_new_tokens=5)
    matrix = drafter._matrix
    speculator([3, 4, 5], max_new_tokens=60)
    assert drafter._matrix is matrix and matrix
    drafter.bind(TargetModel(tiny_model("llama")))  # another model
    assert not drafter._matrix
