"""SPACE: 36 tokens a forward, guesses from the masks behind the last accepted token, the output of its own vanilla."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_target import begun
from support.plain import PROMPTS, decode
from support.tiny import VOCABULARY, greedy, tiny_target

from ngram_trie.baselines.space import Space
from ngram_trie.prompt import Prompt

MASK = VOCABULARY - 1


@pytest.mark.slow
@settings(max_examples=20)
@given(PROMPTS, st.integers(1, 5), st.sampled_from(["llama", "qwen2"]))
def test_the_output_stays_what_it_was(prompt: list[int], num_masks: int, family: str) -> None:
    target = tiny_target(family)
    result = decode(target, Space(model="tiny", mask_id=MASK, num_masks=num_masks), prompt, 20)
    assert result.output_ids == greedy(target.model, prompt, 20)
    assert max(result.tree_sizes) <= (num_masks + 1) ** 2 - 1


def test_a_full_step_has_36_tokens_and_the_next_candidates_are_what_the_masks_said() -> None:
    """Recomputed from scratch: the text up to the last accepted token, then masks."""
    target = tiny_target("llama")
    drafter = Space(model="tiny", mask_id=MASK)
    text = [4, 8, 15, 16]
    root = int(target.prefill(np.array(text, np.int64)).choices[0])
    begun(drafter, target, [*text, root])
    first = drafter.propose(64)
    assert len(first) == 6 and first.probes == 5 and first.tokens.tolist() == [root] + [MASK] * 5
    target.verify(first)
    target.commit(len(text), [0])
    text.append(root)
    for accepted in (2, 0, 5):  # whatever was accepted, here by decree
        bonus = int(target.last.choices[target.last.path[-1]])
        with torch.inference_mode():
            logits = target.model(torch.tensor([text + [MASK] * 5])).logits[0]
        guesses = logits[len(text) :].argmax(-1).tolist()
        drafter.observe([bonus])
        tree = drafter.propose(64)
        assert len(tree) == 36 and tree.probes == 30
        assert tree.tokens[:6].tolist() == [bonus, *guesses]
        target.verify(tree)
        target.commit(len(text), list(range(accepted + 1)))
        text += tree.tokens[: accepted + 1].tolist()


def test_masks_hang_below_their_candidate_and_a_small_budget_takes_fewer() -> None:
    drafter = Space(model="tiny", mask_id=MASK, num_masks=5)
    target = tiny_target("llama")
    drafter.bind(target)
    drafter.start(Prompt(np.array([1, 2], np.int64)))
    target.prefill(np.array([1, 2], np.int64))
    assert drafter.propose(8).tokens.tolist() == [2, MASK, MASK]
    assert drafter.propose(2).num_draft == 0
    drafter._guesses = lambda: [11, 12, 13]  # type: ignore[method-assign]
    tree = drafter.propose(8)
    assert tree.tokens.tolist() == [2, 11, 12] + [MASK] * 6
    assert tree.parents.tolist() == [-1, 0, 1, 0, 3, 1, 5, 2, 7]
    assert tree.depths.tolist() == [0, 1, 2, 1, 2, 2, 3, 3, 4]


def test_wrong_values_are_named() -> None:
    with pytest.raises(ValueError, match="num_masks=0"):
        Space(model="tiny", mask_id=1, num_masks=0)
    with pytest.raises(ValueError, match="mask_id=61: tiny has 61 tokens"):
        Space(model="tiny", mask_id=61).bind(tiny_target("llama"))
