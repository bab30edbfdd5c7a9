"""A tiny random model of every family that has a plan, and what runs them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from ngram_trie.drafter import Verify
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.cuda_graph import GraphNetwork
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.plan import Plan, plan_of
from support.tiny import SHAPE

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_hidden_layers": 3}
_GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2}
_STATELESS = {"layer_types": ["full_attention"] * 2, "num_local_experts": 0, "shared_intermediate_size": 48,
              "mamba_n_heads": 8}  # fmt: skip
#: By name: the type of the model, and the fields of its config beside `SHAPE`. Windows are short, so that texts exceed
#: them; heads are of another size than the hidden one divided by their number where a family has that.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama3": ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3, "attention_bias": True}),
    "mistral": ("mistral", {"sliding_window": 9}),
    "ministral": ("ministral", {"sliding_window": 9, "head_dim": 16, **_MIXED}),
    "qwen2": ("qwen2", {"sliding_window": 9, "use_sliding_window": True, **_MIXED}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "phi3": ("phi3", {"num_key_value_heads": 4, "sliding_window": None}),
    "phi4": ("phi3", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.75},
                      "head_dim": 8}),
    "seed_oss": ("seed_oss", {"head_dim": 16, "attention_bias": True, "attention_out_bias": False}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0], "mlp_bias": True}),
    "granite": ("granite", _GRANITE),
    "granite4": ("granitemoehybrid", {**_STATELESS, **_GRANITE, "position_embedding_type": "rope"}),
    "granite4_still": ("granitemoehybrid", _STATELESS),
    "gemma2": ("gemma2", {"sliding_window": 9, "head_dim": 16, "query_pre_attn_scalar": 20, **_MIXED,
                          "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0}),
    "gemma3": ("gemma3_text", {"sliding_window": 9, "head_dim": 16, "query_pre_attn_scalar": 20, **_MIXED}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"sliding_window": 9, **_MIXED}),
}  # fmt: skip
BACKENDS = ("stock", "rows", "cpu", "products", "whole")


def family_model(name: str, **changes: Any) -> PreTrainedModel:
    """With biases and norms that would be missed, varied answers and no token that ends them."""
    kind, fields = FAMILIES[name]
    torch.manual_seed(1)
    settings = SHAPE | {"tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": None} | fields | changes
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**settings)).eval()
    for weight_name, weight in model.named_parameters():
        if weight.dim() == 1:  # made as zeros or ones, which would hide one that is forgotten
            torch.nn.init.normal_(weight, 0.0 if weight_name.endswith("bias") else weight.mean().item(), 0.3)
    return model


@functools.cache
def cached_model(name: str) -> PreTrainedModel:
    return family_model(name)


def plan(model: PreTrainedModel) -> Plan:
    found = plan_of(model.config)
    assert isinstance(found, Plan)
    return found


def target_of(model: PreTrainedModel, backend: str, max_draft: int = 40, limit: int = 160) -> TargetModel:
    """One that a backend of `BACKENDS`, or "cuda_graph", runs; graphs of small sizes and lengths, so that an answer
    crosses several.
    """
    if backend in ("products", "whole"):
        network = GraphNetwork(model, plan(model), backend, sizes=(1, 4, 8), chunk=16, spare=0)
    else:
        way: tuple[str, Verify] = ("stock", "rows") if backend == "rows" else (backend, "tree")
        network = network_for(model, limit, *way)
    return TargetModel(model, max_draft, limit, network)


@functools.cache
def cached_target(name: str, backend: str) -> TargetModel:
    return target_of(cached_model(name), backend)
