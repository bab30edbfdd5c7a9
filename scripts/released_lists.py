"""The accept lengths that the paper's released code prints, from recorded answers (results/paper/released_code.csv)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.engines.traces import read_traces
from ngram_trie.files import PAPER
from ngram_trie.report.released_lists import released_lists
from ngram_trie.report.run_folder import save_csv


def main(
    traces: Annotated[list[Path], typer.Argument(help="recorded answers to Spec-Bench's summarization and rag")],
    output: Annotated[Path, typer.Option(help="the file to write")] = PAPER / "released_code.csv",
) -> None:
    """Replay the released trie over recorded answers and count as the released code counts.

    The files must together hold all 80 questions of both tasks: the code prints the last question of each.

        python -m scripts.released_lists ODD.jsonl EVEN.jsonl
    """
    frame = released_lists([trace for file in traces for trace in read_traces(file)])
    save_csv(frame.round(4), output)
    print(frame.round(4).to_string(index=False))
    print(f"Written: {output}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
