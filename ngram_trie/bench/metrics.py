"""Every reported number, as a pure function over records.

`to_frame` makes one row per answer; `under_protocol` counts as a protocol does; the other functions take such a frame.
Failed answers are rows too: they are counted, but are in no average.

A *prompt* is one turn of one question. Its repeats and sessions are averaged (or summed) before prompts are compared,
so running one of them more often moves no average and narrows no interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ngram_trie.bench.records import DISTURBED, PromptRecord
from ngram_trie.prompt import column_name

PROMPT = ["dataset", "question_id", "turn"]
KEYS = ["method", "model", *PROMPT, "repeat", "session"]
PROTOCOLS = ("corrected", "released")
PHASES = ("prefill", "index", "draft", "verify", "commit")
ALL = "all"
CLEAN = "clean"
#: What methods are ranked within: "baseline" is not ranked, the others are as `Traits.state`.
GROUPS = ("baseline", "cold", "warm", "preloaded", "trained")
NUM_RESAMPLES = 2000
#: An answer loops if its last LOOP_TOKENS tokens hold at most LOOP_NGRAMS different n-grams of LOOP_N tokens; text that
#: does not repeat itself holds 61.
LOOP_TOKENS, LOOP_N, LOOP_NGRAMS = 64, 4, 32


class Script(NamedTuple):
    """How one of the paper's released scripts comes to the numbers that it prints.

    Attributes:
        last_only: it starts its lists anew for every question, so they end with the last one's alone; otherwise it
            prints means over all questions.
        prefill_timed: its clock starts before the device has finished prefill.
        skips: ids of questions that it passes over.
    """

    last_only: bool
    prefill_timed: bool
    skips: tuple[str, ...] = ()


SPEC_BENCH = Script(last_only=True, prefill_timed=True, skips=("288",))  # sd-bench/sdbench.py
MEANS = Script(last_only=False, prefill_timed=False)  # trivia/trivia.py, hagrid/hagrid.py
#: The script of each task. Others are read as Spec-Bench's; of the tiny tasks open_qa is made after TriviaQA and
#: attributed_qa after Hagrid.
SCRIPTS = {"triviaqa": MEANS, "hagrid": MEANS, "open_qa": MEANS, "attributed_qa": MEANS}

COLUMNS = [
    *KEYS, "task", "context", "kind", "state", "baseline", "num_tokens", "num_emitted", "num_steps",
    "num_nodes", "accept_lengths", "tree_sizes",
    "draft_us", "seconds", "prefill_seconds", "decode_seconds", "index_seconds", "draft_seconds",
    "verify_seconds", "commit_seconds", "build_seconds", "verdict", "failure", "loops", "disturbance",
]  # fmt: skip


def to_frame(records: Iterable[PromptRecord]) -> pd.DataFrame:
    """One row an answer, in the order of the records.

    Columns beside the record's own names:
        dataset: as tables call it (`PromptRecord.column`); each context of a task has a name of its own there.
        task, context: the record's data set, and the kind of noise in its contexts or "clean".
        num_tokens: output tokens, the one from prefill included.
        num_emitted, num_steps: tokens emitted by verification steps, and how many steps there were.
        num_nodes: drafted nodes, over all steps.
        accept_lengths, tree_sizes, draft_us: arrays over the steps, as in the record.
        seconds: the throughput clock, from before prefill to the last token.
        prefill_seconds: of which prefill; 0 where a loop does not tell it apart.
        decode_seconds: `seconds` without prefill; nan where prefill is not timed apart.
        index_seconds, draft_seconds, verify_seconds, commit_seconds, build_seconds: the phases after prefill, as in
            `PhaseSeconds`; nan for a loop that is not ours.
        verdict: "identical", "tie" or "different" against vanilla's tokens; None if nothing was compared.
        failure: kind of the failure, None for an answer.
        loops: whether the answer `loops`.
        disturbance: nan where it is not known.
    """
    return pd.DataFrame([_row(record) for record in records], columns=COLUMNS)


def keys_of(record: PromptRecord) -> dict[str, object]:
    """The columns KEYS of a record."""
    return {name: getattr(record, name) for name in KEYS} | {"dataset": record.column}


def _row(record: PromptRecord) -> dict[str, object]:
    seconds = record.seconds
    total, prefill = (seconds.total, seconds.prefill) if seconds else (np.nan, 0.0)
    verdict = record.lossless.verdict if record.lossless else None
    ours = record.kind == "drafter"
    return {
        **keys_of(record),
        "task": record.dataset,
        "context": record.noise_kind or CLEAN,
        **{name: getattr(record, name) for name in ("kind", "state", "baseline")},
        **{name: np.array(getattr(record, name)) for name in ("accept_lengths", "tree_sizes", "draft_us")},
        "num_tokens": len(record.output_ids),
        "num_emitted": sum(record.accept_lengths),
        "num_steps": len(record.accept_lengths),
        "num_nodes": sum(record.tree_sizes),
        "seconds": total,
        "prefill_seconds": prefill,
        "decode_seconds": total - prefill if prefill > 0 else np.nan,
        **{
            f"{name}_seconds": getattr(seconds, name) if ours and seconds else np.nan for name in (*PHASES[1:], "build")
        },
        "verdict": verdict,
        "failure": record.failure.kind if record.failure else None,
        "loops": loops(record.output_ids),
        "disturbance": np.nan if record.disturbance is None else record.disturbance,
    }


def loops(output_ids: Sequence[int]) -> bool:
    """Whether an answer ends in text that repeats itself: its last 64 tokens, the stop token included, hold at most 32
    different 4-grams of the 61 that begin there. One of fewer than 64 tokens does not.
    """
    tail = output_ids[-LOOP_TOKENS:]
    ngrams = {tuple(tail[start : start + LOOP_N]) for start in range(len(tail) - LOOP_N + 1)}
    return len(tail) == LOOP_TOKENS and len(ngrams) <= LOOP_NGRAMS


def looping(frame: pd.DataFrame) -> pd.Series:
    """Whether the target's answer to each prompt loops, by PROMPT: the answer of a vanilla, of any method where none
    was recorded (a replay); of several repeats or sessions, any. So it is the same for all methods.
    """
    answers = answered(frame)
    every = answers.groupby(PROMPT, sort=False).loops.any()
    vanilla = answers[answers.method == answers.baseline].groupby(PROMPT, sort=False).loops.any()
    return vanilla.reindex(every.index).fillna(every).astype(bool)


def loop_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """How many answers of the target loop: one row a data set, `dataset, num_prompts, num_looping, share`."""
    counts = looping(frame).groupby("dataset", sort=False).agg(["size", "sum"]).astype(int)
    counts = counts.set_axis(["num_prompts", "num_looping"], axis=1).reset_index()
    return counts.assign(share=counts.num_looping / counts.num_prompts)


def pooled(context: str) -> str:
    """The name of all datasets of one context together: "all", or of a noisy context such as "all+paragraph"."""
    return column_name(ALL, "" if context == CLEAN else context)


def under_protocol(frame: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The same answers as `protocol` reads them; every metric below applies to the result, those of decoding alone
    excepted.

    corrected: all questions, the clock from before prefill, accept lengths of verification steps alone.
    released: what the n-gram trie paper's released code prints, by the script of the task (SCRIPTS).

        - Questions: all, or the last one in the order they were asked, failed or not.
        - Speed: 1 over the mean of the answers' seconds per token. Each answer becomes one token in its own mean time,
          so totals over answers give that mean, and a ratio of speeds that of two such means. A loop that does not tell
          its prefill apart keeps it in the clock.
        - Accept lengths: the list begins with 1 for prefill, its second entry leaves out the root, which prefill gave,
          and a last step, behind EOS, adds 1. All entries together are the answer's tokens, in two more than there were
          steps.

    Records do not hold how long that last step took, whether EOS was itself drafted (then there is none), nor what the
    code goes on to emit where an answer was cut at its longest: it stops once more than `max_new_tokens` are verified.

    Raises:
        ValueError: another name.
    """
    if protocol == "corrected":
        return frame
    if protocol != "released":
        raise ValueError(f"protocol {protocol!r}: one of {', '.join(PROTOCOLS)}")
    scripts = [SCRIPTS.get(task, SPEC_BENCH) for task in frame.task]
    frame = frame.assign(
        last_only=[script.last_only for script in scripts],
        untimed=np.where([script.prefill_timed for script in scripts], 0, frame.prefill_seconds),
    )
    passed_over = [question in script.skips for question, script in zip(frame.question_id, scripts, strict=True)]
    frame = frame[~np.array(passed_over, bool)]
    # A question is "asked" at its first record, so a run that was cut short and went on keeps the order.
    last = frame.drop_duplicates(["dataset", "question_id"]).drop_duplicates("dataset", keep="last")
    is_last = frame.question_id == frame.dataset.map(last.set_index("dataset").question_id)
    kept = frame[is_last | ~frame.last_only]
    return kept.assign(  # emitted tokens and steps: the sum and the length of the lists of accept lengths
        num_emitted=kept.num_tokens,
        num_steps=kept.num_steps + 2,
        seconds=(kept.seconds - kept.untimed) / kept.num_tokens,
        decode_seconds=np.nan,
        num_tokens=np.where(kept.failure.isna(), 1, 0),
    )[COLUMNS].reset_index(drop=True)


def answered(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that hold an answer."""
    return frame[frame.failure.isna()]


def _steps_per_prompt(frame: pd.DataFrame) -> pd.DataFrame:
    """`num_emitted` and `num_steps` of each prompt, averaged over its repeats and sessions; an answer without
    steps has no say.
    """
    steps = answered(frame).groupby(PROMPT, sort=False)[["num_emitted", "num_steps"]].mean()
    return steps[steps.num_steps > 0]


def accept_length(frame: pd.DataFrame) -> float:
    """Tokens emitted per verification step, all steps pooled (micro)."""
    steps = _steps_per_prompt(frame)
    return ratio_of(steps.num_emitted.sum(), steps.num_steps.sum())


def accept_length_macro(frame: pd.DataFrame) -> float:
    """Tokens emitted per verification step, mean over prompts (macro)."""
    steps = _steps_per_prompt(frame)
    return float((steps.num_emitted / steps.num_steps).mean())


def tokens_per_second(frame: pd.DataFrame) -> float:
    """Output tokens per second, totals over all answers, prefill included."""
    answers = answered(frame)
    return ratio_of(answers.num_tokens.sum(), answers.seconds.sum(skipna=False))


def decode_tokens_per_second(frame: pd.DataFrame) -> float:
    """Output tokens per second without prefill and the token it yields; nan where prefill was not timed apart."""
    answers = answered(frame)
    return ratio_of((answers.num_tokens - 1).sum(), answers.decode_seconds.sum(skipna=False))


def phases(frame: pd.DataFrame) -> pd.DataFrame:
    """Where the time of each method goes, over all its answers.

    Columns: method; `prefill`, `index`, `draft`, `verify`, `commit`, `other`: shares of the whole clock, nan where a
    loop does not tell them apart; `decode_tokens_per_second`; `milliseconds_per_step`: decoding time over verification
    steps.
    """
    rows = []
    for method, part in answered(frame).groupby("method", sort=False):
        total = part.seconds.sum()
        shares = {name: part[f"{name}_seconds"].sum(skipna=False) / total for name in PHASES}
        decoding = part.decode_seconds.sum(skipna=False)
        rows.append(
            {"method": method}
            | shares
            | {"other": 1 - sum(shares.values())}
            | {"decode_tokens_per_second": decode_tokens_per_second(part)}
            | {"milliseconds_per_step": 1e3 * ratio_of(decoding, part.num_steps.sum())}
        )
    return pd.DataFrame(rows)


def num_steps(frame: pd.DataFrame) -> int:
    """Verification steps, over all answers."""
    return int(answered(frame).num_steps.sum())


def draft_nodes(frame: pd.DataFrame) -> float:
    """Drafted nodes per verification step, the root not counted."""
    answers = answered(frame)
    return ratio_of(answers.num_nodes.sum(), answers.num_steps.sum())


def propose_us(frame: pd.DataFrame, quantile: float) -> float:
    """A quantile, over all steps, of the drafter's microseconds in a step."""
    laps = np.concatenate([[], *answered(frame).draft_us])
    return float(np.quantile(laps, quantile)) if len(laps) else float("nan")


def index_ms(frame: pd.DataFrame) -> float:
    """Milliseconds that the drafter takes to read a prompt, median over answers."""
    return 1e3 * float(answered(frame).index_seconds.median())


def milliseconds_per_step(frame: pd.DataFrame, phases: Iterable[str]) -> float:
    """Milliseconds spent in `phases` (of PHASES, or "build") per verification step."""
    answers = answered(frame)
    seconds = sum(answers[f"{phase}_seconds"].sum(skipna=False) for phase in phases)
    return 1e3 * ratio_of(seconds, answers.num_steps.sum())


def accept_length_distribution(records: Iterable[PromptRecord]) -> pd.DataFrame:
    """How often a step emits how many tokens: rows `method, model, dataset, accept_length, share, num_steps`, the share
    of the steps of that method, model and data set, and how many those are (the paper's Figure 4).
    """
    keys, records = ["method", "model", "dataset"], [r for r in records if not r.failure]
    # of a part that was measured later, not 0
    begun = {(r.method, r.column): r.session for r in sorted(records, key=lambda r: -r.session)}
    counts: dict[tuple[str, str, str], Counter[int]] = {}
    for r in records:
        if not r.repeat and r.session == begun[r.method, r.column] and r.accept_lengths:
            counts.setdefault((r.method, r.model, r.column), Counter()).update(r.accept_lengths)
    rows = [
        (*key, length, number / found.total(), found.total())
        for key, found in counts.items()
        for length, number in sorted(found.items())
    ]
    return pd.DataFrame(rows, columns=[*keys, "accept_length", "share", "num_steps"])


def prefill_share(frame: pd.DataFrame) -> float:
    """Which part of one method's seconds goes into reading prompts; nan where a time is missing."""
    rows = answered(frame)
    return float(rows.prefill_seconds.sum(skipna=False) / rows.seconds.sum(skipna=False)) if len(rows) else np.nan


def num_prompts(frame: pd.DataFrame) -> int:
    """Prompts with an answer."""
    return len(answered(frame).drop_duplicates(PROMPT))


def num_failures(frame: pd.DataFrame) -> int:
    """Prompts that failed, in one repeat or more."""
    return len(frame[frame.failure.notna()].drop_duplicates(PROMPT))


def num_disturbed(frame: pd.DataFrame) -> float:
    """Answers that other work disturbed; nan where that is not known."""
    known = answered(frame).disturbance
    return float((known > DISTURBED).sum()) if known.notna().any() else np.nan


def state(frame: pd.DataFrame) -> str:
    """What the drafter knew before the prompt: "cold", "warm", "preloaded" or "trained"; "-" without records."""
    return ", ".join(frame.state.unique()) or "-"


def group(frame: pd.DataFrame) -> str:
    """What one method is ranked within, of GROUPS: its state, or "baseline" of a vanilla; "-" without records."""
    return GROUPS[0] if len(frame) and (frame.method == frame.baseline).all() else state(frame)


def group_order(group: str) -> int:
    """Where a group stands in tables and figures."""
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def num_sessions(frame: pd.DataFrame) -> int:
    """Sessions with an answer."""
    return int(answered(frame).session.nunique())


def baseline(frame: pd.DataFrame) -> str:
    """The method that these answers are compared with; "-" without records."""
    return ", ".join(frame.baseline.unique()) or "-"


class Speedup(NamedTuple):
    """A ratio of throughputs and its 95% interval, nan where there is nothing to compare or resample."""

    ratio: float
    low: float
    high: float


def throughput_ratio(frame: pd.DataFrame, method: str) -> float:
    """The ratio that `speedup` gives, alone; nan where there is nothing to compare."""
    pairs = _paired(frame, method)
    return np.nan if pairs is None else float(_throughput_ratio(*pairs[_PAIRED].sum()))


def speedup(frame: pd.DataFrame, method: str) -> Speedup:
    """Throughput of `method` over that of its baseline in the same session, totals over the prompts, repeats and
    sessions that both have answered.

    The interval is a paired percentile bootstrap over questions and sessions, `resampled`: a question is drawn with
    both methods' times of all its turns and repeats. With one question there is nothing to draw, hence nan. With one
    session the interval holds the spread over questions alone.
    """
    pairs = _paired(frame, method)
    if pairs is None:
        return Speedup(np.nan, np.nan, np.nan)
    ratio = float(_throughput_ratio(*pairs[_PAIRED].sum()))
    question = pairs.groupby(["dataset", "question_id"], sort=False).ngroup().to_numpy()
    session = pd.factorize(pairs.session)[0]
    if question.max() == 0:
        return Speedup(ratio, np.nan, np.nan)
    weights = resampled(question.max() + 1, session.max() + 1)[:, question, session]
    ratios = _throughput_ratio(*(weights @ pairs[name].to_numpy(float) for name in _PAIRED))
    low, high = interval(ratios)
    return Speedup(ratio, float(low), float(high))


def interval(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(...) the ends of the middle 95% of (..., draws): of the draws themselves, so that the ends of the inverse ratio
    are the inverse ends. Draws that hold no answer are nan, and left out.
    """
    known = np.maximum(np.isfinite(drawn).sum(-1, keepdims=True), 1)
    places = np.floor(0.025 * (known - 1)).astype(int), np.ceil(0.975 * (known - 1)).astype(int)
    drawn = np.sort(drawn, -1)  # nan comes last
    low, high = (np.take_along_axis(drawn, place, -1)[..., 0] for place in places)
    return low, high


def session_speedups(frame: pd.DataFrame, method: str) -> pd.Series:
    """The speedup of each session, indexed by it; empty where there is nothing to compare."""
    pairs = _paired(frame, method)
    if pairs is None:
        return pd.Series(dtype=float)
    sums = pairs.groupby("session")[_PAIRED].sum()
    return _throughput_ratio(*(sums[name] for name in _PAIRED))


def resampled(num_questions: int, num_sessions: int) -> np.ndarray:
    """(NUM_RESAMPLES, questions, sessions) how often each answer is drawn by a pigeonhole bootstrap (Owen, 2007):
    questions and sessions are drawn with replacement, apart from each other. Always the same draws. A single session is
    always there.
    """
    rng = np.random.default_rng(0)
    questions, sessions = (
        rng.multinomial(size, np.full(size, 1 / size), NUM_RESAMPLES).astype(float)
        for size in (num_questions, num_sessions)
    )
    return questions[:, :, None] * sessions[:, None, :] if num_sessions > 1 else questions[:, :, None]


_PAIRED = ["num_tokens", "seconds", "num_tokens_baseline", "seconds_baseline"]


def _paired(frame: pd.DataFrame, method: str) -> pd.DataFrame | None:
    """The answers of a method beside its baseline's; None without any, or where a time is missing."""
    answers = answered(frame)
    keys = [*PROMPT, "repeat", "session"]
    vanilla = baseline(answers[answers.method == method])
    ours, theirs = (answers.loc[answers.method == m, [*keys, "num_tokens", "seconds"]] for m in (method, vanilla))
    pairs = ours.merge(theirs, on=keys, suffixes=("", "_baseline"), validate="one_to_one")
    return None if pairs.empty or pairs.isna().any(axis=None) else pairs


def _throughput_ratio(tokens: Any, seconds: Any, base_tokens: Any, base_seconds: Any) -> Any:
    """Speedup of totals."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (tokens / seconds) / (base_tokens / base_seconds)


@dataclass(frozen=True)
class Agreement:
    """How many prompts one method answers with its vanilla's tokens; a prompt counts by its worst repeat.

    Attributes:
        identical, ties, different: prompts with the same tokens; with a difference at a numerical tie of the two
            largest logits; with any other difference, which is a bug.
        not_compared, failed: answered prompts that were not compared, and prompts without an answer.
        is_baseline: of a vanilla itself.
        is_control: of an outside loop, of which nothing is claimed.
    """

    identical: int = 0
    ties: int = 0
    different: int = 0
    not_compared: int = 0
    failed: int = 0
    is_baseline: bool = False
    is_control: bool = False

    @property
    def compared(self) -> int:
        return self.identical + self.ties + self.different

    def __str__(self) -> str:
        """As tables show it: "baseline", "160/160", "157/160, 2 ties, 1 DIFFERENT", "control: 158/160"."""
        if self.is_baseline:
            return "baseline"
        parts = [f"{self.identical}/{self.compared}"] if self.compared else ["not compared"]
        if self.ties:
            parts.append(f"{self.ties} tie{'s' if self.ties > 1 else ''}")
        if self.different and not self.is_control:
            parts.append(f"{self.different} DIFFERENT")
        if self.not_compared and self.compared:
            parts.append(f"{self.not_compared} not compared")
        return ("control: " if self.is_control else "") + ", ".join(parts)


def lossless(frame: pd.DataFrame) -> Agreement:
    """How one method's answers compare with its vanilla's, token by token."""
    compared = answered(frame).dropna(subset="verdict")
    severity = compared.verdict.map({"identical": 0, "tie": 1, "different": 2})
    worst = severity.groupby([compared[column] for column in PROMPT]).max()
    identical, ties, different = (int((worst == level).sum()) for level in range(3))
    return Agreement(
        identical,
        ties,
        different,
        not_compared=num_prompts(frame) - len(worst),
        failed=num_failures(frame),
        is_baseline=bool(len(frame) and (frame.method == frame.baseline).all()),
        is_control=bool((frame.kind == "decoder").any()),
    )


def ratio_of(numerator: float, denominator: float) -> float:
    """The ratio, nan over 0."""
    return float(numerator / denominator) if denominator else float("nan")


#: What tables say of one method's rows beside its measures, by the name of the column.
METRICS: dict[str, Callable[[pd.DataFrame], float | str | Agreement]] = {
    function.__name__: function
    for function in (num_prompts, num_sessions, num_failures, num_disturbed, lossless, state, group, baseline)
}
