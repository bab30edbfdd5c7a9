"""The n-gram predictor's expected acceptance, as its chapter has it, beside recorded answers
(make reproduce-predictor).

A drafted token is *offered* where all drafts before it in its step were accepted and the answer goes on; alpha is the
share of the offered tokens that are accepted.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import pandas as pd
import typer

from ngram_trie.baselines.ngram_predictor import NgramPredictor, expected_accepted
from ngram_trie.bench.measures import Value
from ngram_trie.bench.metrics import ALL, ratio_of
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.traces import Trace, answers
from ngram_trie.cli.app import run
from ngram_trie.report import markup
from ngram_trie.report.blocks import Block, Tables
from ngram_trie.report.explorer import walk
from ngram_trie.store import arrays as built

#: alpha and what the chapter prints for D = 4 (section "Speedup Analysis").
PRINTED = {0.5: 0.94, 0.7: 2.05, 0.9: 3.28}
PRINTED_DRAFT = 4
#: Its name in the records of a run.
METHOD = "predictor"


class StepCounts(NamedTuple):
    """One step: tokens drafted, of which this many offered and this many accepted."""

    dataset: str
    drafted: int
    offered: int
    accepted: int


def steps(trace: Trace, drafter: NgramPredictor) -> Iterator[StepCounts]:
    """The steps in which `drafter` would have given a recorded answer."""
    for step in walk(drafter, trace):
        # What would have followed the end of the answer is not known, so drafts behind it are not offered.
        known = min(step.tree.num_draft, len(trace.output_ids) - step.start)
        accepted = min(len(step.path) - 1, known)
        yield StepCounts(trace.prompt.dataset, step.tree.num_draft, min(accepted + 1, known), accepted)


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
        frame: `StepCounts`.
    """
    rows = []
    for dataset, part in [*frame.groupby("dataset", sort=False), (ALL, frame)]:
        drafts = part[part.drafted > 0]
        alpha = ratio_of(drafts.accepted.sum(), drafts.offered.sum())
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


def tables(table: pd.DataFrame, num_draft: int, source: str) -> Tables:
    """The blocks of table.md: measured acceptance (`acceptance_table`), and the chapter's own numbers."""
    about = [
        "no_draft: share of the steps without a draft. drafted, accepted: means over the steps with one. alpha: share "
        "accepted of the tokens offered; a token is offered where all before it were accepted. formula: the exact "
        "expectation at that alpha. accept_length: tokens a step emits, over all steps."
    ]
    exact = [
        "Exact: sum of alpha^k for k from 1 to D. The chapter's formula lets its first sum run to D and then adds "
        "D alpha^D, which counts that case twice. The values printed for 0.7 and 0.9 follow from neither."
    ]
    chapter = chapter_table().set_index("alpha")
    title = f"n-gram predictor on {source}, D = {num_draft}"
    return Tables(
        [_block(title, table.set_index("dataset"), about)],
        published=[_block(f"Expected tokens, D = {PRINTED_DRAFT}", chapter, exact, "printed")],
        warning="Printed in the chapter on the n-gram predictor, and computed by its formula.",
    )


def _block(title: str, frame: pd.DataFrame, notes: list[str], measure: str = "number") -> Block:
    columns = [frame[name].tolist() for name in frame]
    lines = zip(frame.index, *columns, strict=True)
    rows = {str(name): [{measure: Value(value)} for value in row] for name, *row in lines}
    return Block(title, list(map(str, frame)), rows, notes, str(frame.index.name), measures=[measure])


def main(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    output: Annotated[Path, typer.Argument(help="folder for the tables and the manifest")],
    num_draft: Annotated[int, typer.Option(min=1, help="drafted tokens per step, as in the chapter")] = PRINTED_DRAFT,
) -> None:
    """Replay the predictor over recorded answers and compare the chapter's formula with what was accepted.

    python -m scripts.studies.predictor TRACES OUTPUT --num-draft 4
    """
    drafter, found = NgramPredictor(num_draft=num_draft), answers(traces)
    settings = {n: getattr(drafter, n) for n in inspect.signature(NgramPredictor).parameters}
    config = {"method": {"name": METHOD, **settings}, "traces": traces.name}
    manifest = make_manifest(config, "replay", built.digest(traces))
    frame = pd.DataFrame([step for trace in found for step in steps(trace, drafter)], columns=StepCounts._fields)
    table = acceptance_table(frame, num_draft)
    print(markup.plain_text(markup.write(output, table, tables(table, num_draft, traces.name))))
    manifest.write(output / "manifest.json")
    print(f"Written: {output}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
