"""Step through one recorded answer, with the draft tree of each step (make explore TRACES=FILE).

  python -m scripts.explore TRACES --method ngram_trie num_draft=8 --method blend num_draft=8 --question ID

TRACES is the traces.jsonl of a live run, or any other file that engine=replay reads. Up to three drafters that read
tokens only stand side by side. Unless a question is named, the one whose accept length under the first drafter is the
median of its data set is shown. Writes one page that needs nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ngram_trie.cli.shell import Parser, one_line_errors
from ngram_trie.config import ConfigError
from ngram_trie.drafter import Drafter
from ngram_trie.engines.traces import read_traces
from ngram_trie.files import PROJECT
from ngram_trie.site.explorer import Decode, explore
from ngram_trie.site.render import explorer_page
from ngram_trie.targets.load import load_tokenizer
from scripts.case_study import EMBEDDED, choose, recall, replayable

DEFAULT = [["ngram_trie", "num_draft=8"], ["blend", "num_draft=8"]]
MOST = 3


def drafters(methods: Sequence[Sequence[str]], traces: Path) -> dict[str, Drafter]:
    """The drafters for a recording, by the words that name them, "blend num_draft=8"."""
    if len(methods) > MOST:
        raise ConfigError(f"{len(methods)} methods: at most {MOST} can stand side by side")
    return {" ".join(words): replayable(words[0], words[1:], traces) for words in methods}


def decoder(tokenizer: str | None) -> Decode | None:
    """Ids to text by the tokenizer of a folder or hub id; None to show ids."""
    if tokenizer is None:
        return None
    loaded = load_tokenizer(tokenizer)
    return lambda ids: str(loaded.decode(ids, skip_special_tokens=False))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("traces", type=Path, metavar="TRACES", help="a file of recorded answers")
    parser.add_argument(
        "--method", action="append", nargs="+", metavar=("NAME", "FIELD=VALUE"),
        help="of configs/method, and fields of it to change; once for each drafter",
    )  # fmt: skip
    parser.add_argument("--dataset", metavar="NAME", help="of the question; summarization, if there is any")
    parser.add_argument("--question", metavar="ID", help="the one to show")
    parser.add_argument(
        "--tokenizer", metavar="NAME", help="folder or hub id; the embedded model's for its answers, else ids are shown"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", default=PROJECT / "results" / "local" / "explorer.html", help="the page"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with one_line_errors("nothing was written"):
        traces = read_traces(options.traces)
        chosen = drafters(options.method or DEFAULT, options.traces)
        trace = choose(traces, next(iter(chosen.values())), options.dataset, options.question)
        chosen = {name: recall(drafter, traces, trace) for name, drafter in chosen.items()}
        tokenizer = options.tokenizer or (str(EMBEDDED) if trace.model == "embedded" else None)
        page = explorer_page(explore(trace, chosen, decoder(tokenizer)))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(page, encoding="utf-8")
    print(f"written: {options.output} ({len(page) / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
