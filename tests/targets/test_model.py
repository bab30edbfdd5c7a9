from __future__ import annotations

import copy
import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from support.families import BACKENDS, target_of
from support.plain import Trap
from support.tiny import VOCABULARY, tiny_model, tiny_target

from ngram_trie.store.files import fingerprint
from ngram_trie.targets.load import choose_device, load_model
from ngram_trie.targets.stock import KVCache, PreallocatedLayer
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


def test_near_tie_excuses_nothing_in_single_precision() -> None:
    target = tiny_target("llama")
    with torch.inference_mode():
        top = target.model(torch.tensor([[1, 2, 3]])).logits[0, -1].topk(3)
    gap, is_tie = target.near_tie([1, 2, 3], top.indices[[0, 2]].tolist())
    assert gap == pytest.approx(float(top.values[0] - top.values[2]), abs=1e-5)
    assert not is_tie


def test_memory_that_runs_out_leaves_the_layer_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = PreallocatedLayer(capacity=8)
    rows = torch.zeros(1, 1, 2, 4)

    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("none left")

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "new_empty", no_memory)
        with pytest.raises(torch.OutOfMemoryError):
            layer.update(rows, rows)
    keys, _ = layer.update(rows, rows)
    assert keys.shape == (1, 1, 2, 4)


def test_load_model_round_trip_and_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be loaded"):
        load_model(str(tmp_path / "nothing"))
    model = tiny_target("llama").model
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu")
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    first = fingerprint(str(tmp_path))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert fingerprint(str(tmp_path)) != first
    assert fingerprint("some/hub-id", "abc") == "some/hub-id@abc"
    weights = load_file(tmp_path / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "layers.1.mlp" not in k}, tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match=r"missing keys: model\.layers\.1\.mlp"):
        load_model(str(tmp_path), device="cpu")
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    damaged = r"cannot be loaded: its weights are cut short, damaged, or not only tensors \(.*\): fetch them again$"
    with pytest.raises(FileNotFoundError, match=damaged):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.parametrize("error", [GatedRepoError, RepositoryNotFoundError, HfHubHTTPError])
def test_what_the_hub_does_not_give_is_one_line(monkeypatch: pytest.MonkeyPatch, error: type[HfHubHTTPError]) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("transformers' own words") from error("Access is\nrestricted.", response=mock.Mock())

    monkeypatch.setattr("ngram_trie.targets.load.fetch", refused)
    with pytest.raises(FileNotFoundError) as raised:
        load_model("some/model")
    said = str(raised.value)
    assert said.startswith("model 'some/model' cannot be loaded: ") and "Access is restricted" in said
    assert said.endswith("; or give a folder with its files: model.path=FOLDER") and "\n" not in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there() -> None:
    assert choose_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="no GPU"):
        choose_device("cuda")


def test_a_model_in_pytorchs_own_format_is_read_and_no_code_in_it_is_run(tmp_path: Path) -> None:
    """As JackFram/llama-68m and other older repositories hold theirs."""
    model = tiny_target("llama").model
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert load_model(str(tmp_path), device="cpu").lm_head.weight.equal(model.lm_head.weight)
    before = fingerprint(str(tmp_path))
    torch.save(model.state_dict() | {"lm_head.weight": Trap()}, tmp_path / "pytorch_model.bin")
    assert fingerprint(str(tmp_path)) != before
    with pytest.raises(FileNotFoundError, match="cannot be loaded"):
        load_model(str(tmp_path), device="cpu")


def test_the_last_forward_says_what_the_model_says_and_leaves_nothing_behind() -> None:
    target = tiny_target("qwen2")
    ids = [4, 7, 9]
    with torch.inference_mode():
        expected = target.model.base_model(torch.tensor([[*ids, 11, 12]])).last_hidden_state[0]
        logits = target.model(torch.tensor([[*ids, 11, 12]])).logits[0]
    target.prefill(np.array(ids, np.int64))
    torch.testing.assert_close(target.last.prompt, expected[:3])
    torch.testing.assert_close(target.last.hidden, expected[2:3])
    assert (target.last.tree.tokens.tolist(), target.last.path) == ([9], [0])
    assert target.last.logits.shape == (1, VOCABULARY)
    tree = DraftTree(np.array([11, 3, 12]), np.array([-1, 0, 0]))
    seen = target.verify(tree)
    torch.testing.assert_close(target.last.hidden[[0, 2]], expected[3:])
    torch.testing.assert_close(target.last.logits[[0, 2]], logits[3:])
    assert target.last is seen and target.last.tree is tree and target.last.prompt is None
    target.commit(3, [0, 2])
    assert target.last.path == [0, 2]
    assert not target.model.base_model._forward_hooks


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_logit_that_is_not_finite_ends_the_answer(backend: str, value: float) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    with torch.no_grad():
        model.get_input_embeddings().weight[9] = value  # of one token alone
    target = target_of(model, backend)
    with pytest.raises(ValueError, match="a logit is NaN or infinite"):
        target.prefill(np.array([1, 9, 2]))
    target.prefill(np.arange(5))
    with pytest.raises(ValueError, match="a logit is NaN or infinite"):
        target.verify(DraftTree.from_paths(3, [[1, 9]]))
