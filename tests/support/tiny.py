"""Tiny random models and a scripted drafter that several test modules share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Phi3Config, PreTrainedModel, Qwen2Config

from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

VOCABULARY = 61


FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "mistral": MistralConfig, "phi3": Phi3Config}


#: The size of every tiny model.
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}


def tiny_model(family: str, attention: str = "sdpa", **fields: object) -> PreTrainedModel:
    """A random model in single precision, with grouped queries and an untied, spread-out head: no loops."""
    torch.manual_seed(0)
    settings = SHAPE | {"tie_word_embeddings": False, "eos_token_id": 2}
    config = FAMILIES[family](**settings | fields)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


@functools.cache
def tiny_target(family: str, attention: str = "sdpa") -> TargetModel:
    return TargetModel(tiny_model(family, attention), max_draft=64)


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


@st.composite
def any_tree(draw: st.DrawFn) -> DraftTree:
    """Any tokens in any shape of at most 14 nodes."""
    size = draw(st.integers(1, 14))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))]
    tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=size, max_size=size))
    return DraftTree(np.array(tokens, np.int64), np.array(parents, np.int64))


@st.composite
def adversarial_tree(draw: st.DrawFn) -> object:
    """A tree of true continuations cut at any depth up to 16, wrong tokens, duplicate siblings, or nothing."""
    true_depths = draw(st.lists(st.integers(0, 16), max_size=3))
    wrong_tail = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4)
    wrong_tails = draw(st.lists(wrong_tail, min_size=len(true_depths), max_size=3))
    duplicate = draw(st.booleans())

    def tree(truth: list[int], done: int, root: int) -> DraftTree:
        paths = [truth[done : done + d] + t for d, t in zip(true_depths, wrong_tails, strict=False)]
        paths += wrong_tails[len(true_depths) :]
        merged = DraftTree.from_paths(root, paths)
        if not duplicate or merged.num_draft == 0:
            return merged
        # The same tree twice under one root: every node has a twin among its siblings.
        size = len(merged)
        again = np.where(merged.parents[1:] == 0, 0, merged.parents[1:] + size - 1)
        return DraftTree(
            np.concatenate([merged.tokens, merged.tokens[1:]]), np.concatenate([merged.parents, again]).astype(np.int64)
        )

    return tree


@torch.inference_mode()
def greedy(model: PreTrainedModel, ids: list[int], length: int) -> list[int]:
    """The `length` tokens after `ids`, one uncached forward each: the reference, without any code of ours."""
    ids = list(ids)
    for _ in range(length):
        ids.append(int(model(torch.tensor([ids], device=model.device)).logits[0, -1].argmax()))
    return ids[len(ids) - length :]


@functools.cache
def plain_greedy(family: str, attention: str, prompt: tuple[int, ...], length: int) -> list[int]:
    """`greedy` of a stock model, kept."""
    return greedy(tiny_target(family, attention).model, list(prompt), length)
