"""The packed backend: when it is taken, when it is refused, and that it follows its model's weights. That it computes
what the stock model does is tested in test_cuda_graph.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import SHAPE, greedy
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from ngram_trie import speculative_generate
from ngram_trie.targets import choose, cpu
from ngram_trie.targets.cpu import PackedNetwork
from ngram_trie.targets.plan import rotary_tables
from ngram_trie.targets.stock import StockNetwork

PROMPT = np.array([5, 9, 5, 9, 7, 5, 9, 7, 11])


def llama(seed: int = 1) -> AutoModelForCausalLM:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE)).eval()


def test_a_prompt_is_read_some_tokens_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "PREFILL_CHUNK", 4)
    model = llama()
    assert isinstance(choose.network_for(model, 100), PackedNetwork)
    ids, _ = speculative_generate(model, PROMPT, drafter="pld", max_new_tokens=20)
    assert ids == greedy(model, PROMPT.tolist(), 20)


@pytest.mark.parametrize(
    ("config", "dtype", "message"),
    [
        (LlamaConfig(**SHAPE), torch.bfloat16, "a model in bfloat16: model.dtype=float32; use engine.backend=stock"),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), torch.float32, "backend=cpu does not run hidden_act=gelu; use"),
        (GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20), torch.float32, "does not run models of type gpt2"),
    ],
)
def test_what_it_does_not_run_is_refused_and_the_library_takes_stock(
    config: LlamaConfig, dtype: torch.dtype, message: str
) -> None:
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with pytest.raises(ValueError, match=message):
        choose.network_for(model, 50, "cpu")
    assert type(choose.network_for(model, 50)) is StockNetwork


def test_a_gpu_is_refused() -> None:
    config = LlamaConfig(**SHAPE)
    assert choose.backend_refusal("cpu", config, torch.device("cpu"), torch.float32) is None
    said = choose.backend_refusal("cpu", config, torch.device("cuda"), torch.float32)
    assert said and "a model on cuda" in said


def test_where_memory_is_short_the_library_takes_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, later = llama(), llama()
    assert type(choose.network_for(model, 50)) is PackedNetwork
    monkeypatch.setattr(cpu, "fits", lambda weight_bytes: weight_bytes < 4 * model.num_parameters())
    assert type(choose.network_for(later, 50)) is StockNetwork
    assert type(choose.network_for(model, 50)) is PackedNetwork, "what is there takes no more"


def test_one_that_computes_something_else_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned_back(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = rotary_tables(*given)
        return cos, -sin

    model = llama(3)
    monkeypatch.setattr(cpu, "rotary_tables", turned_back)
    with pytest.raises(ValueError, match=r"backend=cpu: its logits .* relative; use engine\.backend=stock"):
        choose.network_for(model, 100, "cpu")
    with pytest.warns(UserWarning, match="its logits .* the model's own modules verify drafts, which takes longer"):
        assert type(choose.network_for(model, 100)) is StockNetwork


def test_memory_is_taken_for_the_text_and_not_for_the_longest_one() -> None:
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE | {"max_position_embeddings": 1 << 20})).eval()
    network = choose.network_for(model, 60)
    text = network.text(60)
    assert text.tables[0].shape[1] < 1000 and text.keys.nbytes < 1 << 20
    assert network.text(2000).tables[0].shape[1] >= 2000
