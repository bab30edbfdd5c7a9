from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.text import ranks
from support.tiny import tiny_model

from ngram_trie import Speculator
from ngram_trie.baselines.stand import DECAY, STAND, template
from ngram_trie.drafter import TopK
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree


def shape(num_draft: int, k: int = 10) -> list[tuple[int, ...]]:
    """Each node's ranks from the root on."""
    return ranks(*template(num_draft, k))


def test_the_template_is_as_large_and_as_deep_as_the_papers() -> None:
    paths = shape(80)
    assert [sum(len(path) == depth for path in paths) for depth in range(1, 15)] == [
        *(6, 10, 13, 11, 11, 7, 8, 9), 1, 1, 1, 1, 1, 0,
    ]  # fmt: skip
    assert paths == sorted(paths, key=lambda path: (len(path), path))


@pytest.mark.parametrize("k", [1, 2, 10])
def test_the_template_has_the_likeliest_nodes(k: int) -> None:
    def prob(path: tuple[int, ...]) -> float:
        shares = np.arange(1, k + 1) ** -DECAY
        return float(np.prod([shares[rank] / shares.sum() for rank in path]))

    paths = shape(40, k)
    least = min(map(prob, paths))
    outside = {(*path, rank) for path in [(), *paths] for rank in range(k)} - set(paths)
    assert max(map(prob, outside)) <= least * (1 + 1e-9)
    assert set(shape(39, k)) < set(paths)


# ---- what a target says ----------------------------------------------------------------------------------------------


class Said:
    """A target of which a test writes down what it holds likely behind the last forward's tokens."""

    model = None

    def prefilled(self, tokens: list[int], probs: list[float]) -> None:
        self.last = SimpleNamespace(path=[0])
        self._likely = TopK(np.array([0]), np.array([tokens]), np.array([probs]))

    def verified(self, tree: DraftTree, path: list[int], said: dict[int, tuple[list[int], list[float]]]) -> None:
        self.last = SimpleNamespace(tree=tree, path=path)
        tokens, probs = (np.array([row[part] for row in said.values()]) for part in (0, 1))
        self._likely = TopK(np.array(list(said)), tokens, probs)

    def top_k(self, k: int, nodes: Any = None) -> TopK:
        assert self._likely.tokens.shape[1] == k
        rows = slice(None) if nodes is None else np.isin(self._likely.places, nodes)
        return TopK(self._likely.places[rows], self._likely.tokens[rows], self._likely.probs[rows])


def begun(drafter: STAND, prompt: list[int], first: int, tokens: list[int], probs: list[float]) -> Said:
    target = Said()
    drafter.bind(target)
    target.prefilled(tokens, probs)
    drafter.start(Prompt(np.array(prompt)))
    drafter.observe([first])
    return target


def test_the_first_steps_by_hand() -> None:
    drafter = STAND(num_draft=4, k=3)
    assert shape(4, 3) == [(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)]
    target = begun(drafter, [1, 2], 3, [3, 4, 5], [0.7, 0.2, 0.05])
    # Behind 1 2 and behind 2 are known 3, 4, 5; behind 3 nothing.
    assert drafter.propose(99).num_draft == 0
    # The model says 2 behind 3, with the three likeliest 2, 6, 7.
    target.verified(DraftTree.root_only(3), [0], {0: ([2, 6, 7], [0.6, 0.3, 0.1])})
    drafter.observe([2])
    tree = drafter.propose(99)
    # 2 is followed as behind "2": 3, then "3": 2 and so on.
    assert tree.tokens.tolist() == [2, 3, 2, 3, 2]
    assert tree.probs is not None
    assert tree.probs.tolist() == pytest.approx([1, 0.7, 0.42, 0.294, 0.1764])
    # Accepted are 3 and 2, and 9 follows; nodes that were not accepted are not learnt from.
    said = {
        0: ([3, 9, 4], [0.5, 0.3, 0.1]), 1: ([2, 6, 7], [1, 0, 0]), 2: ([9, 3, 1], [0.8, 0.1, 0.1]),
        4: ([50, 51, 52], [1, 0, 0]),
    }  # fmt: skip
    target.verified(tree, [0, 1, 2], said)
    drafter.observe([3, 2, 9])
    assert drafter.propose(99).num_draft == 0
    target.verified(DraftTree.root_only(9), [0], {0: ([2, 5, 4], [0.4, 0.2, 0.2])})
    drafter.observe([2])
    tree = drafter.propose(99)
    # The text is 1 2 3 2 3 2 9 2. Nothing is known behind 9 2, and behind 2, three times, 3 with (.7 + .5 + .1) / 3. So
    # goes on 2 3, twice: 2 with (.6 + 1) / 2; then 2 3 2, twice: 9 with (.3 + .8) / 2; then 2 3 2 9, once.
    assert tree.tokens.tolist() == [2, 3, 2, 9, 2]
    steps = [1, 1.3 / 3, 0.8, 0.55, 0.4]
    assert tree.probs is not None and tree.probs.tolist() == pytest.approx(np.cumprod(steps).tolist())


class Averages:
    """A plain-Python table and the template filled from it."""

    def __init__(self, order: int, k: int) -> None:
        self.order, self.k = order, k
        self.means: dict[tuple[int, ...], dict[int, float]] = {}
        self.seen: dict[tuple[int, ...], int] = defaultdict(int)

    def learn(self, text: list[int], tokens: list[int], probs: list[float]) -> None:
        for length in range(1, min(self.order, len(text)) + 1):
            context = tuple(text[-length:])
            self.seen[context] += 1
            weight = 1 / self.seen[context]
            means = {token: mean * (1 - weight) for token, mean in self.means.get(context, {}).items()}
            for token, prob in zip(tokens, probs, strict=True):
                means[token] = means.get(token, 0) + weight * prob
            self.means[context] = dict(sorted(means.items(), key=lambda item: -item[1])[: self.k])

    def fill(self, text: list[int], num_draft: int) -> dict[tuple[int, ...], tuple[int, float]]:
        """By its ranks, the token and probability of each node that is drafted."""
        filled: dict[tuple[int, ...], tuple[int, float]] = {(): (text[-1], 1.0)}
        for path in shape(num_draft, self.k):
            if path[:-1] not in filled:
                continue
            context = [*text, *(filled[path[:depth]][0] for depth in range(1, len(path)))]
            for length in range(self.order, 0, -1):
                if known := self.means.get(tuple(context[-length:])):
                    token, mean = list(known.items())[path[-1]]
                    filled[path] = token, filled[path[:-1]][1] * mean
                    break
        return filled


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.lists(st.integers(0, 3), min_size=2, max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_drafts_are_what_plain_averages_give(
    prompt: list[int], output: list[int], order: int, k: int, num_draft: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)

    def said() -> tuple[list[int], list[float]]:
        return rng.permutation(6)[:k].tolist(), sorted(rng.dirichlet(np.ones(7))[:k].tolist(), reverse=True)

    drafter, averages = STAND(num_draft=num_draft, order=order, k=k), Averages(order, k)
    behind = said()
    target = begun(drafter, prompt, output[0], *behind)
    averages.learn(prompt, *behind)
    for done in range(1, len(output) + 1):
        text = prompt + output[:done]
        tree = drafter.propose(99)
        expected = averages.fill(text, num_draft)
        assert tree.tokens.tolist() == [token for token, _ in expected.values()]
        assert tree.probs is not None
        assert tree.probs.tolist() == pytest.approx([prob for _, prob in expected.values()], rel=1e-4)
        if done < len(output):
            behind = said()
            target.verified(tree, [0], {0: behind})
            drafter.observe([output[done]])
            averages.learn(text, *behind)


def test_a_table_that_grows_keeps_what_it_knows() -> None:
    drafter = STAND(order=1, k=2, num_draft=1)
    target = begun(drafter, [5000], 0, [0, 1], [0.9, 0.1])
    for token in range(3000):
        drafter.propose(9)
        target.verified(DraftTree.root_only(token), [0], {0: ([token + 1, 7], [0.9, 0.1])})
        drafter.observe([token + 1])
    for token in (0, 1500, 2998):
        drafter.observe([token])
        target.verified(DraftTree.root_only(3000), [], {0: ([1, 7], [0.9, 0.1])})
        assert drafter.propose(9).tokens.tolist() == [token, token + 1]


def test_another_model_has_another_table() -> None:
    drafter = STAND(keep_between_prompts=True)
    speculator = Speculator(tiny_model("llama"), drafter)
    speculator([3, 4, 5], max_new_tokens=5)
    table = drafter._table
    speculator([3, 4, 5], max_new_tokens=60)  # with a cache that grew
    assert drafter._table is table and table.size[0]
    drafter.bind(TargetModel(tiny_model("llama")))
    assert not drafter._table.size[0]
