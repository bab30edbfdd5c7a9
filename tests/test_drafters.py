import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.recorded import TRACES

from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, NoDraft, ReleasedNgramTrieDrafter
from ngram_trie.engines.replay import replay
from ngram_trie.engines.traces import Trace, read_traces
from ngram_trie.prompt import Prompt

needs_traces = pytest.mark.skipif(not TRACES.exists(), reason="needs the recorded answers of ../shared/traces")
BOTH: list[Callable[..., Drafter]] = [NgramTrieDrafter, ReleasedNgramTrieDrafter]

# BOS, a template, a context 10..15 within the user's turn 20 10..15 21, the template's end.
PROMPT = Prompt(np.array([1, 5, 20, 10, 11, 12, 13, 14, 15, 21, 6]), {"user": (2, 10), "context": (3, 9)})


def drafted(drafter: Drafter, output: list[int], prompt: Prompt = PROMPT, budget: int = 99) -> list[int]:
    drafter.start(prompt)
    drafter.observe(output)
    tree = drafter.propose(budget)
    assert tree.tokens[0] == output[-1]
    return tree.tokens[1:].tolist()


def test_vanilla_never_drafts() -> None:
    drafter = NoDraft()
    assert drafted(drafter, [10]) == []
    result = replay(drafter, Trace("toy", PROMPT, [10, 11, 12, 13]))
    assert (result.accept_lengths, result.tree_sizes) == ([1, 1, 1], [0, 0, 0])


def test_context_names_the_span_that_is_indexed() -> None:
    assert drafted(NgramTrieDrafter(n=6), [14]) == [15, 21, 6]
    assert drafted(NgramTrieDrafter(n=6, context="user"), [14]) == [15, 21]
    assert drafted(NgramTrieDrafter(n=6, context="context"), [14]) == [15]
    with pytest.raises(ValueError, match="parts prompt, user, context"):
        drafted(NgramTrieDrafter(context="article"), [14])


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


def test_the_match_spans_prompt_and_output() -> None:
    prompt = Prompt(np.array([1, 2, 3, 4, 9, 9, 2, 3, 5, 9, 9, 1, 2]))
    assert drafted(NgramTrieDrafter(num_draft=1), [3], prompt) == [4]


@pytest.mark.parametrize("make", BOTH)
def test_budget_is_respected(make: Callable[..., Drafter]) -> None:
    for budget in range(1, 4):
        assert len(drafted(make(n=6), [11], budget=budget)) <= budget
    assert len(drafted(make(n=6, num_draft=2), [11])) <= 2


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


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("n", "13"),
        ("prefix_len", 0),
        ("prefix_len", 13),
        ("num_draft", 0),
        ("num_draft", True),
        ("context", ""),
        ("update_with_output", "yes"),
    ],
)
def test_bad_values_are_named(make: Callable[..., Drafter], field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field}={value!r}: must be"):
        make(**{field: value})


def test_bad_values_of_one_method() -> None:
    with pytest.raises(ValueError, match="ties='random': must be one of deep, shallow"):
        NgramTrieDrafter(ties="random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="eos_id=-1: must be"):
        ReleasedNgramTrieDrafter(eos_id=-1)


@functools.cache
def recorded() -> list[Trace]:
    return read_traces(TRACES)


def mean_accept_length(drafter: Drafter, category: str) -> float:
    """Micro mean over the recorded (odd) questions of a category."""
    traces = [trace for trace in recorded() if trace.prompt.dataset == category]
    return float(np.mean([length for trace in traces for length in replay(drafter, trace).accept_lengths]))


# These are the held (odd) questions' own values, to three decimals: a replay is deterministic. Measured elsewhere over
# all 80 questions of a category, the same drafters gave 3.08 and 1.76 (released, 64), 2.98 and 1.73 (32), 2.19 and 1.54
# (8); 2.79 and 1.70 (shallow, 8), 3.14 and 1.79 (32), 3.22 and 1.81 (64), 3.25 and 2.08 (64, updated): the held half is
# harder in summarization and easier in rag, by about 4% for every drafter. The 3.01 reported there for depth-first ties
# at 8 nodes is met only where 8 whole paths are kept and their union, 22 nodes on average, is drafted.
@needs_traces
@pytest.mark.parametrize(
    ("drafter", "summarization", "rag"),
    [
        (ReleasedNgramTrieDrafter(num_draft=64), 2.958, 1.824),
        (ReleasedNgramTrieDrafter(num_draft=64, context="user"), 2.938, 1.819),
        (ReleasedNgramTrieDrafter(num_draft=32), 2.876, 1.790),
        (ReleasedNgramTrieDrafter(num_draft=8), 2.142, 1.582),
        (NgramTrieDrafter(num_draft=8, ties="shallow"), 2.704, 1.759),
        (NgramTrieDrafter(num_draft=32, ties="shallow"), 3.023, 1.855),
        (NgramTrieDrafter(num_draft=64, ties="shallow"), 3.083, 1.882),
        (NgramTrieDrafter(num_draft=64, ties="shallow", update_with_output=True), 3.109, 1.996),
        (NgramTrieDrafter(num_draft=8, ties="deep"), 2.635, 1.718),
    ],
)
def test_accept_lengths_of_recorded_answers(drafter: Drafter, summarization: float, rag: float) -> None:
    measured = mean_accept_length(drafter, "summarization"), mean_accept_length(drafter, "rag")
    print(f"{type(drafter).__name__} {drafter.__dict__.get('num_draft')}: {measured[0]:.3f} {measured[1]:.3f}")
    assert measured == pytest.approx((summarization, rag), abs=6e-4)


@needs_traces
@pytest.mark.parametrize(("question", "reported"), [("320", 2.40), ("560", 5.21)])
def test_accept_lengths_of_the_two_questions_that_the_paper_prints(question: str, reported: float) -> None:
    """The last questions of summarization and rag, as ../shared/paper/README.md reports them."""
    held = [trace for trace in recorded() if trace.prompt.question_id == question]
    if not held:
        pytest.skip(f"question {question}: not among the recorded answers, which are those of the odd ids")
    drafter = ReleasedNgramTrieDrafter(num_draft=64, context="user")
    steps = [length for trace in held for length in replay(drafter, trace).accept_lengths]
    assert np.mean(steps) == pytest.approx(reported, abs=0.02)


def test_the_released_trie_pads_with_the_models_own_eos() -> None:
    """Llama's EOS is an ordinary token of other vocabularies, which padding must not draft."""
    prompt = Prompt(np.array([5, 6, 7], np.int64), {})
    drafted = {}
    for name, eos_id, generation in (("own", None, [7, 9]), ("one", None, 8), ("set", 4, 9), ("unbound", None, None)):
        drafter = ReleasedNgramTrieDrafter(n=5, prefix_len=2, num_draft=8, eos_id=eos_id)
        if generation is not None:
            config = SimpleNamespace(eos_token_id=generation)
            drafter.bind(SimpleNamespace(model=SimpleNamespace(generation_config=config)))
        drafter.start(prompt)
        drafter.observe([6, 7])
        drafted[name] = drafter.propose(8).tokens[1:].tolist()
    assert {name: set(tokens) for name, tokens in drafted.items()} == {
        "own": {7},
        "one": {8},
        "set": {4},
        "unbound": {2},
    }
