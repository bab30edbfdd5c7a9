"""Method against method, on cases small enough to do by hand, and on many drawn at random."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp
from support.records import frame, record

from ngram_trie.bench import metrics
from ngram_trie.bench.measures import ACCEPT_LENGTH, SPEEDUP
from ngram_trie.bench.pairwise import COLUMNS, _families, holm, pairwise, standings, tied_with_best

BOTH = [SPEEDUP, ACCEPT_LENGTH]


def timed(**seconds: list[float]) -> pd.DataFrame:
    """Methods with their seconds for one question after the other."""
    return frame(*(record(m, str(q), seconds=s) for m, times in seconds.items() for q, s in enumerate(times)))


def in_sessions(**seconds: list[list[float]]) -> pd.DataFrame:
    """Methods with their seconds: a list for each session, an item for each question."""
    return frame(
        *(
            record(m, str(q), seconds=s, session=session)
            for m, sessions in seconds.items()
            for session, times in enumerate(sessions)
            for q, s in enumerate(times)
        )
    )


def test_ratios_are_of_totals_over_what_both_have_answered() -> None:
    rows = frame(
        record("vanilla", "1", seconds=4.0), record("a", "1", (3,), seconds=2.0), record("b", "1", (2, 1), seconds=1.0),
        record("vanilla", "2", seconds=4.0), record("a", "2", (2, 1), seconds=2.0), record("b", "2", (3,), seconds=3.0),
        record("vanilla", "3", seconds=4.0), record("a", "3", (1, 1, 1), seconds=9.0), record("b", "3", failed=True),
    )  # fmt: skip
    found = pairwise(rows, BOTH).set_index(["dataset", "measure", "a", "b"])
    assert list(pairwise(rows, BOTH).columns) == COLUMNS
    assert list(found.loc[("qa", SPEEDUP)].index) == [("vanilla", "a"), ("vanilla", "b"), ("a", "b")]
    assert found.ratio["qa", SPEEDUP, "vanilla", "a"] == (12 / 12) / (12 / 13)
    pair = found.loc[("qa", SPEEDUP, "a", "b")]
    assert (pair.ratio, pair.num_questions, pair.num_sessions) == (1.0, 2, 1)
    assert (pair.low, pair.high) == (0.5, 1.5)  # a draw may hold one question twice
    assert found.ratio["qa", ACCEPT_LENGTH, "a", "b"] == 1  # 6 tokens in 3 steps each
    assert found.ratio["all", ACCEPT_LENGTH, "vanilla", "b"] == 1 / 2
    assert not found.significant.any()


def test_groups_and_data_sets() -> None:
    made = [
        record(m, str(q), dataset=d, noise_kind=noise, state=state)
        for m, state in (("vanilla", "cold"), ("a", "cold"), ("b", "warm"), ("c", "warm"))
        for d, noise in (("qa", ""), ("rag", ""), ("qa", "passages"))
        for q in range(2)
    ]
    found = pairwise(frame(*made), [SPEEDUP], ["b", "vanilla", "c", "a", "none"])
    assert list(found.dataset.unique()) == ["qa", "rag", "qa+passages", "all", "all+passages"]
    assert found[found.dataset == "all"].num_questions.eq(4).all()
    first = found[found.dataset == "qa"]
    assert list(zip(first.a, first.b, first.same_group, strict=True)) == [
        ("b", "vanilla", False), ("b", "c", True), ("b", "a", False), ("vanilla", "c", False), ("vanilla", "a", False),
        ("c", "a", False),
    ]  # fmt: skip
    assert (first.group_a.iloc[0], first.group_b.iloc[0]) == ("warm", "baseline")


def test_methods_over_other_targets_are_not_compared() -> None:
    rows = frame(*(record(m, str(q)) for m in ("vanilla", "a") for q in range(3)))
    own = rows.assign(method=rows.method.map({"vanilla": "b_vanilla", "a": "b"}), baseline="b_vanilla")
    found = pairwise(pd.concat([rows, own]), [SPEEDUP])
    assert list(zip(found.a, found.b, strict=True)) == 2 * [("vanilla", "a"), ("b_vanilla", "b")]


ANSWERS = st.lists(
    st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=7
)


@given(ANSWERS)
@settings(max_examples=25, deadline=None)
def test_a_method_against_itself_and_the_other_way_round(answers: list[tuple[float, float, int, int]]) -> None:
    made = []
    for q, (a, b, long, longer) in enumerate(answers):
        made += [record(m, str(q), (long, 1), a, session=s) for m in ("a", "twin") for s in range(2)]
        made += [record("b", str(q), (longer, 1), b, session=s) for s in range(2)]
    rows = frame(*made).assign(baseline="vanilla")
    found = pairwise(rows, BOTH, ["a", "twin", "b"]).set_index(["measure", "dataset", "a", "b"])
    itself = found.xs(("a", "twin"), level=("a", "b"))
    assert (itself[["ratio", "low", "high", "p", "p_holm", "session_min", "session_max"]] == 1).all(axis=None)
    swapped = pairwise(rows, BOTH, ["b", "a"]).set_index(["measure", "dataset"])
    there = found.xs(("a", "b"), level=("a", "b"))
    assert swapped.ratio.tolist() == pytest.approx((1 / there.ratio).tolist())
    assert swapped.low.tolist() == pytest.approx((1 / there.high).tolist())
    assert swapped.high.tolist() == pytest.approx((1 / there.low).tolist())
    assert swapped.p.tolist() == pytest.approx(there.p.tolist())
    assert ((found.low <= found.ratio * (1 + 1e-9)) & (found.ratio <= found.high * (1 + 1e-9))).all()


def test_holm_by_hand_and_monotone() -> None:
    p = np.array([0.04, 0.01, np.nan, 0.03])
    assert holm(p)[[0, 1, 3]].tolist() == pytest.approx([0.06, 0.03, 0.06])  # 3 x 0.01, 2 x 0.03, then no less
    assert np.isnan(holm(p)[2])
    assert holm(np.array([0.5, 0.9])).tolist() == [1, 1] and holm(np.array([])).tolist() == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_lowers_nothing(p: list[float]) -> None:
    values = np.array(p)
    corrected = holm(values)
    assert (corrected >= values).all() and (corrected <= 1).all()
    assert (np.diff(corrected[np.argsort(values)]) >= 0).all()


def test_families_are_corrected_by_themselves() -> None:
    """By hand: `slow` is cold and slower than `pld`, so that is the best peer; `suffix_warm` is none, knowing more."""
    rng = np.random.default_rng(0)
    means = {"vanilla": 4.0, "ngram_trie": 2.5, "pld": 2.0, "slow": 3.0, "suffix_warm": 1.2, "blend": 1.9}
    rows = timed(**{name: list(mean * rng.uniform(0.9, 1.1, 12)) for name, mean in means.items()})
    found = pairwise(rows.assign(state=rows.method.map({"suffix_warm": "warm"}).fillna("cold")), [SPEEDUP])
    for _, of_set in found.groupby("dataset"):
        names = {family: {frozenset((row.a, row.b)) for row in part.itertuples()}
                 for family, part in of_set.groupby("family")}  # fmt: skip
        assert names["plain decoding"] == {frozenset(("vanilla", name)) for name in means if name != "vanilla"}
        assert names["the best peer"] == {frozenset(("blend", "pld"))}
        assert names["the paper's trie"] == {
            frozenset(("ngram_trie", name)) for name in ("pld", "slow", "suffix_warm", "blend")
        }
        assert sum(map(len, names.values())) == len(of_set) == 15
        for family, part in of_set.groupby("family"):
            corrected = holm((of_set if family == "exploratory" else part).p.to_numpy())
            if family == "exploratory":
                corrected = corrected[(of_set.family == family).to_numpy()]
            assert part.p_holm.tolist() == pytest.approx(corrected.tolist())


def test_p_is_that_of_a_t_test_where_questions_are_alike() -> None:
    """With times close to each other a ratio of totals is a mean of ratios, and its logarithm a mean of logarithms."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 1e-3, 30), rng.normal(1.0004, 1e-3, 30)
    found = pairwise(timed(a=a.tolist(), b=b.tolist()).assign(baseline="vanilla"), [SPEEDUP])
    expected = ttest_1samp(np.log(b) - np.log(a), 0).pvalue
    assert 0.01 < expected < 0.5
    assert found.p.tolist() == pytest.approx([expected] * 2, rel=5e-3)


def test_few_questions_never_give_a_smaller_p_than_their_signs_could() -> None:
    rows = pairwise(timed(vanilla=[2.0, 2.0, 2.0], a=[1.0, 1.0, 1.0]), [SPEEDUP])
    assert rows.p.tolist() == [0.25, 0.25]  # always exactly twice as fast: 2^(1 - 3)
    one = pairwise(timed(vanilla=[2.0], a=[1.0]), [SPEEDUP]).iloc[0]
    assert one.ratio == 0.5 and one[["low", "high", "p", "p_holm"]].isna().all() and not one.significant


def test_sessions_that_disagree_widen_the_interval_and_raise_p() -> None:
    rng = np.random.default_rng(2)
    vanilla = [[2.0] * 20] * 3
    noise = rng.normal(0, 0.02, (3, 20))
    even = (1 + noise).tolist()
    uneven = (np.array([[0.8], [1.0], [1.2]]) + noise).tolist()
    found = pairwise(in_sessions(vanilla=vanilla, even=even, uneven=uneven), [SPEEDUP]).set_index(["dataset", "b"])
    even_row, uneven_row = (found[found.a == "vanilla"].loc[("qa", name)] for name in ("even", "uneven"))
    assert even_row.num_sessions == 3 and (even_row.num_questions, uneven_row.num_questions) == (20, 20)
    assert uneven_row.high - uneven_row.low > 5 * (even_row.high - even_row.low)
    assert even_row.p < 1e-5 and uneven_row.p > 1e-3  # three sessions say little, however many questions there are
    assert uneven_row.session_min == pytest.approx(1 / (2 / 0.8), rel=0.02)
    assert uneven_row.session_max == pytest.approx(1 / (2 / 1.2), rel=0.02)
    # what the answers are does not depend on the hour
    rows = pairwise(in_sessions(vanilla=vanilla, a=even), [ACCEPT_LENGTH])
    assert rows.num_sessions.eq(1).all() and rows.ratio.eq(1).all()


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.05])
def test_methods_that_do_not_differ_are_seldom_told_apart(between: float) -> None:
    """At a level of 5%, with questions that differ, and with sessions that do."""
    rng = np.random.default_rng(3)
    below = []
    for _ in range(150):
        shape = (3, 15)
        made = {
            name: (1 + rng.normal(0, between, (3, 1)) + rng.normal(0, 0.1, (1, 15)) + rng.normal(0, 0.05, shape))
            for name in ("a", "b")
        }
        rows = in_sessions(**{name: values.tolist() for name, values in made.items()}).assign(baseline="vanilla")
        below.append(pairwise(rows, [SPEEDUP]).p.iloc[0] < 0.05)
    assert np.mean(below) < 0.09


def test_turns_and_repeats_of_a_question_are_no_further_questions() -> None:
    def row(method: str, question: int, turn: int, repeat: int, seconds: float) -> pd.DataFrame:
        return frame(record(method, str(question), seconds=seconds, repeat=repeat)).assign(turn=turn)

    rng = np.random.default_rng(4)
    once, often = [], []
    for question in range(6):
        for method, mean in (("vanilla", 1.0), ("a", 0.95)):
            seconds = float(rng.normal(mean, 0.1))
            once.append(row(method, question, 0, 0, seconds))
            often += [row(method, question, turn, repeat, seconds) for turn in range(2) for repeat in range(3)]
    few, many = (pairwise(pd.concat(rows), [SPEEDUP]).iloc[0] for rows in (once, often))
    assert (many.num_questions, many.p, many.low, many.high) == pytest.approx(
        (few.num_questions, few.p, few.low, few.high)
    )


def test_the_row_against_vanilla_is_the_tables_speedup() -> None:
    rng = np.random.default_rng(5)
    made = {name: rng.uniform(1, 2, (3, 9)).tolist() for name in ("a", "vanilla")}
    rows = in_sessions(**made)
    found = pairwise(rows, [SPEEDUP], ["a", "vanilla"]).iloc[0]
    assert tuple(metrics.speedup(rows, "a")) == pytest.approx((found.ratio, found.low, found.high))
    by_session = metrics.session_speedups(rows, "a")
    assert (by_session.min(), by_session.max()) == pytest.approx((found.session_min, found.session_max))


# ---- who is named best -----------------------------------------------------------------------------------------------


def pair(a: str, b: str, ratio: float, significant: bool = True, group: str = "cold", same: bool = True) -> dict:
    about = {"dataset": "qa", "measure": SPEEDUP, "baseline": "vanilla", "group_a": group, "same_group": same}
    return about | {"a": a, "b": b, "ratio": ratio, "significant": significant}


def test_best_is_what_is_above_every_other_of_its_group() -> None:
    three = [pair("a", "b", 1.5), pair("a", "c", 2.0), pair("b", "c", 1.3)]
    assert standings(pd.DataFrame(three)) == {("qa", SPEEDUP, "a"): 1, ("qa", SPEEDUP, "b"): 2}
    swapped = [pair("c", "b", 0.7), pair("b", "a", 0.6), pair("c", "a", 0.5)]
    assert standings(pd.DataFrame(swapped)) == standings(pd.DataFrame(three))


def test_what_is_not_separated_is_not_named() -> None:
    tied = [pair("a", "b", 1.01, False), pair("a", "c", 2.0), pair("b", "c", 1.9)]
    assert standings(pd.DataFrame(tied)) == {}
    second = [pair("a", "b", 1.5), pair("a", "c", 2.0), pair("b", "c", 1.1, False)]
    assert standings(pd.DataFrame(second)) == {("qa", SPEEDUP, "a"): 1}
    two = [pair("a", "b", 1.5)]
    assert standings(pd.DataFrame(two)) == {("qa", SPEEDUP, "a"): 1}  # the other one has beaten nothing


def test_groups_are_ranked_apart() -> None:
    rows = [pair("a", "b", 1.5), pair("x", "y", 0.5, group="warm"), pair("y", "a", 3.0, same=False)]
    assert standings(pd.DataFrame(rows)) == {("qa", SPEEDUP, "a"): 1, ("qa", SPEEDUP, "y"): 1}


def test_what_the_interval_does_not_tell_from_the_best() -> None:
    frame = pd.DataFrame({"dataset": "qa", "method": ["a", "b", "c"], "speedup": [1.0, 2.0, 1.9]})
    pairs = pd.DataFrame(
        [
            ("qa", "speedup", "a", "b", 0.4, 0.6),
            ("qa", "speedup", "b", "c", 0.9, 1.2),
            ("qa", "speedup", "a", "c", 0.4, 0.6),
        ],
        columns=["dataset", "measure", "a", "b", "low", "high"],
    )
    assert tied_with_best(pairs, frame, "speedup").tolist() == [False, True, True]
    unknown = pairs.assign(low=np.nan, high=np.nan)  # a single question has no interval
    assert tied_with_best(unknown, frame, "speedup").all()


def test_a_peer_without_a_number_is_not_the_best() -> None:
    """`hf_generate` does not say what its drafts held; of the others `pld` is the best."""
    names = ["vanilla", "hf_generate", "pld", "ngram_trie", "library"]
    pairs = list(itertools.combinations(names, 2))
    rows = pd.DataFrame(pairs, columns=["a", "b"])
    rows["ratio"] = [np.nan if "hf_generate" in pair else 1.1 for pair in pairs]
    rows["group_a"], rows["group_b"] = (rows[side].map({"vanilla": "baseline"}).fillna("cold") for side in "ab")
    families = dict(zip(pairs, _families(rows.assign(baseline="vanilla")), strict=True))
    assert families["pld", "library"] == "the best peer" and families["hf_generate", "library"] == "exploratory"
