"""What drafts cost and which pay, learned while serving."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_trie.budget.batch import PATIENCE, PLAIN_EVERY, BatchDraftLength, StepTimes


def timed(base: float, fixed: float, price: float, sizes: list[int], rounds: int = 60) -> StepTimes:
    """Of an engine whose steps take base seconds without drafts, else base + fixed + price a token."""
    times = StepTimes(0.05)
    for _ in range(rounds):
        for size in sizes:
            times.take(size, 1, base + (fixed + price * size if size else 0.0))
    return times


def test_before_a_step_was_seen_costs_are_as_assumed() -> None:
    assert StepTimes(0.05).costs(4).tolist() == pytest.approx([1.0, 1.05, 1.1, 1.15, 1.2])
    assert StepTimes(0.05).rate is None


def test_a_step_without_drafts_has_a_price_of_its_own() -> None:
    costs = timed(0.02, 0.01, 0.002, [0, 1, 4, 8]).costs(8)
    assert costs[0] == pytest.approx(0.02, rel=0.1)
    assert costs[[1, 4, 8]] == pytest.approx([0.032, 0.038, 0.046], rel=0.03)


def test_without_such_steps_it_is_where_the_line_begins() -> None:
    assert timed(0.02, 0.01, 0.002, [1, 4, 8]).costs(1)[0] == pytest.approx(0.03, rel=0.05)


def test_costs_never_fall() -> None:
    costs = timed(0.02, -0.01, 0.0, [0, 1, 4]).costs(6)
    assert (np.diff(costs) >= 0).all() and costs[0] > 0


def test_the_rate_is_tokens_over_seconds() -> None:
    times = StepTimes(0.05)
    for _ in range(10):
        times.take(0, 1, 0.5)
    assert times.rate == pytest.approx(2.0)


def test_a_step_thrice_as_long_as_expected_counts_as_that_long() -> None:
    times = timed(1.0, 0.0, 0.0, [0])
    times.take(0, 1, 1000.0)
    assert times.costs(0)[0] < 1.2


def test_steps_without_a_match_switch_nothing_off() -> None:
    length = BatchDraftLength()
    for _ in range(3 * PATIENCE):
        assert length.is_due(1) and length.choose([], 1) == [] and length.choose([[]], 1) == [0]


def paying(fixed: float, emitted: int = 1) -> BatchDraftLength:
    """Steps of a second, and a tenth a drafted token; drafts have turned out as likely as they were said to be."""
    found = BatchDraftLength()
    for _ in range(100):
        found.take_step(1, 0, emitted, 1.0)
        for size in (1, 4, 8):
            found.take_step(1, size, emitted, 1.0 + fixed + 0.1 * size)
    return found


def test_by_hand_a_token_pays_that_brings_more_than_its_price_at_the_present_rate() -> None:
    # 1 token in about 1.325 seconds: a price of 0.1 seconds is worth 0.075 tokens
    assert paying(0.0).choose([[0.5, 0.2, 0.09, 0.06]], 1) == [3]
    # at four times the rate the same seconds are worth 0.3 tokens
    assert paying(0.0, emitted=4).choose([[0.5, 0.2, 0.09, 0.06]], 1) == [1]


def test_where_a_draft_has_a_fixed_price_unlikely_ones_are_not_made() -> None:
    assert paying(0.0).choose([[0.2, 0.05]], 1) == [1]
    assert paying(0.5).choose([[0.2, 0.05]], 1) == [0]
    assert paying(0.5).choose([[0.9, 0.8]], 1) == [2]


def test_the_likeliest_tokens_of_all_rows_are_taken() -> None:
    assert paying(0.0).choose([[0.9, 0.1], [0.02], [0.5, 0.4]], 1) == [2, 0, 2]


def test_after_many_steps_with_drafts_there_is_one_without() -> None:
    found = BatchDraftLength()
    for _ in range(PLAIN_EVERY):
        assert found.is_due(1)
        found.take_step(1, 3, 2, 1.0)
    assert not found.is_due(1)
    assert found.is_due(1)  # even where that step was not timed


def test_what_does_not_pay_is_asked_for_now_and_then() -> None:
    found = paying(5.0)
    due = []
    for _ in range(4 * PATIENCE):
        due.append(found.is_due(1))
        if due[-1]:
            assert found.choose([[0.2]], 1) == [0]
        found.take_step(1, 0, 1, 1.0)
    assert due[:PATIENCE] == [True] * PATIENCE and 1 <= sum(due[PATIENCE:]) <= 4


def test_drafts_that_were_too_dear_for_a_while_are_tried_again() -> None:
    """The machine is busy, so that a step with drafts takes much longer; then it is not."""
    found = paying(5.0)
    for _ in range(600):
        found.take_step(1, 0, 1, 6.0)
    tried = 0
    for _ in range(4000):
        size = found.choose([[0.8, 0.6]], 1)[0] if found.is_due(1) else 0
        tried += size > 0
        found.take_step(1, size, 1 + size, 1.0 + 0.1 * size)
    assert tried > 2000


def test_what_is_long_past_is_forgotten() -> None:
    times = timed(0.02, 0.5, 0.002, [0, 4])
    for _ in range(200_000):
        times.take(0, 1, 0.02)
    assert times.costs(2) == pytest.approx([0.02, 0.021, 0.022], rel=0.01)
