"""Weights that methods bring along, random and small, in files as their authors publish them."""

from __future__ import annotations

from pathlib import Path

import torch

from support.plain import save_tensors

#: Of the tiny models that the heads are for.
SIZE, WIDTH, KEYS = 32, 48, 16


def medusa_folder(folder: Path, num_heads: int = 5, vocabulary: int = 61) -> Path:
    """A file as FasterDecoding/medusa-vicuna-7b-v1.3 has it, five heads, shapes scaled down."""
    torch.manual_seed(1)
    tensors = {}
    for head in range(num_heads):
        tensors |= {
            f"{head}.0.linear.weight": torch.randn(SIZE, SIZE) * 0.2,
            f"{head}.0.linear.bias": torch.randn(SIZE) * 0.2,
            f"{head}.1.weight": torch.randn(vocabulary, SIZE),
        }
    return save_tensors(tensors, folder / "medusa_lm_head.pt")


def hydra_folder(
    folder: Path,
    num_heads: int = 4,
    once: bool = False,
    norm: bool = True,
    whole: bool = False,
    vocabulary: int = 61,
    keys: int = KEYS,
) -> Path:
    """A file as ankner/hydra-vicuna-7b-v1.3 has it: prefix layer, four blocks of which three share their weights.

    Args:
        once: the shared blocks are stored once.
        norm: the prefix layer ends with a norm.
        whole: the authors' code saves the module's whole state: also the target's embedding, and rotary frequencies.
        keys: columns of the prefix layer's keys.
    """
    torch.manual_seed(2)
    prefix = "prefix_embeding_layer"
    layer = {
        f"{name}.weight": value for name, value in (
            ("self_attn.q_proj", torch.randn(SIZE, SIZE)), ("self_attn.k_proj", torch.randn(keys, SIZE)),
            ("self_attn.v_proj", torch.randn(keys, SIZE)), ("self_attn.o_proj", torch.randn(SIZE, SIZE)),
            ("mlp.gate_proj", torch.randn(WIDTH, SIZE)), ("mlp.up_proj", torch.randn(WIDTH, SIZE)),
            ("mlp.down_proj", torch.randn(SIZE, WIDTH)), ("input_layernorm", torch.ones(SIZE)),
            ("post_attention_layernorm", torch.ones(SIZE)),
        )
    }  # fmt: skip
    tensors = {f"{prefix}.layers.0.{name}": 0.3 * value for name, value in layer.items()}
    tensors[f"{prefix}.embed_tokens.weight"] = torch.zeros(vocabulary, SIZE)
    if norm:
        tensors[f"{prefix}.norm.weight"] = torch.ones(SIZE)
    if whole:
        tensors["input_embed_fn.weight"] = torch.randn(vocabulary, SIZE)
        tensors[f"{prefix}.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(SIZE // 8)
    for head in range(num_heads):
        inputs = (head + 2) * SIZE
        shared = 0.2 * torch.randn(SIZE, SIZE), 0.1 * torch.randn(SIZE)
        tensors |= {
            f"hydra_mlp.{head}.1.linear.weight": 0.2 * torch.randn(SIZE, inputs),
            f"hydra_mlp.{head}.1.linear.bias": 0.2 * torch.randn(SIZE),
            f"hydra_mlp.{head}.1.res_connection.weight": 0.2 * torch.randn(SIZE, inputs),
            f"hydra_mlp.{head}.1.res_connection.bias": 0.2 * torch.randn(SIZE),
            f"hydra_lm_head.{head}.1.weight": torch.randn(vocabulary, SIZE),
            f"hydra_lm_head.{head}.1.bias": torch.randn(vocabulary),
        }
        for block in (3,) if once else (3, 5, 7):
            tensors |= {f"hydra_mlp.{head}.{block}.linear.weight": shared[0]}
            tensors |= {f"hydra_mlp.{head}.{block}.linear.bias": shared[1]}
    if once:
        (folder / "config.json").write_text('{"hydra_num_layers": 4}')
    return save_tensors(tensors, folder / "hydra_lm_head.pt")
