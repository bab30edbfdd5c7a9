"""Speculative sampling: the draft model's own greedy tokens, gamma by the heuristic, plain greedy output."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plain import PROMPTS, decode
from support.tiny import VOCABULARY, greedy, tiny_target
from transformers import Gemma3Config, LlamaConfig, LlamaForCausalLM

from ngram_trie.baselines.sps import SpS
from ngram_trie.bench import replay
from ngram_trie.bench.traces import Trace
from ngram_trie.prompt import Prompt
from ngram_trie.targets import choose
from ngram_trie.targets.model import TargetModel


def save_draft(folder: Path, vocab_size: int = VOCABULARY, positions: int = 160) -> str:
    """A folder as double7/vicuna-68m is one: a small Llama with an untied head."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=positions, initializer_range=0.3, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_draft(tmp_path_factory.mktemp("draft"))


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("twin")
    tiny_target("llama").model.save_pretrained(folder)
    return str(folder)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROMPTS, st.integers(1, 6), st.sampled_from([0.0, 0.3]), st.sampled_from(["llama", "qwen2"]))
def test_the_output_stays_what_it_was(
    draft: str, prompt: list[int], gamma: int, confidence: float, family: str
) -> None:
    target = tiny_target(family)
    result = decode(target, SpS(draft_model=draft, gamma=gamma, min_confidence=confidence), prompt, 20)
    assert result.output_ids == greedy(target.model, prompt, 20)


def test_a_draft_model_that_is_the_target_is_always_right_and_gamma_grows(twin: str) -> None:
    result = decode(tiny_target("llama"), SpS(draft_model=twin), [3, 4, 5], 40)
    assert result.tree_sizes == [5, 7, 9, 11, 2]  # the last step has room for two
    assert result.accept_lengths == [6, 8, 10, 12, 3]
    capped = decode(tiny_target("llama"), SpS(draft_model=twin, max_gamma=6), [3, 4, 5], 20)
    assert capped.tree_sizes == [5, 6, 5]
    constant = decode(tiny_target("llama"), SpS(draft_model=twin, schedule="constant"), [3, 4, 5], 20)
    assert constant.tree_sizes == [5, 5, 5, 0]


@pytest.mark.parametrize("backend", ["stock", "cpu", "cuda_graph"])
def test_the_draft_model_is_computed_as_the_target_is(
    draft: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.deepcopy(tiny_target("llama").model)  # graphs join its weights
    # what the draft model alone would get
    monkeypatch.setattr(choose, "_fastest_now", lambda model: "cpu" if backend == "stock" else backend)
    target, drafter = TargetModel(model, 64, 160, choose.network_for(model, 160, backend)), SpS(draft_model=draft)
    result = decode(target, drafter, [3, 4, 5], 30)
    stock = decode(tiny_target("llama"), SpS(draft_model=draft), [3, 4, 5], 30)
    assert type(drafter._draft.network) is type(target.network)
    assert (result.output_ids, result.tree_sizes) == (stock.output_ids, stock.tree_sizes)


def test_gamma_does_not_wind_up_beyond_what_may_be_drafted(draft: str) -> None:
    drafter = SpS(draft_model=draft, max_gamma=6)
    drafter.bind(tiny_target("llama"))
    drafter.start(Prompt(np.array([7, 1], np.int64)))
    sizes, new = [], [3]
    for accepted in (True, True, False, False, False):
        drafter.observe(new)
        tree = drafter.propose(64)
        sizes.append(tree.num_draft)
        new = [*tree.tokens[1:].tolist(), 9] if accepted else [9]
    assert sizes == [5, 6, 6, 5, 4]


def test_gamma_shrinks_by_one_and_drafts_are_the_draft_models_own(draft: str) -> None:
    """Over many steps, with and without rejected drafts in its cache, it says what it would say without a cache."""
    drafter = SpS(draft_model=draft, gamma=3)
    drafter.bind(tiny_target("llama"))
    model = drafter._draft.model
    text = [7, 1, 30]
    drafter.start(Prompt(np.array(text, np.int64)))
    new = [3]
    for wrong_from, gamma in ((0, 3), (1, 2), (9, 1), (9, 3), (2, 5), (0, 4)):
        drafter.observe(new)
        text += new
        tree = drafter.propose(64)
        expected = greedy(model, text, gamma)
        assert tree.tokens.tolist() == [text[-1], *expected]
        with torch.inference_mode():
            shares = model(input_ids=torch.tensor([text + expected])).logits[0, len(text) - 1 : -1].softmax(-1)
        own = shares[torch.arange(gamma), torch.tensor(expected)]
        assert tree.probs == pytest.approx([1, *own.cumprod(0).tolist()], rel=1e-3)
        right = expected[:wrong_from]
        new = [*right, (expected[len(right)] + 1) % VOCABULARY if len(right) < gamma else 17]


def test_it_stops_drafting_where_it_is_not_sure(twin: str) -> None:
    sure = decode(tiny_target("llama"), SpS(draft_model=twin, min_confidence=0.999, schedule="constant"), [3, 4, 5], 30)
    assert set(sure.tree_sizes[:-1]) == {1}  # a random model is never so sure: it drafts the first token and stops


def test_it_is_replayed_as_it_runs(draft: str) -> None:
    target, drafter = tiny_target("llama"), SpS(draft_model=draft)
    live = decode(target, drafter, [3, 4, 5], 30)
    trace = Trace("tiny", Prompt(np.array([3, 4, 5], np.int64)), live.output_ids, 30, "max_new_tokens")
    assert replay.replay(SpS(draft_model=draft), trace).accept_lengths == live.accept_lengths


def test_a_text_beyond_the_draft_models_context_gets_no_draft(tmp_path: Path) -> None:
    short = save_draft(tmp_path, positions=24)
    target = tiny_target("llama")
    for length in (10, 30):
        prompt = list(range(length))
        result = decode(target, SpS(draft_model=short), prompt, 20)
        assert result.output_ids == greedy(target.model, prompt, 20)
        assert result.tree_sizes[-1] == 0


def test_wrong_models_and_values_are_named(tmp_path: Path) -> None:
    other = save_draft(tmp_path, vocab_size=40)
    with pytest.raises(ValueError, match="has 40 tokens, the target model 61"):
        SpS(draft_model=other).bind(tiny_target("llama"))
    sees = SimpleNamespace(config=Gemma3Config(text_config={"vocab_size": 50}), dtype=torch.float32, device="cpu")
    with pytest.raises(ValueError, match="has 40 tokens, the target model 50"):
        SpS(draft_model=other).bind(SimpleNamespace(model=sees))
    with pytest.raises(ValueError, match="schedule='fast'"):
        SpS(draft_model=other, schedule="fast")
    with pytest.raises(ValueError, match="min_confidence=2"):
        SpS(draft_model=other, min_confidence=2)
