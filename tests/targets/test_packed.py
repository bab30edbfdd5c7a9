"""The packed backend: when it is taken, when it is refused, and that it follows its model's weights. That it computes
what the stock model does is tested in test_static.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.plain import greedy
from support.tiny import SHAPE
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from ngram_trie import speculative_generate
from ngram_trie.targets import choose, packed
from ngram_trie.targets.check import check
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.packed import PackedTarget, packed_network

PROMPT = np.array([5, 9, 5, 9, 7, 5, 9, 7, 11])


def llama(seed: int = 1) -> AutoModelForCausalLM:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE)).eval()


def test_weights_are_packed_once_and_again_when_they_change() -> None:
    """A model that is trained between two answers must not be answered for by its old weights."""
    model = llama()
    first = packed_network(model)
    assert packed_network(model) is first and PackedTarget(model, 8).network is first
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(-1)
    assert packed_network(model) is not first
    model.load_state_dict(llama(2).state_dict())
    ids, _ = speculative_generate(model, PROMPT, drafter="pld", max_new_tokens=20)
    assert ids == greedy(model, PROMPT.tolist(), 20)


def test_a_prompt_is_read_some_tokens_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "TOGETHER", 4)
    model = llama()
    check(PackedTarget(model, 16), "packed")
    ids, _ = speculative_generate(model, PROMPT, drafter="pld", max_new_tokens=20)
    assert ids == greedy(model, PROMPT.tolist(), 20)


@pytest.mark.parametrize(
    ("config", "dtype", "message"),
    [
        (LlamaConfig(**SHAPE), torch.bfloat16, "a model in bfloat16: model.dtype=float32; use engine.backend=stock"),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), torch.float32, "backend=packed does not know hidden_act=gelu"),
        (GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20), torch.float32, "backend=packed knows llama"),
    ],
)
def test_what_it_does_not_run_is_refused_and_the_library_takes_stock(
    config: LlamaConfig, dtype: torch.dtype, message: str
) -> None:
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        PackedTarget(model, 8)
    assert type(choose.target_for(model, 50)) is TargetModel


def test_a_gpu_is_refused() -> None:
    config = LlamaConfig(**SHAPE)
    assert packed.refusal(config, torch.float32, torch.device("cpu"), 100) is None
    said = packed.refusal(config, torch.float32, torch.device("cuda"), 100)
    assert said and "a model on cuda" in said


def test_where_memory_is_short_the_library_takes_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    assert type(choose.target_for(model, 50)) is PackedTarget
    monkeypatch.setattr(packed, "fits", lambda weight_bytes: weight_bytes < 4 * model.num_parameters())
    assert type(choose.target_for(model, 50)) is TargetModel


def test_one_that_computes_something_else_here_is_refused() -> None:
    target = PackedTarget(llama(3), 16)
    check(target, "packed")
    target.network.sin = -target.network.sin
    with pytest.raises(ValueError, match=r"backend=packed: its logits are .* use engine\.backend=stock"):
        check(target, "packed")
