"""Drafters of a person's own that go wrong are one error with drafter, step and reason; seeds; small models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.tiny import VOCABULARY, tiny_model

from ngram_trie import speculative_generate
from ngram_trie.decoding import DrafterError
from ngram_trie.drafter import Drafter, Traits
from ngram_trie.drafters import NoDraft
from ngram_trie.tree import DraftTree


def raising(error: Exception) -> Callable[[int], Any]:
    def propose(root: int) -> Any:
        raise error

    return propose


def floats(root: int) -> DraftTree:
    return DraftTree(np.array([root, 1.5]), np.array([-1, 0]))


@pytest.mark.parametrize(
    ("propose", "message"),
    [
        (lambda root: None, "it proposed a NoneType; a DraftTree is needed"),
        (lambda root: [root, 1], "it proposed a list; a DraftTree is needed"),
        (lambda root: DraftTree.chain(root, [VOCABULARY]), f"drafted token {VOCABULARY}; tokens are from 0 to"),
        (lambda root: DraftTree.chain(root, [-1]), "drafted token -1; tokens are from 0 to"),
        (lambda root: DraftTree.chain(root + 1, [3]), "the draft's root is .*, the last token"),
        (floats, "its tree is of float64; token ids and parents are integers"),
        (lambda root: DraftTree(np.array([root, 3]), np.array([-1, 1])), "ValueError: parents must precede"),
        (raising(KeyError("x")), "KeyError: 'x'"),
        (raising(RuntimeError("two\nlines")), "RuntimeError: two$"),
        (raising(RecursionError()), "RecursionError"),
    ],
)
def test_a_wrong_draft_is_one_error(propose: Callable[[int], Any], message: str) -> None:
    class Mine(Drafter):
        def propose(self, budget: int) -> Any:
            return propose(self.root)

    with pytest.raises(DrafterError, match=r"^Mine, step behind 4 cached tokens: " + message) as error:
        speculative_generate(tiny_model("llama"), [5, 6, 7, 8], Mine(), max_new_tokens=8)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("shape", ["tree", "chain"])
@pytest.mark.parametrize(
    ("propose", "message"),
    [(lambda root: [root], "it proposed a list; a DraftTree is needed"), (raising(KeyError("x")), "KeyError: 'x'")],
)
def test_so_it_is_of_one_that_is_wrapped(propose: Callable[[int], Any], message: str, shape: Any) -> None:
    class Mine(Drafter):
        traits = Traits(scores_nodes=True)

        def propose(self, budget: int) -> Any:
            return propose(self.root)

    with pytest.raises(DrafterError, match=r"^Mine, step behind 4 cached tokens: " + message):
        speculative_generate(tiny_model("llama"), [5, 6, 7, 8], Mine(), max_new_tokens=8, shape=shape)


def test_a_trait_beside_the_record_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^Mine\.reads: give it as a trait: traits = Traits\(reads=\.\.\.\)$"):
        type("Mine", (NoDraft,), {"reads": "logits"})


@pytest.mark.parametrize("seed", [1.5, "1", True, -1, 1 << 64])
def test_a_seed_is_an_integer(seed: Any) -> None:
    with pytest.raises(ValueError, match=r"^seed=.*: must be an integer"):
        speculative_generate(tiny_model("llama"), [5, 6, 7], "pld", max_new_tokens=3, do_sample=True, seed=seed)


def test_a_vocabulary_smaller_than_k() -> None:
    with pytest.raises(ValueError, match="k=8: must be at most 5, the size of the model's vocabulary"):
        speculative_generate(tiny_model("llama", vocab_size=5), [3, 4], "token_recycling", max_new_tokens=4)
