"""One size rule for all methods: `budget=published | equal | auto`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie import methods
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench import config as configuration
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.budget.adaptive import AdaptiveDrafter
from ngram_trie.budget.rule import ChainDrafter, best_path, nodes_that_pay
from ngram_trie.cli.overrides import composed
from ngram_trie.drafter import Drafter, Traits
from ngram_trie.methods import ConfigError
from ngram_trie.tree import DraftTree


def test_the_nodes_of_the_best_rate_by_hand() -> None:
    """Rates of 0 to 3 nodes, likeliest first: 1/1, 1.9/1.5, 2.5/2, 2.6/2.5; of equal nodes the first is taken."""
    probs, prices = np.array([1.0, 0.1, 0.9, 0.6]), np.array([1.0, 1.5, 2.0, 2.5])
    assert nodes_that_pay(probs, prices).tolist() == [0, 2]
    assert nodes_that_pay(probs, np.ones(4)).tolist() == [0, 1, 2, 3]  # what is free is taken
    assert nodes_that_pay(probs, np.array([1.0, 9, 9, 9])).tolist() == [0]
    assert nodes_that_pay(np.array([1.0, 0.5, 0.5]), np.array([1.0, 1.1, 9.0])).tolist() == [0, 1]


NODES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30)), max_size=40)


def scored_tree(nodes: list[tuple[float, int]]) -> tuple[list[int], list[float]]:
    """Parents and probabilities of a tree, from each node's share of its parent's and where it hangs."""
    parents, probs = [-1], [1.0]
    for share, place in nodes:
        parents.append(place % len(parents))
        probs.append(share * probs[parents[-1]])
    return parents, probs


@given(NODES, st.floats(0, 2), st.floats(0.5, 2))
def test_what_is_kept_is_a_tree_of_the_best_rate(nodes: list[tuple[float, int]], price: float, caution: float) -> None:
    parents, probs = scored_tree(nodes)
    prices = (1 + price * np.arange(len(probs))) ** caution
    kept = nodes_that_pay(np.array(probs), prices)
    assert kept[0] == 0 and all(parents[node] in kept for node in kept[1:])
    rates = [sum(sorted(probs, reverse=True)[: q + 1]) / prices[q] for q in range(len(probs))]
    assert sum(probs[node] for node in kept) / prices[len(kept) - 1] == pytest.approx(max(rates))


# ---- shape=chain -----------------------------------------------------------------------------------------------------


def test_the_best_path_by_hand() -> None:
    """Likeliest is node 1, which nothing follows; behind 2 come 3 and 4: sums of 1.5 and 1.4, 1.8, 2.1."""
    parents, probs = np.array([-1, 0, 0, 2, 3]), np.array([1.0, 0.5, 0.4, 0.4, 0.3])
    for most, path in [(4, [0, 2, 3, 4]), (2, [0, 2, 3]), (1, [0, 1]), (0, [0])]:
        assert best_path(parents, probs, most).tolist() == path, most


@given(NODES, st.integers(0, 44))
def test_a_chain_is_the_best_path_of_its_tree(nodes: list[tuple[float, int]], most: int) -> None:
    parents, probs = scored_tree(nodes)
    tree = DraftTree(np.arange(len(parents)), np.array(parents), probs=np.array(probs))
    path = best_path(tree.parents, np.array(probs), most).tolist()
    assert path == tree.path_to(path[-1]) and len(path) <= most + 1
    paths = [tree.path_to(node) for node in range(len(tree))]
    sums = [sum(probs[node] for node in each) for each in paths if len(each) <= most + 1]
    assert sum(probs[node] for node in path) == pytest.approx(max(sums))


@given(NODES, st.one_of(st.none(), st.integers(1, 12)), st.floats(0, 1), st.integers(1, 45))
def test_a_chained_drafter_drafts_chains(
    nodes: list[tuple[float, int]], num_nodes: int | None, min_prob: float, budget: int
) -> None:
    parents, probs = scored_tree(nodes)
    inner = Said(DraftTree(np.arange(len(parents)), np.array(parents), probs=np.array(probs)))
    inner.traits = Traits(scores_nodes=True)
    tree = inner.propose(budget)
    chain = ChainDrafter(inner, num_nodes=num_nodes, min_prob=min_prob).propose(budget)
    assert chain.parents.tolist() == list(range(-1, len(chain) - 1))
    assert chain.tokens.tolist() == tree.path_to(int(chain.tokens[-1])), "tokens are the nodes' numbers here"
    assert chain.probs is not None and chain.probs.tolist() == tree.probs[chain.tokens].tolist()  # type: ignore[index]
    assert chain.num_draft <= min(budget, num_nodes or budget)
    assert (chain.probs[1:] >= min_prob).all() and (chain.probs > 0).all()
    # It ends where the tree does, where its length does, or where what follows is worth nothing.
    after = tree.probs[tree.parents == chain.tokens[-1]]  # type: ignore[index]
    assert chain.num_draft == num_nodes or not ((after >= min_prob) & (after > 0.01)).any()


def test_wrong_chains_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape=chain: Said does not say how likely .* give shape=tree"):
        ChainDrafter(Said(DraftTree.chain(7, [1])))
    for fields, what in [({"num_nodes": 0}, "num_nodes=0"), ({"min_prob": 1.5}, "min_prob=1.5: must be .* 0 to 1")]:
        with pytest.raises(ValueError, match=what):
            ChainDrafter(BlendDrafter(), **fields)


# ---- configuration ---------------------------------------------------------------------------------------------------


class Said(Drafter):
    """Drafts one given tree."""

    def __init__(self, tree: DraftTree) -> None:
        self.tree = tree

    def propose(self, budget: int) -> DraftTree:
        return self.tree.pruned(budget, 99)


REPLAY = ["experiment=drafters", "engine=replay", "engine.traces=FILE"]


def test_equal_gives_every_method_the_same_number_of_nodes() -> None:
    config = composed([*REPLAY, "budget=equal", "budget.num_nodes=24", "+methods.pld.budget=published"])
    fields = configuration.budgeted(config).plain["methods"]
    assert (fields["suffix"]["num_draft"], fields["llma"]["k"], fields["pld"]["num_draft"]) == (24, 25, 10)
    assert isinstance(methods.build(fields["pld"], "pld"), PromptLookup)
    with pytest.raises(ConfigError, match=r"grid: its cells have sizes of their own; give budget=published"):
        composed(["method=pld", "grid={num_draft: [1, 2]}", "budget=equal"])


def built(config) -> dict[str, Drafter]:
    """The methods of a configuration, but vanilla."""
    config = configuration.budgeted(config)
    assert configuration.budgeted(config) == config
    return {name: method for name, method in configuration.build_all(config, "method").items() if name != "vanilla"}


def test_chains_go_with_every_budget() -> None:
    """Of published size, the best path of the method's own tree; of a fixed size, of a larger tree; else what pays."""
    ours = ["method=blend", "engine=replay", "engine.traces=FILE", "shape=chain"]
    blend = built(composed(ours))["blend"]
    assert isinstance(blend, ChainDrafter) and blend.num_nodes is None and blend.drafter.num_draft == 32
    blend = built(composed([*ours, "budget=equal", "budget.num_nodes=8"]))["blend"]
    assert isinstance(blend, ChainDrafter) and blend.num_nodes == 8 and blend.drafter.num_draft == 64
    blend = built(composed([*ours, "budget=auto"]))["blend"]
    assert isinstance(blend, AdaptiveDrafter) and blend.traits.drafts_chains and blend.drafter.drafter.num_draft == 64
    cells = built(composed([*ours, "grid={num_draft: [8, 9]}"]))
    assert [(type(cell), cell.drafter.num_draft) for cell in cells.values()] == [(ChainDrafter, 8), (ChainDrafter, 9)]


def test_auto_goes_to_methods_that_score_their_nodes() -> None:
    """A replay takes the costs of a curve, a live run learns them."""
    found = built(composed(["method=blend", "budget=auto"]))["blend"]
    assert isinstance(found, AdaptiveDrafter) and found.drafter.num_draft == 64 and found.cost is None
    found = built(composed(["method=pld", "budget=auto", "engine=replay", "engine.traces=FILE"]))["pld"]
    assert isinstance(found, AdaptiveDrafter) and found.traits.remembers and found.cost is not None
    found = built(composed(["method=blend", "budget=auto", "shape=chain"]))["blend"]
    assert isinstance(found, AdaptiveDrafter) and isinstance(found.drafter, ChainDrafter)
    for budget, size in (("auto", 5), ("auto8", 8)):  # it scores no nodes: its own size, or the budget's
        found = built(composed(["method=jacobi", f"budget={budget}"]))["jacobi"]
        assert not isinstance(found, AdaptiveDrafter) and found.num_draft == size
    kept = composed(["method=blend", "budget=auto", "+method.budget=published"])
    assert not isinstance(built(kept)["blend"], AdaptiveDrafter)


def test_an_experiment_takes_another_budget_and_one_method_more() -> None:
    """An experiment that fixes the number of nodes must not keep that field under another rule."""
    for rule in ("auto", "published"):
        config = composed(["experiment=table1_small", f"budget={rule}", "+method@methods.blend_warm=blend_warm"])
        assert config.budget.rule == rule and "blend_warm" in config.methods
    assert composed(["experiment=table1_small"]).budget.num_nodes == 8


def test_what_drafts_chains_anyway_stays_as_it_is() -> None:
    equal = ["budget=equal", "budget.num_nodes=24", "shape=chain"]
    for name in ("pld", "jacobi", "sam", "hf_prompt_lookup"):
        (method,) = built(composed([f"method={name}", *equal])).values()
        assert not isinstance(method, ChainDrafter)
    assert built(composed(["method=pld", *equal]))["pld"].num_draft == 24
    with pytest.raises(ConfigError, match=r"^method medusa: shape=chain: Medusa does not say how likely"):
        built(composed(["method=medusa", "shape=chain"]))
    with pytest.raises(ConfigError, match=r"^method blend: shape='star': must be one of tree, chain$"):
        built(composed(["method=blend", "+method.shape=star"]))


def test_a_row_has_a_shape_of_its_own() -> None:
    chain = ["+method@methods.chain=blend", "methods.chain.name=chain", "+methods.chain.shape=chain"]
    tree = ["+method@methods.tree=blend", "methods.tree.name=tree", "+methods.tree.shape=tree"]
    for overall, plain in [([], BlendDrafter), (["shape=chain"], ChainDrafter)]:
        methods = built(composed(["+method@methods.blend=blend", *chain, *tree, "budget=equal", *overall]))
        assert [type(methods[name]) for name in ("blend", "chain", "tree")] == [plain, ChainDrafter, BlendDrafter]


def test_a_tree_is_told_as_before_there_were_chains() -> None:
    tree, chain = (configuration.resolve(composed(["method=blend", f"shape={shape}"])) for shape in ("tree", "chain"))
    assert "shape" not in tree and chain == tree | {"shape": "chain"}
