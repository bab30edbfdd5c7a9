"""How many drafts of the n-gram predictor are accepted (make reproduce-predictor)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.engines.traces import answers
from ngram_trie.report.expected_accept import PRINTED_DRAFT, write


def main(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    output: Annotated[Path, typer.Argument(help="folder for the tables, the figure and the manifest")],
    num_draft: Annotated[int, typer.Option(min=1, help="drafted tokens per step, as in the chapter")] = PRINTED_DRAFT,
) -> None:
    """Replay the predictor over recorded answers and compare the chapter's formula with what was accepted.

    Writes to OUTPUT the tables, positions.csv and acceptance.png (the accepted share at each place of the draft, which
    the formula takes to be constant), and manifest.json.

        python -m scripts.expected_accept TRACES OUTPUT --num-draft 4
    """
    print(write(answers(traces), num_draft, output, traces))
    print(f"Written: {output}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
