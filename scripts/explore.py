"""Step through one recorded answer, with the draft tree of each step (make explore TRACES=FILE)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.cli.recordings import EMBEDDED, choose, decoder, recall, replayable
from ngram_trie.config import ConfigError
from ngram_trie.engines.traces import read_traces
from ngram_trie.files import place
from ngram_trie.site.explorer import explore
from ngram_trie.site.render import explorer_page

DEFAULT = ["ngram_trie num_draft=8", "blend num_draft=8"]
MOST = 3
PAGE = place("results/local/explorer.html")


def main(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    method: Annotated[
        list[str], typer.Option(help='of configs/method with fields to change, "blend num_draft=8"; once for each')
    ] = DEFAULT,
    dataset: Annotated[str | None, typer.Option(help="of the question; summarization, if there is any")] = None,
    question: Annotated[str | None, typer.Option(help="id of the question to show")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="folder or hub id; the embedded model's for its answers, else ids are shown")
    ] = None,
    output: Annotated[Path, typer.Option(help="the page")] = PAGE,
) -> None:
    """Write one page that steps through a recorded answer, with up to three drafters side by side.

    Unless a question is named, the one whose accept length under the first drafter is the median of its data set is
    shown.

        python -m scripts.explore TRACES --method "ngram_trie num_draft=8" --method "blend num_draft=8" --question ID
    """
    if len(method) > MOST:
        raise ConfigError(f"--method: {len(method)} methods; at most {MOST} can stand side by side")
    recorded = read_traces(traces)
    drafters = {name: replayable(name, traces) for name in method}
    trace = choose(recorded, drafters[method[0]], dataset, question)
    drafters = {name: recall(drafter, recorded, trace) for name, drafter in drafters.items()}
    own = str(EMBEDDED) if trace.model == "embedded" else None
    page = explorer_page(explore(trace, drafters, decoder(tokenizer or own)))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page, encoding="utf-8")
    print(f"written: {output} ({len(page) / 1e6:.1f} MB)")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
