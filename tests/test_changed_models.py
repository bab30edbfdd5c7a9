"""The library answers as the model is, whatever was done to it, before the first answer or between two."""

from __future__ import annotations

import copy
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.tiny import greedy, tiny_model
from torch import nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from ngram_trie import Speculator, speculative_generate
from ngram_trie.targets import cpu
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.cpu import PackedNetwork

PROMPT = [3, 4, 5, 6, 7] * 5
OPTIONS: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": None}


def test_the_default_drafter_of_a_kept_speculator_follows_a_head_that_is_changed() -> None:
    model = tiny_model("llama", eos_token_id=None)
    speculator = Speculator(model)
    speculator(PROMPT, **OPTIONS)
    model.register_forward_hook(lambda _, __, out: (out.logits.neg_(), out)[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert speculator(PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, 12)


@dataclass
class Steer:
    by: torch.Tensor

    def hook(self, module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output + self.by


def test_a_hook_of_an_object_that_holds_tensors_is_swapped() -> None:
    model, steers = tiny_model("llama", eos_token_id=None), [Steer(noise(torch.empty(32)) * each) for each in (2, -5)]
    speculator = Speculator(model, "pld")
    for steer in steers:
        handle = down(model).register_forward_hook(steer.hook)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert speculator(PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, 12)
        handle.remove()


class Negative(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return -weight


def noise(weight: torch.Tensor) -> torch.Tensor:
    return torch.randn(weight.shape, generator=torch.Generator().manual_seed(5))


def down(model: PreTrainedModel) -> nn.Linear:
    return model.model.layers[1].mlp.down_proj


@torch.no_grad()
def added(model: PreTrainedModel) -> None:
    down(model).weight.add_(noise(down(model).weight))


def added_to_data(model: PreTrainedModel) -> None:
    down(model).weight.data += noise(down(model).weight)


def one_number(model: PreTrainedModel) -> None:
    model.model.norm.weight.detach().numpy()[3] = 40


def one_number_of_many(model: PreTrainedModel) -> None:
    down(model).weight.detach().numpy()[17, 300] = 900


def swapped_rows(model: PreTrainedModel) -> None:
    model.lm_head.weight.data[:40] = model.lm_head.weight.data[:40].flip(0)


def swapped_columns(model: PreTrainedModel) -> None:
    down(model).weight.data.copy_(down(model).weight.data.flip(1))


def loaded(model: PreTrainedModel) -> None:
    other = tiny_model("llama", initializer_range=0.5, intermediate_size=512)
    model.load_state_dict({name: noise(weight) for name, weight in other.state_dict().items()})


def parameter(model: PreTrainedModel) -> None:
    down(model).weight = nn.Parameter(noise(down(model).weight))


def linear(model: PreTrainedModel) -> None:
    torch.manual_seed(9)
    model.model.layers[0].self_attn.o_proj = nn.Linear(32, 32, bias=False)


def bias(model: PreTrainedModel) -> None:
    model.model.layers[0].self_attn.q_proj.bias = nn.Parameter(3 * noise(torch.empty(32)))


def embeddings(model: PreTrainedModel) -> None:
    torch.manual_seed(9)
    model.set_input_embeddings(nn.Embedding(61, 32))


def head(model: PreTrainedModel) -> None:
    torch.manual_seed(9)
    model.set_output_embeddings(nn.Linear(32, 61, bias=False))


def tied(model: PreTrainedModel) -> None:
    model.lm_head.weight = model.model.embed_tokens.weight


def resized(model: PreTrainedModel) -> None:
    torch.manual_seed(9)
    model.resize_token_embeddings(70, mean_resizing=False)
    model.lm_head.weight.data[61:] = 40 * noise(torch.empty(9, 32))


def dropped_layer(model: PreTrainedModel) -> None:
    model.model.layers = model.model.layers[:1]


def dropped_by_config(model: PreTrainedModel) -> None:
    model.config.num_hidden_layers = 1


def lora(model: PreTrainedModel) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(9)
    config = peft.LoraConfig(r=2, lora_alpha=64, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    return peft.get_peft_model(model, config)


def merged_lora(model: PreTrainedModel) -> None:
    lora(model).merge_and_unload()


def parametrized(model: PreTrainedModel) -> None:
    parametrize.register_parametrization(down(model), "weight", Negative())


def rotary(model: PreTrainedModel) -> None:
    config = copy.deepcopy(model.config)
    config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}
    model.model.rotary_emb = type(model.model.rotary_emb)(config)


def frequencies(model: PreTrainedModel) -> None:
    model.model.rotary_emb.inv_freq.data.mul_(3)


def rotary_scale(model: PreTrainedModel) -> None:
    model.model.rotary_emb.attention_scaling = 2.0


def eps(model: PreTrainedModel) -> None:
    for layer in model.model.layers:
        layer.input_layernorm.variance_epsilon = 5.0


def attention_scale(model: PreTrainedModel) -> None:
    model.model.layers[0].self_attn.scaling = 3.0


def activation(model: PreTrainedModel) -> None:
    model.model.layers[0].mlp.act_fn = nn.ReLU()


def hook(module: Callable[[PreTrainedModel], nn.Module]) -> Callable[[PreTrainedModel], None]:
    def change(model: PreTrainedModel) -> None:
        flipped = lambda _, __, output: -output[0] if isinstance(output, tuple) else -output  # noqa: E731
        module(model).register_forward_hook(flipped)

    return change


def pre_hook(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.register_forward_pre_hook(lambda _, given: (-given[0],))


def patched_forward(model: PreTrainedModel) -> None:
    mlp = model.model.layers[1].mlp
    mlp.forward = types.MethodType(lambda self, text: -type(self).forward(self, text), mlp)


def other_class(model: PreTrainedModel) -> None:
    mlp = model.model.layers[1].mlp
    mlp.__class__ = type("Own", (type(mlp),), {"forward": lambda self, text: -super(type(mlp), self).forward(text)})


def to_double(model: PreTrainedModel) -> None:
    added(model.double())


CHANGES: dict[str, Callable[[PreTrainedModel], Any]] = {
    "embedding.data": lambda model: model.model.embed_tokens.weight.data.neg_(),
    "norm.data": lambda model: model.model.layers[0].post_attention_layernorm.weight.data.mul_(-2),
    "hook on a layer": hook(lambda model: model.model.layers[0]),
    "hook on the head": hook(lambda model: model.lm_head),
} | {
    change.__name__: change
    for change in [
        added, added_to_data, one_number, one_number_of_many, swapped_rows, swapped_columns, loaded, parameter, linear,
        bias, embeddings, head, tied, resized, dropped_layer, dropped_by_config, lora, merged_lora, parametrized,
        rotary, frequencies, rotary_scale, eps, attention_scale, activation, pre_hook, patched_forward, other_class,
        to_double,
    ]
}  # fmt: skip


@pytest.fixture(params=["cpu", "stock"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "stock":
        monkeypatch.setattr(cpu, "fits", lambda weight_bytes: False)
    return str(request.param)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_answers_as_it_is(change: str, backend: str) -> None:
    model, new = (tiny_model("llama", intermediate_size=512) for _ in range(2))  # products of whole pages
    assert isinstance(network_for(model, 50), PackedNetwork) == (backend == "cpu")
    kept = Speculator(model, "pld")
    before = kept(PROMPT, **OPTIONS)[0]
    decoder = kept._decoder
    assert kept(PROMPT[1:], **OPTIONS) and kept._decoder is decoder, "made once for a model that stays"
    for changed in (model, new):
        CHANGES[change](changed)
    expected = greedy(model, PROMPT, OPTIONS["max_new_tokens"])
    assert expected != before, "or nothing is tested"
    assert speculative_generate(new, PROMPT, "pld", **OPTIONS)[0] == expected, "changed before the first answer"
    assert kept(PROMPT, **OPTIONS)[0] == expected, "between two answers of one Speculator"
    assert speculative_generate(model, PROMPT, "pld", **OPTIONS)[0] == expected, "between two calls"


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "double"])
def test_a_kept_speculator_follows_its_model_s_type(dtype: str) -> None:
    model = tiny_model("llama")
    speculator = Speculator(model)
    speculator(PROMPT, **OPTIONS)
    getattr(model, dtype)()
    assert len(speculator(PROMPT, **OPTIONS)[0]) == OPTIONS["max_new_tokens"]
    model.float()
    assert speculator(PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, OPTIONS["max_new_tokens"])


def test_what_the_packed_copy_does_not_do_is_done_by_the_model_s_own_modules_and_said_where_it_was_added() -> None:
    model = tiny_model("phi3", hidden_act="relu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert speculative_generate(model, PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, 12)
        assert Speculator(tiny_model("llama"))(PROMPT, **OPTIONS)
    model = tiny_model("llama")
    model(torch.tensor([PROMPT]), output_hidden_states=True)  # leaves hooks of transformers' own
    resized(model)  # so does another number of tokens, in the names of that number
    assert isinstance(network_for(model, 50), PackedNetwork)
    activation(model)
    with pytest.warns(UserWarning, match=r"^model\.layers\.0\.mlp\.act_fn is not as the configuration says \(kind\): "):
        assert speculative_generate(model, PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, 12)
    with pytest.raises(ValueError, match=r"^engine\.backend=cpu: .* \(kind\); use engine\.backend=stock$"):
        network_for(model, 50, "cpu")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks for it
def test_a_model_of_peft_s_own() -> None:
    model = lora(tiny_model("llama"))
    with pytest.warns(UserWarning, match=r"q_proj is not as the configuration says"):
        assert speculative_generate(model, PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, 12)
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        tiny_model("llama"), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    )
    with pytest.raises(ValueError, match=r"^model: its adapter puts tokens before the prompt"):
        Speculator(model)


def test_autocast_around_a_call_is_heeded() -> None:
    """Products are then computed in another type: by the model's own modules, not by a packed copy."""
    model = tiny_model("llama")
    speculator = Speculator(model, "pld")

    def answer() -> tuple[list[int], type]:
        return speculator(PROMPT, **OPTIONS)[0], type(speculator._decoder.target.network)

    expected = greedy(model, PROMPT, OPTIONS["max_new_tokens"]), PackedNetwork
    assert answer() == expected
    with torch.autocast("cpu", torch.bfloat16):
        inside, kind = answer()
        assert kind is not PackedNetwork and inside[0] == greedy(model, PROMPT, 1)[0]
    assert answer() == expected
