"""Derive tables and figures again from records (make derive).

  python -m scripts.derive results/local/table1

FOLDER is one run's (records.jsonl and manifest.json), or holds the runs of a sweep, each in a folder of its own (what
the jobs of `python -m scripts.run -m ... hydra/launcher=joblib` leave): they are gathered into one table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ngram_trie.cli.shell import Parser, one_line_errors
from ngram_trie.report import derive as report


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of a run, or of a sweep's runs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    folder = parse(arguments).folder
    with one_line_errors("the records are as they were"):
        print(report.write(folder) if (folder / "records.jsonl").exists() else report.gather(folder))


if __name__ == "__main__":
    main()
