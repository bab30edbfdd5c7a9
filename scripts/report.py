"""Everything under results/ as one page that stands alone (make report)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ngram_trie.cli.app import run
from ngram_trie.cli.recordings import EMBEDDED, choose, decoder, replayable
from ngram_trie.engines.traces import read_traces
from ngram_trie.files import place
from ngram_trie.site.explorer import explore
from ngram_trie.site.gathered import LOCAL, Results
from ngram_trie.site.render import report_page
from ngram_trie.site.sections import page
from scripts.explore import DEFAULT

RESULTS = place("results")


def explorer_data(results: Results) -> Mapping[str, Any] | None:
    """The explorer of one answer of the embedded model, the median one; None where there is no recorded answer."""
    for folder in results.of("table1", "traces.jsonl"):
        path = folder.path / "traces.jsonl"
        traces = [t for t in read_traces(path) if t.model == "embedded" and t.output_ids]
        if traces:
            chosen = {name: replayable(name, path) for name in DEFAULT}
            trace = choose(traces, chosen[DEFAULT[0]], None, None)
            return explore(trace, chosen, decoder(str(EMBEDDED)))
    return None


def write(results: Results, output: Path) -> str:
    """Write the page; returns a line on what it holds."""
    context = page(results, explorer_data(results))
    text = report_page(context)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in context["counts"].items())
    return f"written: {output} ({len(text.encode()) / 1e6:.1f} MB): {len(results.folders)} folders; claims: {counts}"


def main(
    results: Annotated[Path, typer.Option(help="folder to gather")] = RESULTS,
    local: Annotated[bool, typer.Option("--local", help="also its folder local/, the user's own runs")] = False,
    output: Annotated[Path | None, typer.Option(help="the page; report.html there, or in local/")] = None,
) -> None:
    """Write results/report.html: every table and figure under results/, on one page that needs nothing else.

    With --local the page goes to results/local/report.html. `python -m scripts.derive` derives one run's tables.

        python -m scripts.report --local
    """
    print(write(Results(results, local), output or results / (LOCAL if local else "") / "report.html"))


if __name__ == "__main__":
    run(main, interrupted="the page is as it was")
