"""What methods are compared by, as data: a number is one entry of MEASURES, and so a column of every CSV file, a cell
or a leading column of every table, an axis of a figure and a row of every comparison of two methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from ngram_trie.bench import metrics


class Value(NamedTuple):
    """A measure of one method: its value, its 95% interval, and its rank: 1 (best), 2 (second) or 0
    (`pairwise.standings`). What is nan is not known. An int, such as a count, is printed without decimals.
    """

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    rank: int = 0


@dataclass(frozen=True)
class Measure:
    """One number of a method.

    Attributes:
        name: of its column; those of its interval are NAME_low and NAME_high.
        title: in words, as tables head it; `label` is that of an axis.
        of: from the answers of all methods and the name of one to its value; None of a number that is no method's.
        totals: two columns of `metrics.to_frame`, or a function from a frame to them, whose totals' ratio two methods
            are compared by; None where they are not.
        needs: "clock" of measured seconds, "curve" of a cost curve (`cost.with_predicted`), else nothing.
        lead: which tables show it, pooled over all data sets, in a column before their cells: "all", or those of a
            "replay".
        has_interval: whether its values have one, and rows its columns.
        unit, digits: of a printed value.
    """

    name: str
    title: str
    of: Callable[[pd.DataFrame, str], Value] | None = None
    totals: tuple[str, str] | Callable[[pd.DataFrame], pd.DataFrame] | None = None
    needs: str = ""
    lead: Literal["", "all", "replay"] = ""
    has_interval: bool = False
    unit: str = ""
    digits: int = 2
    label: str = ""

    def parts(self, frame: pd.DataFrame) -> np.ndarray:
        """(answers, 2) what is summed, the numerator first."""
        columns = self.totals(frame) if callable(self.totals) else frame[list(self.totals or ())]
        return columns.to_numpy(float)

    def text(self, value: float) -> str:
        """A value as tables print it."""
        if not np.isfinite(value):
            return "-"
        return f"{value if isinstance(value, int) else format(value, f'.{self.digits}f')}{self.unit}"


def of_answers(metric: Callable[[pd.DataFrame], float]) -> Callable[[pd.DataFrame, str], Value]:
    """A metric of one method's answers as `Measure.of`."""
    return lambda frame, method: Value(metric(frame[frame.method == method]))


def _speedup(frame: pd.DataFrame, method: str) -> Value:
    return Value(*metrics.speedup(frame, method))


def _decode_speedup(frame: pd.DataFrame, method: str) -> Value:
    return Value(metrics.throughput_ratio(frame.assign(seconds=frame.decode_seconds), method))


def _session_sd(frame: pd.DataFrame, method: str) -> Value:
    return Value(metrics.session_speedups(frame, method).std())


def _predicted(frame: pd.DataFrame) -> float:
    sums = frame[["predicted_vanilla", "predicted_seconds"]].sum()
    return metrics.ratio_of(sums.predicted_vanilla, sums.predicted_seconds)


def _forward_ms(frame: pd.DataFrame) -> float:
    return metrics.milliseconds_per_step(frame, ("verify", "commit")) - metrics.milliseconds_per_step(frame, ("build",))


def accepted_at(frame: pd.DataFrame, position: int) -> pd.DataFrame:
    """Of each answer `accepted`, the steps whose draft had its token at `position` (from 1) accepted, and `drafts`, the
    steps that drafted anything.
    """
    pairs = zip(frame.tree_sizes, frame.accept_lengths, strict=True)
    # a loop that is not ours may not say what it drafted
    counts = [(((sizes > 0) & (lengths[: len(sizes)] > position)).sum(), (sizes > 0).sum()) for sizes, lengths in pairs]
    return pd.DataFrame(counts, frame.index, ["accepted", "drafts"], dtype=float)


def _first_accepted(frame: pd.DataFrame) -> float:
    return metrics.ratio_of(*accepted_at(metrics.answered(frame), 1).sum())


SPEEDUP, PREDICTED, ACCEPT_LENGTH, SHARE = "speedup", "predicted_speedup", "accept_length", "share"
MEASURES = {
    measure.name: measure
    for measure in (
        Measure(SPEEDUP, "speedup", _speedup, ("num_tokens", "seconds"), "clock", has_interval=True, unit="x",
                label="speedup over vanilla (ratio of tokens/s)"),
        Measure(PREDICTED, "predicted speedup", of_answers(_predicted), ("predicted_vanilla", "predicted_seconds"),
                "curve", unit="x", label="predicted speedup over vanilla (ratio of tokens/s)"),
        Measure(ACCEPT_LENGTH, "accept length", of_answers(metrics.accept_length), ("num_emitted", "num_steps"),
                label="accept length (tokens per step)"),
        Measure("accept_length_macro", "accept length, mean over prompts", of_answers(metrics.accept_length_macro)),
        Measure("draft_nodes", "nodes", of_answers(metrics.draft_nodes), lead="all", digits=1),
        Measure("first_accepted", "first accepted", of_answers(_first_accepted), partial(accepted_at, position=1),
                lead="all", label="share of drafts whose first token is accepted"),
        Measure("decode_speedup", "decoding alone", _decode_speedup, needs="clock", lead="all", unit="x"),
        Measure("propose_us_median", "drafting (µs)", of_answers(partial(metrics.propose_us, quantile=0.5)),
                lead="replay", digits=1),
        Measure("propose_us_p99", "drafting, 99th percentile (µs)",
                of_answers(partial(metrics.propose_us, quantile=0.99))),
        Measure("index_ms_median", "indexing (ms)", of_answers(metrics.index_ms)),
        Measure("speedup_session_sd", "standard deviation between sessions", _session_sd, needs="clock"),
        Measure("tokens_per_second", "tokens per second", of_answers(metrics.tokens_per_second), needs="clock"),
        Measure("prefill_share", "share of prefill", of_answers(metrics.prefill_share), needs="clock"),
        Measure("trie_ms", "milliseconds a step of drafting and laying out the tree",
                of_answers(partial(metrics.milliseconds_per_step, phases=("draft", "build"))), needs="clock",
                label="drafting and laying out the tree (ms per step)"),
        Measure("inference_ms", "milliseconds a step of forward and cache", of_answers(_forward_ms), needs="clock"),
    )
}  # fmt: skip


#: Numbers of other tables, by which no methods are compared.
OTHERS = {
    measure.name: measure
    for measure in (
        Measure(SHARE, "share", unit="%"), Measure("number", "number", digits=3), Measure("printed", "as printed"),
    )
}  # fmt: skip


def measure(name: str) -> Measure:
    """The measure, or other number, of this name."""
    return (MEASURES | OTHERS)[name]


def known(frame: pd.DataFrame, is_measured: bool) -> list[Measure]:
    """The measures that answers have, of a model's own seconds or of a replay's predicted ones."""
    has = {"": True, "clock": is_measured, "curve": "predicted_seconds" in frame}
    return [measure for measure in MEASURES.values() if has[measure.needs]]


def compared(frame: pd.DataFrame, is_measured: bool) -> list[str]:
    """The measures that two methods are compared by; what is predicted is not compared where it is measured."""
    return [
        measure.name
        for measure in known(frame, is_measured)
        if measure.totals and not (is_measured and measure.needs == "curve")
    ]


def row_of(frame: pd.DataFrame, method: str, measures: Sequence[Measure]) -> dict[str, float]:
    """The columns of one method: each measure, and its interval where it has one."""
    row = {}
    for measure in measures:
        assert measure.of
        value = measure.of(frame, method)
        row[measure.name] = value.value
        if measure.has_interval:
            row |= {f"{measure.name}_low": value.low, f"{measure.name}_high": value.high}
    return row


def acceptance(frame: pd.DataFrame, positions: int = 8) -> pd.DataFrame:
    """Acceptance by draft position: rows `method, model, dataset, position, joint, conditional, num_drafts`.

    joint: of the steps that drafted anything, the share whose first `position` drafted tokens were all accepted, as
    vLLM counts it. conditional: of the steps whose tokens before that position were accepted, the share that has this
    one accepted, too, as specdec_bench does. In a draft tree the token at a position is the one on the accepted path.

    Args:
        frame: answers, see `metrics.to_frame`; of several repeats and sessions the first.
        positions: how many; none behind the last at which anything was accepted.
    """
    first = metrics.answered(frame)
    begun = first.groupby(["method", "dataset"]).session.transform("min")  # of a part that was measured later, not 0
    first = first[(first["repeat"] == 0) & (first.session == begun)]
    rows = []
    for (method, model, dataset), part in first.groupby(["method", "model", "dataset"], sort=False):
        counts = [accepted_at(part, position).sum() for position in range(1, positions + 1)]
        before = drafts = counts[0].drafts
        for position, count in enumerate(counts, 1):
            if before:
                shares = count.accepted / drafts, count.accepted / before
                rows.append((method, model, dataset, position, *shares, int(drafts)))
            before = count.accepted
    columns = ["method", "model", "dataset", "position", "joint", "conditional", "num_drafts"]
    return pd.DataFrame(rows, columns=columns)
