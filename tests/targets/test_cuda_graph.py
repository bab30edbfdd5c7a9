"""Graphs on a GPU, and what stands in for them on a CPU: what a step reads lies where it lay, or it is another graph.
That a network over static buffers computes what the model does is tested in test_networks.py.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import numpy as np
import pytest
import torch
from support.families import FAMILIES, cached_model, family_model, plan
from support.graphs import recorded
from support.tiny import SHAPE, Scripted, greedy, tiny_model
from transformers import AutoModelForCausalLM, LlamaConfig

from ngram_trie import Speculator, speculative_generate
from ngram_trie.budget.compiling import num_compiled
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.targets import choose, cuda_graph, state
from ngram_trie.targets.cuda_graph import ATTENTION, GraphNetwork, attend_tree, attended, uncollected
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

STOP = Stop(max_new_tokens=40)
PROMPT = [5, 9, 5, 9, 7, 5, 9, 7, 11]
OPTIONS = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None}


@pytest.fixture
def on_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: graphs are the fastest, and steps are recorded."""
    monkeypatch.setattr(choose, "fastest", lambda *_: "cuda_graph")
    monkeypatch.setattr(GraphNetwork, "_plain", recorded)
    monkeypatch.setattr(state, "_digests", lambda model, tensors: [])


def test_few_lengths_and_little_in_vain() -> None:
    assert [attended(length) for length in (1, 257, 1000, 1025, 2049, 8300)] == [256, 512, 1024, 1280, 2560, 10240]
    for length in range(1, 5000):
        assert length <= attended(length, 16) <= max(1.25 * length, length + 15)
        assert attended(attended(length, 16), 16) == attended(length, 16)


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_a_window_over_a_prompt_takes_no_mask_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    length, widths, of_model = 70, [], plan(cached_model(name))
    window = next(filter(None, of_model.windows))

    def seen_tree(queries: torch.Tensor, keys: torch.Tensor, *rest: Any) -> torch.Tensor:
        widths.append(keys.shape[1])
        return attend_tree(queries, keys, *rest)

    monkeypatch.setattr(cuda_graph, "BLOCK", 4)
    monkeypatch.setattr(cuda_graph, "attend_tree", seen_tree)
    queries = torch.randn(length, of_model.num_heads, of_model.head_size)
    keys, values = torch.randn(2, of_model.num_key_value_heads, length, of_model.head_size)
    found = cuda_graph.attend_prompt(queries, keys, values, of_model, window)
    groups = of_model.num_heads // of_model.num_key_value_heads
    scores = torch.einsum("qhd,hkd->hqk", queries, keys.repeat_interleave(groups, 0)) * of_model.attention
    if cap := of_model.attention_cap:
        scores = cap * torch.tanh(scores / cap)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
    expected = torch.einsum("hqk,hkd->qhd", scores.softmax(-1), values.repeat_interleave(groups, 0))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert max(widths) < window + 4 * 4


def test_the_stock_model_shares_its_weights_and_goes_on_to_work() -> None:
    model = family_model("qwen2")
    ids = torch.arange(3, 20)[None]
    with torch.inference_mode():
        before = model(ids).logits
    first, second = (GraphNetwork(model, plan(model)).decoder for _ in range(2))
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, before)
    attention = model.model.layers[1].self_attn
    for part in (attention.q_proj, attention.k_proj, attention.v_proj):
        for network in (first, second):  # joined once
            weight, bias = network.blocks[1].qkv.weight, network.blocks[1].qkv.bias
            assert part.weight.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr()
            assert bias is not None and part.bias.untyped_storage().data_ptr() == bias.untyped_storage().data_ptr()


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen2", marks=pytest.mark.slow), "gemma2"])
@pytest.mark.parametrize("attention", ATTENTION)
def test_a_recorded_step_is_right_at_every_later_length_and_tree(
    family: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphNetwork, "_plain", recorded)
    model = cached_model(family)
    network = GraphNetwork(model, plan(model), attention, sizes=(1, 4, 8), chunk=32, spare=0)
    target = TargetModel(model, 7, 160, network)
    drafter = NgramTrieDrafter(n=4, prefix_len=1, num_draft=6, update_with_output=True)
    for ids in (PROMPT, list(range(3, 40))):
        result = SpeculativeDecoder(target, drafter).generate(Prompt(np.array(ids)), STOP)
        assert result.output_ids == greedy(model, ids, 40)
    assert len(target.cache.buffers.steps) <= 3 * 3  # sizes x lengths, not steps


def test_what_is_captured_serves_texts_that_are_a_little_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was captured beforehand, a longer text's steps are taken before new ones are captured, and never
    ones that read more than there is to spare, however slowly texts become shorter.
    """
    monkeypatch.setattr(GraphNetwork, "_plain", recorded)
    model = cached_model("llama")
    network = GraphNetwork(model, plan(model), sizes=(1, 4, 8), chunk=16, spare=32)
    target = TargetModel(model, 7, 160, network)
    steps, taken, own = target.cache.buffers.steps, list[tuple[int, int]](), network._step

    def step(buffers: Any, size: int, length: int, top_k: int) -> Any:
        found = own(buffers, size, length, top_k)
        taken.append((length, max(reach for (_, reach, _), each in steps.items() if each is found)))
        return found

    monkeypatch.setattr(network, "_step", step)
    drafter = NgramTrieDrafter(n=4, prefix_len=1, num_draft=6, update_with_output=True)
    for length in range(100, 5, -5):
        ids = (list(range(3, 40)) * 3)[:length]
        result = SpeculativeDecoder(target, drafter).generate(Prompt(np.array(ids)), STOP)
        assert result.output_ids == greedy(model, ids, 40)
    assert all(length <= reach <= attended(length, 16) + 32 for length, reach in taken)
    assert len({reach for _, reach in taken}) <= len({attended(length, 16) for length, _ in taken}) * 2 / 3


def test_garbage_waits_for_the_end_of_a_capture() -> None:
    for was_enabled in (True, False):
        gc.enable() if was_enabled else gc.disable()
        with contextlib.suppress(ZeroDivisionError), uncollected():
            assert not gc.isenabled()
            assert 1 / 0
        assert gc.isenabled() == was_enabled
    gc.enable()


def test_the_library_answers_on_graphs_that_are_kept_with_the_model(on_graphs: None) -> None:
    model = tiny_model("llama")
    expected = greedy(model, PROMPT, 40)
    before = num_compiled()
    assert speculative_generate(model, PROMPT, **OPTIONS)[0] == expected
    assert num_compiled() > before, "a step in which something was captured teaches no costs"
    network = choose.network_for(model, 100)
    assert isinstance(network, GraphNetwork)
    (buffers,), drafted = network._free, set(network._free[0].steps)
    kept = Speculator(model)
    assert {size for size, _, _ in drafted} >= {1, 8}
    assert {k for _, _, k in drafted} == {0, kept.drafter.traits.reads_top_k}, "likely tokens come out of the graph"
    for _ in range(2):
        assert kept(PROMPT, **OPTIONS)[0] == expected
    assert kept._decoder.target.cache.buffers is buffers and not network._free
    other = Speculator(model)
    assert other(PROMPT[:-1], **OPTIONS)[0] == greedy(model, PROMPT[:-1], 40), "while the first one has its text"
    assert kept(PROMPT, **OPTIONS)[0] == expected
    assert len(kept(PROMPT, **OPTIONS | {"max_new_tokens": 140})[0]) == 140, "a longer text"
    del kept, other
    for _ in range(2):  # fixed: by the clock, an adaptive length may want another size
        gc.collect()
        before = num_compiled()
        assert speculative_generate(model, PROMPT, budget="fixed", **OPTIONS)[0] == expected
    assert num_compiled() == before, "all of it was captured before"


def test_weights_that_move_or_are_assigned_are_seen(on_graphs: None) -> None:
    model = tiny_model("llama")
    kept = Speculator(model, "pld")
    before = kept(PROMPT, **OPTIONS)[0]
    model.model.layers[0].mlp.down_proj.weight.data.mul_(1.5)  # in place: graphs read it
    changed = kept(PROMPT, **OPTIONS)[0]
    assert changed == greedy(model, PROMPT, 40) != before
    model.load_state_dict(tiny_model("llama").state_dict(), assign=True)
    assert kept(PROMPT, **OPTIONS)[0] == before
    model.model.layers[1].self_attn.q_proj.weight.data = model.model.layers[0].self_attn.q_proj.weight.data * 2
    assert kept(PROMPT, **OPTIONS)[0] == greedy(model, PROMPT, 40) != before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_half_precision_attends_as_single_does() -> None:
    torch.manual_seed(0)
    queries, (keys, values), bias = torch.randn(3, 4, 8), torch.randn(2, 2, 64, 8), torch.zeros(6, 64)
    expected = attend_tree(queries, keys, values, bias, "products", 8**-0.5)
    for way in ATTENTION:
        given = (each.to("cuda", torch.bfloat16) for each in (queries, keys, values, bias))
        torch.testing.assert_close(attend_tree(*given, way, 8**-0.5).float().cpu(), expected, rtol=0.03, atol=0.03)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ATTENTION)
def test_captured_graphs_answer_as_plain_greedy(family: str, attention: str) -> None:
    """Everything is captured beforehand; then a long text, and shorter ones over the rows that it left."""
    model = family_model(family).to("cuda")
    network = GraphNetwork(model, plan(model), attention, sizes=(1, 4, 8), chunk=32)
    target = TargetModel(model, 40, 160, network)
    captured = target.capture()
    assert captured >= 4 * 5  # sizes x lengths
    for ids in (list(range(3, 60)) * 2, [5, 9, 5, 9, 7, 5, 9, 7, 11], list(range(20, 55))):
        expected = greedy(model, ids, 40)
        assert len(set(expected)) > 2  # some families vary no more

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
    network = GraphNetwork(cached_model("llama"), plan(cached_model("llama")), sizes=(1, 4, 8))
    assert [network.padded(nodes) for nodes in (1, 2, 4, 5, 9, 41)] == [1, 4, 4, 8, 16, 48]


def test_few_key_value_heads_are_attended_to_by_products() -> None:
    assert GraphNetwork(cached_model("llama"), plan(cached_model("llama"))).attention == "products"
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 8}
    many = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE | heads)).eval()
    assert GraphNetwork(many, plan(many)).attention == "whole"
    with pytest.raises(ValueError, match="products, whole"):
        GraphNetwork(many, plan(many), attention="half")


def test_both_ways_to_attend_say_the_same_by_hand() -> None:
    torch.manual_seed(0)
    queries, (keys, values) = torch.randn(3, 4, 8), torch.randn(2, 2, 64, 8)
    bias = torch.zeros(6, 64)
    bias[:, 20:] = torch.finfo(torch.float32).min / 4
    products, whole = (attend_tree(queries, keys, values, bias, way, 8**-0.5) for way in ATTENTION)
    torch.testing.assert_close(products, whole)
    half = attend_tree(*(each.bfloat16() for each in (queries, keys, values, bias)), "products", 8**-0.5)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=0.03, atol=0.03)
    expected = (queries[1, 3] @ keys[1, :20].T / 8**0.5).softmax(-1) @ values[1, :20]
    torch.testing.assert_close(whole[1, 3], expected)
