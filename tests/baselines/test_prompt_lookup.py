import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded import PLD_RECORDED, TRACES, read_jsonl, vicuna_tokenizer
from support.text import chain

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.prompt import Prompt

needs_traces = pytest.mark.skipif(not PLD_RECORDED.exists(), reason="needs the recorded answers of ../shared/traces")
BOS, EOS = 1, 2


def drafted(text: list[int], budget: int = 99, **settings: Any) -> list[int]:
    return chain(PromptLookup(**settings), text, budget=budget)


def test_copies_after_the_earliest_longest_match() -> None:
    text = [7, 1, 2, 3, 4, 5, 1, 2, 6, 1, 2]
    assert drafted(text, num_draft=3) == [3, 4, 5]
    assert drafted([*text, 6], num_draft=3) == [1, 2, 6]  # 1 2 6 was there
    assert drafted([9, 2], num_draft=3) == []


def test_num_draft_budget_and_end_of_text() -> None:
    assert drafted([1, 2, 3, 1]) == [2, 3, 1]
    assert drafted([1, 2, 3, 1], budget=2) == [2, 3]
    assert drafted([1, 1]) == [1]
    assert drafted([1]) == []


def test_spec_bench_quirks() -> None:
    text = [5, 1, 9, 9, 9, 1, 2, 5, 1]
    assert drafted(text, num_draft=4, require_full=True) == [9, 9, 9, 1]
    # After "1 2" only three tokens follow, after the earliest "2" as well: no draft, or a dummy.
    assert drafted([1, 2, 5, 1, 2], num_draft=4, require_full=True) == []
    assert drafted([1, 2, 5, 1, 2], num_draft=4, require_full=True, dummy_when_none=100) == [100]
    # A shorter n-gram that occurred earlier is complete.
    assert drafted([2, 7, 8, 1, 2, 5, 1, 2], num_draft=4, require_full=True) == [7, 8, 1, 2]
    assert drafted([2, 7, 8, 1, 2, 5, 1, 2], num_draft=4) == [5, 1, 2]


def pld_runs(folder: Path) -> Iterator[tuple[list[Trace], list[int]]]:
    """The turns of each question as Spec-Bench's prompt lookup met them, and the accept lengths it recorded."""
    encode = functools.partial(vicuna_tokenizer(folder).encode, add_special_tokens=False)
    vanilla = {(trace.prompt.question_id, trace.prompt.turn): trace for trace in read_traces(TRACES)}
    texts = {(str(row["question_id"]), row["turn"]): row for row in read_jsonl(TRACES)}
    for row in read_jsonl(PLD_RECORDED):
        turns, question = [], str(row["question_id"])
        for number, (text, new_tokens) in enumerate(zip(row["turns"], row["new_tokens"], strict=True)):
            prompt = vanilla[question, number].prompt
            if number:
                # The run went on from its own first answer, and its "</s>" was the EOS token.
                first = texts[question, number]["prompt"].replace(texts[question, 0]["output"], row["turns"][0])
                parts = [encode(part) for part in first.split("</s>")]
                prompt = Prompt(np.array([BOS, *parts[0], EOS, *parts[1]], np.int64))
            output = encode(text)
            output = output if len(output) == new_tokens else [*output, EOS]
            # It drafts from the prompt alone, verifies that along with the prompt, and counts it as the first step.
            turns.append(replace(vanilla[question, number], prompt=prompt, output_ids=output).drafted_in_prefill())
        yield turns, row["accept_lengths"]


@needs_traces
def test_reproduces_what_spec_bench_recorded(tmp_path: Path) -> None:
    drafter = PromptLookup(max_ngram=3, num_draft=10, require_full=True, dummy_when_none=100)
    same = [
        [length for turn in turns for length in replay(drafter, turn).accept_lengths] == expected
        for turns, expected in pld_runs(tmp_path)
    ]
    print(f"{sum(same)} of {len(same)} questions step by step")
    assert sum(same) >= 0.99 * len(same)
