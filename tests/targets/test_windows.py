"""Models whose layers slide, or that are no Llama: answers as `generate`'s beyond the window, or one line that says why
not.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import SHAPE
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ngram_trie import speculative_generate

PROMPT = [3, 4, 5, 6, 7] * 5
MIXED = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
#: What can verify a tree, beside `support.families`: the model type, and fields of its config.
WORKING: dict[str, dict[str, Any]] = {
    "phi3": {"sliding_window": 12},
    "gpt_oss": {"sliding_window": 12, "layer_types": MIXED, "head_dim": 8, **EXPERTS},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "deepseek_v3": {
        "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
        "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1,
    },
}  # fmt: skip
#: And what cannot.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bloom": ({"n_head": 4, "n_layer": 2}, "takes no positions"),
    "rwkv": ({"attention_hidden_size": 32}, "keeps a state"),
    "mamba": ({"state_size": 4}, "keeps a state"),
}


def tiny(kind: str, spread: float, fields: dict[str, Any]) -> PreTrainedModel:
    torch.manual_seed(0)
    settings = SHAPE | {"tie_word_embeddings": False, "eos_token_id": 2, "initializer_range": spread} | fields
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()


@pytest.mark.parametrize("kind", WORKING)
def test_answers_beyond_the_window_are_those_of_generate(kind: str) -> None:
    accept_lengths = []
    for spread in (0.3, 0.6):
        model = tiny(kind, spread, WORKING[kind])
        ids = torch.tensor([PROMPT])
        options: dict[str, Any] = {"max_new_tokens": 60, "eos_token_id": None, "do_sample": False}
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(PROMPT) :].tolist()
        for drafter in ("blend", "suffix"):
            found, result = speculative_generate(model, PROMPT, drafter, budget="fixed", **options)
            assert found == expected, drafter
            accept_lengths += result.accept_lengths
    assert max(accept_lengths) > 1


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_cannot_verify_a_tree_is_refused_by_name(kind: str) -> None:
    fields, reason = REFUSED[kind]
    with pytest.raises(ValueError, match=rf"^model type {kind} {reason}.*; use the model's own generate$"):
        speculative_generate(tiny(kind, 0.3, fields), PROMPT, max_new_tokens=5)
