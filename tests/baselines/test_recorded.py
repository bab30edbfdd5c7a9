"""Recorded drafters: their steps through an answer are those that were recorded, cut to a size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_target import FakeTarget, circling, jumbled

from ngram_trie.baselines.recorded import Recorded
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace
from ngram_trie.decoding import SpeculativeDecoder
from ngram_trie.prompt import Prompt


def trace_of(output: list[int], lengths: list[int]) -> Trace:
    return Trace("toy", Prompt(np.array([7, 8]), question_id="1"), output, recorded={"eagle": lengths})


def test_its_steps_by_hand() -> None:
    """The first token is prefill's. The step that emits position 1 emits 2 tokens, that of position 3 all 4 left."""
    trace = trace_of([3, 0, 5, 6, 0, 7, 4], [1, 2, 9, 9, 1, 1, 1])
    for size, accepted, nodes in ((20, [2, 4], [20, 20]), (2, [2, 3, 1], [2, 2, 2])):
        result = replay(Recorded(recording="eagle", num_draft=size, full=True), trace)
        assert (result.output_ids, result.accept_lengths) == (trace.output_ids, accepted)
        assert result.tree_sizes == nodes
    assert replay(Recorded(recording="eagle"), trace).tree_sizes == [1, 4]  # the accepted ones alone


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), min_size=1, max_size=30), st.integers(1, 8))
def test_it_steps_as_it_was_recorded(positions: list[tuple[int, int]], size: int) -> None:
    output, lengths = (list(part) for part in zip(*positions, strict=True))
    steps, place = [], 1
    while place < len(output):
        steps.append(min(lengths[place], size + 1, len(output) - place))
        place += steps[-1]
    for full in (False, True):
        drafter = Recorded(recording="eagle", num_draft=size, full=full)
        assert replay(drafter, trace_of(output, lengths)).accept_lengths == steps


def test_an_answer_of_another_length_is_replayed_as_far_as_both_go() -> None:
    longer, shorter = trace_of([3, 4, 5], [1, 1, 1, 1]), trace_of([3, 4, 5], [1, 3])
    assert longer.of_recording("eagle").output_ids == [3, 4, 5]
    assert shorter.of_recording("eagle").output_ids == [3, 4]
    assert replay(Recorded(recording="eagle"), shorter.of_recording("eagle")).accept_lengths == [1]


def test_it_drafts_for_recorded_answers_alone() -> None:
    target: FakeTarget = circling(jumbled(9), 9)
    with pytest.raises(ValueError, match="recording=eagle: no such recording; only a replay of recorded answers"):
        SpeculativeDecoder(target, Recorded(recording="eagle"))
    with pytest.raises(ValueError, match="recording=ngram: no such recording"):
        replay(Recorded(recording="ngram"), trace_of([1, 2], [1, 1]))
