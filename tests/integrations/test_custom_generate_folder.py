"""transformers' `generate` with the folder that ships: from disk and from a hub, with its options."""

from __future__ import annotations

import functools
import importlib.abc
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.tiny import tiny_model
from transformers import GenerationConfig, PreTrainedModel

from ngram_trie.generate import SpeculativeOutput, speculative_generate
from ngram_trie.integrations.folder import copy_to, folder, generate
from ngram_trie.store.files import PROJECT

PROMPT = torch.tensor([[3, 4, 5, 6, 7] * 5])


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model("llama", eos_token_id=None)


@pytest.fixture(autouse=True)
def modules_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where transformers copies code to, and none of it imported before."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)


def drafted(model: PreTrainedModel, where: Path | str, **options: Any) -> Any:
    return model.generate(PROMPT, custom_generate=str(where), trust_remote_code=True, **options)


@pytest.mark.parametrize("drafter", ["blend", "blend_logits", "pld"])
def test_the_folder_answers_as_generate(model: PreTrainedModel, drafter: str) -> None:
    plain = model.generate(PROMPT, max_new_tokens=40)
    told = drafted(model, folder(), max_new_tokens=40, drafter=drafter, num_draft=6, return_dict_in_generate=True)
    assert isinstance(told, SpeculativeOutput) and torch.equal(told.sequences, plain)
    assert told.result is not None and 0 < max(told.result.tree_sizes) <= 6


def test_own_options_and_those_of_generate_arrive(model: PreTrainedModel) -> None:
    config = GenerationConfig(max_new_tokens=30, do_sample=True, temperature=0.7)
    first, again, other = (
        drafted(model, folder(), generation_config=config, drafter={"name": "blend", "num_draft": 9}, seed=seed)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    chain = drafted(model, folder(), shape="chain", num_draft=3, max_new_tokens=30, return_dict_in_generate=True)
    assert max(chain.result.tree_sizes) <= 3
    with pytest.raises(ValueError, match=r"^shape='star': must be one of tree, chain$"):
        drafted(model, folder(), shape="star")
    with pytest.raises(ValueError, match=r"^num_beams=2, "):
        drafted(model, folder(), num_beams=2)


def test_a_repository_of_the_hub_answers_the_same(model: PreTrainedModel, tmp_path: Path) -> None:
    repository, commit = tmp_path / "models--someone--drafts", "0" * 40  # as the hub's client keeps what it downloads
    copy_to(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    told = drafted(
        model, "someone/drafts", max_new_tokens=20, cache_dir=tmp_path, local_files_only=True, revision="main"
    )
    assert torch.equal(told, model.generate(PROMPT, max_new_tokens=20))


def test_kept_beside_a_model_it_answers_in_place_of_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", eos_token_id=None)
    plain, text = model.generate(PROMPT, max_new_tokens=20), PROMPT[0].tolist()
    monkeypatch.setattr(model, "generate", functools.partial(generate, model=model), raising=False)  # as on loading
    assert torch.equal(model.generate(inputs=PROMPT, max_new_tokens=20, drafter="blend"), plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a network that is slower
        assert speculative_generate(model, text, "pld", max_new_tokens=20)[0] == plain[0, len(text) :].tolist()


def test_a_generate_of_the_callers_own_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = tiny_model("llama", eos_token_id=None), PROMPT[0].tolist()
    monkeypatch.setattr(model, "generate", functools.partial(model.generate, repetition_penalty=3.0), raising=False)
    plain = model.generate(PROMPT, max_new_tokens=20)
    assert not torch.equal(plain, type(model).generate(model, PROMPT, max_new_tokens=20))
    assert speculative_generate(model, text, "pld", max_new_tokens=20)[0] == plain[0, len(text) :].tolist()
    assert torch.equal(generate(model, PROMPT, max_new_tokens=20, drafter="pld"), plain)


def test_a_missing_package_is_one_line(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hidden(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name.partition(".")[0] == "ngram_trie":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.partition(".")[0] == "ngram_trie"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    place = PROJECT / "ngram_trie/integrations/hub"
    with pytest.raises(ImportError, match=r"^custom_generate: ngram_trie is not installed; pip install \.") as error:
        drafted(model, place, max_new_tokens=5)
    assert "\n" not in str(error.value)


def test_the_folder_is_copied_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert copy_to(str(tmp_path)) == tmp_path
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"README.md", "custom_generate/generate.py", "custom_generate/requirements.txt"}
    assert (tmp_path / "README.md").read_text() == "mine"
    with pytest.raises(FileExistsError, match="is there already; remove it, or give another folder"):
        copy_to(tmp_path)
