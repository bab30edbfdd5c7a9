"""What a network's steps cost here: timed once, told between what was timed, kept for the next process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny import tiny_model

from ngram_trie.store.compiled import note_preparation
from ngram_trie.targets import costs
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.costs import MeasuredCosts
from ngram_trie.targets.cpu import PackedNetwork
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.stock import KVCache
from ngram_trie.tree import DraftTree

GRAPHS = [(1, 1), (2, 8), (9, 16)]


def test_between_groups_costs_grow_evenly_and_so_beyond_and_with_the_text() -> None:
    found = MeasuredCosts(GRAPHS, [100, 300], [[1.0, 2.0, 3.0], [1.5, 2.5, 4.0]])
    assert found.step([0, 1, 7, 8, 15, 23], [100] * 6).tolist() == [1, 2, 2, 3, 3, 4]
    assert found.step([0, 4, 15], [200] * 3).tolist() == [1.25, 2.25, 3.5]
    assert found.step([0, 0, 0], [50, 300, 500]).tolist() == [1, 1.5, 2]
    single = MeasuredCosts([(1, 1), (9, 9), (10, 10)], [64], [[1.0, 1.8, 1.6]])  # never falling
    assert single.step([0, 4, 8, 9], [64, 64, 999, 64]).tolist() == pytest.approx([1, 1.4, 1.8, 1.8])


class Steps:
    """A network whose steps take what is said, by tokens and number of the step."""

    sizes = GRAPHS

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        self.seconds, self.taken, self.now = seconds, list[int](), 0.0

    def step(self, text: KVCache, tree: DraftTree, top_k: int) -> None:
        self.taken.append(len(tree))
        self.now += self.seconds(len(tree), len(self.taken))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., MeasuredCosts]:
    """What is told of a network in a new process."""
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path))
    model = tiny_model("llama")

    def step_costs(network: Any, max_nodes: int = 16, room: int = 1500) -> MeasuredCosts:
        monkeypatch.setattr(costs, "_KNOWN", {})
        monkeypatch.setattr(costs, "perf_counter", lambda: network.now)
        return costs.step_costs(model, network, KVCache(2, 2000), room, max_nodes, 0)

    return step_costs


def test_costs_are_timed_once_for_a_model_and_a_machine(told: Callable[..., MeasuredCosts], tmp_path: Path) -> None:
    network = Steps(lambda tokens, lap: 1e-3 * (1 + tokens) * (1 + lap % 2 / 10))
    first = told(network)
    assert first.lengths == [64, 1024] and 0.5 < network.now < 0.6
    assert np.array(first.seconds) == pytest.approx(np.array([[2e-3, 9e-3, 17e-3]] * 2), rel=0.11)
    assert len(list((tmp_path / "steps").iterdir())) == 1
    later = Steps(lambda *_: 1.0)
    assert told(later).step([8], [64]) == pytest.approx(first.step([8], [64])) and not later.taken
    assert told(later, max_nodes=12).sizes[-1] == (9, 12) and set(later.taken) == {1, 8, 12}
    assert told(later, room=500).lengths == [64] and told(later, room=20).lengths == [1]
    assert told(later, room=1024).lengths == [64]  # a model that knows 1,024 places has none for a step behind them


def test_a_step_that_is_captured_on_the_way_says_nothing(told: Callable[..., MeasuredCosts]) -> None:
    """Graphs of each size and length are captured when they are first needed."""
    captured = set()

    class Graphs(Steps):
        def step(self, text: KVCache, tree: DraftTree, top_k: int) -> None:
            super().step(text, tree, top_k)
            if (len(tree), text.length) not in captured:
                captured.add((len(tree), text.length))
                self.now += 0.1
                note_preparation()

    found = told(Graphs(lambda tokens, step: 1e-3 * (1 + tokens)))
    assert len(captured) == 3 + 2 + 1 and np.array(found.seconds) == pytest.approx(np.array([[2e-3, 9e-3, 17e-3]] * 2))


def test_what_a_longer_text_adds_is_told_for_sizes_that_were_not_timed_behind_it(
    told: Callable[..., MeasuredCosts],
) -> None:
    class Longer(Steps):
        def step(self, text: KVCache, tree: DraftTree, top_k: int) -> None:
            super().step(text, tree, top_k)
            self.now += 1e-6 * text.length * (1 + len(tree))

    found = np.array(told(Longer(lambda tokens, step: 1e-3)).seconds)
    assert found[1] - found[0] == pytest.approx(960e-6 * np.array([2, 9, 17]))


@pytest.mark.parametrize("disturbed", range(3, 13))
def test_one_disturbed_step_changes_no_cost(told: Callable[..., MeasuredCosts], disturbed: int) -> None:
    found = told(Steps(lambda tokens, step: 0.03 * (1 + tokens / 16) * (3 if step == disturbed else 1)))
    assert found.lengths == [64, 1024] and np.array(found.seconds) == pytest.approx(
        np.array([[0.03 * (1 + tokens / 16) for tokens in (1, 8, 16)]] * 2)
    )


def test_a_slow_model_is_timed_twice_behind_a_short_text_and_a_disturbed_machine_forgotten(
    told: Callable[..., MeasuredCosts], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Steps(lambda *_: 0.2)
    assert told(slow).lengths == [64] and len(slow.taken) == 8
    assert capsys.readouterr().err == f"timing steps of this model, once (kept in {tmp_path})\n"
    told(Steps(lambda tokens, step: 9.0 if step == 1 else 0.001 * 1.5 ** (step % 9)), room=500)  # compiled in its first
    assert capsys.readouterr().err == ""
    kept = list((tmp_path / "steps").iterdir())
    assert len(kept) == 1
    kept[0].write_text("{")  # a disk that was full
    disturbed = Steps(lambda tokens, step: 0.2 if step > 5 else 0.9)  # until its second lap
    assert told(disturbed).step([15], [64]) == pytest.approx(0.2) and kept[0].read_text() == "{"
    told(Steps(lambda tokens, lap: 0.001 * tokens * 1.5 ** (lap % 9)))
    assert kept[0].read_text() == "{"
    told(Steps(lambda tokens, lap: 0.001 * tokens))
    assert MeasuredCosts(**json.loads(kept[0].read_text())).step([8], [64]) == pytest.approx(0.016)


def test_packed_sizes_tell_costs_that_are_flat_until_a_step_computes_longer_than_it_reads() -> None:
    def truth(tokens: int) -> float:
        return max(1.0, tokens / 16)

    sizes = PackedNetwork.sizes
    told = MeasuredCosts(sizes, [64], [[truth(tokens) for _, tokens in sizes]]).step(range(36), [64] * 36)
    assert told == pytest.approx([truth(tokens) for tokens in range(1, 37)], rel=0.15)


def test_networks_tell_sizes_that_begin_with_a_plain_step_and_a_target_their_costs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NGRAM_TRIE_CACHE", str(tmp_path))
    model = tiny_model("llama")
    for backend in ("cpu", "stock"):
        network = network_for(model, 200, backend)
        assert network.sizes[0] == (1, 1) and sorted(network.sizes) == list(network.sizes)
        target = TargetModel(model, 20, 100, network)
        found = target.step_costs()
        assert found.sizes[-1][1] == 21 and found.lengths == [64]
        assert (found.step(range(30), [80] * 30) > 0).all() and target.cache.length == 0
