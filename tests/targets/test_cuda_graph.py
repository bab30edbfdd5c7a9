"""The compact network over static buffers against the stock model: the same choices, cache and answers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain import greedy
from support.tiny import SHAPE, VOCABULARY, Scripted, any_tree
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Phi3Config, PreTrainedModel, Qwen2Config

from ngram_trie.baselines.token_recycling import TokenRecycling
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.targets.cpu import CpuTarget
from ngram_trie.targets.cuda_graph import ATTENTION, CudaGraphTarget, Step, attend_tree, attended
from ngram_trie.targets.fused_llama import refusal
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import RowsTarget
from ngram_trie.tree import DraftTree

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "llama3": LlamaConfig(**SHAPE, tie_word_embeddings=True, rope_parameters=LLAMA3, attention_bias=True),
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=False),
    "mistral": MistralConfig(**SHAPE, tie_word_embeddings=False, sliding_window=None),
    "phi3": Phi3Config(**SHAPE | {"num_key_value_heads": 4}, tie_word_embeddings=False, sliding_window=None),
}
STOP = Stop(max_new_tokens=40)


@functools.cache
def stock(family: str) -> TargetModel:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIGS[family])
    for name, weight in model.named_parameters():
        if name.endswith("bias"):  # made as zeros, which would hide one that is forgotten
            torch.nn.init.normal_(weight, std=0.3)
    return TargetModel(model, max_draft=40)


@functools.cache
def static(family: str, attention: str = "products") -> CudaGraphTarget:
    """Small sizes and chunks, so that an answer crosses several of them."""
    return CudaGraphTarget(stock(family).model, max_draft=40, attention=attention, sizes=(1, 4, 8), chunk=16)


@functools.cache
def packed(family: str) -> CpuTarget:
    return CpuTarget(stock(family).model, max_draft=40)


def fast(family: str, kind: str) -> CudaGraphTarget | CpuTarget:
    return packed(family) if kind == "cpu" else static(family, kind)


KINDS = (*ATTENTION, "cpu")


def test_few_lengths_and_little_in_vain() -> None:
    assert [attended(length) for length in (1, 257, 1000, 1025, 2049, 8300)] == [256, 512, 1024, 1280, 2560, 10240]
    for length in range(1, 5000):
        assert length <= attended(length, 16) <= max(1.25 * length, length + 15)
        assert attended(attended(length, 16), 16) == attended(length, 16)


@settings(max_examples=60)
@given(
    family=st.sampled_from(list(CONFIGS)),
    kind=st.sampled_from(KINDS),
    steps=st.lists(any_tree(), min_size=1, max_size=6),
    data=st.data(),
)
def test_it_chooses_and_caches_what_the_stock_model_does(
    family: str, kind: str, steps: list[DraftTree], data: st.DataObject
) -> None:
    """Any path may be committed, so that later steps see what the cache holds, and no padding in it."""
    ours, theirs = fast(family, kind), stock(family)
    prompt = np.array(data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30)), np.int64)
    close = functools.partial(torch.testing.assert_close, atol=2e-4, rtol=2e-4)
    assert ours.prefill(prompt) == theirs.prefill(prompt)
    close(ours.last.hidden, theirs.last.hidden)
    past = len(prompt)
    for tree in steps:
        assert ours.verify(tree).tolist() == theirs.verify(tree).tolist()
        close(ours.last.logits, theirs.last.logits)
        close(ours.last.hidden, theirs.last.hidden)
        path = tree.path_to(data.draw(st.integers(0, len(tree) - 1)))
        for target in (ours, theirs):
            target.commit(past, path)
        past += len(path)
        assert ours.cache.length == theirs.cache.length == past
        assert ours.last.path == path
        for number, layer in enumerate(theirs.cache.layers):
            keys, values = cached(ours, number)
            close(keys[:, :past], layer.keys[0, :, :past])
            close(values[:, :past], layer.values[0, :, :past])


def cached(target: CudaGraphTarget | CpuTarget, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer's keys and values (h, c, d)."""
    if isinstance(target, CpuTarget):
        keys, values = torch.from_numpy(target.cache.keys[layer]), torch.from_numpy(target.cache.values[layer])
        return keys.transpose(2, 3).flatten(1, 2), values
    return target.cache.rows[layer, 0], target.cache.rows[layer, 1]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_plain_greedy(family: str, kind: str) -> None:
    ids = [5, 9, 5, 9, 7, 5, 9, 7, 11]
    expected = greedy(stock(family).model, ids, 40)
    assert len(set(expected)) > 10  # varied tokens

    def true_path_and_decoys(text: list[int]) -> DraftTree:
        rest = expected[len(text) - len(ids) :]
        return DraftTree.from_paths(text[-1], [[1, 2], [*rest[:1], 3], rest[:4], [4]])

    drafts = Scripted([true_path_and_decoys] * 12)
    result = SpeculativeDecoder(fast(family, kind), drafts).generate(Prompt(np.array(ids)), STOP)
    assert result.output_ids == expected
    assert max(result.accept_lengths) == 5
    for drafter in (NoDraft(), NgramTrieDrafter(n=4, prefix_len=1, num_draft=12)):
        answered = SpeculativeDecoder(fast(family, kind), drafter).generate(Prompt(np.array(ids)), STOP)
        assert answered.output_ids == expected


def test_the_stock_model_shares_its_weights_and_goes_on_to_work() -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["qwen2"]).eval()
    ids = torch.arange(3, 20)[None]
    with torch.inference_mode():
        before = model(ids).logits
    first, second = CudaGraphTarget(model).network, CudaGraphTarget(model).network
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, before)
    attention = model.model.layers[1].self_attn
    for part in (attention.q_proj, attention.k_proj, attention.v_proj):
        for network in (first, second):  # joined once
            weight, bias = network.blocks[1].qkv.weight, network.blocks[1].qkv.bias
            assert part.weight.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr()
            assert bias is not None and part.bias.untyped_storage().data_ptr() == bias.untyped_storage().data_ptr()
    total = sum(weight.numel() for weight in model.parameters()) - model.get_input_embeddings().weight.numel()
    assert first.weight_bytes == 4 * total


class Traced(CudaGraphTarget):
    """Records a step's tensor operations when it is first run and from then on repeats just these, as a captured graph
    does: whatever is not read from a static buffer stays what it was at the recording.
    """

    def _plain(self, size: int, length: int) -> Step:
        stage = self._stages[size]

        def nodes(past: Any, tokens: Any, depths: Any, mask: Any, rows: Any) -> Any:
            kept = stage.past, stage.tokens, stage.depths, stage.mask, self.cache.rows
            stage.past, stage.tokens, stage.depths, stage.mask, self.cache.rows = past, tokens, depths, mask, rows
            try:
                return self._nodes(size, length)
            finally:
                stage.past, stage.tokens, stage.depths, stage.mask, self.cache.rows = kept

        buffers = (stage.past, stage.tokens, stage.depths, stage.mask, self.cache.rows)
        recorded = make_fx(nodes)(*buffers)
        self.recordings = getattr(self, "recordings", 0) + 1

        def run() -> None:
            step.hidden, step.logits, step.said = recorded(*buffers)

        step = Step(run, *[torch.empty(0)] * 3)
        return step


@pytest.mark.slow
@pytest.mark.parametrize("attention", ATTENTION)
def test_a_recorded_step_is_right_at_every_later_length_and_tree(attention: str) -> None:
    target = Traced(stock("qwen2").model, max_draft=40, attention=attention, sizes=(1, 4, 8), chunk=32)
    drafter = NgramTrieDrafter(n=4, prefix_len=1, num_draft=6, update_with_output=True)
    for ids in ([5, 9, 5, 9, 7, 5, 9, 7, 11], list(range(3, 40))):
        result = SpeculativeDecoder(target, drafter).generate(Prompt(np.array(ids)), STOP)
        assert result.output_ids == greedy(stock("qwen2").model, ids, 40)
    assert target.recordings <= 3 * 3  # sizes x lengths, not steps


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_half_precision_attends_as_single_does() -> None:
    torch.manual_seed(0)
    queries, (keys, values), bias = torch.randn(3, 4, 8), torch.randn(2, 2, 64, 8), torch.zeros(6, 64)
    expected = attend_tree(queries, keys, values, bias)
    for way in ATTENTION:
        given = (each.to("cuda", torch.bfloat16) for each in (queries, keys, values, bias))
        torch.testing.assert_close(attend_tree(*given, way, 16).float().cpu(), expected, rtol=0.03, atol=0.03)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("attention", ATTENTION)
def test_captured_graphs_answer_as_plain_greedy(attention: str) -> None:
    """Everything is captured beforehand; then a long text, and shorter ones over the rows that it left."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIGS["llama"]).to("cuda").eval()
    target = CudaGraphTarget(model, max_draft=40, attention=attention, sizes=(1, 4, 8), chunk=32)
    captured = target.capture()
    assert captured >= 4 * 5  # sizes x lengths
    for ids in (list(range(3, 60)) * 2, [5, 9, 5, 9, 7, 5, 9, 7, 11], list(range(20, 55))):
        expected = greedy(model, ids, 40)
        assert len(set(expected)) > 10  # varied tokens

        def true_path_and_decoys(text: list[int], ids: list[int] = ids, expected: list[int] = expected) -> DraftTree:
            rest = expected[len(text) - len(ids) :]
            return DraftTree.from_paths(text[-1], [[1, 2], [*rest[:1], 3], rest[:4], [4]])

        tries = [NgramTrieDrafter(n=4, prefix_len=1, num_draft=size, update_with_output=True) for size in (3, 7, 40)]
        for drafter in (NoDraft(), Scripted([true_path_and_decoys] * 12), *tries):
            result = SpeculativeDecoder(target, drafter).generate(Prompt(np.array(ids)), STOP)
            assert result.output_ids == expected
            assert isinstance(drafter, NoDraft | NgramTrieDrafter) or max(result.accept_lengths) == 5
    assert target.capture() == captured  # nothing was captured on the way


def test_sizes_are_padded_to_the_next() -> None:
    assert [static("llama").padded(nodes) for nodes in (1, 2, 4, 5, 9, 41)] == [1, 4, 4, 8, 41, 41]


def test_few_key_value_heads_are_attended_to_by_products() -> None:
    assert CudaGraphTarget(stock("llama").model, 8).attention == "products"
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 8}
    many = LlamaConfig(**SHAPE | heads)
    assert CudaGraphTarget(AutoModelForCausalLM.from_config(many).eval(), 8).attention == "whole"


def test_both_ways_to_attend_say_the_same_by_hand() -> None:
    torch.manual_seed(0)
    queries, (keys, values) = torch.randn(3, 4, 8), torch.randn(2, 2, 64, 8)
    bias = torch.zeros(6, 64)
    bias[:, 20:] = torch.finfo(torch.float32).min / 4
    products, whole = (attend_tree(queries, keys, values, bias, way) for way in ATTENTION)
    torch.testing.assert_close(products, whole)
    half = attend_tree(*(each.bfloat16() for each in (queries, keys, values, bias)), "products")
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=0.03, atol=0.03)
    expected = (queries[1, 3] @ keys[1, :20].T / 8**0.5).softmax(-1) @ values[1, :20]
    torch.testing.assert_close(whole[1, 3], expected)


def small(config: Any) -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sliding_window": 100}, "reaches back 100 tokens at a context limit of 160"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "type dynamic"),
    ],
)
def test_what_it_does_not_compute_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    config = MistralConfig(**SHAPE | {"sliding_window": None} | change)
    said = refusal(config, 160)
    assert said and message in said and "engine.backend=stock" in said and "\n" not in said
    if "sliding_window" in change:  # such a model is given no more text than its window
        assert CudaGraphTarget(small(config)).context_limit == 100
        return
    with pytest.raises(ValueError, match=r"use engine\.backend=stock"):
        CudaGraphTarget(small(config))


def test_another_family_and_wrong_arguments() -> None:
    from transformers import GPT2Config

    with pytest.raises(ValueError, match=r"not gpt2; use engine\.backend=stock"):
        CudaGraphTarget(small(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20)))
    with pytest.raises(ValueError, match="products, whole"):
        CudaGraphTarget(stock("llama").model, attention="half")
    target = static("llama")
    target.prefill(np.array([1, 2]))
    with pytest.raises(ValueError, match="50 nodes, but max_draft=40"):
        target.verify(DraftTree.chain(1, [2] * 49))
    window = MistralConfig(**SHAPE | {"sliding_window": 160})
    assert refusal(window, 160) is None
    assert refusal(Qwen2Config(**SHAPE), 160) is None


@pytest.mark.parametrize("kind", ["stock", "rows", *KINDS])
def test_a_kept_prompt_is_read_once_and_charged_each_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that take turns on a prompt: the same answers as if each had read it, and no less time on record."""
    model = stock("llama").model
    fresh = {"stock": TargetModel, "rows": RowsTarget, "cpu": CpuTarget}
    target = fresh[kind](model, 40) if kind in fresh else CudaGraphTarget(model, 40, attention=kind)
    read = []
    forward = type(target)._forward
    monkeypatch.setattr(
        type(target),
        "_forward",
        lambda self, ids, **kwargs: (read.append("logits_to_keep" in kwargs), forward(self, ids, **kwargs))[1],
    )
    target.keeps_prompt = True
    prompts = [Prompt(np.array([5, 9, 5, 9, 7, 5, 9, 7, 11])), Prompt(np.array([5, 9, 5, 9, 7, 5, 9, 7, 12]))]
    for prompt in prompts:
        expected = greedy(model, prompt.ids.tolist(), 40)
        read.clear()
        seconds = []
        for drafter in (NoDraft(), NgramTrieDrafter(n=4, prefix_len=1, num_draft=12), TokenRecycling()):
            result = SpeculativeDecoder(target, drafter).generate(prompt, STOP)
            assert result.output_ids == expected
            seconds.append(result.seconds.prefill)
            assert result.seconds.total >= result.seconds.prefill + result.seconds.verify
        assert read.count(True) == 1
        assert min(seconds) >= max(target.saved_seconds, 1e-9) > 0
    target.near_tie([1, 2, 3], [4, 5])  # overwrites the cache
    assert SpeculativeDecoder(target, NoDraft()).generate(prompts[1], STOP).output_ids == expected
