"""Everything under results/ as one page that stands alone: make report

  python -m scripts.report [--results FOLDER] [--local] [--output FILE]

Writes results/report.html. With --local the user's own runs below results/local are on it as well, and it goes to
results/local/report.html. (Tables and figures of one run, from its records: python -m scripts.derive.)
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngram_trie.cli.shell import Parser, one_line_errors
from ngram_trie.engines.traces import read_traces
from ngram_trie.files import PROJECT
from ngram_trie.site.explorer import explore
from ngram_trie.site.gathered import LOCAL, Results
from ngram_trie.site.render import report_page
from ngram_trie.site.sections import page
from scripts.case_study import EMBEDDED, choose
from scripts.explore import DEFAULT, decoder, drafters


def explorer_data(results: Results) -> Mapping[str, Any] | None:
    """The explorer of one answer of the embedded model, the median one; None where there is no recorded answer."""
    for folder in results.of("table1", "traces.jsonl"):
        path = folder.path / "traces.jsonl"
        traces = [t for t in read_traces(path) if t.model == "embedded" and t.output_ids]
        if traces:
            chosen = drafters(DEFAULT, path)
            trace = choose(traces, next(iter(chosen.values())), None, None)
            return explore(trace, chosen, decoder(str(EMBEDDED)))
    return None


def write(results: Results, output: Path) -> str:
    """Write the page; returns a line that says what is on it."""
    context = page(results, explorer_data(results))
    text = report_page(context)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in context["counts"].items())
    return f"written: {output} ({len(text.encode()) / 1e6:.1f} MB): {len(results.folders)} folders; claims: {counts}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("--results", type=Path, metavar="FOLDER", default=PROJECT / "results", help="what to gather")
    parser.add_argument("--local", action="store_true", help="also what lies in its folder local/")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page; report.html there, or in local/")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    output = options.output or options.results / (LOCAL if options.local else "") / "report.html"
    with one_line_errors("the page is as it was"):
        print(write(Results(options.results, options.local), output))


if __name__ == "__main__":
    main()
