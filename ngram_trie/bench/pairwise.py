"""Method against method: ratios over the same prompts, with intervals, and p values corrected for their number.

A measure is a ratio of totals, such as tokens over seconds. Of two methods a and b it gives R = (measure of a) /
(measure of b), over the answers that both have given. Answers scatter with the question and, where the run was done in
several sessions, with the session; every question is asked in every session, so the two are crossed.

**Interval**: 95%, from a pigeonhole bootstrap (Owen, 2007), `metrics.resampled`: questions and sessions are drawn with
replacement, independently of each other, and an answer counts as often as its question was drawn times as often as its
session was. The turns of a question, its repeats and the answers of both methods are drawn together.

**p**: two-sided, from t = log R / s. s is the standard error of log R (delta method) under two-way clustering (Cameron,
Gelbach and Miller, 2011): variance between questions, plus what sessions add to it, never less than the former. Its
degrees of freedom are Satterthwaite's: about the questions less one where sessions agree, and towards the sessions less
one where they do not. A test of signs, which could do without the t distribution, would leave the sessions out, and one
on the logarithms of single prompts' ratios would test another quantity than R. p is never below what a test of signs
could give at best, 2^(1 - questions).

**Correction**: Holm's (1979), within a family: of one run, data set and measure the comparisons that are planned, each
method with plain decoding, each with the paper's trie (`ngram_trie`), and ours (`OURS`) with the best peer, the cold
method of others that has the highest measure there (chosen by the same answers, which is against us), in a run that has
the paper's trie. All other pairs are exploratory, and corrected by the number of all pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from ngram_trie.bench import metrics
from ngram_trie.bench.measures import MEASURES, Measure

FloatArray = NDArray[np.float64]

COLUMNS = [
    "dataset", "measure", "family", "a", "b", "group_a", "group_b", "same_group", "baseline", "ratio", "low", "high",
    "p", "p_holm", "significant", "session_min", "session_max", "num_questions", "num_sessions",
]  # fmt: skip
#: Families of comparisons.
PLAIN, TRIE, PEER, EXPLORATORY = "plain decoding", "the paper's trie", "the best peer", "exploratory"
#: The paper's method, and this project's that know nothing but the prompt.
PAPER, OURS = "ngram_trie", ("blend", "blend_logits", "library")
#: A difference counts if its corrected p is below this and the interval leaves 1 out.
LEVEL = 0.05


def pairwise(frame: pd.DataFrame, measures: Sequence[str], methods: Sequence[str] | None = None) -> pd.DataFrame:
    """One row for each pair of methods, data set (and all of a context, `metrics.pooled`) and measure, COLUMNS.

    Columns:
        a, b: the methods; a stands before b in the order of `methods`. Those with targets of their own are compared
            with each other only: others give other answers.
        group_a, group_b, same_group: as in `metrics.group`. Methods are ranked within a group only.
        baseline: the vanilla that both are compared with.
        family: which comparisons are corrected together.
        ratio, low, high: R and its interval; nan without two questions, or where a time is missing.
        p, p_holm, significant: before and after the correction; whether the difference counts.
        session_min, session_max: R of single sessions.
        num_questions, num_sessions: of the answers that both have given.

    Args:
        frame: answers of one run, see `metrics.to_frame`.
        measures: names of MEASURES with totals. Only measured speed scatters with the session; the others follow from
            the answers.
        methods: which, and in which order; those of the frame unless given.
    """
    answers = metrics.answered(frame)
    groups = {method: metrics.group(part) for method, part in answers.groupby("method", sort=False)}
    baselines = {method: metrics.baseline(part) for method, part in answers.groupby("method", sort=False)}
    methods = [method for method in methods or list(groups) if method in groups]
    pooled = answers.context.map(metrics.pooled)
    rows = []
    for dataset in [*answers.dataset.unique(), *pooled.unique()]:
        part = answers[(answers.dataset == dataset) | (pooled == dataset)]
        for measure in measures:
            for baseline in dict.fromkeys(baselines[method] for method in methods):
                of = [method for method in methods if baselines[method] == baseline]
                about = {"dataset": dataset, "measure": measure, "baseline": baseline}
                rows += [about | row for row in _pairs(part, of, MEASURES[measure])]
    found = pd.DataFrame(rows, columns=COLUMNS)
    found["group_a"], found["group_b"] = found.a.map(groups), found.b.map(groups)
    found["same_group"] = found.group_a == found.group_b
    found["family"] = EXPLORATORY
    for _, rows in found.groupby(["dataset", "measure"], sort=False):
        found.loc[rows.index, "family"] = _families(rows)
        found.loc[rows.index, "p_holm"] = holm(rows.p.to_numpy(float))
    planned = found[found.family != EXPLORATORY]
    for _, rows in planned.groupby(["dataset", "measure", "family"], sort=False):
        found.loc[rows.index, "p_holm"] = holm(rows.p.to_numpy(float))
    return found.assign(significant=(found.p_holm < LEVEL) & apart(found))


def fewest_questions(comparisons: int) -> int:
    """The fewest questions with which one of so many comparisons can be significant: no p is below 2 ** (1 - n)."""
    return next(n for n in itertools.count(2) if comparisons * 2.0 ** (1 - n) < LEVEL)


def apart(rows: pd.DataFrame) -> pd.Series:
    """Whether the interval leaves 1 out."""
    return (rows.low > 1) | (rows.high < 1)


def _families(rows: pd.DataFrame) -> list[str]:
    """The family of each pair of one data set and measure."""
    groups = dict(zip([*rows.a, *rows.b], [*rows.group_a, *rows.group_b], strict=True))
    ahead = dict.fromkeys(groups, 0.0)  # of the methods' measures, the logarithms up to a constant
    for row in rows[(rows.a == PAPER) | (rows.b == PAPER)].itertuples():
        ahead[row.b if row.a == PAPER else row.a] = np.log(row.ratio) * (-1 if row.a == PAPER else 1)
    peers = [name for name, group in groups.items() if group == "cold" and not name.startswith(OURS)]
    peers = [name for name in peers if np.isfinite(ahead[name])]  # `generate` does not say what it drafted
    best = max(peers, key=lambda name: ahead[name], default="") if PAPER in groups else ""

    def family(pair: set[str], baseline: str) -> str:
        if baseline in pair:
            return PLAIN
        if best in pair and pair & set(OURS):
            return PEER
        return TRIE if PAPER in pair else EXPLORATORY

    return [family({row.a, row.b}, row.baseline) for row in rows.itertuples()]


def holm(p: FloatArray) -> FloatArray:
    """(k,) p values as Holm corrects them: the i-th smallest of k times k - i + 1, and none below a smaller one's.
    Those that are nan were no comparisons.
    """
    corrected = np.full(len(p), np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]
    factors = len(order) - np.arange(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1)
    return corrected


def between(rows: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """The rows of two methods, as a over b whichever way they are stored.

    Raises:
        ValueError: the methods are not compared; the message lists those that are.
    """
    found = rows[(rows.a == a) & (rows.b == b)]
    if len(found):
        return found
    found = rows[(rows.a == b) & (rows.b == a)]
    if found.empty:
        known = ", ".join(dict.fromkeys([*rows.a, *rows.b]))
        raise ValueError(f"{a} and {b} are not compared; the methods are {known}")
    turned = {"a": "b", "group_a": "group_b", "low": "high", "session_min": "session_max"}
    turned |= {there: here for here, there in turned.items()}
    ratios = ["ratio", "low", "high", "session_min", "session_max"]
    inverse = found.assign(**{name: 1 / found[name] for name in ratios})
    return inverse.rename(columns=turned)[list(rows.columns)]


def tied_with_best(rows: pd.DataFrame, frame: pd.DataFrame, measure: str) -> pd.Series:
    """Of each row of `frame`, whether it has the highest value of its dataset, or the interval of the ratio to that one
    holds 1. Where there is no interval, as with one question, nothing is separated.

    Args:
        rows: of `pairwise`.
        frame: rows `method`, `dataset` and the column `measure`.
    """
    best = frame.loc[frame.dropna(subset=measure).groupby("dataset")[measure].idxmax()].set_index("dataset").method
    part = rows[rows.measure == measure]
    separated = {
        (row.dataset, a, b) for row in part[apart(part)].itertuples() for a, b in ((row.a, row.b), (row.b, row.a))
    }
    keys = zip(frame.dataset, frame.dataset.map(best), frame.method, strict=True)
    return pd.Series([key not in separated for key in keys], frame.index)


def standings(rows: pd.DataFrame) -> Mapping[tuple[str, str, str], int]:
    """Which methods are named best (1) and second best (2), by data set, measure and method; the others are not there.

    Best is what is significantly above every other method of its group (which is one claim, that needs no
    correction for its parts); second best what is above every other but that one. Where the best two are not separated,
    none is named.

    Args:
        rows: of `pairwise`.
    """
    named: dict[tuple[str, str, str], int] = {}
    within = rows[rows.same_group.astype(bool)]
    for (dataset, measure, *_), part in within.groupby(["dataset", "measure", "group_a", "baseline"], sort=False):
        beaten = dict.fromkeys([*part.a, *part.b], 0)
        for row in part[part.significant.astype(bool)].itertuples():
            beaten[row.a if row.ratio > 1 else row.b] += 1
        # only one method can be above all others, and only one more above all but that
        for rank, count in enumerate((len(beaten) - 1, len(beaten) - 2), 1):
            holders = [method for method, number in beaten.items() if number == count > 0]
            if len(holders) != 1:
                break
            named[dataset, measure, holders[0]] = rank
    return named


def _pairs(answers: pd.DataFrame, methods: Sequence[str], measure: Measure) -> Iterator[dict[str, object]]:
    """The pairs of methods in one data set."""
    answers = answers[answers.method.isin(methods)]
    if answers.empty or len(methods) < 2:  # the draws of a bootstrap are large
        return
    question = answers.groupby(["dataset", "question_id"], sort=False).ngroup().to_numpy()
    by_session = measure.needs == "clock"
    session = pd.factorize(answers.session)[0] if by_session else np.zeros(len(answers), int)
    within = ["turn", "repeat"] if by_session else ["turn", "repeat", "session"]
    slot = answers.groupby(within, sort=False).ngroup().to_numpy()
    shape = (len(methods), 1 + question.max(), 1 + session.max(), 1 + slot.max())
    place = (answers.method.map(list(methods).index).to_numpy(), question, session, slot)
    values = np.full((2, *shape), np.nan)
    values[(slice(None), *place)] = measure.parts(answers).T
    given = np.zeros(shape, bool)
    given[place] = True
    weights = metrics.resampled(shape[1], shape[2]).reshape(-1, shape[1] * shape[2]).T
    for first, a in enumerate(methods[:-1]):
        common = given[first] & given[first + 1 :]
        # (2, b, question, session): totals over the answers of a cell, of `a` beside each of the methods behind it
        ours = np.where(common, values[:, [first]], 0).sum(-1)
        theirs = np.where(common, values[:, first + 1 :], 0).sum(-1)
        there = common.any(-1)
        for b, row in zip(methods[first + 1 :], _compared(ours, theirs, there, weights), strict=True):
            if row["num_questions"]:
                yield {"a": a, "b": b, **row}


@np.errstate(divide="ignore", invalid="ignore")
def _compared(
    ours: FloatArray, theirs: FloatArray, there: NDArray[np.bool_], weights: FloatArray
) -> list[dict[str, object]]:
    """The rows of k methods, each in the place of b.

    Args:
        ours, theirs: (2, k, questions, sessions) totals.
        there: (k, questions, sessions) where both have answers.
        weights: (questions * sessions, resamples).
    """

    def ratio(a: FloatArray, b: FloatArray) -> FloatArray:
        return (a[0] / a[1]) / (b[0] / b[1])

    totals = ours.sum((-2, -1)), theirs.sum((-2, -1))
    found = ratio(*totals)
    drawn = ratio(*(part.reshape(*part.shape[:2], -1) @ weights for part in (ours, theirs)))
    low, high = metrics.interval(drawn)
    sessions = ratio(ours.sum(-2), theirs.sum(-2))
    # what each cell adds to log R
    shares = [part / total[..., None, None] for part, total in zip((ours, theirs), totals, strict=True)]
    influence = shares[0][0] - shares[0][1] - shares[1][0] + shares[1][1]
    num_questions, num_sessions = there.any(-1).sum(-1), there.any(-2).sum(-1)
    p = _p_value(np.log(found), influence, num_questions, num_sessions, there.sum((-2, -1)))
    known = (num_questions > 1) & np.isfinite(found)
    columns = {
        "ratio": found,
        **{name: np.where(known, values, np.nan) for name, values in (("low", low), ("high", high), ("p", p))},
        "session_min": np.fmin.reduce(sessions, -1),
        "session_max": np.fmax.reduce(sessions, -1),
        "num_questions": num_questions,
        "num_sessions": num_sessions,
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@np.errstate(divide="ignore", invalid="ignore")
def _p_value(
    effect: FloatArray,
    influence: FloatArray,
    num_questions: NDArray[np.int64],
    num_sessions: NDArray[np.int64],
    num_cells: NDArray[np.int64],
) -> FloatArray:
    """(k,) p of `effect` being 0, see the head of this module.

    Args:
        effect: (k,) log R.
        influence: (k, questions, sessions) what each cell adds to it; 0 where there is none.
    """

    def between(parts: FloatArray, count: NDArray[np.int64]) -> FloatArray:
        """The variance of a sum of `count` independent parts."""
        return np.where(count > 1, (parts**2).sum(-1) * count / np.maximum(count - 1, 1), 0)

    questions = between(influence.sum(-1), num_questions)
    cells = between(influence.reshape(len(influence), -1), num_cells)
    added = np.where(num_sessions > 1, np.maximum(between(influence.sum(-2), num_sessions) - cells, 0), 0)
    variance = questions + added
    freedom = variance**2 / (
        questions**2 / np.maximum(num_questions - 1, 1) + added**2 / np.maximum(num_sessions - 1, 1)
    )
    exact = variance <= 1e-24  # all answers give the same ratio, to rounding
    size = np.where(exact, np.where(np.abs(effect) < 1e-12, 0, np.inf), np.abs(effect) / np.sqrt(variance))
    p = 2 * student.sf(size, np.where(exact, 1, freedom))
    return np.maximum(p, 2.0 ** (1 - num_questions))
