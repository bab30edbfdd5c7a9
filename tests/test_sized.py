"""`Drafter.sized`: under the settings that a method gives for n nodes, no draft of it has more, probes included."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.fake_target import FakeTarget, jumbled

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.blend.count_tables import CountTables
from ngram_trie.config import choices, imported, make_method
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.files import PROJECT
from ngram_trie.ngram_tables import NgramTables
from ngram_trie.prompt import Prompt
from ngram_trie.targets.load import load_model
from ngram_trie.targets.model import TargetModel

SIZES = (8, 16, 32, 64)
VOCABULARY = 80
#: They need the model whose weights ship with the project.
WITH_WEIGHTS = ("hydra", "medusa", "space", "sps")
#: Their loop is their own, or they draft nothing, or their package is not there.
OTHERS = ("hf_generate", "hf_prompt_lookup", "vanilla", "suffix_arctic")
NAMES = sorted(set(choices()["method"]) - {*WITH_WEIGHTS, *OTHERS})


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Random tables, a random prior and a random datastore."""
    folder = tmp_path_factory.mktemp("parts")
    random = np.random.default_rng(0)
    NgramTables(
        "",
        True,
        np.stack([random.permutation(VOCABULARY) for _ in range(2)]).astype(np.int32),
        np.stack([random.permutation(VOCABULARY)[:10] for _ in range(VOCABULARY)]).astype(np.int32),
        random.integers(0, VOCABULARY, (VOCABULARY, 10, 9)).astype(np.int32),
        np.full((VOCABULARY, 10), 0.1, np.float32),
    ).write(folder / "tables")
    texts = [random.integers(0, VOCABULARY, 50) for _ in range(20)]
    CountTables.of_texts(texts, k=8, escape=3.5).write(folder / "prior")
    build_datastore([random.integers(0, 4, 300).tolist() for _ in range(20)], folder / "datastore")
    return {"tables": str(folder / "tables"), "datastore": str(folder / "datastore"), "prior": str(folder / "prior")}


def sized(name: str, num_nodes: int, parts: dict[str, str]) -> Any:
    """The method with the settings that it gives for `num_nodes`, with parts in place of those it names."""
    config: Any = OmegaConf.load(choices()["method"][name])
    method_class = resolve_name(imported(config["_target_"]))
    at_hand = {field: where for field, where in parts.items() if OmegaConf.to_container(config).get(field) is not None}
    return make_method(name, {**at_hand, **method_class.sized(num_nodes)})


def answered(method: Drafter, target: Any, prompt: list[int], length: int) -> list[int]:
    whole = Prompt(np.array(prompt, np.int64), {"released": (0, len(prompt))})
    return SpeculativeDecoder(target, method).generate(whole, Stop(length)).tree_sizes


def fake(vocabulary: int) -> FakeTarget:
    """A target of `VOCABULARY` tokens that says the first `vocabulary` of them."""
    rule = jumbled(vocabulary)

    def runners_up(text: list[int]) -> torch.Tensor:
        return -((torch.arange(VOCABULARY) - rule(text)) % VOCABULARY).float()

    return FakeTarget(rule, VOCABULARY, max_draft=256, runners_up=runners_up)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=st.lists(st.integers(0, 3), min_size=1, max_size=120), vocabulary=st.sampled_from([8, 40, VOCABULARY]))
def test_no_draft_is_larger(parts: dict[str, str], name: str, prompt: list[int], vocabulary: int) -> None:
    for num_nodes in SIZES:
        assert max(answered(sized(name, num_nodes, parts), fake(vocabulary), prompt, 25)) <= num_nodes


@pytest.mark.parametrize("name", NAMES)
def test_more_nodes_are_used(parts: dict[str, str], name: str) -> None:
    """In a text that goes on in many ways, and that repeats itself, the largest draft grows with what is given."""
    text = np.random.default_rng(1).integers(0, 4, 400).tolist()
    text += text[:60]
    largest = [max(answered(sized(name, size, parts), fake(VOCABULARY), text, 20)) for size in SIZES]
    assert largest[0] <= 8 and largest == sorted(largest)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_no_draft_of_trained_parts_is_larger(name: str) -> None:
    for num_nodes in SIZES:
        method = sized(name, num_nodes, {})
        model = load_model(method.own_model or str(PROJECT / "data" / "embedded" / "model"))
        sizes = answered(method, TargetModel(model), list(range(40, 90)), 12)
        assert max(sizes) <= num_nodes
        assert max(sizes) >= num_nodes - 1 or name in ("sps", "space")  # the published tree has 63


def test_shapes_by_hand() -> None:
    """What a method makes of n nodes where that is no single number."""
    shapes: dict[str, list[tuple[int, ...]]] = {
        "lookahead": [(2, 3, 2), (4, 3, 4), (4, 5, 4), (8, 5, 8)],  # W, N, G
        "space": [(2,), (3,), (4,), (5,)],  # 8, 15 and 24 nodes, and the published 35
        "llma": [(9,), (17,), (33,), (65,)],  # with the pending token
        "sps": [(8,), (16,), (32,), (64,)],
        "hf_prompt_lookup": [(8,), (16,), (32,), (64,)],
        "ngrammys_mixed": [(2, 8), (4, 16), (5, 32), (8, 64)],  # k, nodes
        "token_recycling": [(8,), (16,), (32,), (64,)],
        "racer": [(8, 2), (16, 4), (32, 8), (64, 8)],  # nodes, k
        "logitspec": [(8, 3), (16, 5), (32, 10), (64, 20)],  # nodes, of which the copy has
        "vanilla": [(), (), (), ()],
        "hf_generate": [(), (), (), ()],
    }
    for name, expected in shapes.items():
        config: Any = OmegaConf.load(choices()["method"][name])
        method_class = resolve_name(imported(config["_target_"]))
        assert [tuple(method_class.sized(num_nodes).values()) for num_nodes in SIZES] == expected, name
        assert set(method_class.sized(8)) <= set(config), name


@pytest.mark.parametrize("num_nodes", range(1, 70))
def test_lookahead_takes_as_many_nodes_as_fit(num_nodes: int) -> None:
    from ngram_trie.baselines.lookahead import Lookahead

    shape = Lookahead.sized(num_nodes)
    taken = (shape["window"] + shape["guesses"]) * (shape["level"] - 1)
    # Of window and guesses, the pending token is the window's first; filling up it takes no more.
    assert taken - 1 <= num_nodes < taken + 2 * (shape["level"] - 1)
    assert shape["level"] <= shape["window"] + 2


def test_every_method_is_met() -> None:
    assert {*NAMES, *WITH_WEIGHTS, *OTHERS} == set(choices()["method"])
    assert Path(choices()["method"]["sam_static"]).is_file()
