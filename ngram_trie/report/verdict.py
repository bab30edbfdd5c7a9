"""A run in three lines: how many methods are faster than plain decoding, which is fastest, and what is as fast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ngram_trie.bench import metrics, pairwise
from ngram_trie.bench.measures import SPEEDUP
from ngram_trie.report.markup import count
from ngram_trie.report.run_folder import RunFolder

#: Relative spread of vanilla's step times, beyond what the prompts' lengths explain, from which on it is called noise.
NOISY = 0.15
#: From this spread on, no verdict is given.
TOO_NOISY = 0.5
#: A step over a draft is no faster than a plain one, so no speedup is larger than this times the tokens of a pass.
MARGIN = 1.05
#: This many answers at least, or the spread says nothing.
ENOUGH = 4


def verdict(run: RunFolder) -> str:
    """The lines that end a run, of its clean contexts; "" where there is no drafter to judge. Of synthetic text nothing
    is named best.
    """
    frame = run.frame[run.frame.context == metrics.CLEAN]  # a question's noisy copies are no questions more
    answers = metrics.answered(frame)
    baselines = answers.groupby("method", sort=False).baseline.first()
    drafters = [method for method, baseline in baselines.items() if method != baseline and baseline in baselines.index]
    if not run.is_measured:
        drafters = [method for method in baselines.index if method != "vanilla"]
        return _replayed(run, answers, drafters) if drafters else ""
    speeds = {method: metrics.speedup(frame, method) for method in drafters}
    speeds = {method: speed for method, speed in speeds.items() if np.isfinite(speed.ratio)}
    if not speeds:
        return ""
    best = max(speeds, key=lambda method: speeds[method].ratio)
    speed, rows = speeds[best], answers[answers.method == best]
    if doubt := _doubt(run, answers, speeds):
        return f"No verdict: {doubt}. {_again(run)}."
    num_prompts, rate = metrics.num_prompts(rows), metrics.tokens_per_second(rows)
    where = f"{count(num_prompts, 'prompt')} of {', '.join(rows.dataset.unique())} with {run.model}"
    rates = f"{rate / speed.ratio:.1f} to {rate:.1f} tokens/s"  # plain decoding's of what both answered
    if not np.isfinite(speed.low):
        return f"{best}: {speed.ratio:.2f}x plain decoding ({rates}) on {where}: one question gives no interval."
    times = f"{speed.ratio:.2f}x plain decoding [{speed.low:.2f}, {speed.high:.2f}]"
    if run.is_synthetic:
        return f"Largest speedup: {best}, {times} ({rates}) on {where}; synthetic text names no winner."
    if rows.groupby(["dataset", "question_id"]).ngroups < (fewest := pairwise.fewest_questions(len(speeds))):
        return (
            f"{best}: {times} ({rates}) on {where}: too few prompts to tell {count(len(speeds), 'method')} from plain "
            f"decoding, give {fewest} or more."
        )
    if speed.low <= 1:
        return f"No drafter is shown to be faster than plain decoding on {where}: {best}, the first, is at {times}."
    pairs = run.pairs[run.pairs.measure == SPEEDUP]
    pairs = pairs[pairs.dataset == metrics.ALL]
    ahead = [name for name in speeds if _is_faster(pairs, name, baselines[name])]
    others = [name for name in speeds if name != best]
    separated = _separated(pairs, best)
    tied = [name for name in others if name not in separated]
    told = f"not separated from {_listed(tied)}" if tied else f"separated from {_listed(others)}"
    return "\n".join(
        [
            f"{len(ahead)} of {count(len(speeds), 'method')} are faster than plain decoding on {where}.",
            f"Fastest: {best}, {times} ({rates}).",
            *([f"It is {told}."] if others else []),
        ]
    )


def _is_faster(pairs: pd.DataFrame, method: str, baseline: str) -> bool:
    row = pairwise.between(pairs, method, baseline).iloc[0]
    return bool(row.significant and row.ratio > 1)


def _separated(pairs: pd.DataFrame, best: str) -> set[str]:
    """The methods that the best one is separated from, by Holm's correction over its comparisons with each of them."""
    own = pairs[(pairs.a == best) | (pairs.b == best)]
    own = own[(own.baseline != own.a) & (own.baseline != own.b)]
    found = own[(pairwise.holm(own.p.to_numpy(float)) < pairwise.LEVEL) & pairwise.apart(own)]
    return {*found.a, *found.b}


def _listed(names: list[str], most: int = 5) -> str:
    """The first names, and how many more."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _doubt(run: RunFolder, answers: pd.DataFrame, speeds: Mapping[str, metrics.Speedup]) -> str:
    """Why the clock cannot be believed; "" where nothing speaks against it."""
    ours = (answers.kind == "drafter") | answers.method.str.startswith(pairwise.OURS)
    if run.config["engine"].get("backend") == "stock":
        ours = answers.kind == "drafter"  # a loop with a network of its own may have faster steps than that
    for (method, dataset), rows in answers[ours & answers.method.isin(list(speeds))].groupby(["method", "dataset"]):
        here, length = answers[answers.dataset == dataset], metrics.accept_length(rows)
        decoding = here.assign(seconds=here.decode_seconds, num_tokens=here.num_tokens - 1)
        for clock in (decoding, here):  # where prefill is not timed apart
            if (ratio := metrics.throughput_ratio(clock, str(method))) > MARGIN * length:
                return f"{method} is at {ratio:.2f}x on {dataset} with {length:.2f} tokens a pass, which cannot be"
    spread = _spread(run)
    return f"plain decoding's steps scatter by {spread:.0%} from answer to answer" if spread >= TOO_NOISY else ""


def _replayed(run: RunFolder, answers: pd.DataFrame, drafters: list[str]) -> str:
    """Of recorded answers the accept length is exact, and speed is not measured."""
    lengths = {method: metrics.accept_length(answers[answers.method == method]) for method in drafters}
    best = max(lengths, key=lambda method: lengths[method])
    num_prompts = metrics.num_prompts(answers[answers.method == best])
    most = "" if len(drafters) < 2 or run.is_synthetic else ", the most of these drafters"
    return (
        f"{best}: {lengths[best]:.2f} tokens per pass{most}, over {count(num_prompts, 'recorded answer')} of "
        f"{run.model}. Replayed: accept lengths are exact, speeds are predicted."
    )


def noise(run: RunFolder) -> str:
    """A warning where plain decoding's own steps scatter: something else was running. "" where they do not."""
    if (spread := _spread(run)) < NOISY:
        return ""
    return (
        f"warning: plain decoding's steps scatter by {spread:.0%} from answer to answer: other work was running, or "
        f"clock or memory changed speed. {_again(run)}"
    )


def _again(run: RunFolder) -> str:
    """How to measure again: on one core, where there were more of them."""
    is_one = run.manifest.num_threads == 1 or "cuda" in run.manifest.environment
    return f"Repeat on a quiet machine,{'' if is_one else ' on one core (OMP_NUM_THREADS=1),'} or with --repeats 3"


def _spread(run: RunFolder) -> float:
    """How plain decoding's steps scatter from answer to answer, relative to their mean, more than the lengths of the
    texts explain, with the target where they scatter most; 0 where too few answers tell.
    """
    rows = metrics.answered(run.frame)
    rows = rows[(rows.method == rows.baseline) & (rows.num_steps > 0) & rows.decode_seconds.notna()]
    spreads = [0.0]
    for _, own in rows.groupby("method") if run.is_measured else ():
        if len(own) < ENOUGH:
            continue
        milliseconds = 1e3 * (own.decode_seconds / own.num_steps).to_numpy(float)
        lengths = np.array([record.num_prompt_tokens for record in run.records])[own.index.to_numpy()]
        if np.ptp(lengths):
            milliseconds += milliseconds.mean() - np.polyval(np.polyfit(lengths, milliseconds, 1), lengths)
        spreads.append(float(milliseconds.std(ddof=min(2, len(own) - 2)) / milliseconds.mean()))
    return max(spreads)
