"""One answer with its drafted tokens highlighted: Figure 3 (make reproduce-figure3)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import name_in, run
from ngram_trie.cli.recordings import EMBEDDED, choose, decoder, recall, replayable
from ngram_trie.engines.replay import replay
from ngram_trie.engines.traces import read_traces
from ngram_trie.report.case_study import CaseStudy, case_figure, case_html, text_pieces
from ngram_trie.report.figures import save_figure


def main(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    output: Annotated[Path, typer.Argument(help="folder for case_study.html and case_study.png")],
    dataset: Annotated[str | None, typer.Option(help="of the question; default: summarization, if it is there")] = None,
    question: Annotated[str | None, typer.Option(help="id of the question to show")] = None,
    method: Annotated[str, typer.Option(help="of configs/method", callback=name_in("method"))] = "ngram_trie",
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="change a field of the method")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="of these answers: a name in configs/model, a folder, a hub id")] = str(
        EMBEDDED
    ),
) -> None:
    """Show one answer with its drafted tokens highlighted, as a web page and as a picture.

    Without --question it shows the answer of median accept length in its data set.

        python -m scripts.case_study results/embedded/table1/traces.jsonl OUTPUT
        python -m scripts.case_study TRACES OUTPUT --method blend --set num_draft=8 --dataset rag
    """
    recorded = read_traces(traces)
    drafter = replayable(" ".join([method, *(fields or [])]), traces)
    trace = choose(recorded, drafter, dataset, question)
    drafter, decode = recall(drafter, recorded, trace), decoder(tokenizer)
    assert decode
    title = f"{method} on {trace.prompt.dataset}, question {trace.prompt.question_id}, model {trace.model}"
    pieces, lengths = text_pieces(trace.output_ids, decode), replay(drafter, trace).accept_lengths
    case = CaseStudy(title, pieces, lengths, decode(trace.prompt.ids.tolist()))
    output.mkdir(parents=True, exist_ok=True)
    (output / "case_study.html").write_text(case_html(case), encoding="utf-8")
    save_figure(case_figure(case), output / "case_study.png")
    print(f"{title}: {case.summary()}")
    print(f"written: {output / 'case_study.html'} and .png")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
