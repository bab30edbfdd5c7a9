"""Two methods of a run compared: the rows of its versus.csv (docs/protocol.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from ngram_trie.cli.app import run
from ngram_trie.report.derive import VERSUS
from ngram_trie.versus import between


def main(
    folder: Annotated[Path, typer.Argument(help="of a run")],
    a: Annotated[str, typer.Argument(help="a method")],
    b: Annotated[str, typer.Argument(help="the method that it is compared with")],
) -> None:
    """Print the ratio of method A to method B for each measure and data set, with interval and corrected p.

    python -m scripts.versus results/embedded/table1 blend suffix
    """
    path = folder / VERSUS
    if not path.exists():
        raise FileNotFoundError(f"{path}: not there; `make derive OUTPUT={folder}` writes it")
    columns = ["measure", "dataset", "ratio", "low", "high", "p", "p_holm", "significant", "session_min", "session_max"]
    rows = between(pd.read_csv(path), a, b)[[*columns, "num_questions", "num_sessions"]]
    print(rows.sort_values("measure", kind="stable").to_string(index=False, float_format=lambda value: f"{value:.4g}"))


if __name__ == "__main__":
    run(main)
