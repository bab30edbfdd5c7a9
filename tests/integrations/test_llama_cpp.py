"""What llama-cpp-python calls a draft model with, and what it may get back; the engine itself where it is installed."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngram_trie.drafters import NoDraft
from ngram_trie.integrations.llama_cpp import DraftModel
from ngram_trie.methods import make_drafter
from ngram_trie.prompt import Prompt

PASSAGE = [11, 12, 13, 14, 15, 16, 17, 18]


class Engine:
    """As `Llama.generate` asks (0.3.36): a buffer that it writes over, whose first `l` tokens are the text; a draft is
    accepted up to the first token that is not the model's.
    """

    def __init__(self, draft_model: Any, size: int = 256) -> None:
        self.draft_model, self.input_ids = draft_model, np.zeros(size, np.intc)
        self.steps = 0

    def generate(self, prompt: list[int], answer: list[int]) -> list[int]:
        text = [*prompt, answer[0]]
        while len(text) < len(prompt) + len(answer):
            self.input_ids[:] = -1
            self.input_ids[: len(text)] = text
            draft = self.draft_model(self.input_ids[: len(text)])
            assert draft.dtype == np.intc and draft.ndim == 1
            rest = answer[len(text) - len(prompt) :]
            accepted = 0
            while accepted < min(len(draft), len(rest) - 1) and draft[accepted] == rest[accepted]:
                accepted += 1
            text += rest[: accepted + 1]
            self.steps += 1
        return text[len(prompt) :]


@pytest.mark.parametrize("drafter", ["blend", "suffix", "pld", "ngram_trie_output", "sam", "blend_warm"])
def test_copies_are_drafted_and_counted(drafter: str) -> None:
    model = DraftModel(drafter, num_draft=4)
    engine = Engine(model)
    answer = [30, *PASSAGE, 31]
    assert engine.generate([1, *PASSAGE, 2], answer) == answer
    assert engine.steps < len(answer) - 1
    model(np.array([1, *PASSAGE, 2, *answer, 40], np.intc))  # tells what came of the last draft
    assert 0 < model.num_accepted <= model.num_drafted <= 4 * model.num_drafts
    assert model.num_accepted == len(answer) - 1 - engine.steps


def test_the_draft_is_the_best_path_of_the_drafter_s_tree() -> None:
    text = [1, *PASSAGE, 2, *PASSAGE[:3]]
    best = make_drafter("blend", 3, "chain")
    best.start(Prompt(np.array(text)))
    expected = best.propose(256).tokens[1:]
    assert DraftModel("blend", num_draft=3)(np.array(text, np.intc)).tolist() == expected.tolist() == PASSAGE[3:6]
    assert len(DraftModel("blend", min_prob=1.0)(np.array(text, np.intc))) == 0


def test_a_text_is_known_by_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[int]]] = []
    drafter = NoDraft()
    monkeypatch.setattr(drafter, "start", lambda prompt: calls.append(("start", prompt.ids.tolist())))
    monkeypatch.setattr(drafter, "observe", lambda new: calls.append(("observe", list(new))))
    drafter.root = 0
    model = DraftModel(drafter)
    for text in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [1, 2, 9, 4], [1, 2, 9], [1, 2, 9], [1, 2, 9, 7]):
        assert model(np.array(text, np.intc)).tolist() == []
    assert calls == [
        ("start", [1, 2, 3]), ("observe", [4, 5]), ("observe", [6]),
        ("start", [1, 2, 9, 4]), ("start", [1, 2, 9]), ("start", [1, 2, 9]), ("observe", [7]),
    ]  # fmt: skip
    assert model(np.empty(0, np.intc)).tolist() == []


def test_what_is_held_does_not_grow_with_the_answers() -> None:
    rng = np.random.default_rng(0)
    for drafter in ("blend", "suffix", "ngram_trie_output"):
        model, sizes = DraftModel(drafter), []
        for _ in range(60):
            model(rng.integers(3, 900, 300).astype(np.intc))
            sizes.append(len(pickle.dumps(model)))
        assert sizes[-1] < 1.2 * sizes[4]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"drafter": "blnd"}, r"method=blnd: did you mean blend"),
        ({"drafter": "sps"}, r"method sps reads a model of its own, and llama.cpp"),
        ({"drafter": "lookahead"}, r"method lookahead: shape=chain: Lookahead does not say how likely"),
        ({"drafter": 3}, r"drafter: a int is neither a name"),
        ({"min_prob": 1.5}, r"min_prob=1.5: must be a number from 0 to 1"),
        ({"drafter": "pld", "min_prob": 0.5}, r"min_prob=0.5: drafter=pld does not say how likely"),
    ],
)
def test_what_does_not_fit_is_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line) as error:
        DraftModel(**given)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs llama-cpp-python, which is compiled at installation")
def test_the_engine_gives_the_tokens_that_it_gives_without_drafts(tmp_path: Path) -> None:
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaDraftModel
    from support.tiny import tiny_model
    from support.tiny_gguf import TOKENS, write_gguf

    # single precision: a quantised file is rounded differently over one token and over several
    model = tiny_model("llama", vocab_size=len(TOKENS), initializer_range=0.2)
    file = write_gguf(tmp_path / "tiny.gguf", model)
    drafts = DraftModel("blend", num_draft=6)
    assert isinstance(drafts, LlamaDraftModel)
    rng = np.random.default_rng(0)
    prompts = [np.tile(rng.integers(3, len(TOKENS), 8), 4).tolist() for _ in range(12)]

    def answers(**options: Any) -> list[list[int]]:
        engine = Llama(str(file), n_ctx=160, verbose=False, n_threads=1, n_threads_batch=1, **options)
        told = []
        for prompt in prompts:
            tokens = engine.generate(prompt, temp=0.0, repeat_penalty=1.0)
            told.append(list(islice(tokens, 80)))
        return told

    plain = answers()
    assert answers(draft_model=drafts, logits_all=True) == plain
    assert 0 < drafts.num_accepted < drafts.num_drafted
