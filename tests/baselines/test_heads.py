"""Medusa and Hydra: public checkpoint layouts, trees, drafts recomputed from scratch, and plain greedy output."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.checkpoints import SIZE, hydra_folder, medusa_folder
from support.plain import PROMPTS, decode
from support.tiny import greedy, tiny_model, tiny_target
from torch.nn.functional import silu

from ngram_trie import Speculator
from ngram_trie.baselines.hydra_heads import Hydra
from ngram_trie.baselines.medusa import PUBLISHED_TREE, HeadDrafter, Medusa, TreeLayout, likely_tree
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

KEPT = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_the_published_tree_has_the_published_shape() -> None:
    assert Counter(map(len, PUBLISHED_TREE)) == {1: 10, 2: 28, 3: 23, 4: 2}
    for size in range(1, 64):  # any front of it is a tree, with siblings from the best on
        front = set(PUBLISHED_TREE[:size])
        assert len(front) == size
        assert all(path[:-1] in front or len(path) == 1 for path in front)
        assert all((*path[:-1], path[-1] - 1) in front or path[-1] == 0 for path in front)


ACCURACIES = st.lists(
    st.lists(st.floats(0.01, 0.5), min_size=1, max_size=4).map(lambda head: sorted(head, reverse=True)),
    min_size=1, max_size=3,
)  # fmt: skip


@given(ACCURACIES, st.integers(1, 12))
def test_the_likely_tree_promises_the_most(accuracies: list[list[float]], size: int) -> None:
    def worth(path: tuple[int, ...]) -> float:
        return float(np.prod([accuracies[depth][rank] for depth, rank in enumerate(path)]))

    paths = [
        path for depth in range(1, len(accuracies) + 1)
        for path in itertools.product(*(range(len(head)) for head in accuracies[:depth]))
    ]  # fmt: skip
    tree = likely_tree(accuracies, size)
    best = sorted(map(worth, paths), reverse=True)[:size]
    assert sorted(map(worth, tree), reverse=True) == pytest.approx(best)
    assert all(path[:-1] in tree for path in tree if len(path) > 1)


def test_a_layout_puts_parents_before_children() -> None:
    layout = TreeLayout([(0, 0), (0,), (1,), (0, 0, 2), (1, 0)])
    assert layout.parents.tolist() == [-1, 0, 0, 1, 2, 3]
    assert layout.ranks.tolist() == [0, 0, 1, 0, 0, 2]
    assert [level.tolist() for level in layout.levels] == [[1, 2], [3, 4], [5]]


class Recorded:
    """Wraps a drafter's proposals."""

    def __init__(self, drafter: HeadDrafter) -> None:
        self.trees: list[tuple[DraftTree, int]] = []
        inner = drafter.propose

        def propose(budget: int) -> DraftTree:
            tree = inner(budget)
            self.trees.append((tree, budget))
            return tree

        drafter.propose = propose  # type: ignore[method-assign]


def hidden_states(target: TargetModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return target.model.base_model(torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_medusa_drafts_what_its_heads_say(tmp_path: Path, family: str) -> None:
    target, folder = tiny_target(family), medusa_folder(tmp_path)
    tensors = torch.load(folder / "medusa_lm_head.pt", weights_only=True)
    drafter = Medusa(heads=str(folder))
    recorded = Recorded(drafter)
    text = [5, 9, 2]
    result = decode(target, drafter, text, 12)
    assert result.output_ids == greedy(target.model, text, 12)
    done = 1
    for (tree, _), accepted in zip(recorded.trees, result.accept_lengths, strict=False):
        # The root has not been through the model: heads read the state of the token before it.
        hidden = hidden_states(target, text + result.output_ids[: done - 1])[-1]
        assert tree.tokens[0] == result.output_ids[done - 1] and tree.num_draft == 63
        for path in ((0,), (3,), (0, 4), (2, 1), (0, 3, 0), (0, 0, 0, 1)):
            expected = []
            for head, rank in enumerate(path):
                weight, bias = tensors[f"{head}.0.linear.weight"], tensors[f"{head}.0.linear.bias"]
                logits = tensors[f"{head}.1.weight"] @ (hidden + silu(weight @ hidden + bias))
                expected.append(int(logits.argsort(descending=True)[rank]))
            node = 0
            for token in expected:
                children = np.flatnonzero(tree.parents == node)
                node = next(int(c) for c in children if tree.tokens[c] == token)
        done += accepted


@KEPT
@given(PROMPTS, st.integers(1, 70), st.sampled_from([Medusa, Hydra]))
def test_the_output_stays_what_it_was(tmp_path: Path, prompt: list[int], num_draft: int, kind: Any) -> None:
    (tmp_path / kind.__name__).mkdir(exist_ok=True)
    folder = (medusa_folder if kind is Medusa else hydra_folder)(tmp_path / kind.__name__)
    target = tiny_target("llama")
    result = decode(target, kind(heads=str(folder), num_draft=num_draft), prompt, 20)
    assert result.output_ids == greedy(target.model, prompt, 20)
    assert max(result.tree_sizes) <= num_draft


@pytest.mark.parametrize(("once", "norm"), [(False, True), (True, True), (False, False)])
def test_hydra_drafts_what_its_heads_say_given_the_path(tmp_path: Path, once: bool, norm: bool) -> None:
    target, folder = tiny_target("llama"), hydra_folder(tmp_path, once=once, norm=norm)
    tensors = torch.load(folder / "hydra_lm_head.pt", weights_only=True)
    drafter = Hydra(heads=str(folder))
    recorded = Recorded(drafter)
    text = [5, 9, 2, 33]
    result = decode(target, drafter, text, 14)
    assert result.output_ids == greedy(target.model, text, 14)
    embed = target.model.get_input_embeddings().weight.detach()
    done = 1
    for (tree, _), accepted in zip(recorded.trees, result.accept_lengths, strict=False):
        hidden = hidden_states(target, text + result.output_ids[: done - 1])
        with torch.inference_mode():  # without a cache, over all text
            state = drafter.module.prefix(hidden[None], use_cache=False)[0, -1]
        for node in range(1, len(tree)):
            path = [int(tree.tokens[at]) for at in tree.path_to(node)]
            head = len(path) - 2
            x = torch.cat([state, *(embed[token] for token in path[:-1])])
            name = f"hydra_mlp.{head}"
            x = (
                tensors[f"{name}.1.res_connection.weight"] @ x + tensors[f"{name}.1.res_connection.bias"]
                + silu(tensors[f"{name}.1.linear.weight"] @ x + tensors[f"{name}.1.linear.bias"])
            )  # fmt: skip
            for _ in range(3):
                x = x + silu(tensors[f"{name}.3.linear.weight"] @ x + tensors[f"{name}.3.linear.bias"])
            logits = tensors[f"hydra_lm_head.{head}.1.weight"] @ x + tensors[f"hydra_lm_head.{head}.1.bias"]
            siblings = np.flatnonzero(tree.parents == tree.parents[node]).tolist()
            rank = siblings.index(node)
            assert path[-1] == int(logits.argsort(descending=True)[rank])
        done += accepted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_positions_stay_exact(tmp_path: Path, dtype: torch.dtype) -> None:
    target = TargetModel(copy.deepcopy(tiny_target("llama").model).to(dtype))
    drafter = Hydra(heads=str(hydra_folder(tmp_path)))
    drafter.bind(target)
    assert {p.dtype for p in drafter.module.parameters()} == {dtype}
    assert drafter.module.prefix_embeding_layer.rotary_emb.inv_freq.dtype == torch.float32
    assert len(decode(target, drafter, [5, 9, 2], 8).output_ids) == 8


def test_the_likely_tree_comes_from_the_measured_accuracies(tmp_path: Path) -> None:
    folder = medusa_folder(tmp_path)
    with pytest.raises(ValueError, match="no head_accuracies"):
        Medusa(heads=str(folder), tree="likely", num_draft=3).bind(tiny_target("llama"))
    (folder / "config.json").write_text(json.dumps({"head_accuracies": [[0.9, 0.05], [0.8, 0.1], [0.7, 0.1]]}))
    drafter = Medusa(heads=str(folder), tree="likely", num_draft=3)
    drafter.bind(tiny_target("llama"))
    assert drafter.layout(3).parents.tolist() == [-1, 0, 1, 2]
    drafter.target.prefill(np.array([3, 4, 5]))
    drafter.start(Prompt(np.array([3, 4, 5])))
    tree = drafter.propose(4)
    assert tree.parents.tolist() == [-1, 0, 1, 2] and tree.probs is not None
    assert tree.probs.tolist() == pytest.approx([1, 0.9, 0.9 * 0.8, 0.9 * 0.8 * 0.7])
    assert drafter.layout(4).probs == pytest.approx([1, 0.9, 0.9 * 0.8, 0.9 * 0.1, 0.9 * 0.8 * 0.7])
    assert TreeLayout(PUBLISHED_TREE).probs is None


@pytest.mark.parametrize("kind", [Medusa, Hydra])
def test_wrong_weights_and_values_are_named(tmp_path: Path, kind: type[HeadDrafter]) -> None:
    folder = (medusa_folder if kind is Medusa else hydra_folder)(tmp_path, num_heads=2)
    with pytest.raises(ValueError, match=r"num_heads=4: .* holds 2"):
        kind(heads=str(folder)).bind(tiny_target("llama"))
    with pytest.raises(ValueError, match="tree='best'"):
        kind(heads=str(folder), tree="best")
    with pytest.raises(ValueError, match="num_draft=None"):
        kind(heads=str(folder), tree="likely")
    file = next(folder.glob("*.pt"))
    tensors = torch.load(file, weights_only=True)
    key = next(key for key in tensors if key.endswith("0.1.weight"))
    torch.save(tensors | {key: torch.zeros(3, SIZE)}, file)
    with pytest.raises(ValueError, match=r"of another shape: .*\(3, 32\), not \(61, 32\)"):
        kind(heads=str(folder), num_heads=2).bind(tiny_target("llama"))


@pytest.mark.parametrize("kind", [Medusa, Hydra])
def test_a_growing_cache_loads_no_weights_again(tmp_path: Path, kind: type[HeadDrafter]) -> None:
    model, folder = tiny_target("llama").model, (medusa_folder if kind is Medusa else hydra_folder)(tmp_path)
    drafter = kind(heads=str(folder))
    speculator = Speculator(model, drafter)
    speculator([3, 4, 5], max_new_tokens=5)
    module = drafter.module
    assert speculator([3, 4, 5], max_new_tokens=60, eos_token_id=None)[0] == greedy(model, [3, 4, 5], 60)
    assert drafter.module is module
    drafter.bind(TargetModel(tiny_model("llama")))  # another model
    assert drafter.module is not module
