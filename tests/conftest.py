"""Tiny random models and drafters that several test modules share."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence

# No test goes to the hub: what one machine has cached or can reach must not decide whether it passes.
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run in as many processes as there are cores: each has one to itself, and tiny models gain nothing from more.
for pool in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[pool] = "1"

import hypothesis
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Phi3Config, PreTrainedModel, Qwen2Config

from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

VOCABULARY = 61
FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "mistral": MistralConfig, "phi3": Phi3Config}

# One example sequence for everybody: a near-tie of two logits must not turn CI red by chance.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
hypothesis.settings.load_profile("ci")


def tiny_model(family: str, attention: str = "sdpa", **fields: object) -> PreTrainedModel:
    """A random model in single precision, with grouped queries and an untied, spread-out head: no loops."""
    torch.manual_seed(0)
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 160,
        "initializer_range": 0.3,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    config = FAMILIES[family](**settings | fields)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


@functools.cache
def tiny_target(family: str, attention: str = "sdpa") -> TargetModel:
    return TargetModel(tiny_model(family, attention), max_draft=64)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads cost tiny models more than they bring, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["llama", "qwen2"])
def target(request: pytest.FixtureRequest) -> TargetModel:
    return tiny_target(request.param)


class Scripted(Drafter):
    """Proposes, step by step, the given functions of the text so far; then nothing."""

    def __init__(self, trees: Sequence[object]) -> None:
        self.trees = trees

    def start(self, prompt: Prompt) -> None:
        self.text = prompt.ids.tolist()
        self.num_prompt = len(self.text)
        self.observed: list[int] = []
        self.step = 0

    def observe(self, new_ids: Sequence[int]) -> None:
        self.text += new_ids
        self.observed += new_ids

    def propose(self, budget: int) -> DraftTree:
        self.step += 1
        if self.step > len(self.trees):
            return DraftTree.root_only(self.text[-1])
        return self.trees[self.step - 1](self.text)  # type: ignore[operator]
