"""One answer with its drafted tokens highlighted: Figure 3 (make reproduce-figure3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from ngram_trie.bench.records import PromptRecord
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.app import name_in, run
from ngram_trie.cli.recordings import TINY_MODEL, choose_trace, decoder, recall, replayable
from ngram_trie.report.case_study import CaseStudy, case_svg, text_pieces
from ngram_trie.report.run_folder import RunFolder

#: An answer in which this many tokens in a row occur twice is not chosen from a run: repetition is easy to draft.
REPEATED = 5


def median(folder: Path, method: str, dataset: str | None, question: str | None) -> PromptRecord:
    """A run's record of the question; unless given, that of median accept length among answers without repetition.

    Raises:
        ValueError: there is none.
    """
    found = [r for r in RunFolder(folder).records if r.method == method and r.accept_lengths and r.output_ids]
    found = [r for r in found if dataset in (None, r.column) and question in (None, r.question_id)]
    if question is None:
        found = [r for r in found if not repeats(r.output_ids)]
    if not found:
        raise ValueError(f"{folder}: no answer of {method} to question {question or 'any'} of {dataset or 'any'}")
    return sorted(found, key=lambda r: fmean(r.accept_lengths or []))[len(found) // 2]


def repeats(ids: Sequence[int]) -> bool:
    """Whether `REPEATED` tokens in a row occur twice, or the answer has fewer than 64, too few to tell."""
    runs = [tuple(ids[start : start + REPEATED]) for start in range(len(ids) - REPEATED + 1)]
    return len(ids) < 64 or len(set(runs)) < len(runs)


def main(
    traces: Annotated[
        Path, typer.Argument(help="a run's folder, its traces.jsonl, or any other file that engine=replay reads")
    ],
    output: Annotated[Path, typer.Argument(help="folder for case_study.svg")],
    dataset: Annotated[str | None, typer.Option(help="of the question; default: summarization, if it is there")] = None,
    question: Annotated[str | None, typer.Option(help="id of the question to show")] = None,
    method: Annotated[str, typer.Option(help="of configs/method", callback=name_in("method"))] = "ngram_trie",
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="change a field of the method")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="of these answers: a name in configs/model, a folder, a hub id")] = str(
        TINY_MODEL
    ),
) -> None:
    """Show one answer with its drafted tokens highlighted, as a picture.

    Without --question it shows the answer of median accept length in its data set; of a run's folder, whose own drafts
    are shown, among the answers of at least 64 tokens in which no five tokens in a row occur twice.

        python -m scripts.case_study results/table1/tiny/traces.jsonl OUTPUT
        python -m scripts.case_study results/table1/smollm2-spec_bench-epyc OUTPUT --dataset spec_bench_summarization
        python -m scripts.case_study TRACES OUTPUT --method blend --set num_draft=8 --dataset rag
    """
    decode = decoder(tokenizer)
    assert decode
    if traces.is_dir():
        if fields:
            raise ValueError("--set: a run's folder shows the run's own drafts; give its traces.jsonl")
        record = median(traces, method, dataset, question)
        ids, lengths = record.output_ids or [], record.accept_lengths or []
        title = f"{method} on {record.column}, question {record.question_id}, model {record.model}"
    else:
        recorded = read_traces(traces)
        drafter = replayable(" ".join([method, *(fields or [])]), traces)
        trace = choose_trace(recorded, drafter, dataset, question)
        ids, lengths = trace.output_ids, replay(recall(drafter, recorded, trace), trace).accept_lengths
        title = f"{method} on {trace.category}, question {trace.prompt.question_id}, model {trace.model}"
    pieces = text_pieces(ids, decode)
    case = CaseStudy(title, pieces, lengths)
    output.mkdir(parents=True, exist_ok=True)
    (output / "case_study.svg").write_text(case_svg(case), encoding="utf-8")
    print(f"{title}: {case.summary()}")
    print(f"written: {output / 'case_study.svg'}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
