"""Servers compared under load: from trials to rows and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ngram_trie.bench import metrics
from ngram_trie.bench.measures import SPEEDUP, Value
from ngram_trie.bench.server_load import ServerAnswer, Trial
from ngram_trie.report import markup
from ngram_trie.report.blocks import Block, Tables

#: What bootstrapping takes of an answer (`metrics.speedup`); sessions are rounds.
_FRAME = [*metrics.PROMPT, "method", "repeat", "session", "baseline", "num_tokens", "seconds", "failure"]


@dataclass(frozen=True)
class Bound:
    """What makes an answer good: milliseconds to the first piece, and per token after it, at most."""

    ttft_ms: float
    tpot_ms: float

    def holds(self, answer: ServerAnswer) -> bool:
        # an answer of one token has no time per token
        return 1e3 * answer.first <= self.ttft_ms and not per_token_ms(answer) > self.tpot_ms


def per_token_ms(answer: ServerAnswer) -> float:
    """Milliseconds a token behind the first piece's; nan for an answer of one token."""
    return 1e3 * metrics.ratio_of(answer.seconds - answer.first, answer.num_tokens - 1)


def rows(trials: Sequence[Trial], bound: Bound) -> pd.DataFrame:
    """One row for each load and server, in the order of the trials, all rounds together.

    Columns:
        tokens_per_second: output tokens over the trials' seconds.
        speedup, low, high: tokens per second of single answers over those of the first server, answers' totals, with
            the interval of a paired bootstrap over questions and rounds (`metrics.speedup`). Under a fixed rate
            servers are idle in between, so there it says more than `tokens_per_second`.
        ttft_p50, ttft_p99, tpot_p50, tpot_p99: milliseconds to the first piece of text, and per token behind it;
            quantiles over answers.
        goodput: answers a second within the bound.
        same, compared: answers with the text that the first server gave under the first load in the first round, of
            those that have such a text to be compared with.
        failures: answers that failed, in `kinds` by kind; they are in no average but count against goodput.
        tokens_per_step: tokens over steps, a prompt's included, of answers whose server says how many drafted tokens it
            accepted: each step emits one token more than those. nan where none says.
        drafts, draft_tokens, accepted_tokens, accept_length: of vLLM's counters; its accept length is over steps with a
            draft, 1 + accepted tokens / drafts, where papers take all steps. nan where a server does not say.
        accepted_at: share of drafts whose token was accepted at the first place, the second, ..., as text.
    """
    servers = list(dict.fromkeys(trial.server for trial in trials))
    first = next(trial for trial in trials if trial.server == servers[0])
    reference = {(a.dataset, a.question_id, a.turn): a.text_hash for a in first.answers if not a.failure}
    found = []
    for load in dict.fromkeys(trial.load for trial in trials):
        under = [trial for trial in trials if trial.load == load]
        frame = pd.DataFrame(
            [
                (a.dataset, a.question_id, a.turn, trial.server, 0, trial.round, servers[0], a.num_tokens, a.seconds,
                 a.failure and a.failure.kind)
                for trial in under
                for a in trial.answers
            ],
            columns=_FRAME,
        )  # fmt: skip
        for server in servers:
            own = [trial for trial in under if trial.server == server]
            speed = dict(zip(("speedup", "low", "high"), metrics.speedup(frame, server), strict=True))
            found.append({"load": load, "server": server, **_of(own, bound, reference), **speed})
    return pd.DataFrame(found)


def _of(trials: Sequence[Trial], bound: Bound, reference: Mapping[tuple[str, str, int], str]) -> dict[str, object]:
    """The columns of one server under one load, but for what compares it."""
    told = [answer for trial in trials for answer in trial.answers if not answer.failure]
    stepped = [(a.num_tokens, a.num_tokens - a.num_accepted) for a in told if a.num_accepted is not None]
    failed = [answer.failure.kind for trial in trials for answer in trial.answers if answer.failure]
    seconds = sum(trial.seconds for trial in trials)
    compared = [(a.text_hash, reference.get((a.dataset, a.question_id, a.turn))) for a in told]
    compared = [(text, other) for text, other in compared if other is not None]
    counted: dict[str, float] = {}
    for trial in trials:
        for name, value in trial.counters.items():
            counted[name] = counted.get(name, 0.0) + value
    drafts = counted.get("drafts", math.nan)
    places = sorted((int(name.split()[1]), value) for name, value in counted.items() if name.startswith("accepted_at "))
    return {
        "answers": len(told),
        "tokens": sum(a.num_tokens for a in told),
        "tokens_per_second": metrics.ratio_of(sum(a.num_tokens for a in told), seconds),
        **_quantiles("ttft", [1e3 * a.first for a in told]),
        **_quantiles("tpot", [ms for a in told if not math.isnan(ms := per_token_ms(a))]),
        "goodput": metrics.ratio_of(sum(bound.holds(a) for a in told), seconds),
        "same": sum(text == other for text, other in compared),
        "compared": len(compared),
        "failures": len(failed),
        "kinds": ", ".join(f"{failed.count(kind)} {kind}" for kind in dict.fromkeys(failed)),
        "tokens_per_step": metrics.ratio_of(*map(sum, zip(*stepped, strict=True))) if stepped else math.nan,
        "drafts": drafts,
        "draft_tokens": counted.get("draft_tokens", math.nan),
        "accepted_tokens": counted.get("accepted_tokens", math.nan),
        "accept_length": 1 + metrics.ratio_of(counted.get("accepted_tokens", math.nan), drafts),
        "accepted_at": " ".join(f"{metrics.ratio_of(value, drafts):.2f}" for _, value in places) if drafts > 0 else "",
    }


def _quantiles(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name}_p{share}": float(np.percentile(values, share)) if values else math.nan for share in (50, 99)}


def blocks(table: pd.DataFrame, title: str, notes: Iterable[str]) -> list[Block]:
    """A block for each load: a line a server."""

    def texts(part: pd.DataFrame, template: str) -> list[str]:
        return [template.format(**row).replace("nan", "-") for row in part.to_dict("records")]

    found = []
    for load, part in table.groupby("load", sort=False):
        lead = {
            "tokens/s": texts(part, "{tokens_per_second:.1f}"),
            "first piece p50, p99 (ms)": texts(part, "{ttft_p50:.0f}, {ttft_p99:.0f}"),
            "per token p50, p99 (ms)": texts(part, "{tpot_p50:.1f}, {tpot_p99:.1f}"),
            "goodput (answers/s)": texts(part, "{goodput:.2f}"),
            "same text": texts(part, "{same}/{compared}"),
            "failed": texts(part, "{failures}"),
        }
        if part.tokens_per_step.notna().any():
            lead["tokens per step"] = texts(part, "{tokens_per_step:.2f}")
        if part.drafts.notna().any():
            lead["drafts: tokens, accepted"] = texts(part, "{drafts:.0f}: {draft_tokens:.0f}, {accepted_tokens:.0f}")
            lead["accepted by place"] = texts(part, "{accepted_at}")
        cells = {row.server: [{SPEEDUP: Value(row.speedup, row.low, row.high)}] for row in part.itertuples()}
        found.append(Block(f"{title}, {load}", ["speed of an answer"], cells, [*notes], corner="server", lead=lead))
    return found


def write(folder: Path, trials: Sequence[Trial], bound: Bound, title: str) -> str:
    """Write table.csv, table.json and table.md; returns the blocks as text."""
    table = rows(trials, bound)
    counted = sorted({answer.counted for trial in trials for answer in trial.answers if not answer.failure})
    notes = [
        "Speed of an answer: its tokens per second against the first server's [95% interval, paired bootstrap over "
        "questions and rounds]. Tokens/s: of the server as a whole. Goodput: answers a second whose first piece came "
        f"within {bound.ttft_ms:g} ms and whose other tokens took at most {bound.tpot_ms:g} ms each.",
        f"Same text: as {table.server.iloc[0]} gave under {table.load.iloc[0]} in the first round. "
        f"Tokens counted by the {' and the '.join(counted) or 'server'}.",
        *(f"{row.server}, {row.load}, failed: {row.kinds}." for row in table.itertuples() if row.failures),
    ]
    return markup.plain_text(markup.write(folder, table, Tables(blocks(table, title, notes))))
