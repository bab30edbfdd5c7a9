"""The packed backend: when it is taken, when it is refused, and that it follows its model's weights. That it computes
what the stock model does is tested in test_cuda_graph.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.plain import greedy
from support.tiny import SHAPE
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from ngram_trie import speculative_generate
from ngram_trie.targets import choose, cpu
from ngram_trie.targets.check import check
from ngram_trie.targets.cpu import CpuTarget
from ngram_trie.targets.model import TargetModel

PROMPT = np.array([5, 9, 5, 9, 7, 5, 9, 7, 11])


def llama(seed: int = 1) -> AutoModelForCausalLM:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE)).eval()


def test_a_prompt_is_read_some_tokens_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "TOGETHER", 4)
    model = llama()
    check(CpuTarget(model, 16), "cpu")
    ids, _ = speculative_generate(model, PROMPT, drafter="pld", max_new_tokens=20)
    assert ids == greedy(model, PROMPT.tolist(), 20)


@pytest.mark.parametrize(
    ("config", "dtype", "message"),
    [
        (LlamaConfig(**SHAPE), torch.bfloat16, "a model in bfloat16: model.dtype=float32; use engine.backend=stock"),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), torch.float32, "backend=cpu does not know hidden_act=gelu"),
        (GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20), torch.float32, "backend=cpu knows llama"),
    ],
)
def test_what_it_does_not_run_is_refused_and_the_library_takes_stock(
    config: LlamaConfig, dtype: torch.dtype, message: str
) -> None:
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        CpuTarget(model, 8)
    assert type(choose.target_for(model, 50)) is TargetModel


def test_a_gpu_is_refused() -> None:
    config = LlamaConfig(**SHAPE)
    assert cpu.refusal(config, torch.float32, torch.device("cpu"), 100) is None
    said = cpu.refusal(config, torch.float32, torch.device("cuda"), 100)
    assert said and "a model on cuda" in said


def test_where_memory_is_short_the_library_takes_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    assert type(choose.target_for(model, 50)) is CpuTarget
    monkeypatch.setattr(cpu, "fits", lambda weight_bytes: weight_bytes < 4 * model.num_parameters())
    assert type(choose.target_for(model, 50)) is TargetModel


def test_one_that_computes_something_else_here_is_refused() -> None:
    target = CpuTarget(llama(3), 16)
    check(target, "cpu")
    target.network.sin = -target.network.sin
    with pytest.raises(ValueError, match=r"backend=cpu: its logits are .* use engine\.backend=stock"):
        check(target, "cpu")
