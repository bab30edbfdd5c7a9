from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.recorded import EVEN_TRACES, RELEASED_TRIE, TRACES, read_jsonl

from ngram_trie.bench import metrics
from ngram_trie.bench.records import PromptRecord
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import read_traces
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, ReleasedNgramTrieDrafter
from ngram_trie.prompt import Prompt

BOTH: list[Callable[..., Drafter]] = [NgramTrieDrafter, ReleasedNgramTrieDrafter]

# BOS, a template, a context 10..15 within the user's turn 20 10..15 21, the template's end.
PROMPT = Prompt(np.array([1, 5, 20, 10, 11, 12, 13, 14, 15, 21, 6]), {"user": (2, 10), "context": (3, 9)})


def drafted(drafter: Drafter, output: list[int], prompt: Prompt = PROMPT, budget: int = 99) -> list[int]:
    drafter.start(prompt)
    drafter.observe(output)
    tree = drafter.propose(budget)
    assert tree.tokens[0] == output[-1]
    return tree.tokens[1:].tolist()


def test_of_several_spans_the_first_that_the_prompt_has() -> None:
    """`method=ngram_trie_context`: the context, else the user's turn, else everything."""
    ids = np.array([1, 5, 6, 7, 5, 8])
    for spans, expected in (
        ({"user": (1, 6), "context": (1, 4)}, [5, 6, 7]),
        ({"user": (2, 6)}, [6, 7, 5, 8]),
        ({}, ids.tolist()),
    ):
        prompt = Prompt(ids, spans)
        assert prompt.part("context|user|prompt").tolist() == expected
        assert prompt.ends_with("context|user|prompt") == (expected[-1] == 8)
    with pytest.raises(ValueError, match=r"context='context.question': this prompt has the parts prompt, user"):
        Prompt(ids, {"user": (2, 6)}).part("context|question")


@pytest.mark.parametrize("make", BOTH)
def test_output_is_indexed_on_request(make: Callable[..., Drafter]) -> None:
    output = [*range(50, 70), 50, 51]
    assert set(drafted(make(), output)) <= {100}
    assert drafted(make(update_with_output=True), output)[:3] == [52, 53, 54]
    # A new prompt starts afresh.
    drafter = make(update_with_output=True)
    drafted(drafter, output)
    assert set(drafted(drafter, [51])) <= {100}


def test_no_window_runs_from_an_inner_span_into_the_output() -> None:
    whole = NgramTrieDrafter(update_with_output=True)
    assert drafted(whole, [60, 61, 6]) == [60, 61, 6]
    inner = NgramTrieDrafter(context="context", update_with_output=True)
    assert drafted(inner, [60, 61, 15]) == []


@pytest.mark.skipif(
    not RELEASED_TRIE.exists(), reason="needs ../shared/traces: what the released code's functions give"
)
@pytest.mark.parametrize(
    ("category", "last", "printed", "micro", "macro"),
    [("summarization", "320", 2.3871, 2.957, 3.146), ("rag", "560", 5.1875, 1.702, 2.130)],
)
def test_the_released_trie_is_the_released_code(
    category: str, last: str, printed: float, micro: float, macro: float
) -> None:
    """On all 80 questions of a category, step by step; and of the last one the mean that the code prints (Table 1: 2.39
    and 5.19)."""
    answers = {
        t.prompt.question_id: t
        for t in [*read_traces(TRACES), *read_traces(EVEN_TRACES)]
        if t.prompt.dataset == category
    }
    golden = [row for row in read_jsonl(RELEASED_TRIE) if row["category"] == category]
    assert len(golden) == 80
    records = []
    for row in golden:
        trace = answers[str(row["question_id"])]
        result = replay(ReleasedNgramTrieDrafter(context="released"), trace)
        assert result.accept_lengths == row["tokens_per_step"]
        assert result.tree_sizes == row["nodes"]
        fields = {"run": "", "method": "m", "model": "vicuna", "repeat": 0, "state": "cold", "kind": "drafter"}
        records.append(PromptRecord.of(trace.prompt, result, **fields))
        if row["question_id"] != 288:
            own = metrics.under_protocol(metrics.to_frame(records[-1:]), "released")
            assert metrics.accept_length(own) == np.mean(row["released_list"])
    shown = metrics.under_protocol(metrics.to_frame(records), "released")
    assert list(shown.question_id) == [last]
    assert metrics.accept_length(shown) == pytest.approx(printed, abs=5e-5)
    lists = [row["released_list"] for row in golden]
    assert np.mean(np.concatenate(lists)) == pytest.approx(micro, abs=6e-4)
    assert np.mean([np.mean(each) for each in lists]) == pytest.approx(macro, abs=6e-4)


def test_the_released_trie_pads_with_the_models_own_eos() -> None:
    """Llama's EOS is an ordinary token of other vocabularies, which padding must not draft."""
    prompt = Prompt(np.array([5, 6, 7], np.int64), {})
    drafted = {}
    for name, eos_id, generation in (("own", None, [7, 9]), ("one", None, 8), ("set", 4, 9), ("unbound", None, None)):
        drafter = ReleasedNgramTrieDrafter(n=5, prefix_len=2, num_draft=8, eos_id=eos_id)
        if generation is not None:
            config = SimpleNamespace(eos_token_id=generation)
            model = SimpleNamespace(generation_config=config, get_input_embeddings=lambda: torch.nn.Embedding(200, 1))
            drafter.bind(SimpleNamespace(model=model))
        drafter.start(prompt)
        drafter.observe([9, 6])
        drafted[name] = drafter.propose(8).tokens[1:].tolist()
    assert {name: set(tokens) for name, tokens in drafted.items()} == {
        "own": {7},  # the text goes on with 7 itself
        "one": {7, 8},
        "set": {7, 4},
        "unbound": {7, 2},
    }


@pytest.mark.parametrize("make", BOTH)
def test_tries_read_separate_texts_where_the_released_code_does(make: Callable[..., Drafter]) -> None:
    """Each is tokenised on its own, no window spans two of them, and the noise follows the first."""
    texts = tuple(np.array(text) for text in ([*range(30, 36)], [*range(40, 46)]))
    noise = np.array([50, 51, 52])
    prompt = Prompt(PROMPT.ids, {**PROMPT.spans, "released": (3, 9)}, noise=noise, texts=texts)
    small = {"n": 4, "prefix_len": 1, "num_draft": 3}
    drafter = make(**small, context="released")
    assert drafted(drafter, [32], prompt) == [33, 34, 35]
    assert drafted(drafter, [34], prompt) == [35, 50, 51]
    assert 40 not in drafted(drafter, [35], prompt)
    assert drafted(drafter, [41], prompt) == [42, 43, 44]
    assert drafted(make(**small, context="user"), [32], prompt) in ([], [100])
