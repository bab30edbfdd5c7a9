"""Fit the blend's constants on recorded answers, and show what each of its parts is worth (make fit-blend)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.report.blend_fit import write


def main(
    traces: Annotated[Path, typer.Argument(help="recorded answers, such as traces.jsonl of a live run")],
    output: Annotated[Path, typer.Argument(help="folder for the tables and the manifest")],
) -> None:
    """Fit the blend's constants on recorded answers, and show what each of its parts is worth, by exact replay.

    Writes to OUTPUT fit.csv, ablation.csv, calibration.csv with its figure, and
    manifest.json; docs/blend.md explains them.

        python -m scripts.fit_blend TRACES OUTPUT
    """
    write(traces, output)
    print(f"\nWritten: {output}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
