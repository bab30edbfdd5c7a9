"""A tiny random model written as a GGUF file, in the layout that llama.cpp's converter gives it."""

from __future__ import annotations

from pathlib import Path

import torch
from gguf import GGUFWriter, TokenType
from transformers import PreTrainedModel

#: A vocabulary of bytes and of two merges, as a byte-level BPE has it.
SPECIAL = ["<unk>", "<s>", "</s>"]
PLAIN = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ċ", "."]
MERGES = ["a b", "Ġ c"]
TOKENS = [*SPECIAL, *PLAIN, *(merge.replace(" ", "") for merge in MERGES)]
TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"
#: By part of transformers' name, the part of llama.cpp's.
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
}


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys as llama.cpp turns them: pairs side by side, not in halves."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(file: Path, model: PreTrainedModel, architecture: str = "llama", **more: object) -> Path:
    """Write `model`, in single precision, with its tokenizer.

    Args:
        more: keys that are added or replaced, dots written as double underscores; None leaves one out.
    """
    config = model.config
    assert config.vocab_size == len(TOKENS)
    writer = GGUFWriter(file, architecture)
    writer.add_name("Tiny")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if architecture == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    add = {
        int: writer.add_uint32,
        bool: writer.add_bool,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for name, value in more.items():
        key = name.replace("__", ".")
        if value is None:
            del writer.kv_data[0][key]
        else:
            add[type(value)](key, value)  # type: ignore[operator]
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        heads = config.num_key_value_heads if "k_proj" in name else config.num_attention_heads
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = interleaved(weight, heads)
        for stock, theirs in NAMES.items():
            name = name.replace(stock, theirs)
        writer.add_tensor(name, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
