"""Noisy contexts: what is mixed in, how much of it, and who gets to read it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_trie.bench.trace_noise import with_noise
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.overrides import composed
from ngram_trie.data.bundled import BundledDataset
from ngram_trie.data.noise import PARAGRAPH, NoiseSettings, NoisyDataset, mix_in, passages_of
from ngram_trie.data.noise import with_noise as noisy_datasets
from ngram_trie.data.prompts import Question, build_prompt
from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.load import load_tokenizer


@pytest.mark.parametrize("task", ["summarization", "rag", "open_qa", "attributed_qa"])
def test_passages_make_up_the_asked_share(task: str) -> None:
    clean = BundledDataset(task)
    noisy = NoisyDataset(clean, "passages", share=0.3, seed=1)
    assert [q.question_id for q in noisy.questions] == [q.question_id for q in clean.questions]
    shares = []
    for before, after in zip(clean.questions, noisy.questions, strict=True):
        assert (after.before, after.after, after.reference) == (before.before, before.after, before.reference)
        own, separator = passages_of(before.context)
        mixed = after.context.split(separator) if separator != " " else passages_of(after.context)[0]
        left = iter(mixed)
        assert all(passage in left for passage in own)  # none is lost, and their order stays
        shares.append(1 - len(before.context.split()) / len(after.context.split()))
    # whole passages: at least the share, and at most one passage more
    assert min(shares) >= 0.3 and np.mean(shares) < 0.45


@given(st.lists(st.sampled_from(["One.", "Two two.", "Three."]), min_size=1, max_size=5), st.floats(0, 0.9))
def test_no_share_is_no_noise_and_a_context_is_never_shortened(passages: list[str], share: float) -> None:
    question = Question("d", "1", "", "\n".join(passages), "?")
    mixed = mix_in(question, {"1": passages, "2": ["Other words.", "Yet more of them."]}, share, seed=0)
    assert len(mixed.context) >= len(question.context)
    assert mix_in(question, {"1": passages, "2": ["Other."]}, 0.0, seed=0) == question


def test_passages_that_tries_read_one_by_one_stay_so() -> None:
    question = Question("d", "1", "", "One.\n\nTwo two.", "?", released_texts=("One.", "Two two."))
    mixed = mix_in(question, {"1": ["One.", "Two two."], "2": ["Other words."]}, 0.3, seed=0)
    assert mixed.released_texts == tuple(mixed.context.split("\n\n")) and len(mixed.released_texts) == 3


def test_the_released_codes_paragraph_is_read_by_tries_alone() -> None:
    tokenizer = load_tokenizer(str(PROJECT / "data" / "tiny" / "model"))
    clean = BundledDataset("rag", limit=1)
    noisy = NoisyDataset(clean, "paragraph", 0.3, 0)
    plain, disturbed = (build_prompt(part.questions[0], tokenizer) for part in (clean, noisy))
    assert np.array_equal(plain.ids, disturbed.ids) and not len(plain.noise)
    assert tokenizer.decode(disturbed.noise) == PARAGRAPH
    # "Sourdough begins with" leads on only where the paragraph was read
    opening = disturbed.noise[:6].tolist()
    for prompt, drafts in ((plain, False), (disturbed, True)):
        drafter = NgramTrieDrafter(n=8, prefix_len=3, num_draft=8)
        drafter.start(prompt)
        drafter.observe(opening)
        tree = drafter.propose(8)
        assert (disturbed.noise[6] in tree.tokens[1:]) == drafts


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("noise={kinds: [static]}", "noise.kinds.0=static: must be 'paragraph' or 'passages'"),
        ("noise={kinds: [paragraph], share: 1.0}", "noise.share=1.0: must be less than 1"),
        ("noise={share: 0.3}", "noise.kinds: must be given"),
    ],
)
def test_what_is_wrong_is_one_line(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        composed([override])
    with pytest.raises(ValueError, match="noise comes from other questions"):
        NoisyDataset(BundledDataset("rag", 1), "passages", 0.3, 0)


def test_noise_comes_from_every_turn_of_the_other_questions() -> None:
    turns = [Question("chat", str(q), "", f"passage {q} of turn {t}", "?", turn=t) for q in (1, 2) for t in (0, 1)]
    chat = SimpleNamespace(name="chat", questions=turns, warmup=[])
    mixed = NoisyDataset(chat, "passages", 0.6, 0).questions
    assert all(f"passage 2 of turn {t}" in mixed[0].context for t in (0, 1))


def test_every_data_set_stands_before_its_noisy_ones() -> None:
    clean = {name: BundledDataset(name, 2) for name in ("rag", "open_qa")}
    noisy = noisy_datasets(clean, NoiseSettings(("passages", "paragraph")))
    assert list(noisy) == ["rag", "rag+passages", "rag+paragraph", "open_qa", "open_qa+passages", "open_qa+paragraph"]
    kinds = {(question.dataset, question.noise_kind) for question in noisy["rag+passages"].questions}
    assert kinds == {("rag", "passages")}


def recorded(category: str, number: int, length: int = 40) -> Trace:
    ids = np.arange(length, dtype=np.int64) + 1000 * number
    return Trace("m", Prompt(ids, {"user": (5, length)}, category, str(number)), [1, 2])


def test_recorded_answers_get_noise_beside_the_prompt() -> None:
    clean = {"a": [recorded("a", 1), recorded("a", 2)], "b": [recorded("b", 3), recorded("b", 4)]}
    noisy = with_noise(clean, NoiseSettings(("paragraph", "passages"), 0.5))
    assert list(noisy) == ["a", "a+paragraph", "a+passages", "b", "b+paragraph", "b+passages"]
    assert noisy["a"] == clean["a"]
    for kind, source in (("paragraph", {3000}), ("passages", {2000})):
        trace = noisy[f"a+{kind}"][0]
        assert trace.key == ("a", "1", 0, kind) and np.array_equal(trace.prompt.ids, clean["a"][0].prompt.ids)
        assert trace.output_ids == [1, 2] and {token // 1000 * 1000 for token in trace.prompt.noise} == source
    assert len(noisy["a+passages"][0].prompt.noise) == 35  # half of what a trie reads
    assert len(with_noise(clean, NoiseSettings(("passages",), 0.0))["a+passages"][0].prompt.noise) == 0
    with pytest.raises(ValueError, match="another category, and there is none"):
        with_noise({"a": clean["a"]}, NoiseSettings(("paragraph",)))
