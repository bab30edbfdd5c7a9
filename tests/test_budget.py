"""One size rule for all methods: `budget=published | equal | auto`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie import config as configuration
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.budget import Budgeted, nodes_that_pay
from ngram_trie.cli.overrides import composed
from ngram_trie.config import ConfigError
from ngram_trie.cost import assumed_curve
from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


def test_the_nodes_of_the_best_rate_by_hand() -> None:
    """Rates of 0 to 3 nodes, likeliest first: 1/1, 1.9/1.5, 2.5/2, 2.6/2.5; of equal nodes the first is taken."""
    probs, prices = np.array([1.0, 0.1, 0.9, 0.6]), np.array([1.0, 1.5, 2.0, 2.5])
    assert nodes_that_pay(probs, prices).tolist() == [0, 2]
    assert nodes_that_pay(probs, np.ones(4)).tolist() == [0, 1, 2, 3]  # what is free is taken
    assert nodes_that_pay(probs, np.array([1.0, 9, 9, 9])).tolist() == [0]
    assert nodes_that_pay(np.array([1.0, 0.5, 0.5]), np.array([1.0, 1.1, 9.0])).tolist() == [0, 1]


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30)), max_size=40), st.floats(0, 2), st.floats(0.5, 2))
def test_what_is_kept_is_a_tree_of_the_best_rate(nodes: list[tuple[float, int]], price: float, caution: float) -> None:
    parents, probs = [-1], [1.0]
    for share, place in nodes:
        parents.append(place % len(parents))
        probs.append(share * probs[parents[-1]])
    prices = (1 + price * np.arange(len(probs))) ** caution
    kept = nodes_that_pay(np.array(probs), prices)
    assert kept[0] == 0 and all(parents[node] in kept for node in kept[1:])
    rates = [sum(sorted(probs, reverse=True)[: q + 1]) / prices[q] for q in range(len(probs))]
    assert sum(probs[node] for node in kept) / prices[len(kept) - 1] == pytest.approx(max(rates))


class Said(Drafter):
    """Drafts one given tree."""

    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree

    def propose(self, budget: int) -> DraftTree:
        return self.tree.pruned(budget, 99)


def test_constants_change_what_a_drafter_says() -> None:
    """A chain of which the drafter says 0.9, 0.81, 0.729: at discount 0.5 a second node is worth 0.2 of a step."""
    chain = DraftTree(np.array([7, 1, 2, 3]), np.array([-1, 0, 1, 2]), probs=0.9 ** np.arange(4))
    curve = assumed_curve(q0=0, price=0.3)
    for constants, length in [({}, 3), ({"discount": 0.5}, 1), ({"power": 8.0}, 1), ({"caution": 5.0}, 0)]:
        drafter = Budgeted(Said(chain), cost=curve, **{"caution": 1.0, **constants})
        drafter.start(Prompt(np.array([7])))
        assert drafter.propose(64).num_draft == length, constants
        assert drafter.propose(2).num_draft <= 2


def test_a_drafter_that_says_nothing_is_refused() -> None:
    drafter = Budgeted(Said(DraftTree.chain(7, [1])), cost=assumed_curve())
    drafter.start(Prompt(np.array([7])))
    with pytest.raises(ValueError, match="Said does not say how likely its nodes are"):
        drafter.propose(4)
    for constants, what in [({"discount": 1.5}, "at most 1"), ({"power": 0}, "power"), ({"caution": -1}, "caution")]:
        with pytest.raises(ValueError, match=what):
            Budgeted(PromptLookup(), cost=assumed_curve(), **constants)


REPLAY = ["experiment=drafters", "engine=replay", "engine.traces=FILE"]


def test_equal_gives_every_method_the_same_number_of_nodes() -> None:
    config = composed([*REPLAY, "budget=equal", "budget.num_nodes=24", "+methods.pld.budget=published"])
    configuration.apply_budget(config)
    assert (config.methods.suffix.num_draft, config.methods.llma.k, config.methods.pld.num_draft) == (24, 25, 10)
    assert isinstance(configuration.build(config.methods.pld, "pld"), PromptLookup)
    before = configuration.resolve(config)
    configuration.apply_budget(config)
    assert configuration.resolve(config) == before
    with pytest.raises(ConfigError, match=r"grid: its cells have sizes of their own; give budget=published"):
        composed(["method=pld", "grid={num_draft: [1, 2]}", "budget=equal"])


def test_auto_takes_constants_from_a_file(tmp_path) -> None:
    path = tmp_path / "constants.json"
    ours = ["method=suffix", "engine=replay", "engine.traces=FILE", "budget=auto", f"budget.constants={path}"]
    with pytest.raises(ConfigError, match="no such file; `make fit-budgets TRACES=FILE` writes one"):
        configuration.apply_budget(composed(ours))
    config = composed(ours)
    chosen = {"power": 0.5, "discount": 0.9, "caution": 1.5}
    path.write_text(
        json.dumps({"cost": configuration.costs(config), "methods": {"suffix": chosen, "pld": {"num_nodes": 5}}})
    )
    configuration.apply_budget(config)
    built = configuration.build(config.method, "suffix")
    assert isinstance(built, Budgeted) and (built.power, built.discount, built.caution) == (0.5, 0.9, 1.5)
    assert config.method.num_draft == built.max_draft == 64
    fixed = composed([each.replace("suffix", "pld") for each in ours])
    configuration.apply_budget(fixed)
    assert fixed.method.num_draft == 5
    with pytest.raises(ConfigError, match="has no constants for llma: `make fit-budgets` chooses them"):
        configuration.apply_budget(composed([each.replace("suffix", "llma") for each in ours]))
    with pytest.raises(ConfigError, match=r"chosen under cost .*: choose them again, or give that cost"):
        configuration.apply_budget(composed([*ours, "cost.q0=32"]))
