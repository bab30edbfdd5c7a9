"""One answer with its drafted tokens highlighted, as a web page and as a picture: Figure 3 (make reproduce-figure3).

  python -m scripts.case_study results/embedded/table1/traces.jsonl OUTPUT
  python -m scripts.case_study TRACES OUTPUT --method blend --set num_draft=8 --dataset rag

TRACES is the traces.jsonl of a live run, or any other file that engine=replay reads. Unless a question is named, the
one whose accept length is the median of its data set is shown: neither the best nor the worst.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from ngram_trie import config as configuration
from ngram_trie.cli.overrides import composed
from ngram_trie.cli.shell import Parser, name_of, one_line_errors
from ngram_trie.drafter import Drafter
from ngram_trie.engines.live import split_missing
from ngram_trie.engines.replay import check_replayable, replay
from ngram_trie.engines.traces import Trace, read_traces
from ngram_trie.report.case_study import CaseStudy, case_figure, case_html, text_pieces
from ngram_trie.report.figures import save_figure
from ngram_trie.targets.load import load_tokenizer

EMBEDDED = configuration.PROJECT / "data" / "embedded" / "model"


def choose(traces: Sequence[Trace], drafter: Drafter, dataset: str | None, question_id: str | None) -> Trace:
    """The trace of a question, or the one with the median accept length; the drafter itself learns of none.

    Raises:
        ValueError: there is none.
    """
    chosen = [t for t in traces if len(t.output_ids) > 1 and question_id in (None, t.prompt.question_id)]
    dataset = dataset or ("summarization" if any(t.prompt.dataset == "summarization" for t in chosen) else None)
    chosen = [t for t in chosen if dataset in (None, t.prompt.dataset)]
    if not chosen:
        known = sorted({t.prompt.dataset for t in traces})
        raise ValueError(f"no answer to question {question_id or 'any'} of {dataset or 'any'}; data sets: {known}")
    drafter = copy.deepcopy(drafter)
    over = [t for t in traces if t.output_ids] if drafter.state == "warm" else chosen  # it must meet all, in order
    lengths = {trace.key: replay(drafter, trace).accept_lengths for trace in over}
    return sorted(chosen, key=lambda trace: statistics.fmean(lengths[trace.key]))[len(chosen) // 2]


def recall(drafter: Drafter, traces: Sequence[Trace], trace: Trace) -> Drafter:
    """The drafter as a run over `traces`, in their order, has it when it comes to `trace`: one that remembers answers
    has met those before. A copy; other drafters stay as they are.
    """
    if drafter.state != "warm":
        return drafter
    drafter = copy.deepcopy(drafter)
    for earlier in takewhile(lambda other: other.key != trace.key, traces):
        if earlier.output_ids:
            replay(drafter, earlier)
    return drafter


def replayable(name: str, fields: Sequence[str], traces: Path) -> Drafter:
    """The drafter of configs/method/NAME with some of its fields changed, "num_draft=8", as engine=replay has it.

    Args:
        traces: the recording that is to be replayed; a drafter over other answers takes them from it.

    Raises:
        ConfigError: an unknown name or field, a wrong value, or a part that is not there.
        ValueError: a drafter that cannot be replayed.
    """
    replayed = ["engine=replay", "engine.traces=FILE"]
    config = composed([f"method={name}", *(f"method.{field}" for field in fields), *replayed])
    config.engine.traces = str(traces)  # as it is: an override would have to be quoted
    drafter: Drafter = configuration.build(config.method, f"method {name}")
    check_replayable({name: drafter})
    for what in split_missing({name: drafter})[1].values():
        raise configuration.ConfigError(f"method {name}: {what}")
    return drafter


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("traces", type=Path, metavar="TRACES", help="recorded answers")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="folder for case_study.html and case_study.png")
    parser.add_argument("--dataset", metavar="NAME", help="of the recordings; summarization, if there is any")
    parser.add_argument("--question", metavar="ID", help="the one to show")
    parser.add_argument(
        "--method", type=name_of("method"), default="ngram_trie", metavar="NAME", help="of configs/method"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the method"
    )
    parser.add_argument("--tokenizer", default=str(EMBEDDED), metavar="NAME", help="of these answers: folder or hub id")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with one_line_errors("nothing was written"):
        traces = read_traces(options.traces)
        drafter = replayable(options.method, options.set, options.traces)
        trace = choose(traces, drafter, options.dataset, options.question)
        drafter = recall(drafter, traces, trace)
        tokenizer = load_tokenizer(options.tokenizer)
    pieces = text_pieces(trace.output_ids, lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
    title = f"{options.method} on {trace.prompt.dataset}, question {trace.prompt.question_id}, model {trace.model}"
    case = CaseStudy(title, pieces, replay(drafter, trace).accept_lengths)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "case_study.html").write_text(case_html(case), encoding="utf-8")
    save_figure(case_figure(case), options.output / "case_study.png")
    print(f"{title}: {case.summary()}")
    print(f"written: {options.output / 'case_study.html'} and .png")


if __name__ == "__main__":
    main()
