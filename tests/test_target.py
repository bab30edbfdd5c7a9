from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_target

from ngram_trie.target import KVCache, TargetModel, fingerprint, load_model
from ngram_trie.tree import DraftTree


def test_keep_moves_the_path_behind_the_past() -> None:
    cache = KVCache(num_layers=2, capacity=10)
    rows = torch.arange(7.0).reshape(1, 1, 7, 1)
    for layer in range(2):
        cache.update(rows + 10 * layer, rows + 100, layer)
    cache.keep(past=2, path=[0, 2, 4])
    assert cache.length == 5
    assert cache.layers[0].keys[0, 0, :5, 0].tolist() == [0, 1, 2, 4, 6]
    assert cache.layers[1].keys[0, 0, :5, 0].tolist() == [10, 11, 12, 14, 16]
    keys, values = cache.update(torch.full((1, 1, 1, 1), -1.0), torch.full((1, 1, 1, 1), -2.0), 0)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 4, 6, -1]
    assert values[0, 0, -1, 0] == -2


def test_every_node_sees_its_own_path_and_nothing_else(target: TargetModel) -> None:
    prompt, root = [7, 8, 9], 3
    tree = DraftTree.from_paths(root, [[1, 2, 3], [1, 4], [5]])
    target.prefill(np.array(prompt))
    chosen = target.verify(tree)
    for node in range(len(tree)):
        text = [*prompt, *tree.tokens[tree.path_to(node)].tolist()]
        alone = target.model(torch.tensor([text])).logits[0, -1].argmax()
        assert chosen[node] == alone


def test_near_tie_excuses_nothing_in_single_precision() -> None:
    target = tiny_target("llama")
    gap, is_tie = target.near_tie([1, 2, 3])
    top = target.model(torch.tensor([[1, 2, 3]])).logits[0, -1].topk(2).values
    assert gap == pytest.approx(float(top[0] - top[1]), abs=1e-5)
    assert not is_tie


def test_half_precision_ties_are_told_apart() -> None:
    model = tiny_target("llama").model
    half = TargetModel(type(model)(model.config).to(torch.bfloat16), max_draft=4)
    with torch.no_grad():
        half.model.lm_head.weight[1] = half.model.lm_head.weight[0]  # tokens 0 and 1 always tie
        half.model.lm_head.weight[2:] = 0
        half.model.lm_head.weight[:2] *= 100
    ties = [half.near_tie([5, token])[1] for token in range(10)]
    assert any(ties)


def test_load_model_round_trip_and_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be loaded"):
        load_model(str(tmp_path / "nothing"))
    model = tiny_target("llama").model
    model.save_pretrained(tmp_path)
    first = fingerprint(str(tmp_path))
    with torch.no_grad():
        changed = type(model)(model.config)
    changed.save_pretrained(tmp_path)
    assert fingerprint(str(tmp_path)) != first
    assert fingerprint("some/hub-id") == "some/hub-id"
