"""What holds for every method: greedy answers, drafts within their size, wrong values named, copies, replays."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.fake_target import FakeTarget, circling, jumbled
from support.tiny import plain_greedy, tiny_target

from ngram_trie.baselines.datastore import build_datastore
from ngram_trie.baselines.lookahead import Lookahead
from ngram_trie.bench.replay import check_replayable
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.methods import choices, imported, make_method, settings_of
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import PROJECT
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.targets.load import load_model
from ngram_trie.targets.model import TargetModel

SIZES = (8, 16, 32, 64)
VOCABULARY = 80
#: They need the model whose weights ship with the project.
WITH_WEIGHTS = ("hydra", "medusa", "space", "sps")
#: Their loop is their own, or they draft nothing or what was recorded, or their package is not there.
OTHERS = (
    "hf_generate",
    "hf_generate_static",
    "hf_prompt_lookup",
    "library",
    "vanilla",
    "suffix_arctic",
    "recorded_eagle",
    "recorded_ngram",
)
#: Their tables are of one model's tokens, and refuse another's.
OF_A_MODEL = {"blend_bigram", *(name for name in choices()["method"] if name.startswith("ngrammys"))}
NAMES = sorted(set(choices()["method"]) - {*WITH_WEIGHTS, *OTHERS})


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Random tables and a random datastore."""
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
    build_datastore([random.integers(0, 4, 300).tolist() for _ in range(20)], folder / "datastore")
    return {"tables": str(folder / "tables"), "datastore": str(folder / "datastore")}


def sized(name: str, num_nodes: int, parts: dict[str, str]) -> Any:
    """The method with the settings that it gives for `num_nodes`, with parts in place of those it names."""
    config: Any = settings_of(choices()["method"][name])
    return made(name, parts, **resolve_name(imported(config["_target_"])).sized(num_nodes))


def answered(method: Drafter, target: Any, prompt: list[int], length: int) -> list[int]:
    whole = Prompt(np.array(prompt, np.int64), {"released": (0, len(prompt))})
    return SpeculativeDecoder(target, method).generate(whole, Stop(length)).tree_sizes


def fake(vocabulary: int) -> FakeTarget:
    """It says the first `vocabulary` of its tokens."""
    return circling(jumbled(vocabulary), VOCABULARY, max_draft=256)


def made(name: str, parts: dict[str, str], **fields: Any) -> Any:
    """The method with its own settings, or those given."""
    config: Any = OmegaConf.to_container(settings_of(choices()["method"][name]))
    at_hand = {field: where for field, where in parts.items() if config.get(field) is not None}
    return make_method(name, {**at_hand, **fields})


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_greedy(parts: dict[str, str], name: str) -> None:
    """Whatever a target says, however much room there is, also of a drafter that has answered before."""
    for vocabulary in (8, VOCABULARY):
        for room in (0, 1, 8, 64):
            target = fake(vocabulary)
            target.max_draft = room
            decoder = SpeculativeDecoder(target, made(name, parts))
            for prompt in ([3, 4, 5, 6, 7] * 4, [2], [1, 2, 3], [2]):
                whole = Prompt(np.array(prompt, np.int64), {"released": (0, len(prompt))})
                for length in (1, 5, 30):
                    result = decoder.generate(whole, Stop(length))
                    assert result.output_ids == target.greedy(prompt, length)
                    assert max(result.tree_sizes, default=0) <= room


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_A_MODEL])
def test_answers_of_a_model_are_its_own(parts: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama")
    fields = {"no_match_id": 0} if name == "ngram_trie_released" else {}
    for room in (1, 8, 64):
        monkeypatch.setattr(target, "max_draft", room)
        decoder = SpeculativeDecoder(target, made(name, parts, **fields))
        for prompt in ((3, 4, 5, 6, 7) * 4, (9,), (1, 2, 3), (9,)):
            whole = Prompt(np.array(prompt, np.int64), {"released": (0, len(prompt))})
            result = decoder.generate(whole, Stop(40))
            assert result.output_ids == plain_greedy("llama", "sdpa", prompt, 40)
            assert max(result.tree_sizes, default=0) <= room


@pytest.mark.parametrize("name", NAMES)
def test_wrong_values_are_named(parts: dict[str, str], name: str) -> None:
    config: Any = OmegaConf.to_container(settings_of(choices()["method"][name]))
    for field, value in config.items():
        if isinstance(value, bool):
            wrong: tuple[Any, ...] = (1, "no")
        elif isinstance(value, int | float):
            wrong = (-1, "8", True, float("nan"), *((10**30,) if isinstance(value, int) else ()))
        elif isinstance(value, str) and field not in ("name", "_target_", "shape", *parts):
            wrong = ("", ["a"])
        else:
            continue
        for value in wrong:
            with pytest.raises(ValueError, match=re.escape(f"{field}={value!r}: ")):
                made(name, parts, **{field: value})


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_drafts_the_same(parts: dict[str, str], name: str) -> None:
    """In another process, too: what is not sent is opened there again."""
    prompt = Prompt(np.array([1, 2, 3, 4, 1, 2, 3], np.int64), {"released": (0, 7)})
    drafter = made(name, parts)
    for copied in (copy.deepcopy(drafter), pickle.loads(pickle.dumps(drafter))):
        trees = [SpeculativeDecoder(fake(40), each).generate(prompt, Stop(20)).tree_sizes for each in (drafter, copied)]
        assert trees[0] == trees[1] or drafter.traits.remembers


@pytest.mark.parametrize("name", NAMES)
def test_a_new_prompt_starts_afresh_unless_answers_are_kept(parts: dict[str, str], name: str) -> None:
    kept = set(settings_of(choices()["method"][name])) & {"keep_between_prompts", "remember_outputs"}

    def steps(keep: bool) -> tuple[bool, list[list[int]]]:
        drafter = made(name, parts, **dict.fromkeys(kept, keep))
        target = circling(lambda text: 3 * text[-1] % 79, VOCABULARY)  # 78 tokens without a repeat
        decoder = SpeculativeDecoder(target, drafter)
        asked = {"a": [3, 4, 5, 6, 7], "b": [7, 6, 5, 4, 3], "c": [3, 4, 5, 6, 7]}
        prompts = [Prompt(np.array(ids), {"released": (0, 5)}, question_id=name) for name, ids in asked.items()]
        return drafter.traits.remembers, [decoder.generate(prompt, Stop(40)).accept_lengths for prompt in prompts]

    for keep in (False, True) if kept else (False,):
        remembers, (first, _, again) = steps(keep)
        assert len(again) < len(first) if remembers else again == first
        assert remembers == keep or not kept


#: All but the released trie, which has no window behind the last tokens of a part: tests/test_drafters.py.
OF_A_PART = [name for name in NAMES if "context" in settings_of(choices()["method"][name])]


@pytest.mark.parametrize("name", [name for name in OF_A_PART if name != "ngram_trie_released"])
def test_the_named_part_of_the_prompt_is_read(parts: dict[str, str], name: str) -> None:
    """The context 10 to 39 stands in the user's turn, before 60, behind which the template ends with 6."""
    ids = np.array([1, 5, 50, *range(10, 40), 60, 6])
    prompt = Prompt(ids, {"user": (2, 34), "context": (3, 33)})

    def drafted(context: str, output: tuple[int, ...] = (32, 33, 34, 35, 36)) -> set[int]:
        drafter, target = made(name, parts, context=context), fake(VOCABULARY)
        drafter.bind(target)
        target.prefill(ids)
        drafter.start(prompt)
        drafter.observe(list(output))
        return set(drafter.propose(99).tokens[1:].tolist())

    assert drafted("context") == {37, 38, 39}
    assert drafted("user") == {37, 38, 39, 60}
    assert {37, 38, 39, 60, 6} <= drafted("prompt")
    assert not drafted("context", (70, 71, 39)) & {70, 71}, "no copy runs from the context into the output"
    with pytest.raises(ValueError, match="parts prompt, user, context"):
        drafted("article")


@pytest.mark.parametrize("name", NAMES)
def test_what_reads_more_than_tokens_is_not_replayed(parts: dict[str, str], name: str) -> None:
    drafter = made(name, parts)
    if drafter.traits.reads == "tokens":
        check_replayable({name: drafter})
    else:
        with pytest.raises(ValueError, match=f"{name} drafts from the model's .*, which a trace does not hold"):
            check_replayable({name: drafter})


OF_TOKENS = [
    name
    for name in NAMES
    if resolve_name(imported(str(settings_of(choices()["method"][name])["_target_"]))).traits.reads == "tokens"
]
TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=25)


@pytest.mark.parametrize("name", OF_TOKENS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=TOKENS, output=TOKENS, budget=st.integers(1, 40))
def test_probabilities_fall_along_every_path(
    parts: dict[str, str], name: str, prompt: list[int], output: list[int], budget: int
) -> None:
    drafter = made(name, parts)
    for text in (output, prompt):  # what is remembered of the first may be drafted for the second
        drafter.start(Prompt(np.array(text, np.int64), {"released": (0, len(text))}))
        drafter.observe(output)
        tree = drafter.propose(budget)
        if tree.probs is None:
            assert not tree.num_draft or not drafter.traits.scores_nodes, "it drafts and does not say how likely"
            continue
        assert tree.probs.dtype == np.float64 and tree.probs.shape == tree.tokens.shape and tree.probs[0] == 1
        is_chain = tree.parents.tolist() == list(range(-1, tree.num_draft))
        assert is_chain or not drafter.traits.drafts_chains
        assert (tree.probs >= 0).all() and (tree.probs[1:] <= tree.probs[tree.parents[1:]]).all()


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
        model = load_model(method.traits.own_model or str(PROJECT / "data" / "tiny" / "model"))
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
        "library": [(), (), (), ()],
    }
    for name, expected in shapes.items():
        config: Any = settings_of(choices()["method"][name])
        method_class = resolve_name(imported(config["_target_"]))
        assert [tuple(method_class.sized(num_nodes).values()) for num_nodes in SIZES] == expected, name
        assert set(method_class.sized(8)) <= set(config), name


def test_lookahead_takes_as_many_nodes_as_fit() -> None:
    for num_nodes in range(1, 70):
        shape = Lookahead.sized(num_nodes)
        taken = (shape["window"] + shape["guesses"]) * (shape["level"] - 1)
        # Of window and guesses, the pending token is the window's first; filling up it takes no more.
        assert taken - 1 <= num_nodes < taken + 2 * (shape["level"] - 1)
        assert shape["level"] <= shape["window"] + 2


def test_every_method_is_met() -> None:
    assert {*NAMES, *WITH_WEIGHTS, *OTHERS} == set(choices()["method"])
    assert Path(choices()["method"]["sam_static"]).is_file()
