from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.families import BACKENDS, target_of
from support.tiny import SHAPE, tiny_model
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, PreTrainedConfig

from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.network import greedy as greedy_of
from ngram_trie.targets.top_k import GROUP, greedy_rows, peaks_of, top_k_rows
from ngram_trie.tree import DraftTree


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 5), vocabulary=st.integers(1, 3 * GROUP + 5), k=st.integers(1, 20), seed=st.integers(0, 999))
def test_the_likeliest_tokens_in_order(rows: int, vocabulary: int, k: int, seed: int) -> None:
    # few different values, so that many are equal
    logits = np.random.default_rng(seed).integers(0, 9, (rows, vocabulary)).astype(np.float32)
    likely = top_k_rows(np.arange(rows), torch.from_numpy(logits), k)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(likely.tokens, order)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(likely.probs, np.take_along_axis(shares, order, 1), rtol=1e-4)
    assert greedy_rows(logits, peaks_of(logits)).tolist() == order[:, 0].tolist()
    some = top_k_rows(np.arange(rows), torch.from_numpy(logits), k, least=0.05)
    is_found = likely.probs >= 0.05
    np.testing.assert_array_equal(some.tokens[is_found], likely.tokens[is_found])
    np.testing.assert_array_equal(some.probs, np.where(is_found, likely.probs, 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, GROUP, 3 * GROUP + 4])
def test_what_is_not_finite_is_no_choice(bad: float, place: int) -> None:
    logits = np.zeros((2, 3 * GROUP + 5), np.float32)
    logits[0, place] = bad
    assert greedy_rows(logits, peaks_of(logits)).tolist() == [-1, 0] == greedy_of(torch.from_numpy(logits)).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_target_says_them_behind_prompt_and_nodes(backend: str) -> None:
    model = tiny_model("llama")
    target = target_of(model, backend)
    prompt = np.array([3, 1, 4, 1, 5])
    target.prefill(prompt)
    with torch.inference_mode():
        logits = model(torch.from_numpy(prompt)[None]).logits[0]
    first, rest = target.top_k(4), target.top_k_in_prompt(np.array([0, 2]), 4)
    assert (first.places.tolist(), rest.places.tolist()) == ([0], [0, 2])
    np.testing.assert_array_equal(first.tokens, logits[[4]].topk(4).indices)
    np.testing.assert_array_equal(rest.tokens, logits[[0, 2]].topk(4).indices)
    np.testing.assert_allclose(rest.probs, logits[[0, 2]].softmax(-1).topk(4).values, rtol=1e-4)
    among = np.array([1, 2, 9, 30])
    few = target.top_k_in_prompt(np.array([0, 2]), 2, among)
    shares = logits[[0, 2]][:, among].softmax(-1).topk(2)
    np.testing.assert_array_equal(few.tokens, among[shares.indices])
    np.testing.assert_allclose(few.probs, shares.values, rtol=1e-4)
    target.verify(DraftTree(np.array([9, 2, 6]), np.array([-1, 0, 0])), 5)
    for node, text in enumerate(([9], [9, 2], [9, 6])):
        with torch.inference_mode():
            alone = model(torch.tensor([[*prompt.tolist(), *text]])).logits[0, -1]
        np.testing.assert_array_equal(target.top_k(4).tokens[node], alone.topk(4).indices)
        np.testing.assert_allclose(target.top_k(4).probs[node], alone.softmax(-1).topk(4).values, rtol=1e-4)
        assert target.top_k(7).tokens.shape == (3, 7)  # more than were asked for beforehand
    some = target.top_k(4, np.array([1]))
    assert some.places.tolist() == [1]
    np.testing.assert_array_equal(some.tokens[0], target.top_k(4).tokens[1])


@pytest.mark.parametrize(
    "config",
    [
        GraniteConfig(**SHAPE, logits_scaling=7.0),
        CohereConfig(**SHAPE, logit_scale=0.3),
        Gemma2Config(**SHAPE, final_logit_softcapping=2.0, head_dim=8),
    ],
    ids=lambda config: config.model_type,
)
def test_models_that_scale_or_cap_their_logits_do_so_in_the_prompt_too(config: PreTrainedConfig) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    target = TargetModel(model, 8)
    prompt = np.array([3, 1, 4, 1, 5])
    target.prefill(prompt)
    likely = target.top_k_in_prompt(np.arange(5), 4)
    with torch.inference_mode():
        probs = model(torch.from_numpy(prompt)[None]).logits[0].softmax(-1)
    np.testing.assert_allclose(likely.probs, probs.topk(4).values, rtol=1e-3)
    few = target.top_k_in_prompt(np.arange(5), 2, np.array([1, 4, 5]))
    few_probs = probs[:, [1, 4, 5]]
    np.testing.assert_allclose(few.probs, (few_probs / few_probs.sum(1, keepdim=True)).topk(2).values, rtol=1e-3)


def test_a_model_that_does_something_else_with_its_logits_is_refused() -> None:
    def flip(module: Any, given: Any, output: Any) -> Any:
        output.logits = output.logits.flip(-1)
        return output

    model = tiny_model("llama")
    model.register_forward_hook(flip)
    target = TargetModel(model, 8)
    target.prefill(np.array([3, 1, 4]))
    with pytest.raises(ValueError, match=r"^LlamaForCausalLM changes its logits .* blend_logits_answer$"):
        target.top_k_in_prompt(np.array([0]), 4)
