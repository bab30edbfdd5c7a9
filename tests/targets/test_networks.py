"""Every network against the model's own modules: the same choices, texts and answers, for every family that has a plan,
within windows and beyond them.
"""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.families import BACKENDS, FAMILIES, cached_model, cached_target, family_model, plan, target_of
from support.tiny import VOCABULARY, Scripted, any_tree, greedy

from ngram_trie.baselines.token_recycling import TokenRecycling
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.targets.cpu import PackedText
from ngram_trie.targets.cuda_graph import GraphText
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.rows import paths_of
from ngram_trie.tree import DraftTree

STOP = Stop(max_new_tokens=40)


def cached(target: TargetModel, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer's keys and values (h, c, d)."""
    text: Any = target.cache
    if isinstance(text, PackedText):
        return torch.from_numpy(text.keys[layer]).transpose(2, 3).flatten(1, 2), torch.from_numpy(text.values[layer])
    if isinstance(text, GraphText):
        return text.buffers.rows[layer, 0], text.buffers.rows[layer, 1]
    return text.layers[layer].keys[0], text.layers[layer].values[0]


@settings(max_examples=150)
@given(
    family=st.sampled_from(list(FAMILIES)),
    backend=st.sampled_from(BACKENDS[1:]),
    steps=st.lists(any_tree(), min_size=1, max_size=6),
    data=st.data(),
)
def test_it_chooses_and_keeps_what_the_model_does(
    family: str, backend: str, steps: list[DraftTree], data: st.DataObject
) -> None:
    """Any path may be committed, so that later steps see what the text holds, and no padding in it."""
    ours, theirs = cached_target(family, backend), cached_target(family, "stock")
    prompt = np.array(data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30)), np.int64)
    close = functools.partial(torch.testing.assert_close, atol=5e-4, rtol=5e-4)
    assert ours.prefill(prompt).choices == theirs.prefill(prompt).choices
    close(ours.last.prompt, theirs.last.prompt)
    past = len(prompt)
    for tree in steps:
        assert ours.verify(tree).choices.tolist() == theirs.verify(tree).choices.tolist()
        close(ours.last.logits, theirs.last.logits)
        close(ours.last.hidden, theirs.last.hidden)
        path = tree.path_to(data.draw(st.integers(0, len(tree) - 1)))
        for target in (ours, theirs):
            target.commit(past, path)
        past += len(path)
        assert ours.cache.length == theirs.cache.length == past
        assert ours.last.path == path
        for number in range(plan(ours.model).num_layers):
            for mine, own in zip(cached(ours, number), cached(theirs, number), strict=True):
                close(mine[:, :past], own[:, :past])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_answer_is_generate_s(family: str, backend: str) -> None:
    """Behind a short prompt and behind one that is longer than the windows."""
    model = cached_model(family)
    for ids in ([5, 9, 5, 9, 7, 5], list(range(3, 40))):
        text = torch.tensor([ids])
        generated = model.generate(text, attention_mask=torch.ones_like(text), max_new_tokens=40, do_sample=False)
        expected = generated[0, len(ids) :].tolist()

        def true_path_and_decoys(text: list[int], start: int = len(ids), expected: list[int] = expected) -> DraftTree:
            rest = expected[len(text) - start :]
            return DraftTree.from_paths(text[-1], [[1, 2], [*rest[:1], 3], rest[:4], [4]])

        drafts = Scripted([true_path_and_decoys] * 12)
        result = SpeculativeDecoder(cached_target(family, backend), drafts).generate(Prompt(np.array(ids)), STOP)
        assert result.output_ids == expected
        assert max(result.accept_lengths) == 5
        trie = NgramTrieDrafter(n=4, prefix_len=1, num_draft=12)
        assert (
            SpeculativeDecoder(cached_target(family, backend), trie).generate(Prompt(np.array(ids)), STOP).output_ids
            == expected
        )


@settings(max_examples=60)
@given(
    family=st.sampled_from(list(FAMILIES)),
    backend=st.sampled_from(BACKENDS),
    ids=st.lists(st.integers(3, 20), min_size=1, max_size=40),
    drafts=st.lists(any_tree(), max_size=5),
)
def test_whatever_is_drafted_the_answer_is_generate_s(
    family: str, backend: str, ids: list[int], drafts: list[DraftTree]
) -> None:
    text = torch.tensor([ids])
    generated = cached_model(family).generate(
        text, attention_mask=torch.ones_like(text), max_new_tokens=20, do_sample=False
    )

    def behind(draft: DraftTree) -> Any:
        return lambda text: DraftTree(np.array([text[-1], *draft.tokens[1:].tolist()], np.int64), draft.parents)

    result = SpeculativeDecoder(cached_target(family, backend), Scripted([behind(draft) for draft in drafts])).generate(
        Prompt(np.array(ids)), Stop(max_new_tokens=20)
    )
    assert result.output_ids == generated[0, len(ids) :].tolist()


def test_paths_by_hand() -> None:
    tree = DraftTree(np.array([9, 1, 2, 3, 4]), np.array([-1, 0, 1, 0, 1]))
    assert paths_of(tree) == ([[0, 1, 2], [0, 3], [0, 1, 4]], [0, 0, 0, 1, 2])
    assert paths_of(DraftTree.root_only(5)) == ([[0]], [0])


def test_a_cut_back_text_of_rows_is_not_taken_for_shared() -> None:
    """After a reset, rows must not keep what they shared of an earlier text."""
    rows, expected = cached_target("llama", "rows"), cached_target("llama", "stock")
    wide = DraftTree.from_paths(7, [[1], [2], [3], [4]])
    for prompt in ([5, 6, 7, 8], [9, 10, 11, 12, 13]):
        for target in (rows, expected):
            target.prefill(np.array(prompt))
        for _ in range(2):
            assert rows.verify(wide).choices.tolist() == expected.verify(wide).choices.tolist()
            for target in (rows, expected):
                target.commit(len(prompt), [0, 3])
    gap, is_tie = rows.near_tie([5, 6, 7], [1, 2])
    assert gap == pytest.approx(expected.near_tie([5, 6, 7], [1, 2])[0], abs=1e-4) and not is_tie


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kept_prompt_is_read_once_and_charged_each_time(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that take turns on a prompt: the same answers as if each had read it, and no less time on record."""
    model = cached_model("llama")
    target = target_of(model, backend)
    read = []
    own = type(target.network).read
    monkeypatch.setattr(type(target.network), "read", lambda self, text, ids: read.append(1) or own(self, text, ids))
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
        assert len(read) == 1
        assert min(seconds) >= max(target.prefill(prompt.ids).saved_seconds, 1e-9) > 0
    target.near_tie([1, 2, 3], [4, 5])  # overwrites the text
    assert SpeculativeDecoder(target, NoDraft()).generate(prompts[1], STOP).output_ids == expected


@pytest.mark.parametrize("backend", ["stock", "cpu", "cuda_graph", "stock, dispatched"])
def test_a_network_is_kept_with_its_model_and_does_not_keep_it(backend: str) -> None:
    model = family_model("llama")
    if "dispatched" in backend:  # as accelerate does it, where a model lies on several devices
        forward, backend = type(model).forward, "stock"
        dispatched = functools.partial(lambda module, *args, **named: forward(module, *args, **named), model)
        model.forward = functools.update_wrapper(dispatched, model.forward)
        del dispatched
        model.register_forward_hook(lambda *_, model=model: None)
    network, again = (target_of(model, backend).network for _ in range(2))
    assert network is again
    held = weakref.ref(model)
    del model, network, again
    gc.collect()
    assert held() is None


def test_a_tree_that_is_too_large_is_refused() -> None:
    target = cached_target("llama", "stock")
    target.prefill(np.array([1, 2]))
    with pytest.raises(ValueError, match="50 nodes, but max_draft=40"):
        target.verify(DraftTree.chain(1, [2] * 49))
