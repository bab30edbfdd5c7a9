"""The n-gram predictor as its chapter tells it beside recorded answers: how many drafts are accepted, how large its
tables grow and, of a live run, what a step that drafts costs.

A drafted token is *offered* where all drafts before it in its step were accepted and the answer goes on; alpha is the
share of the offered tokens that are accepted.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import bootstrap

from ngram_trie import built
from ngram_trie.baselines.ngram_predictor import NgramPredictor, expected_accepted
from ngram_trie.engines.provenance import make_manifest
from ngram_trie.engines.replay import Watched, replay
from ngram_trie.engines.traces import Trace
from ngram_trie.metrics import ALL, PROMPT, ratio_of
from ngram_trie.records import PromptRecord, read_records
from ngram_trie.report import markup
from ngram_trie.report.blocks import Block, Cell, Tables
from ngram_trie.report.figures import save_figure
from ngram_trie.report.line_charts import line_figure
from ngram_trie.report.run_folder import save_csv

#: alpha and what the chapter prints for D = 4 (section "Speedup Analysis").
PRINTED = {0.5: 0.94, 0.7: 2.05, 0.9: 3.28}
PRINTED_DRAFT = 4
MOST_LINES = 6
#: Its name in the records of a run.
METHOD = "predictor"


class Step(NamedTuple):
    """One step: tokens drafted, of which this many offered and this many accepted."""

    dataset: str
    drafted: int
    offered: int
    accepted: int


def steps(trace: Trace, drafter: NgramPredictor) -> Iterator[Step]:
    """The steps in which `drafter` would have given a recorded answer."""
    watched = Watched(drafter)
    lengths = replay(watched, trace).accept_lengths
    drafts = [tree.tokens[1:].tolist() for tree in watched.proposed]
    position = 1  # behind the token that prefill gave
    for draft, length in zip([*drafts, []], lengths, strict=False):  # the last may have no room
        # What would have followed the end of the answer is not known, so drafts behind it are not offered.
        answer = trace.output_ids[position : position + len(draft)]
        accepted = 0
        while accepted < len(answer) and answer[accepted] == draft[accepted]:
            accepted += 1
        yield Step(trace.prompt.dataset, len(draft), min(accepted + 1, len(answer)), accepted)
        position += length


def acceptance_table(frame: pd.DataFrame, num_draft: int) -> pd.DataFrame:
    """One row for each data set and one for all.

    Columns:
        num_steps: verification steps.
        no_draft: share of the steps in which nothing was drafted.
        drafted: mean tokens drafted, over the steps that draft.
        alpha: share accepted of the tokens offered.
        formula: what the formula expects to be accepted at that alpha and D = `num_draft`.
        accepted: measured mean tokens accepted, over the steps that draft.
        accept_length: mean tokens emitted by a step, over all steps: accepted ones and the one that the target adds.

    Args:
        frame: `Step`s.
    """
    rows = []
    for dataset, part in _groups(frame):
        drafts = part[part.drafted > 0]
        alpha = alpha_of(drafts)
        rows.append({
            "dataset": dataset,
            "num_steps": len(part),
            "no_draft": 1 - len(drafts) / len(part),
            "drafted": drafts.drafted.mean(),
            "alpha": alpha,
            "formula": expected_accepted(alpha, num_draft) if math.isfinite(alpha) else math.nan,
            "accepted": drafts.accepted.mean(),
            "accept_length": 1 + part.accepted.mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def position_table(frame: pd.DataFrame, num_draft: int) -> pd.DataFrame:
    """Rows `dataset, position, acceptance, offered`: of the drafts at each place, from 1, how many were offered and
    which share of those was accepted; nan where none was.
    """
    rows = []
    for dataset, part in _groups(frame):
        for position in range(1, num_draft + 1):
            offered, accepted = int((part.offered >= position).sum()), int((part.accepted >= position).sum())
            rows.append((dataset, position, ratio_of(accepted, offered), offered))
    return pd.DataFrame(rows, columns=["dataset", "position", "acceptance", "offered"])


def alpha_of(frame: pd.DataFrame) -> float:
    """The share accepted of the tokens offered by `Step`s; nan where none was."""
    return ratio_of(frame.accepted.sum(), frame.offered.sum())


STEP_COLUMNS = ["steps", "step_seconds", "draft_seconds", "drafting", "nodes", "seconds_per_token"]


def cost_table(records: Iterable[PromptRecord], method: str = METHOD) -> pd.DataFrame:
    """What the steps of `method` that draft cost beside plain ones: a row for each data set and one for all, no row
    without answers of it and of its baseline.

    Columns:
        num_prompts: prompts that both answered.
        more_steps: how many of them `method` took more steps for than its baseline.
        slower: for how many of them it took longer, from before prefill to the last token.
        slowest: its smallest speed over the baseline's, of a prompt.
        nodes: mean drafted nodes of a step that drafts.
        plain_ms: a step of the baseline.
        overhead: a step that drafts over the baseline's step on the same prompt, less 1. Its steps without a draft are
            taken to cost what the baseline's do.
        overhead_low, overhead_high: 95%, by bootstrap over prompts; nan of fewer than two.
        drafting: of that overhead, what the drafter itself takes.

    Args:
        records: of a live run. A step is drafting, verifying and committing; repeats of a prompt are summed.
    """
    wide = pd.DataFrame([_cost_row(r) for r in records if r.kind == "drafter" and r.seconds and not r.failure])
    if wide.empty or method not in set(wide.method):
        return pd.DataFrame()
    baseline = wide.baseline[wide.method == method].iloc[0]
    ours, plain = (
        wide[wide.method == name].groupby(PROMPT, sort=False)[STEP_COLUMNS].sum() for name in (method, baseline)
    )
    pairs = ours.join(plain, rsuffix="_plain", how="inner").reset_index()
    rows = []
    for dataset, part in _groups(pairs):
        plain_step = part.step_seconds_plain / part.steps_plain
        more = part.step_seconds - (part.steps - part.drafting) * plain_step
        samples = (more.to_numpy(), (part.drafting * plain_step).to_numpy())
        low, high = math.nan, math.nan
        if len(part) > 1:
            found = bootstrap(samples, _overhead, paired=True, vectorized=True, method="percentile",
                              n_resamples=2000, rng=np.random.default_rng(0))  # fmt: skip
            low, high = found.confidence_interval
        ratio = part.seconds_per_token_plain / part.seconds_per_token
        rows.append({
            "dataset": dataset,
            "num_prompts": len(part),
            "more_steps": int((part.steps > part.steps_plain).sum()),
            "slower": int((ratio < 1).sum()),
            "slowest": ratio.min(),
            "nodes": ratio_of(part.nodes.sum(), part.drafting.sum()),
            "plain_ms": 1e3 * ratio_of(part.step_seconds_plain.sum(), part.steps_plain.sum()),
            "overhead": float(_overhead(*samples)),
            "overhead_low": low,
            "overhead_high": high,
            "drafting": ratio_of(part.draft_seconds.sum(), samples[1].sum()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _cost_row(record: PromptRecord) -> dict[str, object]:
    seconds, sizes = record.seconds, np.array(record.tree_sizes)
    assert seconds is not None
    return {
        "method": record.method,
        "baseline": record.baseline,
        **{name: getattr(record, name) for name in PROMPT},
        "steps": len(record.accept_lengths),
        "step_seconds": seconds.draft + seconds.verify + seconds.commit,
        "draft_seconds": 1e-6 * float(np.array(record.draft_us)[sizes > 0].sum()),
        "drafting": int((sizes > 0).sum()),
        "nodes": int(sizes.sum()),
        "seconds_per_token": seconds.total / len(record.output_ids),
    }


def _overhead(drafting: np.ndarray, plain: np.ndarray, axis: int = -1) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return drafting.sum(axis=axis) / plain.sum(axis=axis) - 1


def _groups(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield from frame.groupby("dataset", sort=False)
    yield ALL, frame


def chapter_table() -> pd.DataFrame:
    """Rows for the chapter's own alphas: what it prints, its formula as it stands, and the expectation.

    As it stands the first sum runs to k = D and the case "all accepted" is counted twice.
    """
    rows = []
    for alpha, printed in PRINTED.items():
        exact = expected_accepted(alpha, PRINTED_DRAFT)
        twice = PRINTED_DRAFT * alpha**PRINTED_DRAFT * (1 - alpha)
        rows.append({"alpha": alpha, "chapter prints": printed, "formula as it stands": exact + twice, "exact": exact})
    return pd.DataFrame(rows)


def tables(table: pd.DataFrame, positions: pd.DataFrame, num_draft: int, source: str) -> Tables:
    """The blocks of table.md: measured acceptance, and the chapter's own numbers.

    Args:
        table, positions: of `acceptance_table` and `position_table`.
    """
    wide = positions.pivot(index="dataset", columns="position", values="acceptance").loc[list(table.dataset)]
    about = [
        "no_draft: share of the steps without a draft. drafted, accepted: means over the steps with one. alpha: share "
        "accepted of the tokens offered; a token is offered where all before it were accepted. formula: the exact "
        "expectation at that alpha. accept_length: tokens a step emits, over all steps."
    ]
    exact = [
        "Exact: sum of alpha^k for k from 1 to D. The chapter's formula lets its first sum run to D and then adds "
        "D alpha^D, which counts that case twice. The values printed for 0.7 and 0.9 follow from neither."
    ]
    title = f"n-gram predictor on {source}, D = {num_draft}"
    return Tables(
        [
            _block(title, table.set_index("dataset"), about),
            _block(f"{title}: accepted of those offered, by place in the draft", wide, []),
        ],
        published=[_block(f"Expected tokens, D = {PRINTED_DRAFT}", chapter_table().set_index("alpha"), exact, 2)],
        warning="Printed in the chapter on the n-gram predictor, and computed by its formula.",
    )


def _block(title: str, frame: pd.DataFrame, notes: list[str], decimals: int = 3) -> Block:
    columns = [frame[name].tolist() for name in frame]
    rows = {str(name): [Cell(value) for value in row] for name, *row in zip(frame.index, *columns, strict=True)}
    return Block(title, list(map(str, frame)), rows, notes, str(frame.index.name), unit="", decimals=decimals)


def most_steps(table: pd.DataFrame) -> list[str]:
    """The data sets with the most steps, and "all": as many as a figure can show, in the order of the table."""
    kept = table[table.dataset != ALL].num_steps.nlargest(MOST_LINES - 1).index
    return [name for index, name in table.dataset.items() if index in kept or name == ALL]


def write(traces: Iterable[Trace], num_draft: int, output: Path, source: Path) -> str:
    """Replay the predictor over recorded answers and write tables, positions.csv, answers.csv, acceptance.png and
    manifest.json to `output`, and costs.csv if the records of a live run of it lie beside `source`; returns the tables
    as text.

    answers.csv: one row an answer, alpha and the bytes of the predictor's tables at its end.

    Raises:
        ValueError: no answers.
    """
    drafter = NgramPredictor(num_draft=num_draft)
    settings = {n: getattr(drafter, n) for n in inspect.signature(NgramPredictor).parameters}
    config = {"method": {"name": METHOD, **settings}, "traces": source.name}
    manifest = make_manifest(config, "replay", built.digest(source))
    parts, answers = [], []
    for trace in traces:
        parts.append(pd.DataFrame(steps(trace, drafter), columns=Step._fields))
        about = (trace.prompt.dataset, trace.prompt.question_id, trace.prompt.turn)
        answers.append((*about, len(trace.prompt.ids) + len(trace.output_ids), alpha_of(parts[-1]), drafter.num_bytes))
    if not parts:
        raise ValueError(f"{source} holds no answers to replay")
    frame = pd.concat(parts, ignore_index=True)
    table, positions = acceptance_table(frame, num_draft), position_table(frame, num_draft)
    text = markup.write(output, table, tables(table, positions, num_draft, source.name))
    save_csv(positions, output / "positions.csv")
    save_csv(pd.DataFrame(answers, columns=[*PROMPT, "num_tokens", "alpha", "num_bytes"]), output / "answers.csv")
    if (records := source.with_name("records.jsonl")).is_file():
        costs = cost_table(read_records(records))
        if not costs.empty:
            save_csv(costs, output / "costs.csv")
    shown = positions[positions.dataset.isin(most_steps(table))].dropna()
    if not shown.empty:
        figure = line_figure(shown, "position", "acceptance", "accepted of the tokens offered", log2=False)
        save_figure(figure, output / "acceptance.png")
    manifest.write(output / "manifest.json")
    return text
