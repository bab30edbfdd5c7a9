"""Metrics on cases small enough to do by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.records import frame, record

from ngram_trie.bench import metrics
from ngram_trie.bench.measures import MEASURES, acceptance
from ngram_trie.bench.records import Lossless
from ngram_trie.decoding import PhaseSeconds
from ngram_trie.store.files import PAPER


def test_one_row_an_answer() -> None:
    rows = frame(record(accept=(3, 1), seconds=2.0, prefill=0.5), record(question="2", failed=True))
    assert list(rows.columns) == metrics.COLUMNS
    first = rows.iloc[0]
    assert (first.num_tokens, first.num_emitted, first.num_steps) == (5, 4, 2)
    assert (first.seconds, first.prefill_seconds, first.decode_seconds) == (2.0, 0.5, 1.5)
    assert list(rows.failure.fillna("")) == ["", "OutOfMemoryError"]


def test_an_answer_loops_if_its_last_64_tokens_hold_at_most_32_different_4_grams() -> None:
    def period(length: int, size: int = 64) -> list[int]:
        return [place % length for place in range(size)]

    # a text of period k holds k different 4-grams
    assert metrics.loops(period(32)) and not metrics.loops(period(33))
    assert metrics.loops([5] * 64) and not metrics.loops([5] * 63) and not metrics.loops([])
    assert metrics.loops([*range(900, 1000), *period(2)]), "what stands before the last 64 tokens has no say"
    assert not metrics.loops([*period(2), *range(100, 164)])
    assert not metrics.loops(list(range(64)))


def test_a_prompt_loops_if_vanillas_answer_does() -> None:
    loop, short = (1,) * 70, (1,) * 20
    rows = frame(
        record("vanilla", "1", loop), record("quick", "1", loop),
        record("vanilla", "2", short), record("quick", "2", loop),  # as an outside loop may
        record("quick", "3", loop),  # vanilla has failed
        record("vanilla", "3", failed=True),
        record("vanilla", "1", short, dataset="rag"), record("quick", "1", short, dataset="rag"),
    )  # fmt: skip
    assert metrics.looping(rows).to_dict() == {
        ("qa", "1", 0): True, ("qa", "2", 0): False, ("qa", "3", 0): True, ("rag", "1", 0): False,
    }  # fmt: skip
    shares = metrics.loop_shares(rows)
    assert shares.to_dict("records") == [
        {"dataset": "qa", "num_prompts": 3, "num_looping": 2, "share": pytest.approx(2 / 3)},
        {"dataset": "rag", "num_prompts": 1, "num_looping": 0, "share": 0.0},
    ]
    replayed = frame(record("quick", "1", loop), record("slow", "1", loop), record("quick", "2", short))
    assert metrics.looping(replayed).tolist() == [True, False]
    assert metrics.looping(frame()).empty and metrics.loop_shares(frame()).empty


def test_accept_length_pools_steps_or_averages_prompts() -> None:
    rows = frame(record(question="1", accept=(4,)), record(question="2", accept=(1, 1, 1)))
    assert metrics.accept_length(rows) == 7 / 4
    assert metrics.accept_length_macro(rows) == (4 + 1) / 2


def test_repeating_one_prompt_moves_no_average() -> None:
    once = [record(question="1", accept=(4,)), record(question="2", accept=(1, 1, 1))]
    again = [record(question="1", accept=(4,), repeat=r) for r in (1, 2, 3)]
    for metric in (metrics.accept_length, metrics.accept_length_macro):
        assert metric(frame(*once, *again)) == metric(frame(*once))
    assert metrics.num_prompts(frame(*once, *again)) == 2


def test_an_answer_of_one_token_has_no_accept_length() -> None:
    assert math.isnan(metrics.accept_length(frame(record(accept=()))))
    rows = frame(record(question="1", accept=()), record(question="2", accept=(3, 1)))
    assert metrics.accept_length(rows) == metrics.accept_length_macro(rows) == 2


def test_throughput_is_total_tokens_over_total_seconds() -> None:
    rows = frame(
        record(accept=(2, 1), seconds=1.0, prefill=0.5), record(question="2", accept=(5,), seconds=4, prefill=1)
    )
    assert metrics.tokens_per_second(rows) == (4 + 6) / (1 + 4)
    assert metrics.decode_tokens_per_second(rows) == (3 + 5) / (0.5 + 3)


def test_decode_throughput_is_unknown_where_prefill_is_not_timed_apart() -> None:
    assert math.isnan(metrics.decode_tokens_per_second(frame(record(prefill=0.0))))


def test_failures_are_counted_and_excluded() -> None:
    good = record(accept=(3, 1), seconds=2.0)
    rows = frame(good, record(question="2", failed=True), record(question="2", failed=True, repeat=1))
    assert metrics.num_failures(rows) == 1
    assert metrics.num_prompts(rows) == 1
    for name in ("accept_length", "accept_length_macro", "tokens_per_second"):
        metric = getattr(metrics, name)
        assert metric(rows) == metric(frame(good))


def test_speedup_uses_only_what_both_have_answered() -> None:
    rows = frame(
        record("vanilla", "1", seconds=4.0), record("fast", "1", seconds=2.0),
        record("vanilla", "2", seconds=1.0), record("fast", "2", failed=True),
        record("vanilla", "1", seconds=99.0, repeat=1), record("fast", "1", failed=True, repeat=1),
    )  # fmt: skip
    assert metrics.speedup(rows, "fast").ratio == 2.0


def test_speedup_is_a_ratio_of_totals_not_a_mean_of_ratios() -> None:
    rows = frame(
        record("vanilla", "1", seconds=1.0), record("fast", "1", seconds=1.0),
        record("vanilla", "2", seconds=9.0), record("fast", "2", seconds=3.0),
    )  # fmt: skip
    result = metrics.speedup(rows, "fast")
    assert result.ratio == 10 / 4
    assert (result.low, result.high) == (1.0, 3.0)  # a resample may hold only one of the two


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=6))
@settings(max_examples=20, deadline=None)
def test_a_method_against_itself_and_one_twice_as_fast(seconds: list[float]) -> None:
    slow = [record("vanilla", str(q), seconds=s) for q, s in enumerate(seconds)]
    fast = [record("fast", str(q), seconds=s / 2) for q, s in enumerate(seconds)]
    assert metrics.speedup(frame(*slow, *fast), "vanilla") == (1.0, 1.0, 1.0)
    assert metrics.speedup(frame(*slow, *fast), "fast") == (2.0, 2.0, 2.0)


def test_speedup_without_common_prompts_or_times_is_unknown() -> None:
    assert all(map(math.isnan, metrics.speedup(frame(record("vanilla", "1"), record("fast", "2")), "fast")))
    untimed = frame(*(record(m, str(q)) for m in ("vanilla", "fast") for q in range(3)))
    untimed["seconds"] = math.nan
    assert all(map(math.isnan, metrics.speedup(untimed, "fast")))


def test_a_session_is_compared_with_its_own_vanilla_and_widens_the_interval() -> None:
    rows = frame(
        *(
            record(m, str(q), seconds=seconds, session=session)
            for session, times in enumerate(({"vanilla": 2.0, "fast": 1.0}, {"vanilla": 4.0, "fast": 4.0}))
            for m, seconds in times.items()
            for q in range(5)
        )
    )
    result = metrics.speedup(rows, "fast")
    assert (result.ratio, result.low, result.high) == (pytest.approx(6 / 5), 1, 2)  # a draw may hold one session alone
    assert metrics.session_speedups(rows, "fast").to_dict() == {0: 2.0, 1: 1.0}
    first = rows[rows.session == 0]
    assert metrics.speedup(first, "fast") == (2.0, 2.0, 2.0)
    unpaired = rows[(rows.method == "vanilla") | (rows.session == 0)]
    assert metrics.speedup(unpaired, "fast").ratio == 2.0
    assert metrics.session_speedups(rows, "none").empty


def test_turns_of_a_question_are_drawn_together() -> None:
    turns = [frame(record(m, "1", seconds=s)).assign(turn=t) for m, s in (("vanilla", 2), ("fast", 1)) for t in (0, 1)]
    assert math.isnan(metrics.speedup(pd.concat(turns), "fast").low)


def test_draws_are_of_questions_and_of_sessions() -> None:
    weights = metrics.resampled(4, 3)
    assert weights.shape == (metrics.NUM_RESAMPLES, 4, 3) and (weights.sum((1, 2)) == 12).all()
    one = weights[0]
    assert np.linalg.matrix_rank(one) == 1  # questions times sessions
    assert (metrics.resampled(5, 1).sum(1) == 5).all()


def test_the_interval_leaves_out_draws_without_an_answer() -> None:
    drawn = np.arange(1.0, 42.0)
    assert metrics.interval(drawn) == (2, 40)
    assert metrics.interval(np.append(drawn, [np.nan] * 9)) == (2, 40)
    low, high = metrics.interval(np.array([[1.0, 2.0], [np.nan, np.nan]]))
    assert (low[0], high[0]) == (1, 2) and np.isnan([low[1], high[1]]).all()


def test_groups() -> None:
    assert metrics.group(frame(record())) == "baseline"
    assert metrics.group(frame(record("m", state="warm"))) == "warm"
    assert metrics.group(frame()) == "-"


def test_released_protocol_on_spec_bench_takes_the_last_question_with_prefill_in_the_clock() -> None:
    rows = frame(
        record("vanilla", "9", seconds=100.0), record("fast", "9", (3,), seconds=100.0),
        record("vanilla", "10", seconds=5.0, prefill=1.0), record("fast", "10", (3,), seconds=2.0, prefill=1.0),
        record("vanilla", "9", seconds=100.0, repeat=1), record("fast", "9", (3,), seconds=100.0, repeat=1),
        record("vanilla", "a", dataset="rag", seconds=7.0),
    )  # fmt: skip
    released = metrics.under_protocol(rows, "released")
    assert list(released.question_id) == ["10", "10", "a"]  # as asked; a later repeat of "9" does not make it the last
    qa = released[released.dataset == "qa"]
    result = metrics.speedup(qa, "fast")
    assert result.ratio == 5 / 2
    assert math.isnan(result.low)
    # Four tokens in one step, or in three: the lists are [1, 2, 1], the last entry behind EOS, and [1, 0, 1, 1, 1].
    assert metrics.accept_length(qa[qa.method == "fast"]) == 4 / 3
    assert metrics.accept_length(qa[qa.method == "vanilla"]) == 4 / 5


@pytest.mark.parametrize("dataset", ["triviaqa", "hagrid", "open_qa", "attributed_qa"])
@pytest.mark.parametrize("noise", ["", "passages"])
def test_released_protocol_on_triviaqa_and_hagrid_takes_means_with_the_clock_after_prefill(
    dataset: str, noise: str
) -> None:
    about = {"dataset": dataset, "noise_kind": noise}
    rows = frame(
        record("vanilla", "1", (1,) * 9, seconds=12.0, prefill=2.0, **about),
        record("vanilla", "2", (1, 1, 1), seconds=5.0, prefill=1.0, **about),
        record("fast", "1", (9,), seconds=4.0, prefill=2.0, **about),
        record("fast", "2", (2, 1), seconds=3.0, prefill=1.0, **about),
    )
    released = metrics.under_protocol(rows, "released")
    assert list(released.question_id) == ["1", "2", "1", "2"]
    fast = released[released.method == "fast"]
    # Lists [1, 8, 1] and [1, 1, 1, 1].
    assert metrics.accept_length(fast) == (10 + 4) / (3 + 4)
    assert metrics.accept_length_macro(fast) == pytest.approx((10 / 3 + 4 / 4) / 2)
    # Seconds per token: vanilla 10/10 and 4/4; fast 2/10 and 2/4, a mean of 0.35.
    assert metrics.tokens_per_second(fast) == pytest.approx(1 / 0.35)
    result = metrics.speedup(released, "fast")
    assert result.ratio == pytest.approx(1 / 0.35)
    # A prompt drawn twice has its own ratio, 2 or 5: the interval is paired.
    assert (result.low, result.high) == pytest.approx((2, 5))
    assert math.isnan(metrics.decode_tokens_per_second(fast))


def test_released_protocol_averages_the_turns_of_the_last_question() -> None:
    """sdbench.py's lists hold all turns of a question."""
    turns = [replace(record("vanilla", "81", (1,) * n, seconds=s), turn=t) for t, n, s in ((0, 1, 2.0), (1, 3, 12.0))]
    released = metrics.under_protocol(frame(record("vanilla", "80", seconds=50.0), *turns), "released")
    assert list(released.turn) == [0, 1]
    assert metrics.tokens_per_second(released) == 1 / ((2 / 2 + 12 / 4) / 2)
    assert metrics.accept_length(released) == (2 + 4) / (3 + 5)


def test_released_protocol_does_not_fall_back_to_an_older_question() -> None:
    rows = metrics.under_protocol(frame(record(question="1"), record(question="2", failed=True)), "released")
    assert (metrics.num_prompts(rows), metrics.num_failures(rows)) == (0, 1)
    assert math.isnan(metrics.tokens_per_second(rows))


@pytest.mark.parametrize(("dataset", "noise"), [("spec_bench_summarization", ""), ("summarization", "paragraph")])
def test_released_protocol_passes_over_what_the_released_code_passes_over(dataset: str, noise: str) -> None:
    rows = frame(*(record(question=name, dataset=dataset, noise_kind=noise) for name in ("286", "287", "288")))
    assert list(metrics.under_protocol(rows, "released").question_id) == ["287"]
    assert len(metrics.under_protocol(rows, "corrected")) == 3
    means = metrics.under_protocol(rows.assign(task="hagrid"), "released")
    assert list(means.question_id) == ["286", "287", "288"]


def test_a_context_has_a_column_of_its_own() -> None:
    rows = frame(record(dataset="rag"), record(dataset="rag", noise_kind="passages"), record(dataset="a+b"))
    assert list(rows.dataset) == ["rag", "rag+passages", "a+b"]
    assert list(zip(rows.task, rows.context, strict=True)) == [("rag", "clean"), ("rag", "passages"), ("a+b", "clean")]


def test_corrected_protocol_changes_nothing_and_others_are_refused() -> None:
    rows = frame(record())
    pd.testing.assert_frame_equal(metrics.under_protocol(rows, "corrected"), rows)
    with pytest.raises(ValueError, match="corrected, released"):
        metrics.under_protocol(rows, "official")


def verdicts(*names: str | None, **fields: str) -> pd.DataFrame:
    return frame(
        *(record("m", str(q), lossless=Lossless(name) if name else None, **fields) for q, name in enumerate(names))
    )


def test_lossless_in_words() -> None:
    assert str(metrics.lossless(frame(record()))) == "baseline"
    assert str(metrics.lossless(verdicts("identical", "identical"))) == "2/2"
    assert str(metrics.lossless(verdicts("identical", "tie", "tie", "different"))) == "1/4, 2 ties, 1 DIFFERENT"
    assert str(metrics.lossless(verdicts("identical", None))) == "1/1, 1 not compared"
    assert str(metrics.lossless(verdicts(None))) == "not compared"
    assert str(metrics.lossless(verdicts("identical", "identical", kind="decoder"))) == "control: 2/2"
    assert str(metrics.lossless(verdicts("identical", "different", kind="decoder"))) == "control: 1/2"


def test_a_prompt_is_as_lossless_as_its_worst_repeat() -> None:
    rows = frame(*(record("m", "1", repeat=r, lossless=Lossless(v)) for r, v in enumerate(("identical", "tie"))))
    assert str(metrics.lossless(rows)) == "0/1, 1 tie"


def test_published_means_hold_to_rounding_but_for_one() -> None:
    printed = pd.read_csv(PAPER / "table1_mean_speedup.csv").set_index(["model", "method"]).mean_speedup
    computed = pd.read_csv(PAPER / "table1.csv").groupby(["model", "method"]).speedup.mean()
    assert set(printed.index) == set(computed.index)
    off = (computed - printed).abs()
    wrong = off[off > 0.005 + 1e-9]
    assert list(wrong.index) == [("llama-3-8b-instruct", "lookahead")]
    assert round(computed["llama-3-8b-instruct", "lookahead"], 2) == 1.35
    assert printed["llama-3-8b-instruct", "lookahead"] == 1.50


def test_phases_are_shares_of_the_whole_clock() -> None:
    ours = replace(record("m"), seconds=PhaseSeconds(10.0, prefill=2.0, draft=1.0, verify=6.0, commit=0.5))
    outside = record("out", seconds=10.0, prefill=2.0, kind="decoder")
    table = metrics.phases(frame(ours, outside)).set_index("method")
    assert table.loc["m", ["prefill", "draft", "verify", "commit", "other"]].tolist() == pytest.approx(
        [0.2, 0.1, 0.6, 0.05, 0.05]
    )
    assert table.loc["out", "prefill"] == pytest.approx(0.2)
    assert math.isnan(table.loc["out", "verify"]) and math.isnan(table.loc["out", "other"])
    steps = len(ours.accept_lengths)
    assert table.loc["m", "milliseconds_per_step"] == pytest.approx(1e3 * 8.0 / steps)


def test_acceptance_by_draft_position_by_hand() -> None:
    """Of three drafts none, one and three tokens are accepted; a step without a draft does not count."""
    rows = frame(record("pld", accept=(1, 2, 4, 1), tree_sizes=[3, 3, 3, 0]))
    found = acceptance(rows).set_index("position")
    assert found.joint.tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3, 0])
    assert found.conditional.tolist() == pytest.approx([2 / 3, 1 / 2, 1, 0])
    assert set(found.num_drafts) == {3}
    first = MEASURES["first_accepted"]
    assert first.of is not None and first.of(rows, "pld").value == pytest.approx(2 / 3)
    assert first.parts(rows).tolist() == [[2, 3]]
