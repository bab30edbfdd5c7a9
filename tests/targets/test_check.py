"""A model's drafts are compared with its own plain steps before it answers; what does not agree is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from support.families import family_model
from support.tiny import SHAPE, tiny_model
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from ngram_trie import Speculator, speculative_generate
from ngram_trie.targets import check, choose
from ngram_trie.targets.stock import KVCache, StockNetwork

PROMPT = [5, 6, 7, 8, 9, 10, 11, 5, 6, 7, 8, 9, 12, 13, 5, 6, 7]


def random_model(kind: str, **fields: Any) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**fields)).eval()
    torch.manual_seed(0)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.25)
    model.generation_config.eos_token_id = None
    return model


def masked_by_slot() -> PreTrainedModel:
    return random_model(
        "gpt_neo", vocab_size=61, hidden_size=32, num_layers=4, num_heads=4, intermediate_size=48, bos_token_id=1,
        eos_token_id=None, attention_types=[[["global", "local"], 2]], window_size=8, max_position_embeddings=160,
    )  # fmt: skip


def a_field_that_it_does_not_read() -> PreTrainedModel:
    return random_model("llama", **SHAPE, eos_token_id=None, sliding_window=8)


def without_a_cache() -> PreTrainedModel:
    return random_model("openai-gpt", vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=160)


def rows_that_depend_on_each_other() -> PreTrainedModel:
    model = random_model("llama", **SHAPE, eos_token_id=None)
    quantized: PreTrainedModel = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    return quantized


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "made", [masked_by_slot, a_field_that_it_does_not_read, without_a_cache, rows_that_depend_on_each_other]
)
def test_a_model_that_drafts_would_change_is_refused_in_one_line(made: Any) -> None:
    for drafter in ("vanilla", "blend"):
        with pytest.raises(
            ValueError, match=r"^model type [\w-]+: .*: drafts would change its answers; use the"
        ) as error:
            speculative_generate(made(), PROMPT, drafter, max_new_tokens=8)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="drafts would change its answers"):
        choose.network_for(made(), 60, "stock")


@pytest.mark.parametrize(("family", "length"), [("llama", check.PROBE), ("gemma3", 13), ("olmo3", 40)])
@pytest.mark.parametrize("backend", ["stock", "cpu", "cuda_graph"])
def test_a_prompt_is_read_that_is_longer_than_the_smallest_window(family: str, length: int, backend: str) -> None:
    model = family_model(family, **({"sliding_window": 40 - check.STEPS} if family == "olmo3" else {}))
    with mock.patch.object(choose, "disagreement", wraps=check.disagreement) as compared:
        choose.network_for(model, 30, backend)
        choose.network_for(model, 90, backend)
        choose.network_for(model, 100, backend)
    lengths = [len(call.args[2]) for call in compared.call_args_list]
    assert lengths == ([30 - check.STEPS, length] if length > 30 else [length])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("gemma3n_text", {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 61,
                          "laurel_rank": 4, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0] * 4}),
        ("gemma3_text", {}),
        ("modernbert-decoder", {"bos_token_id": 1, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 9,
                                "global_attn_every_n_layers": 2}),  # its get_decoder gives the head
        ("qwen3", {"sliding_window": None, "layer_types": None}),
    ],
)  # fmt: skip
def test_windows_and_shared_layers_of_newer_models(kind: str, fields: dict[str, Any]) -> None:
    """Layers that read the keys of others have none of their own; accepted paths have gaps."""
    shape = {**SHAPE, "num_hidden_layers": 4, "head_dim": 8, "sliding_window": 8, "eos_token_id": None}
    layers = {"layer_types": ["sliding_attention", "full_attention"] * 2}
    model = random_model(kind, **shape | layers | fields)
    ids = torch.tensor([PROMPT * 2])
    options = {"max_new_tokens": 16, "do_sample": False}
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()
    assert speculative_generate(model, PROMPT * 2, "blend", budget="fixed", **options)[0] == expected


@pytest.mark.parametrize("kind", ["gemma3", "mistral3"])
def test_text_to_a_model_that_could_also_read_pictures(kind: str) -> None:
    text = {**SHAPE, "num_hidden_layers": 4, "head_dim": 8, "sliding_window": 8, "eos_token_id": None}
    if kind == "gemma3":
        text |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "model_type": "gemma3_text"}
    else:
        text |= {"sliding_window": None, "model_type": "mistral"}
    sees = dict.fromkeys(("hidden_size", "intermediate_size"), 16) | {"image_size": 28, "patch_size": 14, "head_dim": 8}
    sees |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    config = CONFIG_MAPPING[kind](text_config=text, vision_config=sees)
    model = AutoModelForImageTextToText.from_config(config).eval()
    torch.manual_seed(0)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0, 0.25)
    model.generation_config.eos_token_id = None
    ids = torch.tensor([PROMPT * 2])
    options = {"max_new_tokens": 16, "do_sample": False}
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()
    for drafter in ("blend", None):
        assert speculative_generate(model, PROMPT * 2, drafter, budget="fixed", **options)[0] == expected


@pytest.mark.parametrize("backend", ["cpu", "stock"])
def test_a_comparison_that_was_interrupted_is_made_again(backend: str) -> None:
    model, found = tiny_model("llama"), [KeyboardInterrupt, "it answers otherwise"]
    with mock.patch.object(choose, "disagreement", side_effect=found), pytest.raises(KeyboardInterrupt):
        choose.network_for(model, 60, backend)
    with mock.patch.object(choose, "disagreement", side_effect=found[1:]), pytest.raises(ValueError, match="otherwise"):
        choose.network_for(model, 60, backend)


def test_another_thread_s_forward_is_not_taken_for_ours() -> None:
    """It ends between our model's last layer and its head."""
    model, lengths = tiny_model("llama"), iter([5])

    def meanwhile(module: object, args: object) -> None:
        if length := next(lengths, None):
            with ThreadPoolExecutor(1) as other:
                other.submit(model, input_ids=torch.zeros(1, length, dtype=torch.long)).result()

    network = choose.network_for(model, 60, "stock")
    expected = network.read(network.text(60), np.array([1, 2, 3])).hidden
    with model.lm_head.register_forward_pre_hook(meanwhile):
        read = network.read(network.text(60), np.array([1, 2, 3]))
    assert next(lengths, None) is None and torch.equal(read.hidden, expected)


def test_a_model_is_compared_once_in_a_state() -> None:
    model = tiny_model("llama")
    with mock.patch.object(choose, "disagreement", wraps=check.disagreement) as compared:
        for _ in range(2):
            speculative_generate(model, PROMPT, "pld", max_new_tokens=4)
            Speculator(model)(PROMPT, max_new_tokens=40)
        assert compared.call_count == 1
        model.model.layers[0].mlp.down_proj.weight.data.mul_(1.5)
        speculative_generate(model, PROMPT, "pld", max_new_tokens=4)
        assert compared.call_count == 2


def test_what_is_changed_behind_an_accepted_draft_is_found() -> None:
    """A text that keeps the wrong rows."""
    model = tiny_model("llama")
    network = StockNetwork(model)
    prompt = check.probe(model, 100)
    steps = check.plain_steps(model, prompt)
    assert check.disagreement(network, model, prompt, steps, 100) is None
    with mock.patch.object(KVCache, "keep", lambda text, past, path: text.truncate(past + len(path))):
        said = str(check.disagreement(network, model, prompt, steps, 100))
    assert said.startswith("its logits in the step behind an accepted draft are ")
