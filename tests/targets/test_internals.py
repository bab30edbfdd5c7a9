"""What is relied on of transformers and torch beyond what they document; a release that changes it fails here first."""

from __future__ import annotations

import inspect

import pytest
import torch
from support.tiny import tiny_model
from torch import nn
from transformers import DynamicCache, LlamaForCausalLM, MambaConfig, MambaForCausalLM

from ngram_trie.targets import internals
from ngram_trie.targets.stock import KVCache, PreallocatedLayer

IDS = torch.tensor([[5, 6, 7, 8]])


def test_a_forward_goes_on_behind_our_own_cache_as_behind_transformers_own():
    model, own = tiny_model("llama"), DynamicCache()
    ours = KVCache(model.config.num_hidden_layers, 16)
    for ids in (IDS, IDS[:, :1]):
        said, expected = (model(input_ids=ids, **internals.with_cache(model, cache)).logits for cache in (ours, own))
        assert torch.equal(said, expected)
    assert ours.length == own.get_seq_length() == 5
    assert internals.lengths_in(ours) == internals.lengths_in(own) == {5}


def test_a_forward_that_names_neither_takes_the_name_that_all_releases_know():
    class Wrapped(nn.Module):
        def forward(self, *args, **kwargs): ...

    assert internals.with_cache(Wrapped(), None) == {"past_key_values": None, "use_cache": True}


@pytest.mark.parametrize("name", internals.CACHE_ARGUMENTS)
def test_a_cache_is_found_under_both_its_names(name):
    cache = DynamicCache()
    assert internals.cache_in({name: cache, "use_cache": True}) is cache
    assert internals.cache_in({name: None}) is None


def test_generate_calls_the_cache_as_a_forward_does():
    found = []
    model = tiny_model("llama")
    model.register_forward_pre_hook(lambda _, args, kwargs: found.append(internals.cache_in(kwargs)), with_kwargs=True)
    model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2, do_sample=False)
    assert [type(cache) for cache in found] == [DynamicCache] * 2


def test_layers_of_a_cache_are_asked_for_these():
    """A layer is written to by `update`, and masks are made from its lengths; nothing else is overridden."""
    ours, base = vars(PreallocatedLayer), internals.DynamicLayer
    own = {name for name in ours if inspect.isfunction(ours[name]) and name != "__init__"}
    assert own <= set(dir(base)), f"{own - set(dir(base))} are no longer asked for"
    assert "is_initialized" in vars(base()) and issubclass(base, internals.Cache.__init__.__globals__["DynamicLayer"])


def test_the_kind_of_attention_and_of_state_is_known():
    assert internals.attention_of(tiny_model("llama").config) == "sdpa"
    assert not internals.keeps_state(tiny_model("llama"))
    with torch.device("meta"):
        assert internals.keeps_state(MambaForCausalLM(MambaConfig(hidden_size=8, num_hidden_layers=1, vocab_size=8)))


def test_hooks_are_found_but_those_that_watch():
    module = nn.Linear(2, 2)

    def own(*_): ...

    def watching(*_): ...

    watching.__module__ = internals.WATCHING[0]
    for hook in (own, watching):
        module.register_forward_hook(hook)
    module.register_forward_pre_hook(own)
    assert internals.hooks_of(module) == [own, own]
    assert set(internals.tensors_of(module)) == {"weight", "bias"}
    assert not internals.has_global_hook()
    with nn.modules.module.register_module_forward_hook(own):
        assert internals.has_global_hook()


def test_the_hidden_states_that_the_head_reads_are_the_decoders():
    model, found = tiny_model("llama"), []
    with model.get_decoder().register_forward_hook(lambda *said: found.append(said[2].last_hidden_state)):
        logits = model(input_ids=IDS).logits
    assert isinstance(model, LlamaForCausalLM) and torch.equal(model.lm_head(found[0]), logits)


def test_processors_of_text_take_the_texts_of_all_rows():
    """Each is called with (texts, logits) and is a function of these: two texts at once are as one after the other."""
    logits, texts = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([[1, 2, 1], [3, 4, 3]])
    made = [internals.OF_TEXT[0](1.5), internals.OF_TEXT[1](2), internals.OF_LOGITS[0](0.5), internals.OF_LOGITS[1](3)]
    for processor in made:
        alone = [processor(text[None], row[None].clone()) for text, row in zip(texts, logits, strict=True)]
        assert torch.equal(processor(texts, logits.clone()), torch.cat(alone))


def test_a_file_that_is_not_there_is_none(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert internals.file_of(str(tmp_path), "config.json", None) == str(tmp_path / "config.json")
    assert internals.file_of(str(tmp_path), "tokenizer.model", None) is None
    assert internals.file_of("nobody/nothing", "tokenizer.model", None) is None


def test_merges_are_made_of_pieces_and_scores():
    merges = internals.generate_merges({"a": 0, "b": 1, "ab": 2}, {"a": 0.0, "b": 0.0, "ab": -1.0}, set())
    assert [tuple(pair) for pair in merges] == [("a", "b")]
